"""Weight laws: Gaussian, uniform, orthogonal, delta-orthogonal, zero-sum, any tap covariance."""

from initscope.weights.catalogue import (
    DeltaOrthogonal,
    Gaussian,
    He,
    Orthogonal,
    TapCovariance,
    Uniform,
    ZeroSum,
    by_name,
)
from initscope.weights.law import Fan, Fans, WeightLaw

__all__ = [
    "DeltaOrthogonal",
    "Fan",
    "Fans",
    "Gaussian",
    "He",
    "Orthogonal",
    "TapCovariance",
    "Uniform",
    "WeightLaw",
    "ZeroSum",
    "by_name",
]
