"""The all-pairs kernels against loops over positions with arc-cosines, mpmath near collapse, and each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.networks import fused
from initscope.networks.fused import (
    ConvStack,
    dense_kernel,
    dense_norms,
    estimate,
    mean_norms,
    plain,
    pooled_kernel,
    pooled_norms,
    psi,
    same_position_kernel,
)

PATHS = ("compiled", "plain")
PADDINGS = ("zero", "circular", "reflect", "valid")

STACKS = {
    "one relu": ((3,), (2.0,), (0.0,), (0.0,)),
    "leaky, bias, sizes": ((3, 1, 3), (1.7, 0.9, 2.1), (0.3, 0.0, 0.1), (0.2, 1.0, 0.0)),
    "wide": ((5, 3), (2.0, 1.5), (0.0, 0.2), (0.0, 0.2)),
    "pointwise identity": ((1,), (1.3,), (0.4,), (1.0,)),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors gain nothing from threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test once with compiled loops and once in plain torch."""
    if request.param == "plain":
        monkeypatch.setenv("INITSCOPE_NO_NUMBA", "1")
    else:
        pytest.importorskip("numba")
        monkeypatch.delenv("INITSCOPE_NO_NUMBA", raising=False)
    return str(request.param)


def images(n: int, c: int, h: int, w: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, c, h, w, generator=generator, dtype=torch.float64).to(dtype)


def he(depth: int, padding: str = "circular", kernel: int = 3) -> ConvStack:
    return ConvStack((kernel,) * depth, (2.0,) * depth, (0.0,) * depth, (0.0,) * depth, padding)


def source(place: int, size: int, padding: str) -> int | None:
    """Where a padded place looks, one axis; None is a zero."""
    if 0 <= place < size:
        return place
    if padding == "circular":
        return place % size
    if padding == "reflect":
        return -place if place < 0 else 2 * (size - 1) - place
    return None


def convolve(cov: np.ndarray, kernel: int, gain: float, bias: float, padding: str) -> np.ndarray:
    """Covariance over all position pairs (h, w, h, w) after one convolution, tap by tap."""
    h, w = cov.shape[:2]
    offset = 0 if padding == "valid" else kernel // 2
    rows, cols = (h - kernel + 1, w - kernel + 1) if padding == "valid" else (h, w)
    out = np.zeros((rows, cols, rows, cols))
    for p, q, u, v in itertools.product(range(rows), range(cols), range(rows), range(cols)):
        total = 0.0
        for s, t in itertools.product(range(kernel), range(kernel)):
            places = [
                source(place + tap - offset, size, padding)
                for place, tap, size in ((p, s, h), (q, t, w), (u, s, h), (v, t, w))
            ]
            if None not in places:
                total += cov[tuple(places)]
        out[p, q, u, v] = gain * total / kernel**2 + bias
    return out


def brute_force(stack: ConvStack, x: Tensor, y: Tensor) -> np.ndarray:
    """Covariance of the outputs over all position pairs of two single images (c, h, w), by arc-cosines."""
    a, b = x.double().numpy(), y.double().numpy()
    cov = {key: np.einsum("chw,cuv->hwuv", l, r) / len(a) for key, l, r in (("aa", a, a), ("bb", b, b), ("ab", a, b))}
    for kernel, gain, bias, s in zip(stack.kernels, stack.gains, stack.biases, stack.slopes, strict=True):
        cov = {key: convolve(value, kernel, gain, bias, stack.padding) for key, value in cov.items()}
        variance = {key: np.einsum("hwhw->hw", cov[key * 2]) for key in "ab"}
        for key, value in cov.items():
            norm = np.sqrt(np.multiply.outer(variance[key[0]], variance[key[1]]))
            rho = np.clip(value / np.where(norm > 0, norm, 1), -1, 1)
            relu = norm * (np.sqrt(1 - rho**2) + (np.pi - np.arccos(rho)) * rho) / (2 * np.pi)  # J1 [cho2009]
            cov[key] = s * value + (1 - s) ** 2 * relu
    return cov["ab"]


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", STACKS)
def test_equals_loops_over_positions(name: str, padding: str, path: str) -> None:
    stack = ConvStack(*STACKS[name], padding)
    height, width = (8, 7) if padding == "valid" and name == "wide" else (6, 5)
    x, y = images(2, 2, height, width, 0), images(2, 2, height, width, 1)
    x[0, :, :3, :3] = 0  # places without a norm
    same, pooled, apart = same_position_kernel(stack, x, y), pooled_kernel(stack, x, y), None
    apart = same_position_kernel(stack, x, y, quantity="distance")
    for i, j in ((0, 0), (1, 0)):
        cov = brute_force(stack, x[i], y[j])
        own = [np.einsum("hwhw->hw", brute_force(stack, z, z)).mean() for z in (x[i], y[j])]
        product = np.einsum("hwhw->hw", cov).mean()
        assert same[i, j].item() == pytest.approx(product, rel=1e-12, abs=1e-14)
        assert pooled[i, j].item() == pytest.approx(cov.mean(), rel=1e-12, abs=1e-14)
        assert apart[i, j].item() == pytest.approx(sum(own) - 2 * product, rel=1e-12, abs=1e-14)
        assert mean_norms(stack, x[i : i + 1]).item() == pytest.approx(own[0], rel=1e-12)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 5, 33), (4, 7, 8)])
def test_compiled_equals_plain(padding: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    stack = ConvStack(
        (3, 2, 1) if padding == "valid" else (3, 5, 1), (2.0, 1.4, 1.0), (0.0, 0.1, 0.2), (0.0, 0.3, 0.0), padding
    )
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.float64, 4e-15)):
        x, y = images(9, *shape, 0, dtype) + 0.5, images(3, *shape, 1, dtype) + 0.5
        calls = [
            lambda x=x, y=y, f=f, q=q: f(stack, x, y, quantity=q)
            for f in (same_position_kernel, pooled_kernel)
            for q in ("product", "distance")
        ]
        slack = [0.0, 0.0, 0.0, tolerance]  # the pooled distance is a difference of products of size one
        monkeypatch.delenv("INITSCOPE_NO_NUMBA", raising=False)
        fast = [call() for call in calls]
        monkeypatch.setenv("INITSCOPE_NO_NUMBA", "1")
        for one, other, absolute in zip(fast, [call() for call in calls], slack, strict=True):
            assert one.dtype == dtype
            torch.testing.assert_close(one, other, rtol=tolerance, atol=absolute)


def test_single_precision_error_on_images(path: str) -> None:
    """Kernel entries in float32 are within 1e-5 of float64, shallow and deep, pooled or not, also for unequal norms."""
    x = images(6, 3, 16, 16, 3, torch.float32)
    x[3:] = 30 * x[3:] + 5
    for stack in (he(1), he(10), he(5, "zero")):
        for function in (same_position_kernel, pooled_kernel):
            exact = function(stack, x.double())
            assert ((function(stack, x).double() - exact) / exact).abs().max() < 1e-5


@pytest.mark.parametrize("padding", ["zero", "circular", "valid"])
def test_plain_pooling_by_displacements_equals_all_pairs(padding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large images go one displacement at a time; the answer is that of the array over all position pairs."""
    monkeypatch.setenv("INITSCOPE_NO_NUMBA", "1")
    stack = ConvStack((3, 3), (2.0, 1.1), (0.1, 0.0), (0.0, 0.1), padding)
    x, y = images(3, 2, 6, 5, 20), images(2, 2, 6, 5, 21)
    whole = pooled_kernel(stack, x, y)
    monkeypatch.setattr(plain, "TILE_ELEMENTS", 100)
    torch.testing.assert_close(pooled_kernel(stack, x, y), whole, rtol=1e-13, atol=0)


@pytest.mark.parametrize("function", [same_position_kernel, pooled_kernel])
@pytest.mark.parametrize("padding", PADDINGS)
def test_symmetric_is_the_full_matrix(function: object, padding: str, path: str) -> None:
    stack = ConvStack((3, 3), (2.0, 1.1), (0.1, 0.0), (0.0, 0.1), padding)
    x = images(19, 3, 7, 6, 4)
    for quantity in ("product", "distance"):
        once = function(stack, x, quantity=quantity)  # type: ignore[operator]
        full = function(stack, x, x.clone(), quantity=quantity)  # type: ignore[operator]
        assert torch.equal(once, once.T)
        # distances between equal images are zero up to what the subtraction of products leaves
        torch.testing.assert_close(once, full, rtol=1e-12, atol=1e-14 * full.max().item())


def test_positive_semidefinite_and_consistent(path: str) -> None:
    x = images(24, 3, 8, 8, 5)
    for stack in (he(3), ConvStack((3,), (1.0,), (0.5,), (0.3,), "zero")):
        for function in (same_position_kernel, pooled_kernel):
            kernel, apart = function(stack, x), function(stack, x, quantity="distance")
            values = torch.linalg.eigvalsh(kernel)
            assert values[0] > -1e-13 * values[-1]
            norms = kernel.diagonal()
            own = mean_norms if function is same_position_kernel else pooled_norms
            torch.testing.assert_close(own(stack, x), norms, rtol=1e-14, atol=0)
            torch.testing.assert_close(apart, norms[:, None] + norms - 2 * kernel, rtol=1e-11, atol=1e-13)


def test_psi_keeps_relative_accuracy() -> None:
    """Against mpmath from 1e-12 to 1, and the fits against the series at many points."""
    mpmath.mp.dps = 60

    def exact(q: float) -> mpmath.mpf:
        t = 2 * mpmath.asin(mpmath.sqrt(mpmath.mpf(q)))
        return (mpmath.sin(t) - t * mpmath.cos(t)) / mpmath.pi

    points = [1e-12, 1e-9, 1e-6, 1e-3, 0.03, 0.2, 0.4999, 0.5, 0.5001, 0.7, 0.97, 1 - 1e-6, 1 - 1e-12, 1.0]
    for dtype, tolerance in ((torch.float64, 2e-15), (torch.float32, 3e-7)):
        u = torch.tensor(points, dtype=dtype)
        for got, q in zip(plain.psi(u.clone()).tolist(), u.tolist(), strict=True):
            assert abs(got / float(exact(q)) - 1) < tolerance
    assert plain.psi(torch.zeros(1)).item() == 0.0
    grid = np.linspace(0, 0.5, 2001)[1:]
    for degree, tolerance in ((psi.DEGREE_32, 1.6e-7), (psi.DEGREE_64, 1e-15)):
        fit = np.polynomial.Polynomial(psi.fit(degree, psi.series()))(grid)
        assert np.abs(fit / np.array([float(exact(q) / mpmath.mpf(q) ** 1.5) for q in grid]) - 1).max() < tolerance


def exact_distance(stack: ConvStack, x: Tensor, y: Tensor) -> mpmath.mpf:
    """Same-position distance of two images (c, h, w), circular, by covariances with 60 digits."""
    mpmath.mp.dps = 60
    c, h, w = x.shape
    places = list(itertools.product(range(h), range(w)))
    values = [[[mpmath.mpf(z[k, p, q].item()) for k in range(c)] for p, q in places] for z in (x, y)]
    state = {
        (l, r): [mpmath.fdot(a, b) / c for a, b in zip(values[l], values[r], strict=True)]
        for l, r in ((0, 0), (1, 1), (0, 1))
    }
    for kernel, gain, bias, s in zip(stack.kernels, stack.gains, stack.biases, stack.slopes, strict=True):
        taps = list(itertools.product(range(-(kernel // 2), kernel // 2 + 1), repeat=2))
        state = {
            key: [
                gain * mpmath.fsum(v[(p + i) % h * w + (q + j) % w] for i, j in taps) / kernel**2 + bias
                for p, q in places
            ]
            for key, v in state.items()
        }
        cross = []
        for a, b, product in zip(state[0, 0], state[1, 1], state[0, 1], strict=True):
            norm = mpmath.sqrt(a * b)
            t = mpmath.acos(product / norm)
            relu = norm * (mpmath.sin(t) + (mpmath.pi - t) * mpmath.cos(t)) / (2 * mpmath.pi)
            cross.append(mpmath.mpf(s) * product + (1 - mpmath.mpf(s)) ** 2 * relu)
        half = (1 + mpmath.mpf(s) ** 2) / 2
        state = {(0, 0): [half * v for v in state[0, 0]], (1, 1): [half * v for v in state[1, 1]], (0, 1): cross}
    total = mpmath.fsum(a + b - 2 * v for a, b, v in zip(state[0, 0], state[1, 1], state[0, 1], strict=True))
    return total / len(places)


@pytest.mark.parametrize("apart", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 2e-14)])
def test_distance_keeps_relative_accuracy_near_collapse(
    apart: float, dtype: torch.dtype, tolerance: float, path: str
) -> None:
    """Relative error of the distance of images `apart` from each other (squared: down to 1e-12) against 60 digits."""
    stack = ConvStack((3, 3, 3), (2.0, 2.0, 1.5), (0.0, 0.1, 0.0), (0.0, 0.2, 0.0), "circular")
    x = images(1, 2, 4, 4, 6, dtype)
    y = (x + apart * images(1, 2, 4, 4, 7, dtype)).to(dtype)
    got = same_position_kernel(stack, x, y, quantity="distance").item()
    assert abs(got / float(exact_distance(stack, x[0], y[0])) - 1) < tolerance


def test_equal_and_opposite_images(path: str) -> None:
    x = images(4, 3, 6, 6, 8, torch.float32)
    stack = he(4)
    assert torch.equal(same_position_kernel(stack, x, quantity="distance").diagonal(), torch.zeros(4))
    ends = same_position_kernel(he(1), x, -x).diagonal()
    assert ends.isfinite().all()
    assert (ends.abs() < 1e-6 * mean_norms(he(1), x)).all()
    nothing = torch.zeros(2, 3, 6, 6)
    assert torch.equal(pooled_kernel(stack, nothing), torch.zeros(2, 2))
    assert torch.equal(same_position_kernel(stack, nothing, x), torch.zeros(2, 4))
    for tiny in (1e-15, 1e-22):
        assert same_position_kernel(stack, tiny * x).isfinite().all()


def test_threads_do_not_change_a_digit(path: str) -> None:
    pair = images(40, 3, 10, 9, 9, torch.float32)
    answers = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        answers.append((same_position_kernel(he(2), pair), pooled_kernel(he(2, "zero"), pair[:9])))
    for other in answers[1:]:
        assert all(torch.equal(a, b) for a, b in zip(answers[0], other, strict=True))


def test_blocks_do_not_change_a_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits on memory cut the work differently and leave every entry as it was."""
    tasks = pytest.importorskip("initscope.networks.fused.tasks")
    monkeypatch.delenv("INITSCOPE_NO_NUMBA", raising=False)
    x, y = images(23, 3, 6, 6, 10), images(9, 3, 6, 6, 11)

    def answers() -> list[Tensor]:
        return [f(he(2), x[:n], z) for f, n in ((same_position_kernel, 23), (pooled_kernel, 7)) for z in (None, y)]

    whole = answers()
    monkeypatch.setattr(tasks, "PACK_BYTES", 24 * tasks.image_bytes(he(2), 3, 6, 6, 8))
    monkeypatch.setattr(tasks, "ROWS_PER_TASK", 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, answers(), strict=True))


def test_progress_counts_to_the_end(path: str) -> None:
    x = images(20, 1, 5, 4, 12)
    for function in (same_position_kernel, pooled_kernel):
        seen: list[tuple[int, int]] = []
        function(he(1), x, progress=lambda done, total, seen=seen: seen.append((done, total)))
        assert [done for done, _ in seen] == list(range(1, seen[-1][1] + 1))


@pytest.mark.parametrize("quantity", ["product", "distance"])
def test_dense_is_a_pointwise_convolution_on_one_position(quantity: str, path: str) -> None:
    """A dense stack and 1x1 convolutions of a 1x1 image are the same network; more rows than one block."""
    gains, biases, slopes = (2.0, 1.2, 1.9), (0.0, 0.3, 0.1), (0.0, 0.1, 1.0)
    stack = ConvStack((1, 1, 1), gains, biases, slopes, "valid")
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float64, 1e-12)):
        x, y = images(530, 6, 1, 1, 13, dtype), images(37, 6, 1, 1, 14, dtype)
        for other in (None, y):
            flat = dense_kernel(
                gains, biases, slopes, x[:, :, 0, 0], None if other is None else other[:, :, 0, 0], quantity=quantity
            )
            torch.testing.assert_close(
                flat, same_position_kernel(stack, x, other, quantity=quantity), rtol=tolerance, atol=0
            )


def test_dense_norms_are_the_diagonal(path: str) -> None:
    layers, x = ((2.0, 1.2), (0.0, 0.3), (0.0, 0.1)), images(5, 6, 1, 1, 19).reshape(5, 6)
    torch.testing.assert_close(dense_norms(*layers, x), dense_kernel(*layers, x).diagonal(), rtol=1e-14, atol=0)


def test_dense_distance_near_collapse(path: str) -> None:
    """A pair 1e-5 apart in float32: the distance agrees with float64 to rounding."""
    x = images(1, 300, 1, 1, 15, torch.float32).reshape(1, -1)
    y = x + 1e-5 * images(1, 300, 1, 1, 16, torch.float32).reshape(1, -1)
    layers = (2.0,) * 8, (0.0,) * 8, (0.0,) * 8
    exact = dense_kernel(*layers, x.double(), y.double(), quantity="distance").item()
    assert dense_kernel(*layers, x, y, quantity="distance").item() == pytest.approx(exact, rel=2e-6)


def test_compiles_where_nothing_can_be_cached() -> None:
    """A function without a source file has no place for a cache, like a package in a read-only folder."""
    loops = pytest.importorskip("initscope.networks.fused.loops")
    names: dict[str, object] = {}
    exec("def twice(x):\n    return 2 * x", names)
    assert loops.kept(names["twice"])(21) == 42


def test_runs_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing import of numba leads to plain torch, not to an error."""
    import sys

    monkeypatch.delenv("INITSCOPE_NO_NUMBA", raising=False)
    for module in ("initscope.networks.fused.tasks", "initscope.networks.fused.loops"):
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.delattr(f"initscope.networks.fused.{module.rsplit('.', 1)[1]}", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert fused.compiled_path() is None
    assert same_position_kernel(he(1), images(2, 1, 4, 4, 17)).shape == (2, 2)


def test_estimate() -> None:
    stack = he(3)
    small, large = (estimate(stack, n, n, 32, 32, 3, False) for n in (10, 1000))
    assert small.output_bytes < small.bytes < large.bytes < large.output_bytes + (1 << 30)
    assert estimate(stack, 10, 10, 8, 8, 3, True).updates == 100 * 3 * 64**2
    assert estimate(stack, 1, 1, 64, 64, 3, True, torch.float64).bytes < 200 << 20
    assert estimate(he(2, "reflect"), 1, 1, 64, 64, 3, True).bytes > 4 * 4096**2
    assert (
        estimate(he(1, "reflect"), 1, 1, 64, 64, 3, True).bytes < 4 << 20
    )  # one layer: no array over pairs of positions


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernels": (3, 3)}, "2 layers but 1 gains"),
        ({"kernels": (4,)}, "kernel 4"),
        ({"padding": "same"}, "padding 'same'"),
        ({"gains": (-1.0,)}, "gain -1.0"),
        ({"slopes": (math.nan,)}, "slope nan"),
    ],
)
def test_refuses_a_bad_stack(change: dict[str, object], words: str) -> None:
    good: dict[str, object] = {"kernels": (3,), "gains": (2.0,), "biases": (0.0,), "slopes": (0.0,), "padding": "zero"}
    with pytest.raises(BadInput, match=words):
        ConvStack(**{**good, **change})  # type: ignore[arg-type]


def test_refuses_bad_input() -> None:
    x = images(2, 3, 6, 6, 18)
    cases = [
        (he(1), x[0], None, "shape"),
        (he(1), x.half(), None, "float16"),
        (he(1), x.clone().requires_grad_(), None, "gradients"),
        (he(1), x / 0, None, "NaN"),
        (he(1), x, x[:, :, :5], "beside x"),
        (he(1), x, x.float(), "beside x"),
        (he(3, "valid"), x, None, "ConvStack layer 2: kernel 3x3 is larger than the 2x2 input"),
        (he(1, "reflect", 13), x, None, "reflects further"),
    ]
    for stack, left, right, words in cases:
        with pytest.raises(BadInput, match=words):
            same_position_kernel(stack, left, right)
    with pytest.raises(BadInput, match="quantity"):
        pooled_kernel(he(1), x, quantity="angle")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="layers"):
        dense_kernel((), (), (), x[:, 0, 0])
