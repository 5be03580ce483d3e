"""Weights are found however the forward pass multiplies by them, and redrawn there; code to paste does the same."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from initscope.probe import check, fix, prescribe
from initscope.probe.batches import as_batch
from initscope.probe.remedies.places import Plan, plan_of
from initscope.probe.remedies.remedy import Conditions
from initscope.probe.remedies.rescaled import branch_ends

SIZE, DEPTH = 24, 6
Product = Callable[[Tensor, Tensor], Tensor]
HEADS = (4, SIZE // 4)

# How people multiply by a weight: its shape, the product, and which axes of the parameter a unit sums over.
PRODUCTS: dict[str, tuple[tuple[int, ...], Product, tuple[int, ...]]] = {
    "x @ w": ((SIZE, SIZE), lambda x, w: x @ w, (0,)),
    "x @ w.T": ((SIZE, SIZE), lambda x, w: x @ w.T, (1,)),
    "x @ w.t()": ((SIZE, SIZE), lambda x, w: torch.mm(x, w.t()), (1,)),
    "w @ x": ((SIZE, SIZE), lambda x, w: (w @ x.T).T, (1,)),
    "F.linear": ((SIZE, SIZE), F.linear, (1,)),
    "F.linear of a transposed weight": ((SIZE, SIZE), lambda x, w: F.linear(x, w.T), (0,)),
    "einsum": ((SIZE, SIZE), lambda x, w: torch.einsum("bi,oi->bo", x, w), (1,)),
    "einsum, weight first": ((SIZE, SIZE), lambda x, w: torch.einsum("io, ...i -> ...o", w, x), (0,)),
    "einsum into heads": ((SIZE, *HEADS), lambda x, w: torch.einsum("bd,dhk->bhk", x, w).flatten(1), (0,)),
    "einsum out of heads": (
        (*HEADS, SIZE),
        lambda x, w: torch.einsum("bhk,hkd->bd", x.reshape(-1, *HEADS), w),
        (0, 1),
    ),
    "einsum of experts": (
        (HEADS[0], HEADS[1], HEADS[1]),
        lambda x, w: torch.einsum("bhk,hkl->bhl", x.reshape(-1, *HEADS), w).flatten(1),
        (1,),
    ),
    "bmm": (
        (HEADS[0], HEADS[1], HEADS[1]),
        lambda x, w: torch.bmm(x.reshape(-1, *HEADS).transpose(0, 1), w).transpose(0, 1).flatten(1),
        (1,),
    ),
    "parts of one matrix": (
        (2 * SIZE, SIZE),
        lambda x, w: F.linear(x, w[:SIZE]) + F.linear(x, w.chunk(2)[1]),
        (1,),
    ),
}


class Written(nn.Module):
    def __init__(self, shape: tuple[int, ...], product: Product, std: float = 0.01) -> None:
        super().__init__()
        self.product = product
        self.weights = nn.ParameterList([nn.Parameter(std * torch.randn(shape)) for _ in range(DEPTH)])
        self.shifts = nn.ParameterList([nn.Parameter(torch.full((SIZE,), -0.1)) for _ in range(DEPTH)])

    def forward(self, x: Tensor) -> Tensor:
        for w, b in zip(self.weights, self.shifts, strict=True):
            x = torch.relu(self.product(x, w) + b)
        return x


def _plan(model: nn.Module, x: Tensor) -> Plan:
    return plan_of(model, as_batch(x, model, None), Conditions())


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_way_to_multiply_is_redrawn(name: str) -> None:
    shape, product, inputs = PRODUCTS[name]
    torch.manual_seed(0)
    model = Written(shape, product)
    plan = _plan(model, _x(32, SIZE))
    assert not plan.stays
    fan_in = math.prod(shape[d] for d in inputs)
    assert {site.fans.fan_in for site in plan.sites} == {fan_in}
    fixed = fix(model, _x(32, SIZE), seeds=1, remedy="he-fan-in")
    assert (fixed.before.verdict, fixed.after.verdict) == ("fail", "healthy")
    gain = 1.0 if name == "parts of one matrix" else 2.0  # they meet in a sum, not in a ReLU
    weights = torch.stack([w.detach() for w in fixed.model.weights])
    error = math.sqrt(2 / weights.numel())
    assert float(weights.var()) * fan_in / gain == pytest.approx(1, abs=5 * error)
    if name != "parts of one matrix":
        assert all(not bool(b.any()) for b in fixed.model.shifts)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("law", ["he-fan-in", "he-fan-out", "he-geometric", "orthogonal", "zero-sum"])
def test_code_to_paste_repairs_bare_parameters(name: str, law: str) -> None:
    shape, product, inputs = PRODUCTS[name]
    torch.manual_seed(0)
    model = Written(shape, product)
    x = _x(32, SIZE)
    found = {r.name: r for r in prescribe(model, x)}
    if not found[law].code:
        assert law in ("orthogonal", "zero-sum")  # of stacks and parts
        return
    pasted = copy.deepcopy(model)
    exec(found[law].code, {"model": pasted, "nn": nn, "torch": torch})  # what the page offers to paste
    assert check(pasted, x, seeds=1).verdict == "healthy"
    if law == "zero-sum":
        sums = [float(w.detach().sum(inputs).abs().max()) for w in pasted.weights]
        assert max(sums) < 1e-4


class _Kept(nn.Module):
    """One layer stays zero on purpose, so that a loop over all dense layers would do too much."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(SIZE, SIZE), nn.ReLU())))
        self.extra = nn.Linear(SIZE, SIZE)
        nn.init.zeros_(self.extra.weight)
        for m in self.body[::2]:
            nn.init.normal_(m.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out + self.extra(out)


def test_code_to_paste_leaves_alone_what_fix_leaves_alone() -> None:
    torch.manual_seed(0)
    model = _Kept()
    code = next(r.code for r in prescribe(model, _x(32, SIZE)) if r.name == "he-fan-in")
    exec(code, {"model": model, "nn": nn, "torch": torch})
    assert not bool(model.extra.weight.any())
    assert float(model.body[0].weight.detach().std()) > 0.1


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "wrap", [parametrizations.weight_norm, parametrizations.spectral_norm, weight_norm, spectral_norm]
)
def test_weights_that_a_norm_computes_are_assigned_through_it(wrap: Callable[[nn.Module], nn.Module]) -> None:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(10):
        layer = nn.Linear(SIZE, SIZE)
        nn.init.normal_(layer.weight, std=0.01)
        layers += [wrap(layer), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(SIZE, 4))
    x = _x(32, SIZE)
    assert not _plan(model, x).stays
    fixed = fix(model, x, seeds=1)
    assert fixed.before.verdict != "healthy"
    assert fixed.after.verdict == "healthy"
    assert fixed.note == ""


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
def test_where_nothing_can_be_changed_nothing_was_tried() -> None:
    model = nn.Sequential(*(m for _ in range(12) for m in (nn.Linear(SIZE, SIZE), nn.ReLU())))
    scripted: Any = torch.jit.script(model)  # type: ignore[no-untyped-call]
    told = fix(scripted, _x(16, SIZE), seeds=1)
    assert told.before.verdict != "healthy"
    assert told.message.startswith("nothing was tried: ")


class _Loop(nn.Module):
    """A recurrent network as a loop over time; `ahead`: the inputs are multiplied before it."""

    def __init__(self, ahead: bool) -> None:
        super().__init__()
        self.ahead = ahead
        self.enter, self.recur, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), 16)
        entered = self.enter(x) if self.ahead else None
        for t in range(x.shape[1]):
            own = self.enter(x[:, t]) if entered is None else entered[:, t]
            state = torch.tanh(own + self.recur(state))
        out: Tensor = self.head(state)
        return out


class _Shared(nn.Module):
    """The same residual layer again and again, as ALBERT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(5):
            x = x + torch.relu(self.layer(x))
        return x


@pytest.mark.parametrize("ahead", [False, True])
def test_a_loop_over_time_has_no_residual_branches(ahead: bool) -> None:
    assert branch_ends(_plan(_Loop(ahead), _x(8, 6, 8))) == []


def test_layers_that_are_shared_are_residual_branches() -> None:
    assert branch_ends(_plan(_Shared(), _x(8, 16))) == [("layer.weight", "layer.bias")] * 5


class _Positions(nn.Module):
    def __init__(self, std: float) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(32, 16), nn.Embedding(12, 16)
        nn.init.normal_(self.places.weight, std=std)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 32)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        out: Tensor = self.head(self.norm(self.layer(x)))
        return out


def test_positions_that_are_looked_up_are_scaled() -> None:
    torch.manual_seed(0)
    model = _Positions(100.0)
    ids = torch.randint(32, (16, 12))
    fixed = fix(model, (ids, ids), seeds=1)
    assert fixed.applied[0].name == "scale-embedding"
    assert float(fixed.model.places.weight.detach().square().mean().sqrt()) == pytest.approx(1.0)
    assert fixed.after.verdict == "healthy"
