"""Masked positions: a padded sequence is the sequence itself, means are over what counts, and both faces agree on raw data."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from initscope.errors import BadInput
from initscope.finite import simulate_tangent
from initscope.layers import BatchNorm, Conv, GlobalAveragePool, GroupNorm, ReLU
from initscope.networks import Masked, Sequential, kernel, parse, tangent_kernel

X = torch.randn(3, 2, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PADDED = F.pad(X, (0, 5))

BODIES = [
    "conv3(padding=zero) relu gap",
    "conv3(padding=zero, bias=0.4) tanh conv5/2(padding=zero) relu gap dense",
    "conv3(padding=valid) relu conv2/2(padding=valid) gelu gap",
    "conv4(padding=zero, margin=1) relu gap",
    "conv3(padding=zero, margin=3) relu conv1(bias=1) gap",
    "conv3(padding=zero, dilation=2) cos conv1 gap",
    "conv3(padding=zero) relu ln conv3(padding=zero) relu ln(channels) gap",
    "conv3(padding=zero) res(relu conv3(padding=zero)) sum(conv1 relu | conv3(padding=zero)) gap",
    "conv3(padding=zero) prod(scale(1) | conv1 sigmoid) cat(conv1 | conv3(padding=zero)) relu gap",
    "conv3(padding=zero) relu dropout(0.2) up2 conv3(padding=zero) gap",
    "ln(channels) conv3(padding=zero) relu gap",
    "relu avgpool3(stride=1, padding=same, edges=skip) conv3(padding=zero) gap",
]


@pytest.mark.parametrize("body", BODIES)
def test_a_padded_sequence_is_the_sequence(body: str) -> None:
    found = kernel(parse(f"masked({body})"), PADDED)
    torch.testing.assert_close(found, kernel(parse(body), X), rtol=1e-10, atol=1e-12)
    tangents = tangent_kernel(parse(f"masked({body})"), PADDED)
    torch.testing.assert_close(tangents, tangent_kernel(parse(body), X), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "body", [*BODIES, "conv3(padding=zero) maxpool3(stride=1) gmp", "conv3(padding=zero) l2pool2 gap"]
)
def test_the_finite_network_does_not_see_the_padding_either(body: str) -> None:
    def outputs(net: Sequential, x: torch.Tensor) -> torch.Tensor:
        module = net.sample(tuple(x.shape[1:]), generator=torch.Generator().manual_seed(3), dtype=x.dtype).eval()
        return module(x)

    x, padded = (X[..., :6], F.pad(X[..., :6], (0, 6))) if "pool2" in body else (X, PADDED)
    torch.testing.assert_close(outputs(parse(f"masked({body})"), padded), outputs(parse(body), x))


def test_lengths_may_differ() -> None:
    """The mean of products over all pairs of positions that count, by the arc-cosine kernel of the patches."""
    lengths = [3, 7, 5]
    x = PADDED.clone()
    for i, n in enumerate(lengths):
        x[i, :, n:] = 0
    found = kernel(parse("masked(conv3(padding=zero) relu gap)"), x)

    def patch(i: int, p: int) -> torch.Tensor:
        return F.pad(x[i], (1, 1))[:, p : p + 3].flatten() / math.sqrt(6)

    for i, j in itertools.product(range(3), repeat=2):
        total = 0.0
        for p, q in itertools.product(range(lengths[i]), range(lengths[j])):
            a, b = patch(i, p), patch(j, q)
            t = math.acos(max(-1.0, min(1.0, float(a @ b / (a.norm() * b.norm())))))
            total += float(a.norm() * b.norm()) * (math.sin(t) + (math.pi - t) * math.cos(t)) / math.pi
        assert float(found[i, j]) == pytest.approx(total / lengths[i] / lengths[j], rel=1e-7)


def test_pools_take_what_counts() -> None:
    """avgpool2 over 4 positions of which 3 count: the second mean is that position alone."""
    x = X[:, :, :4].clone()
    x[..., 3] = -9.0
    found = kernel(parse("masked(conv1 avgpool2, value=-9)"), x)
    means = torch.stack([x[..., :2].mean(-1), x[..., 2]], -1)
    torch.testing.assert_close(found, torch.einsum("ncp,mcp->nm", means, means) / 2, rtol=1e-12, atol=1e-12)


def test_tangent_kernel_on_average() -> None:
    x = PADDED.clone()
    x[0, :, 4:], x[1, :, 0] = 0, 0
    net = parse("masked(conv3(64) relu avgpool2 conv1(64) relu gap) dense(8)")
    exact, found = tangent_kernel(net, x), simulate_tangent(net, x, draws=30, seed=2)
    assert ((found.value - exact).abs() <= 4.5 * found.stderr).all()


def test_an_input_without_any_position_is_zero() -> None:
    x = torch.stack([X[0], torch.zeros_like(X[0])])
    found = kernel(parse("masked(conv3(bias=1) cos ln gap)"), x)
    assert torch.isfinite(found).all()
    assert float(found[0, 0]) > 0
    assert float(found[0, 1]) == float(found[1, 1]) == 0.0


def test_what_masks_do_not_reach_is_refused() -> None:
    with pytest.raises(BadInput, match="put it first"):
        kernel(Sequential(Conv(8), Masked(ReLU(), GlobalAveragePool())), X)
    for layer in (BatchNorm(), GroupNorm(2), Masked(Conv(8))):
        with pytest.raises(BadInput, match="does not leave out masked positions"):
            Masked(Conv(8), layer)
    with pytest.raises(BadInput, match="expected inputs with positions"):
        kernel(Masked(Conv(8)), X.flatten(1))
    with pytest.raises(BadInput, match="value is nan"):
        Masked(Conv(8), value=math.nan)


def test_text() -> None:
    net = parse("masked(conv3 relu gap, value=-1)")
    assert net.layers == (Masked(*parse("conv3 relu gap").layers, value=-1.0),)
    assert repr(net) == "masked(conv3(64) relu gap, value=-1.0)"
    assert repr(parse("masked(conv3 relu gap)")) == "masked(conv3(64) relu gap)"
