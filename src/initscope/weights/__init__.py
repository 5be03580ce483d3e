"""Weight laws: Gaussian, uniform, logistic, Laplace, truncated, sparse, orthogonal, zero-sum, any tap covariance."""

from initscope.weights.catalogue import Glorot, He, PyTorchDefault, by_name, name_of, names
from initscope.weights.correlated import TapCovariance, ZeroSum
from initscope.weights.independent import Gaussian, Independent, Laplace, Logistic, TruncatedNormal, Uniform
from initscope.weights.law import Fan, Fans, FilterMoments, WeightLaw
from initscope.weights.orthogonal import DeltaOrthogonal, Orthogonal
from initscope.weights.sparse import Sparse

__all__ = [
    "DeltaOrthogonal",
    "Fan",
    "Fans",
    "FilterMoments",
    "Gaussian",
    "Glorot",
    "He",
    "Independent",
    "Laplace",
    "Logistic",
    "Orthogonal",
    "PyTorchDefault",
    "Sparse",
    "TapCovariance",
    "TruncatedNormal",
    "Uniform",
    "WeightLaw",
    "ZeroSum",
    "by_name",
    "name_of",
    "names",
]
