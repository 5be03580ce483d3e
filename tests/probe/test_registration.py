"""Weights that no optimizer sees are found where they are used; experts without samples are a note."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from initscope.probe import check
from initscope.probe.findings import Finding
from initscope.probe.weights import Stranger
from probe.rows import fact, found, told

DATA = torch.randn(16, 32, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(16) % 10


class Net(nn.Module):
    """Two layers and a head; `parts` are set as attributes."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **parts: Any) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        for name, part in parts.items():
            setattr(self, name, part)
        self.way = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(self.way(self, torch.relu(self.a(x))))))


def findings(kind: str, model: nn.Module, **options: Any) -> list[Finding]:
    report = check(model, DATA, target=LABELS, seeds=1, theory=False, **options)
    return [f for f in report.findings if f.kind == kind]


SIZE = sum(p.numel() for p in Net(lambda net, h: h).parameters())


@pytest.mark.parametrize(
    ("model", "step", "shapes"),
    [
        (Net(lambda net, h: net.more[0](h), more=[nn.Linear(64, 64)]), "linear", [[64, 64], [64]]),
        (Net(lambda net, h: net.more["x"](h), more={"x": nn.LayerNorm(64)}), "layer_norm", [[64], [64]]),
        (Net(lambda net, h: nn.Linear(64, 64)(h)), "linear", [[64, 64], [64]]),
        (Net(lambda net, h: h @ net.w, w=torch.randn(64, 64, requires_grad=True)), "matmul", [[64, 64]]),
        (Net(lambda net, h: h @ net.w.T, w=torch.randn(64, 64, requires_grad=True)), "matmul", [[64, 64]]),
    ],
)  # fmt: skip
def test_unregistered_weights_are_counted_and_named(model: nn.Module, step: str, shapes: list[list[int]]) -> None:
    (finding,) = findings("unregistered", model)
    size = sum(torch.Size(shape).numel() for shape in shapes)
    assert (finding.status, finding.step) == ("warn", step)
    assert sorted(finding.evidence["shapes"]) == sorted(shapes)
    assert (finding.evidence["count"], finding.evidence["weights"]) == (len(shapes), size)
    assert finding.value == pytest.approx(size / (size + SIZE))


def test_layers_made_in_front_of_the_data_are_named_where_they_are_used() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.c = nn.Linear(32, 64), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            layer = nn.Linear(64, 64)
            return self.c(layer(torch.relu(self.a(x))))

    assert [f.step for f in findings("unregistered", Early())] == ["linear"]


def test_half_of_the_weights_is_a_failure() -> None:
    given = {"strangers": [Stranger((10, 10), 100, 1)], "weights": [fact("l0"), fact("l2", used=False)]}
    assert told(found({}, {}, {}, **given))[0] == ("unregistered", "fail", "l1")
    given["weights"] = [fact("l0"), fact("l2")]
    assert told(found({}, {}, {}, **given)) == [("unregistered", "warn", "l1")]


def _energy(net: Any, h: Tensor) -> Tensor:
    place = h.detach().requires_grad_()
    (slope,) = torch.autograd.grad(net.b(place).tanh().sum(), place, create_graph=True)
    return h + slope


def _tied() -> nn.Module:
    net = Net(lambda net, h: net.more(h), more=nn.Linear(64, 64))
    net.more.weight = net.b.weight
    return net


SOUND: dict[str, Callable[[], nn.Module]] = {
    "listed and registered": lambda: _listed(nn.Linear(64, 64)),
    "frozen": lambda: Net(lambda net, h: net.more[0](h), more=[nn.Linear(64, 64).requires_grad_(False)]),
    "tied": _tied,
    "weight norm": lambda: Net(lambda net, h: net.more(h), more=parametrizations.weight_norm(nn.Linear(64, 64))),
    "spectral norm": lambda: Net(lambda net, h: net.more(h), more=parametrizations.spectral_norm(nn.Linear(64, 64))),
    "made by a layer": lambda: Net(lambda net, h: h @ net.more(h).mean(0).view(64, 64), more=nn.Linear(64, 4096)),
    "low rank beside": lambda: Net(
        lambda net, h: F.linear(h, net.b.weight + net.up @ net.down),
        up=nn.Parameter(torch.zeros(64, 4)), down=nn.Parameter(torch.randn(4, 64)),
    ),
    "functional call": lambda: Net(
        lambda net, h: torch.func.functional_call(net.b, {"weight": 2 * net.b.weight, "bias": net.b.bias}, (h,))
    ),
    "gradient by the data": lambda: Net(_energy),
    "shift of the data": lambda: Net(lambda net, h: h + torch.zeros_like(h, requires_grad=True)),
    "noise for each sample": lambda: Net(lambda net, h: h + torch.zeros(len(h), 64, requires_grad=True)),
}  # fmt: skip


def _listed(layer: nn.Module) -> nn.Module:
    return Net(lambda net, h: net.more[0](h), more=[layer], same=layer)


@pytest.mark.parametrize("name", SOUND)
def test_registered_weights_raise_no_alarm(name: str) -> None:
    assert not findings("unregistered", SOUND[name]())


def test_the_weights_of_a_loss_are_its_own() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centers = nn.Parameter(torch.randn(10, 10))

        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            return F.cross_entropy(output @ self.centers, target)

    assert not findings("unregistered", Net(lambda net, h: h), loss=Loss())


class Experts(nn.Module):
    """Samples are sent to two of four experts; `way` is how."""

    def __init__(self, way: Callable[[Experts, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.gate, self.c = nn.Linear(32, 64), nn.Linear(64, 4), nn.Linear(64, 10)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4))
        self.way = way
        with torch.no_grad():
            self.gate.bias[1:3] += 30

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.way(self, torch.relu(self.a(x))))


def _by_rows(net: Experts, h: Tensor) -> Tensor:
    weight, choice = net.gate(h).softmax(-1).topk(2)
    out = torch.zeros_like(h)
    for number, expert in enumerate(net.experts):
        rows, place = (choice == number).nonzero(as_tuple=True)
        if len(rows):
            out = out.index_add(0, rows, expert(h[rows]) * weight[rows, place, None])
    return out


def _by_mask(net: Experts, h: Tensor) -> Tensor:
    scores = net.gate(h).softmax(-1)
    out = torch.zeros_like(h)
    for number, expert in enumerate(net.experts):
        mask = scores.argmax(-1) == number
        if mask.any():
            out[mask] = expert(h[mask]) * scores[mask][:, number, None]
    return out


def _one_for_all(net: Experts, h: Tensor) -> Tensor:
    scores = net.gate(h).softmax(-1)
    best = int(scores.mean(0).argmax())
    return net.experts[best](h) * scores[:, best, None]


@pytest.mark.parametrize("way", [_by_rows, _by_mask, _one_for_all])
def test_an_expert_without_samples_is_a_note(way: Callable[[Experts, Tensor], Tensor]) -> None:
    (finding,) = findings("unused", Experts(way))
    assert finding.status == "note"
    assert finding.evidence["routed"]
    assert {name.split(".")[1] for name in finding.evidence["parameters"]} <= {"0", "1", "2", "3"}


def _chained(net: Experts, h: Tensor) -> Tensor:
    h = h + net.gate(h).softmax(-1).topk(1).values
    for expert in net.experts[:-1]:
        h = h + expert(h)
    return h


def _choice_behind(net: Experts, h: Tensor) -> Tensor:
    h = net.experts[0](h) + net.experts[1](h) + net.experts[2](h)
    return h * (1 + net.gate(h).argmax(-1, keepdim=True))


def _no_choice(net: Experts, h: Tensor) -> Tensor:
    return net.experts[0](h) + net.experts[1](h) * net.gate(h).mean(-1, keepdim=True)


@pytest.mark.parametrize("way", [_chained, _choice_behind, _no_choice])
def test_a_forgotten_layer_is_a_warning(way: Callable[[Experts, Tensor], Tensor]) -> None:
    (finding,) = [f for f in findings("unused", Experts(way)) if f.step != "gate"]
    assert finding.status == "warn"
    assert "routed" not in finding.evidence
