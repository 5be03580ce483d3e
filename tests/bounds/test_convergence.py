"""DC Theorems 1, 4 and 10: the limit image against the recursions written out position by position, and against wide networks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bounds.random_nets import R, picture
from initscope.activations import ABS, leaky_relu
from initscope.bounds import convergence_image
from initscope.errors import BadInput, NoExactForm
from initscope.geometry import Inputs
from initscope.layers import (
    Activate,
    AveragePool,
    Conv,
    Dense,
    Flatten,
    L2Pool,
    Layer,
    MaxPool,
    ReLU,
    Scale,
    Upsample,
)
from initscope.networks import Residual, Sequential, parse
from initscope.weights import Gaussian, Orthogonal, Uniform, ZeroSum

ROUNDING = 1e-11


def sources(index: int, size: int, padding: str) -> int | None:
    """Where a padded coordinate reads from, None outside."""
    if 0 <= index < size:
        return index
    if padding == "circular":
        return index % size
    if padding == "reflect":
        return -index if index < 0 else 2 * (size - 1) - index
    return None


def windows(layer: Layer, size: tuple[int, int]) -> tuple[list[list[tuple[int, int] | None]], tuple[int, int]]:
    """For each output position in order the input positions of its window (None: a zero), and the output size."""
    if isinstance(layer, Conv):
        k, s, padding = layer.kernel, layer.stride, layer.padding
        assert isinstance(k, int)
        assert isinstance(s, int)
        before = 0 if padding == "valid" else (k - 1) // 2
        after = 0 if padding == "valid" else k - 1 - before
    else:
        assert isinstance(layer, L2Pool | AveragePool)
        k, s, padding, before, after = layer.window, layer.step, "valid", 0, 0
    out = tuple((n + before + after - k) // s + 1 for n in size)
    found = []
    for p, q in itertools.product(range(out[0]), range(out[1])):
        taps: list[tuple[int, int] | None] = []
        for i, j in itertools.product(range(k), range(k)):
            row, column = sources(p * s + i - before, size[0], padding), sources(q * s + j - before, size[1], padding)
            taps.append(None if row is None or column is None else (row, column))
        found.append(taps)
    return found, (out[0], out[1])


def enlarged(layer: Upsample, size: tuple[int, int]) -> list[tuple[int, int] | None]:
    k = layer.factor
    grid = itertools.product(range(size[0] * k), range(size[1] * k))
    return [(i // k, j // k) if layer.mode == "nearest" or (i % k == 0 == j % k) else None for i, j in grid]


def gram_recursion(net: Sequential, image: np.ndarray, k1: list[float], k2: list[float]) -> np.ndarray:
    """DC's proof of Theorem 10, position by position: C_jk = X_j'X_k through every layer; N channels with 1/sqrt(N) each.

    `image`: (c, h, w); `k1`, `k2`: one for each convolution. l2 pooling keeps only the diagonal (its angles are not known).
    """
    size = image.shape[1:]
    flat = image.reshape(len(image), -1)
    gram = flat.T @ flat
    convs = 0
    for layer in net.layers:
        if isinstance(layer, Upsample):
            read = enlarged(layer, size)
            size = (size[0] * layer.factor, size[1] * layer.factor)
            index = [None if r is None else r[0] * (size[1] // layer.factor) + r[1] for r in read]
            new = np.zeros((len(index), len(index)))
            for j, k in itertools.product(range(len(index)), repeat=2):
                if index[j] is not None and index[k] is not None:
                    new[j, k] = gram[index[j], index[k]]
            gram = new
        elif isinstance(layer, Conv | L2Pool | AveragePool):
            taps, out = windows(layer, size)
            index = [[None if t is None else t[0] * size[1] + t[1] for t in patch] for patch in taps]
            size = out
            if isinstance(layer, AveragePool):
                gram = np.array([[np.mean(gram[np.ix_(a, b)]) for b in index] for a in index])
                continue
            patches = np.zeros((len(index), len(index)))
            for j, k in itertools.product(range(len(index)), repeat=2):
                pairs = [(a, b) for a, b in zip(index[j], index[k], strict=True) if a is not None and b is not None]
                patches[j, k] = sum(gram[a, b] for a, b in pairs)
            z = np.sqrt(np.diag(patches))
            if isinstance(layer, L2Pool):
                gram = np.where(np.eye(len(z)) > 0, np.outer(z, z), np.nan)
                continue
            with np.errstate(invalid="ignore", divide="ignore"):
                angle = np.arccos(np.clip(np.nan_to_num(patches / np.outer(z, z)), -1, 1))
            gram = k2[convs] * np.outer(z, z) * ((np.pi - angle) * np.cos(angle) + np.sin(angle)) / np.pi
            convs += 1
    return (k1[-1] * z).reshape(size)


def filters(net: Sequential, channels: int) -> tuple[list[float], list[float]]:
    """k1 of each convolution, and N k2, for Gaussian weights of variance s²: k1 = s/sqrt(2 pi), k2 = s²/2."""
    k1, k2 = [], []
    for layer in net.layers:
        if isinstance(layer, Conv):
            variance = layer.weights.variance(layer.fans(channels))
            k1.append(math.sqrt(variance / (2 * math.pi)))
            k2.append(layer.channels * variance / 2)
            channels = layer.channels
    return k1, k2


L2_NETS = {
    "one layer": Sequential(Conv(7, 3, padding="zero"), R),
    "two layers": Sequential(Conv(7), R, Conv(5, 3, padding="reflect"), R),
    "l2 pooling": Sequential(Conv(7), R, L2Pool(2), Conv(6, padding="zero"), R),
    "cnn-dcn": Sequential(
        Conv(7), R, L2Pool(2), Conv(6, padding="zero"), R, Upsample(2, "zeros"), Conv(5, padding="zero"), R
    ),
    "nearest": Sequential(Conv(7, 2), R, L2Pool(3, 1), Conv(6), R, Upsample(2), Conv(5, padding="valid"), R),
    "strides": Sequential(L2Pool(2, 1), Conv(7, 3, 2, padding="zero"), R, Conv(4, 1), R),
    "own variance": Sequential(Conv(7, weights=Gaussian(0.3)), R, Conv(4, weights=Gaussian(5.0, "out")), R),
}
AVERAGE_NETS = {
    "average pooling": Sequential(Conv(7), R, AveragePool(2), Conv(6, padding="zero"), R),
    "average twice": Sequential(Conv(7), R, AveragePool(2, 1), Conv(6, 2), R, AveragePool(2), Conv(3, 2), R),
    "cnn-dcn": Sequential(
        Conv(7, padding="zero"), R, AveragePool(2), Conv(6), R, Upsample(2, "zeros"), Conv(5, padding="zero"), R
    ),
    "then l2": Sequential(Conv(7), R, AveragePool(2, 1), Conv(6, 2), R, L2Pool(2), Conv(3, 2), R),
    "of the data": Sequential(AveragePool(2, 1), Conv(6), R, L2Pool(2), Conv(3, 2), R),
}


@pytest.mark.parametrize("name", L2_NETS)
@pytest.mark.parametrize("channels", [1, 3])
def test_theorem_4_is_the_recursion_on_patch_norms(name: str, channels: int) -> None:
    net = L2_NETS[name]
    images = picture(1, 2, channels, 6, 6) - 0.3
    found = convergence_image(net, images)
    for image, limit in zip(images, found.image, strict=True):
        expected = gram_recursion(net, image.numpy(), *filters(net, channels))
        np.testing.assert_allclose(limit.numpy(), expected, rtol=ROUNDING)


@pytest.mark.parametrize("name", AVERAGE_NETS)
def test_theorem_10_is_the_recursion_on_pairs_of_positions(name: str) -> None:
    net = AVERAGE_NETS[name]
    images = picture(2, 2, 2, 6, 6) - 0.4
    found = convergence_image(net, images)
    assert torch.equal(found.image, found.scale * found.z)
    for image, limit in zip(images, found.image, strict=True):
        expected = gram_recursion(net, image.numpy(), *filters(net, 2))
        # The angle of nearly equal patches keeps half the digits in this recursion.
        np.testing.assert_allclose(limit.numpy(), expected, rtol=1e-7)


def routes(net: Sequential, size: tuple[int, int]) -> dict[tuple[int, int], int]:
    """n_(l, i): walks from input position l to output position i, counted one by one."""
    count = size[0] * size[1]
    walks = {(i, i): 1 for i in range(count)}
    for layer in net.layers:
        if isinstance(layer, Activate):
            continue
        width = size[1]
        if isinstance(layer, Upsample):
            reads = [[r] for r in enlarged(layer, size)]
            size = (size[0] * layer.factor, size[1] * layer.factor)
        else:
            reads, size = windows(layer, size)
        new: dict[tuple[int, int], int] = {}
        for i, patch in enumerate(reads):
            for tap in patch:
                if tap is None:
                    continue
                for l in range(count):
                    step = walks.get((l, tap[0] * width + tap[1]), 0)
                    if step:
                        new[l, i] = new.get((l, i), 0) + step
        walks = new
    return walks


@pytest.mark.parametrize("name", L2_NETS)
def test_z_counts_routes_and_k_has_the_root(name: str) -> None:
    net = L2_NETS[name]
    image = picture(3, 1, 3, 6, 6)
    found = convergence_image(net, image)
    norms = image[0].square().sum(0).flatten()
    squares = torch.zeros(found.z[0].numel(), dtype=torch.float64)
    for (l, i), count in routes(net, (6, 6)).items():
        squares[i] += count * norms[l]
    torch.testing.assert_close(found.z.flatten().square(), squares, rtol=ROUNDING, atol=0)
    k1, k2 = filters(net, 3)
    assert found.scale == pytest.approx(k1[-1] * math.sqrt(math.prod(k2[:-1])), rel=1e-12)
    printed = k1[-1] * math.prod(k2[:-1])  # the appendix, without the root
    if len(k1) > 1:
        assert abs(printed / found.scale - 1) > 0.1


def test_without_pooling_the_limit_is_the_mean_that_predict_carries() -> None:
    net = Sequential(
        Conv(6, padding="zero"), Activate(leaky_relu(0.2)), Upsample(2), Conv(5), Activate(leaky_relu(0.2))
    )
    images = picture(4, 3, 2, 5, 4) - 0.5
    state = net.propagate(Inputs(images, images))
    assert not isinstance(state, Inputs)
    torch.testing.assert_close(convergence_image(net, images).image, state.x.mean[0], rtol=1e-12, atol=0)


Z = "zero"
MONTE_CARLO = {
    "l2 pooling": [Conv(400), R, L2Pool(2), Conv(400, padding=Z), R, Upsample(2, "zeros"), Conv(400), R],
    "average pooling": [Conv(400), R, AveragePool(2), Conv(400, padding=Z), R, Upsample(2, "zeros"), Conv(400), R],
    "leaky": [Conv(400), Activate(leaky_relu(0.2)), L2Pool(2), Conv(400, 2), Activate(leaky_relu(0.2))],
    "abs": [Conv(400), Activate(ABS), AveragePool(2), Conv(400, 2), Activate(ABS)],
    "orthogonal": [Conv(30, weights=Orthogonal(3.0)), R, Conv(400, weights=Orthogonal()), R],
    "scaled": [Conv(400, weights=Gaussian(1.0, "none")), R, Scale(400**-0.5), Conv(400), R],
}


@pytest.mark.parametrize("name", MONTE_CARLO)
def test_wide_networks_have_the_limit_as_their_mean(name: str) -> None:
    """The bias of finite networks, about K2/(8N) = 0.2 % a layer, is far below the standard error of 60 draws, 1 %."""
    net = Sequential(*MONTE_CARLO[name])
    images = picture(5, 2, 3, 4, 4).float()
    outputs = []
    for seed in range(60):
        module = net.sample((3, 4, 4), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            outputs.append(module(images).mean(1))
    samples = torch.stack(outputs)
    stderr = samples.std(0) / math.sqrt(len(samples))
    distance = (samples.mean(0) - convergence_image(net, images).image) / stderr
    assert float(stderr.max() / samples.mean()) < 0.02
    assert float(distance.abs().max()) < 5


@given(st.integers(0, 10**6), st.floats(0.01, 100.0), st.sampled_from(sorted(L2_NETS)))
@settings(max_examples=20, deadline=None)
def test_the_limit_is_homogeneous_and_blind_to_signs(seed: int, factor: float, name: str) -> None:
    images = picture(seed, 1, 2, 6, 6) - 0.5
    once = convergence_image(L2_NETS[name], images)
    torch.testing.assert_close(convergence_image(L2_NETS[name], -factor * images).image, factor * once.image)


def test_whole_numbers_and_to_dict() -> None:
    images = torch.arange(32, dtype=torch.uint8).reshape(2, 1, 4, 4)
    found = convergence_image(Sequential(Conv(4), ReLU()), images)
    assert torch.equal(found.image, convergence_image(Sequential(Conv(4), ReLU()), images.double()).image)
    plain = found.to_dict()
    assert plain["image"] == found.image.tolist()
    assert plain["scale"] == found.scale
    assert "Theorems 1 and 4" in plain["source"]


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Sequential(Conv(4)), "not followed by an activation"),
        (Sequential(Conv(4), Conv(4), R), "layer 1 .conv3.: is not followed by an activation"),
        (Sequential(Conv(4), R, L2Pool(2)), "ends in l2pool2"),
        (Sequential(R, Conv(4), R), "layer 1 is relu, not right after a convolution"),
        (Sequential(Conv(4), R, R, Conv(4), R), "layer 3 is relu, not right after a convolution"),
        (Sequential(), "is empty"),
        (Sequential(Conv(4), R, MaxPool(2), Conv(4), R), "layer 3 is maxpool2.*use L2Pool"),
        (Sequential(Conv(4), R, Flatten(), Dense(4), R), "layer 3 is flatten"),
        (Sequential(Dense(4), R), "layer 1 is dense.*convolutions only"),
        (Sequential(Residual(Conv(3), R), Conv(4), R), "layer 1 is res"),
        (Sequential(Conv(6, groups=3), R), "3 groups"),
        (Sequential(Conv(4, bias=0.1), R), "biases"),
        (Sequential(Conv(4, bias=Uniform()), R), "biases"),
        (parse("conv3 tanh"), r"tanh, expected f\(ct\)"),
        (Sequential(Conv(4), Activate(leaky_relu(1.0))), "is zero"),
        (Sequential(Conv(4), R, Scale(-1.0), Conv(4), R), "positive factor"),
    ],
)
def test_networks_that_do_not_fit_definition_1_are_refused(net: Layer, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        convergence_image(net, torch.ones(1, 3, 8, 8))


@pytest.mark.parametrize("law", [Uniform(), ZeroSum()])
def test_filters_that_prefer_directions_are_refused(law: Uniform | ZeroSum) -> None:
    with pytest.raises(NoExactForm, match="isotropic"):
        convergence_image(Sequential(Conv(4, weights=law), R), torch.ones(1, 3, 8, 8))


def test_average_pooling_after_l2_pooling_is_refused() -> None:
    net = Sequential(Conv(4), R, L2Pool(2), Conv(4), R, AveragePool(2), Conv(4, 1), R)
    with pytest.raises(NoExactForm, match="no closed form"):
        convergence_image(net, torch.ones(1, 3, 8, 8))


def test_pairs_of_positions_that_do_not_fit_are_refused_with_the_size_that_does() -> None:
    net = Sequential(Conv(4), R, AveragePool(2), Conv(4), R)
    with pytest.raises(BadInput, match=r"at most (\d+)x\1, or L2Pool") as caught:
        convergence_image(net, torch.ones(1, 3, 64, 64), memory=2**24)
    side = int(str(caught.value).split("at most ")[1].split("x")[0])
    assert convergence_image(net, torch.ones(1, 3, side, side), memory=2**24).image.shape == (1, side // 2, side // 2)
    with pytest.raises(BadInput):
        convergence_image(net, torch.ones(1, 3, side + 2, side + 2), memory=2**24)


@pytest.mark.parametrize("images", [torch.ones(3, 8), torch.ones(0, 1, 4, 4), torch.full((1, 1, 4, 4), math.nan)])
def test_images_must_be_images(images: Tensor) -> None:
    with pytest.raises(BadInput):
        convergence_image(Sequential(Conv(4), R), images)
