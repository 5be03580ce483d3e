"""Numbers of the papers and of the exact theory, through the public `predict` and `kernel`."""

from __future__ import annotations

import math
import os
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from initscope.activations import RELU, leaky_relu
from initscope.layers import Activate, AveragePool, Conv, Dense, GlobalAveragePool, MaxPool
from initscope.networks import Sequential, kernel, predict

R = Activate(RELU)


def one_dimensional(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(1, 1, 1, -1)


def inner_product(net: Sequential, x: torch.Tensor, y: torch.Tensor) -> float:
    """E <h(x), h(y)> for one filter, He weights: variance 2/r² as in JL Theorem 3."""
    last = predict(net, x, y).layers[-1]
    return float((last.norm_x**2 + last.norm_y**2 - last.distance**2) / 2)


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_remark_2_examples_are_tight(rho: float) -> None:
    net = Sequential(Conv(1, 1), R)
    high, low = math.sqrt((1 + rho) / 2), math.sqrt((1 - rho) / 2)
    upper = inner_product(net, one_dimensional([high, low]), one_dimensional([high, -low]))
    assert upper == pytest.approx((1 + rho) / 2, abs=1e-14)
    left = one_dimensional([math.sqrt(1 - rho), math.sqrt(rho), 0.0])
    negative = one_dimensional([0.0, -math.sqrt(rho), math.sqrt(1 - rho)])
    positive = one_dimensional([0.0, math.sqrt(rho), math.sqrt(1 - rho)])
    assert inner_product(net, left, negative) == pytest.approx(0, abs=1e-14)
    assert inner_product(net, left, positive) == pytest.approx(rho, abs=1e-14)


def test_red_and_green_meet_at_one_over_pi() -> None:
    red, green = torch.zeros(2, 1, 3, 8, 8, dtype=torch.float64)
    red[:, 0], green[:, 1] = 1 / 8, 1 / 8
    last = predict(Sequential(Conv(1, 3), R), red, green).layers[-1]
    assert float(last.cosine) == pytest.approx(1 / math.pi, abs=1e-14)


def test_theorem_1_against_patches_taken_apart() -> None:
    """E <R(F*x), R(F*y)> as a sum over explicit patches, with the textbook arc-cosine formula."""
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, 1, 3, 5, 6, generator=g, dtype=torch.float64)
    patches = [
        torch.nn.functional.unfold(torch.nn.functional.pad(t, (1, 1, 1, 1), mode="circular"), 3)[0].T for t in (x, y)
    ]
    a, b = (p.norm(dim=1) for p in patches)
    rho = ((patches[0] * patches[1]).sum(1) / (a * b)).clamp(-1, 1)
    dual = ((1 - rho**2).sqrt() + (math.pi - rho.acos()) * rho) / math.pi
    expected = float((a * b * dual).sum() / (a.norm() * b.norm()))
    assert float(predict(Sequential(Conv(7, 3), R), x, y).layers[-1].cosine) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("n", [1, 2, 10, 50])
@pytest.mark.parametrize("rho", [-1.0, -0.4, 0.0, 0.5, 0.99])
def test_average_pooling_of_units_has_its_closed_form(n: int, rho: float) -> None:
    """1 - rho_A = pi (1 - rhat(rho)) / (pi + n - 1), with mpmath for rhat."""
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[rho, math.sqrt(1 - rho**2)]], dtype=torch.float64)
    net = Sequential(Dense(100), R, AveragePool(n))
    with mp.workdps(30):
        t = mp.acos(mp.mpf(float(y[0, 0])))
        rhat = (mp.sin(t) + (mp.pi - t) * mp.cos(t)) / mp.pi
        expected = float(mp.pi * (1 - rhat) / (mp.pi + n - 1))
    assert float(predict(net, x, y).layers[-1].defect) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("n", "value"), [(10, 0.12683), (50, 0.040901), (1000, 0.011613), (10**6, 0.0025942)])
def test_max_pooling_of_units(n: int, value: float) -> None:
    x, y = torch.eye(2, dtype=torch.float64).unsqueeze(1)
    last = predict(Sequential(Dense(n), R, MaxPool(n)), x, y).layers[-1]
    assert last.method == "exact"
    assert float(f"{float(last.defect):.5g}") == value


def test_max_pooling_against_the_bivariate_distribution() -> None:
    """E max(0, M) max(0, M') = ∬ 1 - F(s) - F(t) + F(s, t), n = 3, with SciPy's bivariate normal on a product rule."""
    n, rho = 3, 0.3
    nodes, weights = np.polynomial.legendre.leggauss(48)
    s, w = 4 * (nodes + 1), 4 * weights
    grid = np.stack(np.meshgrid(s, s, indexing="ij"), -1)
    joint = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf(grid) ** n
    single = norm.cdf(s) ** n
    product = w @ (1 - single[:, None] - single + joint) @ w
    square = w @ (2 * s * (1 - single))
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[rho, math.sqrt(1 - rho**2)]], dtype=torch.float64)
    last = predict(Sequential(Dense(9), R, MaxPool(n)), x, y).layers[-1]
    assert float(last.cosine) == pytest.approx(product / square, abs=1e-6)  # the precision of SciPy's distribution


def test_conv_and_global_average_is_the_sum_over_all_position_pairs() -> None:
    """PC eq. 18, brute force over patches."""
    g = torch.Generator().manual_seed(2)
    x, y = torch.randn(2, 1, 2, 4, 5, generator=g, dtype=torch.float64)
    patches = [
        torch.nn.functional.unfold(torch.nn.functional.pad(t, (1, 1, 1, 1), mode="circular"), 3)[0].T for t in (x, y)
    ]

    def mean_product(p: torch.Tensor, q: torch.Tensor) -> float:
        a, b = p.norm(dim=1), q.norm(dim=1)
        rho = (p @ q.T / (a[:, None] * b)).clamp(-1, 1)
        return float((a[:, None] * b * ((1 - rho**2).sqrt() + (math.pi - rho.acos()) * rho)).mean())

    xx, yy, xy = (mean_product(patches[i], patches[j]) for i, j in ((0, 0), (1, 1), (0, 1)))
    last = predict(Sequential(Conv(4), R, GlobalAveragePool()), x, y).layers[-1]
    assert float(last.cosine) == pytest.approx(
        xy / math.sqrt(xx * yy), abs=1e-7
    )  # acos at rho = 1 costs the oracle half its digits


def mp_defect(defect: mp.mpf, slope: float) -> mp.mpf:
    """One layer of leaky ReLU on 1 - rho, at high precision."""
    s = mp.mpf(slope)
    t = 2 * mp.asin(mp.sqrt(defect / 2))
    relu = (mp.pi * defect - (mp.sin(t) - t * mp.cos(t))) / mp.pi
    return (2 * s * defect + (1 - s) ** 2 * relu) / (1 + s**2)


@pytest.mark.parametrize(("dtype", "bar"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_accuracy_bar_through_predict(dtype: torch.dtype, bar: float, slope: float) -> None:
    """Raw vectors with 1 - rho from 2 down to 1e-12, against mpmath on the same rounded vectors."""
    x, y = [], []
    for defect in [2.0, 1.9, 1.0, *(10.0**-k for k in range(1, 13))]:
        t = 2 * math.asin(math.sqrt(defect / 2))
        x.append([1.0, 0.0])
        y.append([math.cos(t), math.sin(t)])
    tx, ty = torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype)
    net = Sequential(Dense(8), Activate(leaky_relu(slope)))
    found = predict(net, tx, ty, dtype=dtype).layers[-1].defect.double()
    with mp.workdps(50):
        for a, b, value in zip(tx.tolist(), ty.tolist(), found.tolist(), strict=True):
            ax, by = mp.matrix(a), mp.matrix(b)
            cosine = (ax.T * by)[0] / (mp.norm(ax) * mp.norm(by))
            expected = mp_defect(1 - cosine, slope)
            assert abs(value - expected) <= bar * expected


def test_a_thousand_layers_track_the_angle() -> None:
    x, y = torch.eye(2, dtype=torch.float64).unsqueeze(1)
    net = Sequential(*[layer for _ in range(1000) for layer in (Dense(4), R)])
    found = float(predict(net, x, y).layers[-1].angle)
    with mp.workdps(30):
        defect = mp.mpf(1)
        for _ in range(1000):
            defect = mp_defect(defect, 0.0)
        expected = float(2 * mp.asin(mp.sqrt(defect / 2)))
    assert found == pytest.approx(expected, rel=1e-4)
    assert found == pytest.approx(expected, rel=1e-9)


def shared(name: str) -> np.ndarray:
    folder = os.environ.get("INITSCOPE_DATA")
    if not folder:
        pytest.skip("INITSCOPE_DATA is not set: the folder with real image samples")
    with np.load(Path(folder) / f"{name}.npz") as file:
        return file["images" if name == "imagenet224" else "x_test"]


@pytest.mark.parametrize(
    ("name", "size", "pairs", "slope"),
    [
        ("fashion_mnist", 3, 200, 0.98),
        ("cifar10", 3, 200, 0.97),
        ("fashion_mnist", 11, 200, 0.84),
        ("cifar10", 11, 200, 0.86),
        ("imagenet224", 11, 60, 0.93),
    ],
)
def test_slopes_on_real_images(name: str, size: int, pairs: int, slope: float) -> None:
    """JL figure 1: the slope of cosine out against cosine in, exact means, raw pixels in [0, 1].

    The published figure is one random choice of pairs; ours must agree with it within the standard error of the fit over
    pairs (bootstrap) and the two printed digits.
    """
    images = torch.from_numpy(shared(name)).double() / 255
    images = images.unsqueeze(1) if images.ndim == 3 else images.movedim(-1, 1)
    generator = torch.Generator().manual_seed(0)
    pick = torch.randperm(len(images), generator=generator)[: 2 * pairs]
    x, y = images[pick].chunk(2)
    layers = predict(Sequential(Conv(100, size), R), x, y).layers
    before, after = layers[0].cosine.numpy(), layers[-1].cosine.numpy()
    found = np.polyfit(before, after, 1)[0]
    rng = np.random.default_rng(0)
    resampled = [np.polyfit(before[i], after[i], 1)[0] for i in rng.integers(0, pairs, (500, pairs))]
    assert abs(found - slope) <= 3 * np.std(resampled) + 0.005


def test_kernel_of_photos_sized_images_is_symmetric_in_tiles() -> None:
    """Tiles of any size give the same matrix."""
    g = torch.Generator().manual_seed(3)
    x = torch.rand(7, 2, 6, 6, generator=g, dtype=torch.float64)
    net = Sequential(Conv(8, stride=2), R, AveragePool(2), Conv(8, 1), R)
    whole = kernel(net, x)
    from initscope.networks.kernels import _tiled

    for tile in (1, 2, 3, 7):
        assert torch.allclose(_tiled(net, x, None, "product", tile, None).value, whole, rtol=1e-12)
        assert torch.allclose(_tiled(net, x[:4], x[4:], "product", tile, None).value, whole[:4, 4:], rtol=1e-12)
