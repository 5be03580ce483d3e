"""Position axes, padding and windows: against PyTorch's own layers, TensorFlow's rule, and sums over every pair of positions."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from initscope.errors import BadInput
from initscope.layers import AveragePool, Conv, GlobalAveragePool, L2Pool, LayerNorm, MaxPool, ReLU
from initscope.layers.conv import RandomConv
from initscope.networks import Sequential, kernel, parse, predict, tangent_kernel


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def relu_product(a: Tensor, b: Tensor) -> float:
    """E relu(w·a) relu(w·b) for w ~ N(0, 2/d), times 1: the arc-cosine kernel, by arccos."""
    norms = float(a.norm() * b.norm())
    if norms == 0:
        return 0.0
    t = math.acos(max(-1.0, min(1.0, float(a @ b) / norms)))
    return norms / len(a) * (math.sin(t) + (math.pi - t) * math.cos(t)) / math.pi


def patches(
    image: Tensor, kernel: tuple[int, ...], stride: int, before: tuple[int, ...], after: tuple[int, ...]
) -> list[Tensor]:
    """What the filters see at each output position, zeros outside, one by one."""
    size = image.shape[1:]
    found = []
    counts = [(n + b + a - k) // stride + 1 for n, k, b, a in zip(size, kernel, before, after, strict=True)]
    for place in itertools.product(*map(range, counts)):
        values = []
        for tap in itertools.product(*map(range, kernel)):
            at = [p * stride - b + t for p, b, t in zip(place, before, tap, strict=True)]
            inside = all(0 <= i < n for i, n in zip(at, size, strict=True))
            values.append(image[(slice(None), *at)] if inside else image.new_zeros(image.shape[0]))
        found.append(torch.cat(values))
    return found


@pytest.mark.parametrize(
    ("layer", "shape", "taps", "before", "after"),
    [
        (Conv(4, 3, padding="zero"), (2, 5), (3,), (1,), (1,)),
        (Conv(4, 3, 2, padding="same"), (2, 6), (3,), (0,), (1,)),  # TensorFlow: the odd zero behind
        (Conv(4, 3, 2, padding="same"), (2, 5), (3,), (1,), (1,)),
        (Conv(4, 4, 3, padding="same"), (1, 7, 6), (4, 4), (1, 0), (2, 1)),
        (Conv(4, 2, padding="valid"), (2, 2, 3, 2), (2, 2, 2), (0, 0, 0), (0, 0, 0)),
        (Conv(4, (1, 3, 2), padding="zero"), (1, 2, 2, 3), (1, 3, 2), (0, 1, 0), (0, 1, 1)),
    ],
    ids=lambda v: str(v),
)  # fmt: skip
@pytest.mark.parametrize("pooled", [True, False])
def test_convolution_by_brute_force(layer: Conv, shape, taps, before, after, pooled: bool) -> None:
    """One layer and ReLU, then the mean of products over all pairs of positions, or over equal ones."""
    x = noise(3, *shape)
    stride = layer.stride
    assert isinstance(stride, int)
    net = Sequential(layer, ReLU(), *([GlobalAveragePool()] if pooled else []))
    found = kernel(net, x)
    seen = [patches(image, taps, stride, before, after) for image in x]
    for i, j in itertools.product(range(3), repeat=2):
        pairs = itertools.product(seen[i], seen[j]) if pooled else zip(seen[i], seen[j], strict=True)
        products = [relu_product(a, b) for a, b in pairs]
        # arccos keeps half of the digits on the diagonal.
        assert float(found[i, j]) == pytest.approx(math.fsum(products) / len(products), rel=1e-7)


def test_sequences_are_images_one_pixel_high() -> None:
    x = noise(4, 3, 9)
    flat = parse("conv3(8, padding=zero) tanh conv3/2(8, padding=same) relu avgpool2 ln gap dense")
    tall = Sequential(
        Conv(8, (1, 3), padding="zero"), parse("tanh").layers[0], Conv(8, (1, 3), (1, 2), padding="same"), ReLU(),
        AveragePool((1, 2)), LayerNorm(), *parse("gap dense").layers,
    )  # fmt: skip
    torch.testing.assert_close(kernel(flat, x), kernel(tall, x[:, :, None]), rtol=1e-12, atol=0)
    torch.testing.assert_close(tangent_kernel(flat, x), tangent_kernel(tall, x[:, :, None]), rtol=1e-9, atol=0)


@pytest.mark.parametrize(("size", "kernel", "stride"), list(itertools.product([5, 6, 7, 8], [1, 2, 3, 5], [1, 2, 3])))
def test_same_padding_is_tensorflows(size: int, kernel: int, stride: int) -> None:
    """https://www.tensorflow.org/api_docs/python/tf/nn: total = max(kernel - stride, 0), or kernel - size % stride."""
    total = max(kernel - stride, 0) if size % stride == 0 else max(kernel - size % stride, 0)
    window = Conv(1, (kernel,), (stride,), padding="same").window
    assert window.margins((size,)) == ((total // 2, total - total // 2),)
    assert window.output_size((size,)) == (math.ceil(size / stride),)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_finite_faces_are_pytorchs(axes: int) -> None:
    x = noise(2, 3, *(7, 5, 6)[:axes])
    g = torch.Generator().manual_seed(1)
    convolution = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    module = Conv(4, 3, 2, padding="zero", margin=1, bias=1.0).sample(tuple(x.shape[1:]), generator=g, dtype=x.dtype)
    assert isinstance(module, RandomConv)
    assert torch.equal(module(x), convolution(x, module.weight, module.bias, 2, 1))
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[axes - 1]
    largest = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes - 1]
    for layer, expected in (
        (AveragePool(3, 2, "zero", 1), average(x, 3, 2, 1)),
        (AveragePool(3, 2, "zero", 1, edges="skip"), average(x, 3, 2, 1, count_include_pad=False)),
        (MaxPool(3, 2, "zero", 1), largest(x, 3, 2, 1)),
        (L2Pool(3, 2, "zero", 1), (average(x.square(), 3, 2, 1) * 3**axes).sqrt()),
    ):
        found = layer.sample(tuple(x.shape[1:]), generator=g, dtype=x.dtype)(x)
        torch.testing.assert_close(found, expected)
        assert tuple(found.shape[1:]) == layer.output_shape(tuple(x.shape[1:]))


@pytest.mark.parametrize("edges", ["count", "skip"])
def test_padded_average_by_brute_force(edges: str) -> None:
    """Windows of 3 with stride 2 over 6 positions of a linear network: each mean written as a row of weights."""
    x = noise(2, 3, 6)
    net = Sequential(Conv(5, 1), AveragePool(3, 2, "zero", 1, edges=edges))  # type: ignore[arg-type]
    rows = torch.zeros(3, 6, dtype=torch.float64)
    for p in range(3):
        inside = [i for i in (2 * p - 1, 2 * p, 2 * p + 1) if 0 <= i < 6]
        rows[p, inside] = 1 / (3 if edges == "count" else len(inside))
    pooled = torch.einsum("pi,nci->ncp", rows, x)
    expected = 2 / 3 * torch.einsum("ncp,mcp->nm", pooled, pooled) / 3
    torch.testing.assert_close(kernel(net, x), expected, rtol=1e-12, atol=1e-14)
    whole = kernel(Sequential(*net.layers, GlobalAveragePool()), x)
    torch.testing.assert_close(whole, 2 / 3 * pooled.mean(2) @ pooled.mean(2).T, rtol=1e-12, atol=1e-14)


def test_layer_norm_over_chosen_axes() -> None:
    """Each row by itself: the statistics are those of the units' mean squares along the row."""
    x = noise(2, 3, 4, 5)
    found = predict(Sequential(Conv(8, 1), LayerNorm((0, 2), 0.0)), x[:1], x[1:]).layers[-1]
    rows = x.square().mean(1).mean(2, keepdim=True)[:, None]  # (n, 1, h, 1)
    a, b = (x / rows.sqrt()).chunk(2)
    cosine = (a * b).sum() / (a.norm() * b.norm())
    assert float(found.cosine) == pytest.approx(float(cosine), rel=1e-12)
    everything = kernel(parse("conv3 relu ln conv3 gap"), x)
    torch.testing.assert_close(kernel(parse("conv3 relu ln(0, 1, 2) conv3 gap"), x), everything)
    torch.testing.assert_close(
        kernel(parse("conv3 relu ln(0) conv3 gap"), x), kernel(parse("conv3 relu ln(channels) conv3 gap"), x)
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Conv(4, (3, 3)).output_shape((2, 9)), "its sizes are for 2 position axes, the input (2, 9) has 1"),
        (lambda: Conv(4, (3, 3), (2, 2, 2)), "kernel has 2, stride has 3 numbers"),
        (lambda: Conv(4, (3, 3, 3, 3)), "at most 3 axes"),
        (lambda: Conv(4, True), "expected a whole number"),
        (lambda: Conv(4, 3, padding="same", margin=1), "padding='same' has no margin"),
        (lambda: Conv(4, 3).output_shape((5,)), "got vectors of shape (5,)"),
        (lambda: AveragePool((2, 2)).output_shape((8,)), "has no meaning for vectors"),
        (lambda: AveragePool(2, padding="zero").output_shape((8,)), "do not split into groups"),
        (lambda: MaxPool(2, padding="zero", margin=2).output_shape((3, 8)), "holds whole windows"),
        (lambda: MaxPool(9).output_shape((3, 8)), "window 9 is larger than the input of size 8"),
        (lambda: AveragePool(2, edges="drop"), "edges is 'drop'"),
        (lambda: AveragePool(2, padding="reflect"), "padding is 'reflect'"),
        (lambda: LayerNorm((1, 2)), "lack the channels"),
        (lambda: LayerNorm((0, 3)).output_shape((2, 4, 4)), "has no axis 3"),
        (lambda: LayerNorm("rows"), "over is 'rows'"),
    ],
)  # fmt: skip
def test_bad_sizes_are_refused(make, words: str) -> None:
    with pytest.raises(BadInput) as error:
        make()
    assert words in str(error.value)
