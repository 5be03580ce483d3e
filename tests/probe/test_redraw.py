"""Other draws of the weights keep what was chosen; weights of zero wake up; units that repeat each other are counted."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from initscope.probe import check
from initscope.probe.redraw import NUDGE, Redraw, awakened
from initscope.probe.weights import repeated_rows
from probe.models import he, mlp, noise


def drawn(model: nn.Module, seed: int = 1) -> nn.Module:
    return Redraw(model).draw(seed)


def test_a_modules_own_law_draws_again() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    redraw = Redraw(model)
    one, same, other = redraw.draw(1), redraw.draw(1), redraw.draw(2)
    assert redraw.how == "drawn again by reset_parameters"
    assert torch.equal(one[0].weight, same[0].weight)
    for a, b in ((one, model), (one, other)):
        assert not torch.equal(a[0].weight, b[0].weight)
        assert not torch.equal(
            a[0].weight.sort()[0], b[0].weight.sort()[0]
        )  # new entries, not the old ones in another order


def test_weights_set_by_hand_keep_row_sums_norms_and_singular_values() -> None:
    torch.manual_seed(0)
    model = nn.Linear(32, 16)
    with torch.no_grad():
        model.weight.normal_(0.3, 2.0)
    redraw = Redraw(model)
    new = redraw.draw(1)
    assert redraw.how.endswith("or with inputs reordered (1 weight set by hand)")
    assert not torch.equal(new.weight, model.weight)
    # The same numbers, added in another order.
    torch.testing.assert_close(new.weight.sum(1), model.weight.sum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(new.weight.norm(dim=1), model.weight.norm(dim=1))
    values = [torch.linalg.svdvals(m.weight.detach().double()) for m in (new, model)]
    torch.testing.assert_close(*values)
    assert torch.equal(new.bias, model.bias)


def test_orthogonal_filters_stay_orthogonal() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(16, 8, 3)
    nn.init.orthogonal_(model.weight)
    flat = drawn(model).weight.detach().flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(8), atol=1e-5, rtol=0)


@pytest.mark.parametrize("value", [0.0, 0.25, -1.0])
def test_constants_stay(value: float) -> None:
    model = nn.Linear(8, 8)
    nn.init.constant_(model.weight, value)
    assert torch.equal(drawn(model).weight, model.weight)


def test_identities_stay() -> None:
    dense, image = nn.Linear(8, 8), nn.Conv2d(6, 6, 3, padding=1)
    nn.init.eye_(dense.weight)
    nn.init.dirac_(image.weight)
    with torch.no_grad():
        dense.weight.mul_(1.5)
    assert torch.equal(drawn(dense).weight, dense.weight)
    assert torch.equal(drawn(image).weight, image.weight)


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.BatchNorm1d(8), nn.GroupNorm(2, 8)])
def test_normalizations_stay(norm: nn.Module) -> None:
    nn.init.constant_(norm.get_parameter("bias"), -10.0)
    nn.init.constant_(norm.get_parameter("weight"), 1e-5)
    new = drawn(nn.Sequential(nn.Linear(8, 8), norm))
    assert torch.equal(new[1].bias, norm.get_parameter("bias"))
    assert torch.equal(new[1].weight, norm.get_parameter("weight"))


def test_a_bias_set_by_hand_stays() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    nn.init.constant_(model.bias, -10.0)
    new = drawn(model)
    assert torch.equal(new.bias, model.bias)
    assert not torch.equal(new.weight, model.weight)


def test_a_factory_builds_every_draw() -> None:
    made = itertools.count()

    def factory() -> nn.Module:
        layer = nn.Linear(4, 4)
        nn.init.constant_(layer.bias, float(next(made)))
        return layer

    redraw = Redraw(factory(), factory)
    assert [float(redraw.draw(seed).bias[0].detach()) for seed in (1, 2)] == [1.0, 2.0]
    assert redraw.how == "built again by the factory"


def test_drawing_leaves_the_model_and_the_random_numbers_alone() -> None:
    model = he(mlp(2, 16, 16))
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    drawn(model)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_what_wakes_up_is_small_and_the_rest_stays() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    nn.init.zeros_(model[1].weight)
    twin = awakened(model, ["1.weight"], 0)
    assert torch.equal(twin[0].weight, model[0].weight)
    assert not model[1].weight.detach().any()
    # Root mean square NUDGE/√64 of 64 x 64 Gaussian entries: its relative standard error is 1/√(2 · 4096).
    size = float(twin[1].weight.detach().square().mean().sqrt())
    assert size == pytest.approx(NUDGE / 8, rel=4 / (2 * 4096) ** 0.5)
    assert torch.equal(twin[1].weight, awakened(model, ["1.weight"], 0)[1].weight)


class _ReZero(nn.Module):
    """x + α f(x) with α = 0: nothing of the branch gets a gradient until α has moved."""

    def __init__(self, blocks: int = 4, width: int = 32) -> None:
        super().__init__()
        self.enter = nn.Linear(width, width)
        self.branches = nn.ModuleList([nn.Linear(width, width) for _ in range(blocks)])
        self.alphas = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(blocks)])
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for branch, alpha in zip(self.branches, self.alphas, strict=True):
            x = x + alpha * branch(x).relu()
        out: Tensor = self.head(x)
        return out


class _AdaptiveNorm(nn.Module):
    """Scale, shift and gate of a block come from a layer of zeros (adaLN-zero), and so does the output."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.enter, self.modulate, self.inner = (
            nn.Linear(width, width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.norm, self.head = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 10)
        for layer in (self.modulate, self.head):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        shift, scale, gate = self.modulate(x).chunk(3, -1)
        x = x + gate * self.inner(self.norm(x) * (1 + scale) + shift)
        out: Tensor = self.head(self.norm(x))
        return out


@pytest.mark.parametrize("make", [_ReZero, _AdaptiveNorm])
def test_weights_behind_zeros_are_seen_once_those_have_moved(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    report = check(make(), noise(16, 32), seeds=1)
    hidden = [w.name for w in report.weights if w.gradient == 0 and not w.zero]
    assert hidden  # at the start no gradient gets there
    assert report.verdict == "healthy", report.summary()
    assert "zero-gradient" not in [f.kind for f in report.findings]


def test_two_layers_of_zeros_in_a_row_never_move() -> None:
    class Stuck(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.one, self.two = (nn.Linear(32, 32, bias=False) for _ in range(3))
            nn.init.zeros_(self.one.weight)
            nn.init.zeros_(self.two.weight)

        def forward(self, x: Tensor) -> Tensor:
            x = self.enter(x)
            out: Tensor = x + self.two(self.one(x).tanh())
            return out

    torch.manual_seed(0)
    report = check(Stuck(), noise(16, 32), seeds=1)
    assert report.verdict == "warn"
    assert report.leading is not None
    assert report.leading.kind == "zero-gradient"
    assert report.leading.evidence["stuck"] is True
    assert report.leading.evidence["parameters"] == ["one.weight", "two.weight"]


def test_repeated_rows_are_counted_exactly() -> None:
    plain = noise(20, 7)
    assert repeated_rows(plain) == 0.0
    assert repeated_rows(torch.cat([plain, plain])) == 0.5
    assert repeated_rows(torch.cat([plain, -plain])) == 0.0
    assert repeated_rows(torch.cat([plain, plain[:5]])) == pytest.approx(5 / 25)
    assert repeated_rows(torch.full((10, 7), 0.1)) == pytest.approx(0.9)
    near = plain.clone()
    near[:, 0] += 1e-6
    assert repeated_rows(torch.cat([plain, near])) == 0.0
    permuted = torch.stack([plain[0], plain[0].flip(0)])
    assert repeated_rows(permuted) == 0.0
    assert repeated_rows(plain[:1]) == 0.0
    assert repeated_rows(torch.ones(4, 4, dtype=torch.long)) == 0.0
