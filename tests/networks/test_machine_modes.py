"""Series over a range of variances as few products: what the compiled step makes of pairs, beside quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from initscope.activations import ELU, MISH, SELU, SIGMOID, SILU, SIN, SOFTPLUS, TANH, Activation
from initscope.layers import Activate, Conv
from initscope.networks import Sequential, kernel, parse, tangent_kernel

pytest.importorskip("numba")

from initscope.networks.machine import bending as room
from initscope.networks.machine.bending import Precision, bending
from initscope.networks.machine.frames import WIDTH, Code
from initscope.networks.machine.norms import averaged
from initscope.networks.machine.rows import Rows
from initscope.networks.machine.tape import Reach

ROUNDING = 2e-6  # of single precision through a dense layer and a series
BENT = Activation.from_function(
    lambda z: torch.where(z < 0, torch.expm1(z) / 2, z + z * z / 8), kinks=(0.0,), name="bent"
)
SPANS = [(0.9, 0.9004), (0.7, 1.3), (0.4, 2.2), (0.02, 0.9)]
SOME = [TANH, SILU, SIGMOID, SOFTPLUS, SIN, MISH, ELU, SELU, BENT]


@pytest.fixture
def only_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other series than by modes."""
    monkeypatch.setattr(room, "_shortest", lambda wanted, most: None)
    room._in_range.cache_clear()


def vectors(span: tuple[float, float], zeros: bool = False) -> Tensor:
    """Of norms in the span and every angle: equal, near, opposite ones too."""
    g = torch.Generator().manual_seed(3)
    low, high = (math.log(end) for end in span)
    x = torch.randn(60, 4, generator=g, dtype=torch.float64)
    x[20:40] = x[0] + torch.logspace(-8, 0, 20, dtype=torch.float64)[:, None] * x[20:40]
    x[40], x[41] = x[0], -x[0]
    s = torch.exp(low + (high - low) * torch.rand(60, generator=g, dtype=torch.float64))
    s[5], s[6] = span
    x *= (2 * s / x.norm(dim=1))[:, None]  # a mean over 4 inputs
    if zeros:
        x[7] = 0
    return x.float()


def judged(activation: Activation, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E f f', E f' f'' and the products of inputs, by quadrature."""
    wide = x.double()
    A = wide.square().mean(1)
    D = (wide[:, None] - wide).square().mean(-1)
    f = activation.by_quadrature()
    a, b = A[:, None].expand_as(D), A.expand_as(D)
    return f.product(a, b, D), f.derivative_product(a, b, D), wide @ wide.T / x.shape[1]


def network(activation: Activation) -> Sequential:
    return Sequential(*parse("dense(init=lecun)").layers, Activate(activation))


def stated(activation: Activation, span: tuple[float, float], slopes: bool, zeros: bool = False) -> float:
    """The error that modes say they have; skips ranges that take too many."""
    how = bending(activation, Reach(span[0] ** 2, span[1] ** 2, zeros), Precision.of(torch.float32), slopes)
    if how is None:
        pytest.skip("a range that needs too many directions")
    assert how.code == Code.MODES
    return how.error


@pytest.mark.usefixtures("only_modes")
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("activation", SOME, ids=lambda a: a.name)
def test_products_and_slopes_are_within_what_is_stated(activation: Activation, span: tuple[float, float]) -> None:
    x = vectors(span)
    product, slope, inputs = judged(activation, x)
    size, norm = product.diagonal().sqrt(), inputs.diagonal().sqrt()
    error = stated(activation, span, False)
    off = ((kernel(network(activation), x).double() - product).abs() / torch.outer(size, size)).max()
    assert error <= 8e-6
    assert float(off) <= error + ROUNDING
    error, steep = stated(activation, span, True), slope.diagonal().sqrt() * norm
    off = ((tangent_kernel(network(activation), x).double() - slope * inputs).abs() / torch.outer(steep, steep)).max()
    assert float(off) <= error + 10 * ROUNDING


@pytest.mark.usefixtures("only_modes")
@pytest.mark.parametrize("activation", [SIGMOID, SOFTPLUS, TANH, ELU], ids=lambda a: a.name)
def test_dark_inputs_are_f_of_zero(activation: Activation) -> None:
    x = vectors((0.7, 1.3), zeros=True)
    product = judged(activation, x)[0]
    error = stated(activation, (0.7, 1.3), False, zeros=True)
    got = kernel(network(activation), x).double()
    assert float((got - product).abs().max() / product.max()) <= error + ROUNDING
    first = activation(torch.zeros(1, dtype=torch.float64))
    assert torch.allclose(got[7, 7], first.square()[0], atol=1e-7)


@pytest.mark.usefixtures("only_modes")
@pytest.mark.parametrize("activation", [TANH, ELU, SIGMOID], ids=lambda a: a.name)
def test_equal_inputs_keep_a_cosine_of_one(activation: Activation) -> None:
    """Own moments are what the step makes of an input beside itself, so that errors do not turn into angles."""
    x = torch.cat([vectors((0.7, 1.3))[:10]] * 2)
    net = Sequential(*(layer for _ in range(5) for layer in network(activation).layers))
    got = kernel(net, x).double()
    own = got.diagonal()
    assert float((got[:10, 10:].diagonal() / own[:10] - 1).abs().max()) <= 1e-6


def test_less_work_is_chosen() -> None:
    narrow, wide = (
        bending(SILU, Reach(*ends), Precision.of(torch.float32), False) for ends in ((1.0, 1.001), (0.05, 0.5))
    )
    assert narrow is not None
    assert wide is not None
    assert narrow.code == Code.MODES  # two directions
    assert wide.code == Code.SERIES  # a few orders
    for how in (narrow, wide):
        assert isinstance(how.fields, Rows)


def test_norms_behind_filters_are_means_over_taps() -> None:
    g = torch.Generator().manual_seed(0)
    norm = torch.rand(3, 7, 9, generator=g, dtype=torch.float64)
    for conv in (
        Conv(3),
        Conv(3, padding="zero", stride=2),
        Conv(2, padding="valid", dilation=3),
        Conv(3, padding="same"),
    ):
        conv = conv.on(2)
        window = conv.window
        size = window.output_size((7, 9))
        before = [m[0] for m in window.margins((7, 9))]
        geometry = {
            "height": size[0], "width": size[1], "in_height": 7, "in_width": 9, "taps_y": window.kernel[0],
            "taps_x": window.kernel[1], "step_y": window.stride[0], "step_x": window.stride[1],
            "between_y": window.dilation[0], "between_x": window.dilation[1], "before_y": before[0], "before_x": before[1],
        }  # fmt: skip
        got = averaged(norm, geometry, conv.padding == "circular", 2 / math.prod(window.kernel), 0.3)
        assert torch.allclose(got, 2 * window.mean(window.pad(norm), size, False) + 0.3, rtol=1e-14)


def test_single_numbers_and_blocks_are_the_same() -> None:
    how = bending(SILU, Reach(0.1, 1.5, True), Precision.of(torch.float32), False)
    assert how is not None
    rows = how.fields
    assert isinstance(rows, Rows)
    g = torch.Generator().manual_seed(0)
    a = 0.1 + 1.4 * torch.rand(2 * WIDTH + 5, 6, generator=g, dtype=torch.float64)
    a[2, 3] = 0
    whole = rows(a)
    for width in (4, WIDTH):
        blocks = -(-len(a) // width)
        out = np.zeros(blocks * 6 * rows.fields * width, np.float32)
        rows.fill(a, out, width)
        laid = torch.from_numpy(out).view(blocks, 6, rows.fields, width).permute(0, 3, 1, 2).flatten(0, 1)
        assert torch.equal(laid[: len(a)], whole.float())
        assert not laid[len(a) :].any()
    assert not whole[2, 3].any()  # f(0) = 0
