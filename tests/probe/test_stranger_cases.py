"""Models as people write them: loops over time, losses that are cut off, zero tables, closed gates, norms of norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.probe import Report, check, fix
from initscope.report.finding_words import advice_text

INPUTS, CLASSES, N = 32, 10, 32


def _mlp(*last: nn.Module, outputs: int = CLASSES) -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Linear(INPUTS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))
    return nn.Sequential(*layers, *last)


def _x(*shape: int) -> Tensor:
    return torch.randn(*(shape or (N, INPUTS)), generator=torch.Generator().manual_seed(1))


def _labels(classes: int = CLASSES) -> Tensor:
    return torch.arange(N) % classes


def _check(model: nn.Module, x: Tensor | tuple[Any, ...], **options: Any) -> Report:
    return check(model, x, seeds=1, theory=False, **options)


def _told(report: Report) -> list[tuple[str, str, str | None]]:
    return [(f.kind, f.status, f.step) for f in report.findings]


CUT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "argmax": lambda o, t: (o.argmax(1).float() - t).pow(2).mean(),
    "argmax, told to have a gradient": lambda o, t: (o.argmax(1).float() - t).pow(2).mean().requires_grad_(),
    "item": lambda o, t: torch.tensor(F.cross_entropy(o, t).item(), requires_grad=True),
    "detach": lambda o, t: F.cross_entropy(o.detach(), t).requires_grad_(),
}


@pytest.mark.parametrize("name", CUT)
def test_a_loss_that_is_cut_off_fails(name: str) -> None:
    report = _check(_mlp(), _x(), target=_labels(), loss=CUT[name])
    assert _told(report) == [("no-gradient", "fail", "loss")]
    assert report.score <= 0.2


ENTROPY: list[Any] = [nn.CrossEntropyLoss(), F.cross_entropy, lambda o, t: F.cross_entropy(o.view(N, -1), t)]


@pytest.mark.parametrize("loss", ENTROPY)
def test_cross_entropy_is_known_however_it_is_passed(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    for last in (nn.Softmax(1), nn.Sigmoid(), nn.ReLU(), nn.Tanh()):
        report = _check(_mlp(last), _x(), target=_labels(), loss=loss)
        assert ("output-activation", "warn", "5") in _told(report)
    for sound in (_mlp(), _mlp(nn.LogSoftmax(1)), _mlp(nn.LayerNorm(CLASSES))):
        assert _told(_check(sound, _x(), target=_labels(), loss=loss)) == []


def test_negative_log_likelihood_takes_logarithms_of_probabilities() -> None:
    raw = _check(_mlp(), _x(), target=_labels(), loss=nn.NLLLoss())
    assert _told(raw) == [("output-activation", "fail", "4")]
    assert _told(_check(_mlp(nn.LogSoftmax(1)), _x(), target=_labels(), loss=F.nll_loss)) == []


def test_two_classes() -> None:
    wanted = (_x()[:, :1] > 0).float()
    twice = _check(_mlp(nn.Sigmoid(), outputs=1), _x(), target=wanted, loss=nn.BCEWithLogitsLoss())
    assert _told(twice) == [("output-activation", "warn", "5")]
    assert _told(_check(_mlp(nn.Sigmoid(), outputs=1), _x(), target=wanted, loss=nn.BCELoss())) == []
    assert _told(_check(_mlp(outputs=1), _x(), target=wanted, loss=nn.BCEWithLogitsLoss())) == []


@pytest.mark.parametrize(("size", "expected"), [(20.0, None), (100.0, "warn"), (2e5, "fail")])
@pytest.mark.parametrize("loss", [None, F.mse_loss, nn.L1Loss()])
def test_large_targets(size: float, expected: str | None, loss: Any) -> None:
    told = _told(_check(_mlp(outputs=1), _x(), target=size * _x()[:, :1], loss=loss))
    assert told == ([] if expected is None else [("target-scale", expected, None)])


class Loop(nn.Module):
    """A cell in a loop over time; `embed`: behind a layer that sees all steps at once."""

    def __init__(self, cell: type[nn.RNNCellBase], embed: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 8) if embed else nn.Identity()
        self.cell, self.head = cell(8, 32), nn.Linear(32, 5)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        state: Any = None
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        out: Tensor = self.head(state[0] if isinstance(state, tuple) else state)
        return out


class Written(nn.Module):
    """A GRU that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.keep, self.reset, self.new = (nn.Linear(40, 32) for _ in range(3))
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 32)
        for t in range(x.shape[1]):
            both = torch.cat([x[:, t], h], 1)
            z, r = torch.sigmoid(self.keep(both)), torch.sigmoid(self.reset(both))
            h = (1 - z) * torch.tanh(self.new(torch.cat([x[:, t], r * h], 1))) + z * h
        out: Tensor = self.head(h)
        return out


@pytest.mark.parametrize("steps", [12, 48])
@pytest.mark.parametrize("embed", [False, True])
@pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_a_loop_over_time_is_judged_like_the_module(cell: type[nn.RNNCellBase], embed: bool, steps: int) -> None:
    """Gradients fade over time steps, but the weights get theirs from the last ones, as in `nn.LSTM`."""
    torch.manual_seed(0)
    report = _check(Loop(cell, embed), _x(N, steps, 8), target=_labels(5))
    assert (report.verdict, _told(report)) == ("healthy", [])


def test_a_gru_that_is_written_out() -> None:
    torch.manual_seed(0)
    assert _told(_check(Written(), _x(N, 24, 8), target=_labels(5))) == []


class Deep(nn.Module):
    """One layer again and again behind a stem, without anything new coming in: here depth counts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layer, self.head = nn.Linear(INPUTS, 64), nn.Linear(64, 64), nn.Linear(64, CLASSES)
        nn.init.normal_(self.layer.weight, std=0.03)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(20):
            x = torch.tanh(self.layer(x))
        out: Tensor = self.head(x)
        return out


def test_a_stem_that_gets_no_gradient_through_shared_layers_fails() -> None:
    torch.manual_seed(0)
    assert _check(Deep(), _x(), target=_labels()).verdict == "fail"


class Pairs(nn.Module):
    """Words and contexts, whose table starts at zero as in word2vec."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.contexts = nn.Embedding(50, 16), nn.Embedding(50, 16)
        nn.init.uniform_(self.words.weight, -0.5 / 16, 0.5 / 16)
        nn.init.zeros_(self.contexts.weight)

    def forward(self, words: Tensor, contexts: Tensor) -> Tensor:
        return (self.words(words)[:, None] * self.contexts(contexts)).sum(-1)


def test_a_product_with_a_table_of_zeros_is_a_choice() -> None:
    torch.manual_seed(0)
    words, contexts = torch.randint(50, (N,)), torch.randint(50, (N, 6))
    target = torch.randint(2, (N, 6)).float()
    report = _check(Pairs(), (words, contexts), target=target, loss=F.binary_cross_entropy_with_logits)
    assert (report.verdict, _told(report)) == ("healthy", [("zero-weights", "note", "mul")])
    assert report.findings[0].evidence["parameters"] == ["contexts.weight"]


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def test_a_tiny_embedding_is_named_for_what_its_bias_does() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 32), Mean(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    nn.init.normal_(model[0].weight, std=1e-8)
    report = _check(model, torch.randint(50, (N, 12)), target=_labels())
    assert _told(report) == [("activation-scale", "warn", "0")]


class Lengths(nn.Module):
    """Capsules: what counts is their length."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(INPUTS, CLASSES * 8), factor

    def forward(self, x: Tensor) -> Tensor:
        parts = self.factor * self.layer(x).view(-1, CLASSES, 8)
        return (parts**2).sum(-1).add(1e-12).sqrt()


def test_a_square_under_a_root_has_no_size_of_its_own() -> None:
    torch.manual_seed(0)
    assert "activation-scale" not in [f.kind for f in _check(Lengths(0.01), _x(), target=_labels()).findings]
    assert "activation-scale" in [f.kind for f in _check(Lengths(1e-5), _x(), target=_labels()).findings]


@pytest.mark.parametrize("zeros", [(0, 2, 4), (0, 2), (2,)])
def test_all_layers_of_zeros_are_drawn_but_a_zero_head(zeros: tuple[int, ...]) -> None:
    model = _mlp()
    for i in zeros:
        for parameter in model[i].parameters():
            nn.init.zeros_(parameter)
    fixed = fix(model, (_x(), _labels()), seeds=1)
    assert (fixed.before.verdict, fixed.after.verdict) == ("fail", "healthy")
    assert all(bool(fixed.model[i].weight.any()) for i in (0, 2))


class Gated(nn.Module):
    def __init__(self, bias: float, factor: float = 1.0) -> None:
        super().__init__()
        self.memory, self.head = nn.LSTM(8, 32, batch_first=True), nn.Linear(32, 5)
        with torch.no_grad():
            self.memory.bias_ih_l0[96:] += bias
            for p in self.memory.parameters():
                p.mul_(factor)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.memory(x)[0][:, -1])
        return out


def test_a_closed_gate_fails_and_small_weights_are_a_warning() -> None:
    torch.manual_seed(0)
    batch = (_x(N, 12, 8), _labels(5))
    assert check(Gated(-20.0), batch, seeds=1).verdict == "fail"
    assert check(Gated(0.0, 1e-4), batch, seeds=1).verdict == "warn"
    fixed = fix(Gated(-20.0), batch, seeds=1)
    assert fixed.after.verdict == "healthy"
    assert not bool(fixed.model.memory.bias_ih_l0.any())


def test_a_normalization_over_single_values_fails_and_no_weights_help() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(INPUTS, 64), nn.GroupNorm(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    fixed = fix(model, (_x(), _labels()), seeds=1)
    assert fixed.before.verdict == "fail"
    assert fixed.before.first_bad_layer == "1"
    assert "single value" in advice_text(fixed.before.findings[0])
    assert not fixed.applied
    small = nn.Sequential(nn.Linear(INPUTS, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, CLASSES))
    nn.init.constant_(small[1].weight, 1e-5)
    assert _check(small, _x(), target=_labels()).verdict == "warn"


def test_a_remedy_that_still_fails_is_not_applied() -> None:
    """No weights undo a division by 1e12."""

    class Divided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _mlp()

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.body:
                x = layer(x) / 1e12
            return x

    fixed = fix(Divided(), (_x(), _labels()), seeds=1)
    assert fixed.before.verdict == "fail"
    assert not fixed.applied or fixed.after.verdict != "fail"


def test_a_stack_of_linear_layers_is_noted() -> None:
    model = nn.Sequential(nn.Linear(INPUTS, 64), nn.Linear(64, 64), nn.Linear(64, 1))
    report = _check(model, _x(), target=_x()[:, :1])
    assert (report.verdict, _told(report)) == ("healthy", [("no-nonlinearity", "note", None)])
    assert _told(_check(nn.Linear(INPUTS, 1), _x(), target=_x()[:, :1])) == []


def test_an_exploding_gradient_is_no_pole() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.recur, self.head = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 5)
            nn.init.normal_(self.recur.weight, std=3 / 32**0.5)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.zeros(len(x), 32)
            for t in range(x.shape[1]):
                h = torch.relu(self.enter(x[:, t]) + self.recur(h))
            out: Tensor = self.head(h)
            return out

    torch.manual_seed(0)
    report = _check(Recurrent(), _x(N, 40, 8), target=_labels(5))
    assert report.verdict == "fail"
    assert report.findings[0].kind in ("activation-scale", "gradient-scale")
    assert (report.first_bad_layer or "").startswith(("recur", "add"))


@pytest.mark.parametrize("factor", [0.0, float("inf"), float("nan")])
def test_a_division_that_has_no_theory_is_measured_all_the_same(factor: float) -> None:
    class Divided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.layer(x) / factor)

    assert check(Divided(), _x(8, 8), seeds=1).verdict == "fail"
