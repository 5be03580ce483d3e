"""Laws refuse what they cannot be, and compare by their parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest
import torch

from initscope.errors import BadInput
from initscope.weights import (
    DeltaOrthogonal,
    Fans,
    Gaussian,
    Glorot,
    He,
    Laplace,
    Logistic,
    Orthogonal,
    Sparse,
    TapCovariance,
    TruncatedNormal,
    Uniform,
    WeightLaw,
    ZeroSum,
)
from weights.shapes import Shape, draw


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "law",
    [
        Gaussian, Uniform, Logistic, Laplace, TruncatedNormal, Orthogonal, DeltaOrthogonal, ZeroSum, Glorot,
        lambda s: Sparse(0.5, s), lambda s: TapCovariance(torch.eye(9), s), lambda s: He("out", s, uniform=True),
    ],
)  # fmt: skip
def test_a_scale_must_be_positive(law: Callable[[float], WeightLaw], scale: float) -> None:
    with pytest.raises(BadInput, match=f"scale is {scale}"):
        law(scale)


BAD = {
    "fan": (lambda: Gaussian(2.0, "inn"), "Gaussian: fan is 'inn'; choose from in, out, mean, geometric, none"),  # type: ignore[arg-type]
    "fan of He": (lambda: He("both"), "Gaussian: fan is 'both'"),  # type: ignore[arg-type]
    "fan of sparse": (lambda: Sparse(0.5, 2.0, ""), "Sparse: fan is ''"),  # type: ignore[arg-type]
    "scale": (lambda: Laplace("2"), "Laplace: scale is '2', expected a positive number; pass scale > 0"),  # type: ignore[arg-type]
    "deviation": (lambda: Gaussian.of_deviation(-1), "Gaussian: sigma is -1, expected a positive number"),
    "large deviation": (lambda: Gaussian.of_deviation(1e200), "Gaussian: scale is inf"),
    "bound": (lambda: Uniform.of_bound(0), "Uniform: bound is 0"),
    "logistic width": (lambda: Logistic.of_width(math.nan), "Logistic: width is nan"),
    "laplace width": (lambda: Laplace.of_width(-0.1), "Laplace: width is -0.1"),
    "cut": (lambda: TruncatedNormal(cut=-2.0), "TruncatedNormal: cut is -2.0"),
    "small cut": (lambda: TruncatedNormal(cut=1e-4), "the cut is at 0.0001 deviations, expected at least 0.001; use Uniform"),
    "parent's cut": (lambda: TruncatedNormal.of_parent(1.0, 1e-9), "the cut is at 1e-09 deviations"),
    "parent's deviation": (lambda: TruncatedNormal.of_parent(0.0), "TruncatedNormal: deviation is 0.0"),
    "sparsity": (lambda: Sparse(1.0), "Sparse: sparsity is 1.0, expected 0 <= sparsity < 1; pass for example 0.9"),
    "sparsity is true": (lambda: Sparse(True), "sparsity is True"),
    "sparse deviation": (lambda: Sparse.of_parent(0.5, 0.0), "Sparse: deviation is 0.0"),
    "too sparse": (
        lambda: Sparse(0.9).variance(Fans(100, 4)),
        "of 4 weights of each input 4 would be zero, which leaves none; use more outputs, or sparsity <= 0.75",
    ),
    "too sparse to draw": (lambda: draw(Sparse(0.9), Shape(4, 9)), "leaves none"),
    "fans": (lambda: Fans(0, 3), "fans: inputs is 0, expected a whole number from 1 on; pass inputs >= 1"),
    "fan asked for": (lambda: Fans(2, 3).count("all"), "fans: fan is 'all'"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case: str) -> None:
    make, message = BAD[case]
    with pytest.raises(BadInput, match=re.escape(message)):
        make()


def test_laws_with_equal_parameters_are_equal() -> None:
    for make in (Gaussian, Uniform, Logistic, Laplace, TruncatedNormal, Orthogonal, DeltaOrthogonal, ZeroSum, Sparse):
        assert make() == make()
        assert hash(make()) == hash(make())
        with pytest.raises(FrozenInstanceError):
            make().scale = 3.0  # type: ignore[misc]
    different = {
        Gaussian(), Gaussian(1.0), Gaussian(2.0, "out"), Uniform(), Logistic(), Laplace(), TruncatedNormal(),
        TruncatedNormal(cut=3.0), Sparse(), Sparse(0.5), Sparse(before_zeros=True), Orthogonal(), DeltaOrthogonal(),
        ZeroSum(), ZeroSum(over="channel"),
    }  # fmt: skip
    assert len(different) == 15


def test_what_is_no_covariance_is_refused() -> None:
    lopsided = torch.eye(4)
    lopsided[0, 1] = 0.5
    indefinite = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    for matrix in (torch.eye(4)[:3], torch.ones(4)):
        with pytest.raises(BadInput, match="pass a square"):
            TapCovariance(matrix)
    for matrix in (lopsided, indefinite):
        with pytest.raises(BadInput, match="no covariance"):
            TapCovariance(matrix)
    with pytest.raises(BadInput, match="the matrix has 4 taps, the 3x3 filter 9"):
        TapCovariance(torch.eye(4)).taps((3, 3))
    with pytest.raises(BadInput, match="over is 'taps'"):
        ZeroSum(over="taps")
