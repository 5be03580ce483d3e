"""The tangent kernel: against Jacot's recursion, sampled networks of every layer, and itself in tiles."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from initscope.activations import ERF, RELU, TANH, leaky_relu
from initscope.errors import BadInput, NoExactForm
from initscope.finite import simulate_tangent
from initscope.layers import (
    Activate,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    GlobalMaxPool,
    Layer,
    ReLU,
)
from initscope.networks import Sequential, kernel, tangent, tangent_kernel
from initscope.networks.fused import compiled_path
from initscope.weights import Gaussian, ZeroSum
from laws.table import LAYERS, Case

DEVIATIONS = 4.5  # of some 400 entries the largest is expected near 3.2
ROUNDING = 1e-9


def _known(case: Case) -> bool:
    x, y = case.inputs(1)
    try:
        tangent_kernel(case.net(8), x, y, parametrization="standard")
    except NoExactForm:
        return False
    return True


CASES = [case for case in LAYERS if _known(case)]


def test_most_layers_have_one() -> None:
    assert len(CASES) > 40


@pytest.mark.parametrize("case", CASES, ids=str)
def test_finite_networks_have_it_on_average(case: Case) -> None:
    """Gradients by the weights themselves, of networks 64 wide."""
    x, y = case.inputs(2)
    exact = tangent_kernel(case.net(64), x, y, parametrization="standard")
    found = simulate_tangent(case.net(64), x, y, draws=20, parametrization="standard")
    assert ((found.value - exact).abs() <= DEVIATIONS * found.stderr + ROUNDING * exact.abs().max()).all()


def test_the_two_parametrizations_agree_with_their_twins_where_they_differ() -> None:
    """Three widths and a bias: each layer's share is weighed by its own variances."""
    net = Sequential(Dense(40, bias=0.5), ReLU(), Dense(160, weights=Gaussian(1.5, "in")), ReLU(), Dense(80, bias=0.1))
    x = torch.randn(3, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    both = {}
    for kind in ("ntk", "standard"):
        exact = tangent_kernel(net, x, parametrization=kind)
        found = simulate_tangent(net, x, draws=60, seed=1, parametrization=kind)
        assert ((found.value - exact).abs() <= DEVIATIONS * found.stderr).all()
        both[kind] = exact
    assert float((both["standard"] / both["ntk"]).min()) > 10


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_deep_relu_networks_have_the_known_recursion(depth: int) -> None:
    """Θ_{l+1} = K_{l+1} + Θ_l E f'f' with the arc-cosine kernels of order 1 and 0, by arccos (Jacot et al. 2018)."""
    x = torch.randn(6, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    net = Sequential(*(layer for _ in range(depth) for layer in (Dense(8), ReLU())), Dense(1))
    k = 2 * x @ x.T / 20
    theta = k.clone()
    for _ in range(depth):
        scale = k.diagonal().sqrt().outer(k.diagonal().sqrt())
        t = (k / scale).clamp(-1, 1).arccos()
        k = scale * (t.sin() + (math.pi - t) * t.cos()) / math.pi
        theta = k + theta * (math.pi - t) / math.pi
    # arccos keeps half of the digits on the diagonal.
    torch.testing.assert_close(tangent_kernel(net, x), theta, rtol=1e-7, atol=0)


def test_pooled_convolutions_by_brute_force() -> None:
    """One 3-tap layer on 1 x 5 pictures, ReLU, mean over positions: all pairs of patches one by one."""
    x = torch.randn(3, 2, 1, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = tangent_kernel(Sequential(Conv(4, (1, 3)), ReLU(), GlobalAveragePool(), Dense(1)), x)

    def patch(i: int, p: int) -> torch.Tensor:
        return torch.stack([x[i, :, 0, (p + s) % 5] for s in (-1, 0, 1)]).flatten() * math.sqrt(2 / 6)

    for i in range(3):
        for j in range(3):
            total = 0.0
            for p in range(5):
                for q in range(5):
                    a, b = patch(i, p), patch(j, q)
                    ab, scale = float(a @ b), float(a.norm() * b.norm())
                    t = math.acos(max(-1.0, min(1.0, ab / scale)))
                    first = ab * (math.pi - t) / (2 * math.pi)
                    last = scale * (math.sin(t) + (math.pi - t) * math.cos(t)) / (2 * math.pi)
                    total += 2 * (first + last) / 25
            assert float(found[i, j]) == pytest.approx(total, rel=1e-7)


@pytest.mark.parametrize("activation", [TANH, ERF], ids=lambda a: a.name)
def test_activations_without_homogeneity(activation: object) -> None:
    """E f'(u) f'(v) from a large sample of the Gaussian pair."""
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    net = Sequential(Dense(4), Activate(activation), Dense(1, weights=Gaussian(1.0, "in")))  # type: ignore[arg-type]
    k = 2 * x @ x.T / 6
    g = torch.Generator().manual_seed(4)
    u = (torch.linalg.cholesky(k) @ torch.randn(2, 400_000, generator=g, dtype=torch.float64)).requires_grad_()
    value = activation(u)  # type: ignore[operator]
    (slope,) = torch.autograd.grad(value.sum(), u)
    samples = value.detach().prod(0) + k[0, 1] * slope[0] * slope[1]
    error = float(samples.std()) / math.sqrt(samples.numel())
    assert abs(float(tangent_kernel(net, x)[0, 1]) - float(samples.mean())) < 4 * error


def test_tiles_and_types_give_the_same() -> None:
    x = torch.rand(7, 3, 6, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    net = Sequential(Conv(8, padding="zero", bias=0.2), ReLU(), Conv(8), ReLU(), GlobalAveragePool(), Dense(1))
    whole = tangent_kernel(net, x)
    assert torch.equal(whole, whole.T)
    assert float(torch.linalg.eigvalsh(whole)[0]) > 0
    torch.testing.assert_close(tangent_kernel(net, x, memory=4 << 20), whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(tangent_kernel(net, x[:3], x[3:]), whole[:3, 3:], rtol=1e-12, atol=0)
    torch.testing.assert_close(tangent_kernel(net, x.float()).double(), whole, rtol=1e-5, atol=0)
    steps: list[tuple[int, int]] = []
    tangent_kernel(net, x, memory=4 << 20, progress=lambda done, total: steps.append((done, total)))
    assert steps[0][0] == 0
    assert steps[-1][0] == steps[-1][1] > 1


STACKS: dict[str, list[Layer]] = {
    "circular": [*(layer for _ in range(4) for layer in (Conv(8), ReLU())), Flatten(), Dense(1)],
    "circular pooled": [Conv(8), ReLU(), GlobalAveragePool()],
    "zero pooled": [
        Conv(8, padding="zero", bias=0.3),
        ReLU(),
        Conv(6, 5, padding="zero"),
        ReLU(),
        GlobalAveragePool(),
        Dense(3),
    ],
    "valid pooled": [
        Conv(8, padding="valid"),
        Conv(7, 5, padding="valid"),
        ReLU(),
        GlobalAveragePool(),
        Dense(3, bias=0.2),
    ],
    "reflect": [Conv(8, padding="reflect"), Activate(leaky_relu(0.2)), Conv(8, padding="reflect")],
    "dense": [*(layer for _ in range(4) for layer in (Dense(9, bias=0.1), ReLU())), Dense(1)],
}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("parametrization", ["ntk", "standard"])
def test_compiled_loops_give_the_same(name: str, parametrization: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The diagonal too, where the slope of ReLU's dual has a root: pairs that are equal must come out as equal."""
    if compiled_path() is None:
        pytest.skip("needs numba")
    net = Sequential(*STACKS[name])
    x = torch.rand(5, 3, 8, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 0.3
    x[1, :, :, :4] = 0.25  # equal patches at different positions
    options: dict[str, Any] = {"parametrization": parametrization}
    quick = [tangent_kernel(net, x.to(dtype), **options) for dtype in (torch.float64, torch.float32)]
    beside = tangent_kernel(net, x[:2], x[2:], **options)
    monkeypatch.setattr(tangent, "fast_plan", lambda *_: None)
    monkeypatch.setattr(tangent, "_stepped", lambda *_: None)
    slow = tangent_kernel(net, x, **options)
    pooled = name == "zero pooled"  # carried as products, with half of the digits where patches are equal
    torch.testing.assert_close(quick[0], slow, rtol=1e-8 if pooled else 1e-12, atol=0)
    torch.testing.assert_close(quick[1].double(), slow, rtol=1e-6, atol=0)
    torch.testing.assert_close(beside, slow[:2, 2:], rtol=1e-8 if pooled else 1e-12, atol=0)


def test_a_linear_network_has_its_kernel_once_per_layer() -> None:
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    net = Sequential(*(Dense(4, weights=Gaussian(1.0, "in")) for _ in range(7)))
    torch.testing.assert_close(tangent_kernel(net, x), 7 * kernel(net, x))


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([Conv(8), BatchNorm(), ReLU()], "batch norm couples"),
        ([Conv(8), Dropout(0.5), ReLU(), GlobalAveragePool()], "no closed form"),
        ([Conv(8), ReLU(), GlobalMaxPool()], "no closed form"),
    ],
)
def test_what_has_no_closed_form_is_refused(layers: list[Layer], words: str) -> None:
    with pytest.raises(NoExactForm, match=words):
        tangent_kernel(Sequential(*layers), torch.rand(2, 3, 6, 6))


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_dropout_by_hand(p: float) -> None:
    """Θ = K_2 + Θ_1 E f'f', and on the diagonal, under one mask, both are 1/(1-p) times as large."""
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    lecun = Gaussian(1.0, "in")
    plain = Sequential(Dense(8), ReLU(), Dense(1, weights=lecun))
    dropped = Sequential(Dense(8), ReLU(), Dropout(p), Dense(1, weights=lecun))
    expected = tangent_kernel(plain, x)
    grown = expected + p / (1 - p) * torch.diag(expected.diagonal())
    torch.testing.assert_close(tangent_kernel(dropped, x), grown, rtol=1e-12, atol=1e-14)
    # Two passes of the same input have two masks.
    torch.testing.assert_close(tangent_kernel(dropped, x, x.clone()), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "layers",
    [
        [Dropout(0.2), Dense(64), ReLU(), Dropout(0.4), Dense(64), ReLU(), Dense(8)],
        [Conv(64), ReLU(), Dropout(0.4), GlobalAveragePool(), Dense(8)],
        [Conv(64), ReLU(), Dropout(0.4), Conv(64, padding="zero"), ReLU(), GlobalAveragePool()],
    ],
    ids=["dense", "pooled", "deep"],
)
def test_dropout_in_finite_networks(layers: list[Layer]) -> None:
    shape = (3, 6) if isinstance(layers[1], Dense) else (3, 2, 4, 3)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    exact = tangent_kernel(Sequential(*layers), x)
    found = simulate_tangent(Sequential(*layers), x, draws=60, seed=5)
    assert ((found.value - exact).abs() <= DEVIATIONS * found.stderr).all()


def test_bad_input() -> None:
    x, net = torch.rand(2, 6), Sequential(Dense(4), Activate(RELU))
    with pytest.raises(BadInput, match="parametrization is 'mean'"):
        tangent_kernel(net, x, parametrization="mean")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="dtype"):
        tangent_kernel(net, x, dtype=torch.float16)
    with pytest.raises(BadInput, match="NaN"):
        tangent_kernel(net, x * math.nan)
    with pytest.raises(BadInput, match="are allowed"):
        tangent_kernel(net, x, memory=1)
    with pytest.raises(BadInput, match="draws is 1"):
        simulate_tangent(net, x, draws=1)
    with pytest.raises(BadInput, match="parametrization"):
        simulate_tangent(net, x, parametrization="mean")  # type: ignore[arg-type]
    with pytest.raises(NoExactForm, match="not independent"):
        tangent_kernel(Sequential(Dense(4, weights=ZeroSum())), x, parametrization="standard")
