"""One layer of 3 x 3 taps behind global average pooling, against the closed forms on all pairs of patches."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from initscope.networks.fused import ConvStack, Own, dense_tangents, estimate, pooled_kernel, stack_tangents
from initscope.networks.fused.stack import pad

pooled_layer = pytest.importorskip("initscope.networks.fused.pooled_layer")

PADDINGS = ("zero", "circular", "valid", "reflect")
SIZES = [
    (1, 2),
    (2, 1),
    (1, 9),
    (3, 3),
    (4, 9),
    (8, 8),
    (9, 4),
    (13, 17),
    (5, 33),
    (3, 40),
    (3, 41),
    (4, 73),
    (3, 14),
    (3, 16),
    (3, 30),
    (4, 32),
    (3, 48),
    (2, 2),
]  # one strip and several, any remainder, rows as long as they are stored


def layer(padding: str, bias: float = 0.0, slope: float = 0.0) -> ConvStack:
    return ConvStack(kernels=(3,), gains=(1.7,), biases=(bias,), slopes=(slope,), padding=padding)


def images(n: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, channels, height, width, dtype=torch.float64, generator=generator) + 0.3


def by_patches(stack: ConvStack, x: Tensor, y: Tensor, own: Own = Own()) -> tuple[Tensor, Tensor]:  # noqa: B008
    """Means over all pairs of patches of the kernel and of the tangent kernel, from angles."""
    s, (gain,), (bias,) = stack.slopes[0], stack.gains, stack.biases

    def patches(z: Tensor) -> Tensor:
        columns = torch.nn.functional.unfold(pad(z, stack.border, stack.padding), 3)
        return columns.mT * (gain / columns.shape[1]) ** 0.5

    p, q = patches(x), patches(y)
    v = torch.einsum("ipk,jqk->ijpq", p, q) + bias
    a, b = (p.square().sum(2) + bias).sqrt()[:, None, :, None], (q.square().sum(2) + bias).sqrt()[None, :, None, :]
    gap = (p[:, None, :, None] - q[None, :, None, :]).square().sum(4)
    angle = 2 * ((gap - (a - b) ** 2).clamp(min=0) / (4 * a * b)).sqrt().clamp(max=1).asin()
    relu = a * b * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)
    kernel = s * v + (1 - s) ** 2 * relu
    tangent = (own.factor * v + own.offset) * (s + (1 - s) ** 2 * (math.pi - angle) / (2 * math.pi))
    return kernel.mean((2, 3)), tangent.mean((2, 3))


@pytest.mark.parametrize(
    ("padding", "size"), [(p, s) for p in PADDINGS for s in SIZES if min(s) >= {"valid": 3, "reflect": 2}.get(p, 1)]
)
@pytest.mark.parametrize(("channels", "bias", "slope"), [(1, 0.0, 0.0), (3, 0.2, 0.1), (2, 0.0, -0.5)])
def test_equals_all_pairs_of_patches(
    padding: str, size: tuple[int, int], channels: int, bias: float, slope: float
) -> None:
    stack = layer(padding, bias, slope)
    x, y = images(3, channels, *size), images(2, channels, *size, seed=1)
    assert pooled_layer.fits(stack)
    for other in (None, y):
        kernel, tangent = by_patches(stack, x, x if other is None else other)
        torch.testing.assert_close(pooled_kernel(stack, x, other), kernel, rtol=1e-12, atol=1e-13)
        found = stack_tangents(stack, [Own(0.8)], x, other, True, False, None)
        assert found is not None
        torch.testing.assert_close(found[1], 0.8 * tangent, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("padding", PADDINGS)
def test_single_precision(padding: str) -> None:
    stack, x = layer(padding), images(4, 3, 16, 24)
    kernel, tangent = by_patches(stack, x.float().double(), x.float().double())
    torch.testing.assert_close(pooled_kernel(stack, x.float()).double(), kernel, rtol=1e-6, atol=0)
    found = stack_tangents(stack, [Own()], x.float(), None, True, False, None)
    assert found is not None
    torch.testing.assert_close(found[1], tangent, rtol=3e-6, atol=0)


@pytest.mark.parametrize("padding", PADDINGS)
def test_equal_patches_keep_their_tangents(padding: str) -> None:
    """Of a plain image all angles inside are 0, where an error of a product would count by its root: 1e-4, not 1e-7."""
    stack, x = layer(padding), torch.full((1, 3, 12, 12), 0.7)
    found = stack_tangents(stack, [Own()], x, None, True, False, None)
    assert found is not None
    torch.testing.assert_close(found[1], by_patches(stack, x.double(), x.double())[1], rtol=1e-6, atol=0)


@pytest.mark.parametrize("scale", [0.0, 1e-25, 1e-18, 1e12])
@pytest.mark.parametrize("padding", PADDINGS)
def test_dark_and_bright_images(padding: str, scale: float) -> None:
    """Zero vectors have no angle, and nothing becomes NaN; float32 cannot tell the darkest ones from zero."""
    stack = layer(padding)
    x = images(2, 3, 6, 10)
    x[1] *= scale
    found = pooled_kernel(stack, x.float())
    tangents = stack_tangents(stack, [Own()], x.float(), None, True, False, None)
    kernel, tangent = by_patches(stack, x[:1], x[:1])
    assert tangents is not None
    assert found.isfinite().all()
    assert tangents.isfinite().all()
    torch.testing.assert_close(found[:1, :1].double(), kernel, rtol=1e-6, atol=0)
    torch.testing.assert_close(tangents[1, :1, :1], tangent, rtol=3e-6, atol=0)
    if scale > 0:
        kernel, tangent = by_patches(stack, x, torch.stack([x[0], x[1] / scale]))
        torch.testing.assert_close(tangents[1, 0, 1] / scale, tangent[0, 1], rtol=3e-6, atol=0)
    if scale >= 1e-18:
        torch.testing.assert_close(found[0, 1].double() / scale, kernel[0, 1], rtol=1e-6, atol=0)


@pytest.mark.parametrize("padding", ["zero", "circular", "valid"])
def test_biases_that_are_trained_but_do_not_vary(padding: str) -> None:
    """They add what does not grow with the inputs, so that these must not be scaled."""
    stack, own, x = layer(padding), Own(0.8, 1.0), 50 * images(3, 2, 6, 7)
    found = stack_tangents(stack, [own], x, None, True, False, None)
    assert found is not None
    torch.testing.assert_close(found[1], by_patches(stack, x, x, own)[1], rtol=1e-7, atol=0)
    scores = dense_tangents((1.7,), (0.0,), (0.0,), [own], x.flatten(1), None, None)
    assert scores is not None
    pixels = (x.flatten(1) * (1.7 / 84) ** 0.5)[:, :, None, None]
    one = ConvStack((1,), (pixels.shape[1],), (0.0,), (0.0,), "valid")
    same = stack_tangents(one, [own], pixels, None, False, False, None)
    assert same is not None
    torch.testing.assert_close(scores[1], same[1], rtol=1e-9, atol=0)
    assert float((scores[1].diagonal() - 0.4 * pixels.square().sum((1, 2, 3))).sub(0.5).abs().max()) < 1e-9


def test_weights_of_no_variance_leave_the_bias() -> None:
    """Nothing can be measured in units of weights that are zero: the other loops take these."""
    for gain in (0.0, 1e-14):
        stack = replace(layer("circular", bias=0.5), gains=(gain,))
        assert not pooled_layer.fits(stack)
        torch.testing.assert_close(
            pooled_kernel(stack, images(2, 3, 5, 7)), torch.full((2, 2), 0.25, dtype=torch.float64)
        )


def test_threads_and_blocks_do_not_change_a_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    stack, x = layer("circular", slope=0.2), images(7, 3, 9, 11)
    threads = torch.get_num_threads()
    whole = pooled_kernel(stack, x)
    monkeypatch.setattr(pooled_layer, "BLOCK_BYTES", 2 * pooled_layer.image_bytes(3, 9, 11, 8))
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert torch.equal(pooled_kernel(stack, x), whole)
    finally:
        torch.set_num_threads(threads)


def test_inputs_may_lie_anyhow_in_memory() -> None:
    stack, x = layer("zero"), images(3, 3, 6, 7)
    around = x.to(memory_format=torch.channels_last)
    assert torch.equal(pooled_kernel(stack, around), pooled_kernel(stack, x))
    assert pooled_kernel(stack, x[:0], x).shape == (0, 3)


_PEAK = """
import resource, torch
from initscope.networks.fused import ConvStack, estimate, pooled_kernel
n, size = {n}, {size}
stack = ConvStack((3,), (2.0,), (0.0,), (0.0,), "circular")
x = torch.randn(n, 3, size, size)
pooled_kernel(stack, x[:2])
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
pooled_kernel(stack, x)
print(peak() - before, estimate(stack, n, n, size, size, 3, True).bytes)
"""


@pytest.mark.parametrize(("n", "size"), [(700, 4), (24, 64)])
def test_memory_stays_inside_the_estimate(n: int, size: int) -> None:
    """Several blocks of small images, one of large ones; the estimate is not beyond reason either."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK.format(n=n, size=size)], capture_output=True, text=True, check=True
    )
    used, estimated = map(int, done.stdout.split())
    assert used < estimated < 256 << 20
    assert estimate(layer("circular"), 1, 1, 4, 4, 3, True).bytes < 1 << 20
