"""Compositions of layers, the architecture language, exact prediction and kernels."""

from initscope.networks.accuracy import Accuracy, KernelResult
from initscope.networks.branches import Concat, Product, Residual, Sum
from initscope.networks.composition import Sequential, as_network
from initscope.networks.kernels import KernelEstimate, kernel, kernel_estimate, kernel_with_error
from initscope.networks.language import parse, unparse
from initscope.networks.masks import Masked
from initscope.networks.prediction import LayerGeometry, Prediction, predict
from initscope.networks.tangent import tangent_kernel, tangent_kernel_with_error

__all__ = [
    "Accuracy",
    "Concat",
    "KernelEstimate",
    "KernelResult",
    "LayerGeometry",
    "Masked",
    "Prediction",
    "Product",
    "Residual",
    "Sequential",
    "Sum",
    "as_network",
    "kernel",
    "kernel_estimate",
    "kernel_with_error",
    "parse",
    "predict",
    "tangent_kernel",
    "tangent_kernel_with_error",
    "unparse",
]
