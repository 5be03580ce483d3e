"""Closed forms at variances from the smallest to the largest, ratios up to 1e30 and every angle, against mpmath.

The arguments A, B, D are rounded: an answer is right if it is that of arguments within a few roundings.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mpmath as mp
import pytest
import torch

from initscope.activations import (
    ABS,
    COS,
    ERF,
    EXP,
    GAUSSIAN,
    GELU,
    IDENTITY,
    RELU,
    SIGN,
    SIN,
    STEP,
    Activation,
    hermite,
    leaky_relu,
    polynomial,
    rectified_power,
)
from initscope.networks import kernel, parse

mpf = mp.mpf
Pair = Callable[[mp.mpf, mp.mpf, mp.mpf], mp.mpf]
DIGITS = 360  # of 1e300 and of 1e-324 at once would need more, but nothing here adds those


@dataclass(frozen=True)
class Case:
    activation: Activation
    product: Pair
    slopes: Pair  # E f'(u) f'(v)


def wick(coefficients) -> Pair:
    """Σ c_i c_j E u^i v^j by counting pairings."""

    def moment(i: int, j: int, A, B, c):
        return mp.fsum(
            mp.factorial(i) * mp.factorial(j) * c**k * A ** ((i - k) // 2) * B ** ((j - k) // 2)
            / (mp.factorial(k) * mp.factorial((i - k) // 2) * mp.factorial((j - k) // 2) * 2 ** ((i + j) // 2 - k))
            for k in range(i % 2, min(i, j) + 1, 2)
        )  # fmt: skip

    powers = [(i, mpf(x)) for i, x in enumerate(coefficients) if x]
    return lambda A, B, c: mp.fsum(
        x * y * moment(i, j, A, B, c) for i, x in powers for j, y in powers if (i + j) % 2 == 0
    )


def slopes_of(coefficients) -> list:
    return [i * c for i, c in enumerate(coefficients)][1:]


def he(order: int) -> list:
    with mp.workdps(DIGITS):
        before, now = [mpf(0)], [mpf(1)]
        for k in range(order):
            before, now = now, [x - k * (before[i] if i < len(before) else 0) for i, x in enumerate([mpf(0), *now])]
        return [x / mp.sqrt(mp.factorial(order)) for x in now]


def angle(A, B, c):
    return mp.pi / 2 if A * B == 0 else mp.atan2(mp.sqrt(max(A * B - c * c, mpf(0))), c)


def arc_cosine(k: int) -> Pair:
    """(ab)^k J_k / 2π (Cho & Saul 2009, eq. 4-6)."""

    def value(A, B, c):
        t = angle(A, B, c)
        s, r = mp.sin(t), mp.cos(t)
        J = (
            mp.pi - t,
            s + (mp.pi - t) * r,
            3 * s * r + (mp.pi - t) * (1 + 2 * r * r),
            s * (4 + 11 * r * r) + (mp.pi - t) * r * (9 + 6 * r * r),
        )[k]
        return mp.sqrt(A * B) ** k * J / (2 * mp.pi)

    return value


def leaky(slope: float) -> Case:
    s = mpf(slope)
    return Case(
        {0.0: RELU, 1.0: IDENTITY, -1.0: ABS}.get(slope) or leaky_relu(slope),
        lambda A, B, c: (1 - s) ** 2 * arc_cosine(1)(A, B, c) + s * c,
        lambda A, B, c: s + (1 - s) ** 2 * arc_cosine(0)(A, B, c),
    )


def jump(activation: Activation, low: int) -> Case:
    def product(A, B, c):
        if A * B == 0:
            return mpf(0)  # both step(0) and the mean of the sign are 0
        return mpf(1 + low) ** 2 / 4 + mpf(1 - low) ** 2 / 4 * (1 - 2 * angle(A, B, c) / mp.pi)

    def slopes(A, B, c):
        rest = A * B - c * c
        return mpf(1 - low) ** 2 / (2 * mp.pi * mp.sqrt(rest)) if rest > 0 else mp.inf

    return Case(activation, product, slopes)


def gelu(A, B, c):
    W = (1 + A) * (1 + B) - c * c
    rational = (A * (B + A * B - c * c) / (1 + A) + c * c / (1 + B)) / mp.sqrt(W)
    return c / 4 + (c * mp.asin(c / mp.sqrt((1 + A) * (1 + B))) + rational) / (2 * mp.pi)


def gelu_slopes(A, B, c):
    W = (1 + A) * (1 + B) - c * c
    arc = mp.asin(c / mp.sqrt((1 + A) * (1 + B)))
    return mpf(1) / 4 + (arc + c / mp.sqrt(W) * (1 / (1 + A) + 1 / (1 + B) + 1 / W)) / (2 * mp.pi)


def power(x):
    """e^x, without its digits where it is no float at all."""
    return mpf(0) if x < -3000 else x * mpf(10) ** 1300 if x > 3000 else mp.exp(x)


def sin(A, B, c):
    return (power(c - (A + B) / 2) - power(-c - (A + B) / 2)) / 2


def cos(A, B, c):
    return (power(c - (A + B) / 2) + power(-c - (A + B) / 2)) / 2


def exp(A, B, c):
    return power((A + B) / 2 + c)


def of_coefficients(activation: Activation, coefficients) -> Case:
    return Case(activation, wick(coefficients), wick(slopes_of(coefficients)))


MIXED = [0.5, -1.0, 0.25, 2.0]
CASES = [
    Case(
        ERF,
        lambda A, B, c: 2 / mp.pi * mp.asin(2 * c / mp.sqrt((1 + 2 * A) * (1 + 2 * B))),
        lambda A, B, c: 4 / mp.pi / mp.sqrt((1 + 2 * A) * (1 + 2 * B) - 4 * c * c),
    ),
    Case(GELU, gelu, gelu_slopes),
    Case(SIN, sin, cos),
    Case(COS, cos, sin),
    Case(EXP, exp, exp),
    Case(
        GAUSSIAN,
        lambda A, B, c: 1 / mp.sqrt((1 + A) * (1 + B) - c * c),
        lambda A, B, c: c / mp.sqrt((1 + A) * (1 + B) - c * c) ** 3,
    ),
    *(of_coefficients(hermite(k), he(k)) for k in (1, 2, 3, 4)),
    of_coefficients(polynomial(MIXED), MIXED),
    of_coefficients(polynomial([0.0, 0.0, 0.0, 1.0]), [0, 0, 0, 1]),
    *(leaky(s) for s in (0.0, 1.0, -1.0, 0.2, -0.3)),
    Case(rectified_power(2), arc_cosine(2), lambda A, B, c: 4 * arc_cosine(1)(A, B, c)),
    Case(rectified_power(3), arc_cosine(3), lambda A, B, c: 9 * arc_cosine(2)(A, B, c)),
    jump(STEP, 0),
    jump(SIGN, -1),
]
COSINES = ("-1", "-0.9999999999999999", "-0.5", "0", "0.3", "0.99999999", "0.9999999999999999", "1")
WIDE = {
    torch.float64: (-300, -160, -80, -20, -8, -3, 0, 1, 2, 2.85, 3, 8, 20, 80, 160, 300),
    torch.float32: (-38, -30, -20, -8, -2, 0, 1, 2.85, 4, 8, 20, 30, 38),
}
FEW = {torch.float64: (-300, 2.85, 20, 300), torch.float32: (-38, 2.85, 38)}


def states(dtype: torch.dtype, exponents) -> Iterator[tuple[float, float, float]]:
    """Pairs of variances with a ratio of at most 1e30, every cosine; and zeros."""

    def rounded(x) -> float:
        return float(torch.tensor(float(x), dtype=torch.float64).to(dtype))

    for x, y in itertools.combinations_with_replacement(exponents, 2):
        if y - x > 30:
            continue
        cosines = COSINES if len(exponents) > 4 else COSINES[::2] + COSINES[-1:]
        for stretch, cosine in itertools.product((1.0, 1.0001) if x == y else (1.0,), cosines):
            A, B = rounded(10.0**x), rounded(10.0**y * stretch)
            D = rounded(mpf(A) + mpf(B) - 2 * mpf(cosine) * mp.sqrt(mpf(A) * mpf(B)))
            if math.isfinite(D):
                yield A, B, D
                yield B, A, D
    for size in (0.0, 1e-30, 1.0, 1e30):
        yield 0.0, size, size
        yield size, 0.0, size


def truths(case: Case, A, B, D) -> tuple:
    """Distance, product and derivative product, the correlation kept within ±1."""
    most = mp.sqrt(A * B)
    c = max(-most, min(most, (A + B - D) / 2))
    product = case.product(A, B, c)
    return case.product(A, A, A) + case.product(B, B, B) - 2 * product, product, case.slopes(A, B, c)


def right(case: Case, which: int, got: float, state: tuple[float, float, float], dtype: torch.dtype) -> bool:
    """Whether `got` is what arguments within a few roundings give."""
    A, B, D = map(mpf, state)
    eps, least = mpf(torch.finfo(dtype).eps), mpf(torch.finfo(dtype).tiny) * mpf(torch.finfo(dtype).eps)
    largest = mpf(torch.finfo(dtype).max) * (1 - eps)
    truth = truths(case, A, B, D)[which]
    slack = 200 * eps * abs(truth) + 64 * least
    if which == 0 and case.activation is GELU and D > 0:
        slack += 20 * eps * abs(truth) * mp.sqrt(max(A, B) / D)  # what rounding u and v does to D
    if which > 0:
        form = case.product if which == 1 else case.slopes
        size = form(A, A, A) * form(B, B, B)
        slack += 0 if mp.isinf(size) else 20 * eps * mp.sqrt(abs(size))
    if which == 2 and A * B == 0:
        return not math.isnan(got)  # f' of a zero is a matter of taste
    if math.isnan(got):
        return False

    def within(low, high, slack) -> bool:
        if math.isinf(got):
            return high > largest if got > 0 else low < -largest
        return low - slack <= got <= high + slack

    if within(truth, truth, slack if not mp.isinf(truth) else 0):
        return True
    near = [
        truths(case, A * (1 + 4 * i * eps), B * (1 + 4 * j * eps), D * (1 + 4 * k * eps) + k * least)[which]
        for i, j, k in [(0, 0, 1), (0, 0, -1), *itertools.product((-1, 1), repeat=3)]
    ]
    low, high = min(near), max(near)
    return within(low, high, slack + (high - low if not mp.isinf(high) else 0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("exponents", [FEW, pytest.param(WIDE, marks=pytest.mark.slow)], ids=["few", "wide"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.activation.name)
def test_every_closed_form_everywhere(case: Case, exponents: dict, dtype: torch.dtype) -> None:
    f = case.activation
    with mp.workdps(DIGITS):
        table = list(states(dtype, exponents[dtype]))
        A, B, D = (torch.tensor(column, dtype=dtype) for column in zip(*table, strict=True))
        answers = f.distance(A, B, D), f.product(A, B, D), f.derivative_product(A, B, D)
        wrong = [
            (("distance", "product", "derivative")[which], state, float(answer[i]))
            for which, answer in enumerate(answers)
            for i, state in enumerate(table)
            if not right(case, which, float(answer[i]), state, dtype)
        ]
    assert wrong == []
    for moment in (f.second_moment(A), f.mean(A), f.derivative_second_moment(A)):
        assert not bool(moment.isnan().any())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", [c for c in CASES if c.activation.degree != 0], ids=lambda case: case.activation.name)
def test_moments_everywhere(case: Case, dtype: torch.dtype) -> None:
    A = torch.tensor([10.0**x for x in WIDE[dtype]], dtype=torch.float64).to(dtype)
    moments = case.activation.second_moment(A).tolist(), case.activation.derivative_second_moment(A).tolist()
    with mp.workdps(DIGITS):
        for form, found in zip((case.product, case.slopes), moments, strict=True):
            for a, value in zip(map(mpf, A.tolist()), found, strict=True):
                truth = form(a, a, a)
                if truth > torch.finfo(dtype).max:
                    assert value == math.inf
                else:
                    slack = 64 * torch.finfo(dtype).tiny * torch.finfo(dtype).eps
                    assert abs(value - truth) <= 200 * torch.finfo(dtype).eps * abs(truth) + slack


@pytest.mark.parametrize("word", ["sin", "cos", "erf", "gelu", "gaussian"])
def test_kernels_of_pixels_are_numbers(word: str) -> None:
    """Variances that differ by hundreds, as those of raw pixels do."""
    x = torch.tensor([[10.0, 20.0, 30.0], [200.0, 220.0, 250.0]])
    for dtype in (torch.float32, torch.float64):
        assert not bool(kernel(parse(f"dense {word}"), x, dtype=dtype).isnan().any())
        assert not bool(kernel(parse(f"dense {word}"), x, quantity="distance", dtype=dtype).isnan().any())
    if word == "sin":
        assert torch.allclose(kernel(parse("dense sin"), x.double()), 0.5 * torch.eye(2).double(), atol=1e-12)
