"""Outputs that depend on other samples: found where samples are lost, and silent where they are meant to meet."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.probe import check
from initscope.probe.axes import doubtful, moved_axis
from initscope.probe.batches import as_batch
from initscope.probe.findings import Finding
from initscope.probe.mixing import MixingFacts, mixing_of
from probe.rows import found, told

WIDTH, CLASSES = 48, 10


class Net(nn.Module):
    """Dense layers with something between, and something behind them."""

    def __init__(self, middle: Callable[[Tensor], Tensor], end: Callable[[Tensor], Tensor] = lambda h: h) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(20, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.middle, self.end = middle, end

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.c(torch.relu(self.b(self.middle(torch.relu(self.a(x)))))))


def data(samples: int, *shape: int) -> Tensor:
    return torch.randn(samples, *(shape or (20,)), generator=torch.Generator().manual_seed(1))


def facts(model: nn.Module, x: Tensor, target: Tensor | None = None) -> MixingFacts | None:
    return mixing_of(model, as_batch(x, model, target), 0)


def mixed(model: nn.Module, x: Tensor, target: Tensor | None = None) -> list[Finding]:
    report = check(model, x, target=target, seeds=1, theory=False)
    return [f for f in report.findings if f.kind == "samples-mixed"]


def dependence(model: nn.Module, x: Tensor) -> Tensor:
    """Brute force: which outputs (rows) depend on which samples (columns), by the Jacobian."""
    jacobian = torch.func.jacrev(model)(x)
    return jacobian.abs().sum((1, 3)) > 0


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed, reshaped": lambda h: h.T.reshape(h.shape),
    "viewed, transposed": lambda h: h.view(h.shape[1], -1).T,
    "flattened wrongly": lambda h: h.T.flatten().view(h.shape),
    "across three axes": lambda h: h.view(len(h), 6, 8).permute(1, 0, 2).reshape(len(h), -1),
    "with an activation in between": lambda h: torch.tanh(h.T.reshape(h.shape)),
    "beside a shortcut": lambda h: h + h.T.reshape(h.shape),
}


@pytest.mark.parametrize("samples", [12, 16, 48, 50, 96])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_lays_samples_across_each_other_fails(name: str, samples: int) -> None:
    torch.manual_seed(0)
    model = Net(VIEWS[name])
    got = facts(model, data(samples))
    assert got is not None
    if name == "beside a shortcut" and samples == WIDTH:
        assert got.cause == "other"  # h + h.T of a square matrix, which may be one of samples against samples
        return
    assert got.cause == "view"
    assert got.step in {"T", "reshape", "view", "permute", "flatten"}


def test_the_share_is_that_of_the_jacobian() -> None:
    torch.manual_seed(0)
    model, x = Net(VIEWS["transposed, reshaped"]), data(16)
    got = facts(model, x)
    reached = dependence(model, x)[:, 16 // 3]
    assert got is not None
    assert got.share == pytest.approx((int(reached.sum()) - int(reached[16 // 3])) / 15)


@pytest.mark.parametrize("order", [lambda h: h.flip(0), lambda h: h.roll(3, 0), lambda h: h[torch.randperm(len(h))]])
def test_rows_in_another_order_fail_where_they_are_moved(order: Callable[[Tensor], Tensor]) -> None:
    for model in (Net(order), Net(lambda h: h, order)):
        (finding,) = mixed(model, data(12))
        assert finding.status == "fail"
        assert finding.evidence["cause"] == "order"
        assert finding.step == finding.evidence["op"] in {"flip", "roll", "getitem"}
        assert not finding.evidence["own"]


def test_a_shuffle_that_keeps_one_sample_is_found_by_another() -> None:
    order = torch.arange(12)
    order[[7, 8]] = order[[8, 7]]  # the first sample that is replaced stays where it was
    got = facts(Net(lambda h: h[order]), data(12))
    assert got is not None
    assert got.cause == "order"


class Recurrent(nn.Module):
    def __init__(
        self, read: Callable[[Tensor], Tensor], make: type[nn.RNNBase] = nn.LSTM, batch_first: bool = False
    ) -> None:
        super().__init__()
        self.rnn, self.head = make(8, 16, batch_first=batch_first), nn.Linear(16, CLASSES)
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.read(self.rnn(x)[0]))


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("length", [5, CLASSES])
def test_a_recurrent_module_that_takes_samples_for_time(make: type[nn.RNNBase], length: int) -> None:
    x, y = data(12, length, 8), torch.arange(12) % CLASSES
    (finding,) = mixed(Recurrent(lambda out: out[:, -1], make), x, y)
    assert (finding.status, finding.step, finding.evidence["cause"]) == ("fail", "rnn", "sequence")
    assert finding.value == pytest.approx(7 / 11)  # those behind it
    assert not mixed(Recurrent(lambda out: out[:, -1], make, batch_first=True), x, y)


def test_the_first_axis_may_be_time() -> None:
    x = data(12, 5, 8)
    model = Recurrent(lambda out: out[-1])
    assert not mixed(model, x)
    report = check(model, x, target=torch.arange(5), seeds=1, theory=False)
    assert not [f for f in report.findings if f.kind == "samples-mixed"]
    assert any("as many as the second axis of the inputs (12, 5, 8)" in note.detail for note in report.notes)
    whole = Recurrent(lambda out: out)
    steps = torch.arange(60).view(12, 5) % CLASSES
    assert [f.status for f in mixed(whole, x, steps)] == ["note"]


def test_one_row_for_each_sample_is_one_time_step_for_each_sample() -> None:
    (finding,) = mixed(Recurrent(lambda out: out), data(12, 8), torch.arange(12) % CLASSES)
    assert (finding.status, finding.evidence["cause"]) == ("warn", "sequence")


def test_a_last_state_that_has_a_row_for_each_time_step() -> None:
    class Last(Recurrent):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[1][-1])

    model = Last(lambda out: out, nn.GRU)
    assert [f.status for f in mixed(model, data(12, 5, 8), torch.arange(12) % CLASSES)] == ["fail"]
    assert not mixed(model, data(12, 5, 8), torch.arange(5))


def test_attention_along_the_samples() -> None:
    class Attends(nn.Module):
        def __init__(self, batch_first: bool) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.head = nn.Linear(16, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder(x)[:, 0])

    fast = torch.backends.mha.get_fastpath_enabled()
    (finding,) = mixed(Attends(False), data(12, 5, 16))
    assert finding.status == "fail"
    assert finding.step == "encoder.layers.0.self_attn:multi_head_attention_forward"
    assert not mixed(Attends(True), data(12, 5, 16))
    assert torch.backends.mha.get_fastpath_enabled() == fast


ADJACENCY = (torch.rand(12, 12, generator=torch.Generator().manual_seed(3)) < 0.3).float()
EDGES = torch.randint(12, (2, 30), generator=torch.Generator().manual_seed(4))
ON_PURPOSE: dict[str, Callable[[Tensor], Tensor]] = {
    "graph by a matrix": lambda h: ADJACENCY @ h,
    "graph by edges": lambda h: torch.zeros_like(h).index_add(0, EDGES[1], h[EDGES[0]]),
    "centered": lambda h: h - h.mean(0),
    "softmax over samples": lambda h: h * h.softmax(0),
    "attention written out": lambda h: (h @ h.T).softmax(-1) @ h,
    "pairs": lambda h: (h[:, None] - h[None]).relu().mean(1),
    "pairs by repeating": lambda h: (h.repeat(12, 1).view(12, 12, -1) - h[:, None]).relu().mean(1),
    "groups": lambda h: h - h.view(3, 4, -1).mean(0).repeat(3, 1),
    "mixup": lambda h: 0.7 * h + 0.3 * h.flip(0),
}


@pytest.mark.parametrize("name", ON_PURPOSE)
def test_samples_that_meet_on_purpose_are_a_note(name: str) -> None:
    torch.manual_seed(0)
    model, x = Net(ON_PURPOSE[name]), data(12)
    assert dependence(model, x).sum() > 12  # they do meet
    assert all(f.status == "note" for f in mixed(model, x))
    got = facts(model, x)
    assert got is not None
    assert got.cause == "other"


def _windows(h: Tensor) -> Tensor:
    parts = h.view(12, 2, 3, 2, 4).permute(0, 1, 3, 2, 4).reshape(48, 12)
    return torch.tanh(parts).view(12, 2, 2, 3, 4).permute(0, 1, 3, 2, 4).reshape(12, WIDTH)


APART: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed and back": lambda h: torch.tanh(h.T).T,
    "windows": _windows,
    "time first": lambda h: torch.tanh(h.view(12, 6, 8).transpose(0, 1).reshape(72, 8)).view(6, 12, 8).transpose(0, 1).flatten(1),
    "a filter for each sample": lambda h: F.conv1d(
        h.reshape(1, 12, -1), torch.cat([h[:, None, :2], h.new_ones(12, 1, 1)], 2), padding=1, groups=12
    ).view_as(h),
    "sorted and back": lambda h: h[(order := h[:, 0].argsort())][order.argsort()],
    "batch norm": lambda h: F.batch_norm(h, None, None, training=True),
    "blocks of a mask": lambda h: h + torch.eye(12) @ h,
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_samples_that_stay_apart_are_not_mentioned(name: str) -> None:
    torch.manual_seed(0)
    assert facts(Net(APART[name]), data(12)) is None
    assert not mixed(Net(APART[name]), data(12))


def test_contrastive_outputs_are_pairs() -> None:
    assert facts(Net(lambda h: h, lambda z: z @ z.T), data(12)) is None
    scrambled = facts(Net(VIEWS["transposed, reshaped"]), data(CLASSES))  # as many classes as samples
    assert scrambled is not None
    assert scrambled.cause == "view"


def test_a_dense_layer_over_samples_is_meant_if_it_is_turned_back() -> None:
    over = nn.Linear(WIDTH, WIDTH)
    turned, lost = facts(Net(lambda h: over(h.T).T), data(WIDTH)), facts(Net(lambda h: over(h.T)), data(WIDTH))
    assert turned is not None
    assert lost is not None
    assert (turned.cause, lost.cause) == ("other", "view")


def test_nothing_is_said_where_nothing_can_be_told() -> None:
    assert facts(Net(VIEWS["viewed, transposed"]), data(1).expand(12, -1).clone()) is None

    class Trains(Net):
        def forward(self, x: Tensor) -> Tensor:
            if not self.training:
                raise RuntimeError("not now")
            return super().forward(x)

    assert facts(Trains(lambda h: h.flip(0)), data(12)) is None


def test_what_is_made_of_the_facts() -> None:
    for cause, more, status in (
        ("view", {}, "fail"),
        ("order", {}, "fail"),
        ("sequence", {}, "fail"),
        ("sequence", {"sure": False}, "note"),
        ("sequence", {"sure": False, "alone": True}, "warn"),
        ("other", {}, "note"),
        ("other", {"own": False}, "fail"),
    ):
        given = MixingFacts(cause, "l1", "add", 1.0, **more)  # type: ignore[arg-type]
        assert told(found({}, {}, {}, mixing=given)) == [("samples-mixed", status, "l1")]
    graph = MixingFacts("other", "l1", "matmul", 1.0, own=False)
    assert told(found({}, {}, {}, mixing=graph)) == [("samples-mixed", "note", "l1")]


def test_only_calls_that_may_mix_are_looked_at() -> None:
    assert moved_axis("squeeze", (None,), (1, 8, 1), 1) == 0
    assert moved_axis("squeeze", (None, -1), (8, 1), 0) == 0
    assert moved_axis("squeeze", (None, 0), (1, 8), 0) is None
    plain = [
        ("linear", (None,), (8, 3), 0), ("conv2d", (None,), (8, 3, 4, 4), 0), ("getitem", (None, slice(2)), (8, 3), 0),
        ("getitem", (None, (slice(None), [1])), (8, 3), 0), ("flip", (None, (1,)), (8, 3), 0),
        ("roll", (None, 1, 1), (8, 3), 0), ("softmax", (None, -1), (8, 3), 0), ("max", (None, None), (8,), None),
    ]  # fmt: skip
    assert not any(doubtful(name, args, {}, shape, axis, axis) for name, args, shape, axis in plain)
    odd = [
        ("linear", (None,), (3, 8), 1), ("conv1d", (None,), (8, 30), 0), ("getitem", (None, [1, 0]), (2, 3), 0),
        ("flip", (None, 0), (8, 3), 0), ("roll", (None, 1, 0), (8, 3), 0), ("softmax", (None, 0), (8, 3), 0),
        ("mean", (None,), (8, 3), 0),
    ]  # fmt: skip
    assert all(doubtful(name, args, {}, shape, axis, axis) for name, args, shape, axis in odd)
    assert doubtful("sum", (None,), {"dim": (0, 2)}, (8, 3, 4), 0, None)
