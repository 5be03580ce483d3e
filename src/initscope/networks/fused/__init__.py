"""All-pairs kernels of conv and dense stacks with leaky ReLU: compiled loops, and a plain torch path with the same numbers."""

from initscope.networks.fused.kernels import (
    Estimate,
    compiled_path,
    dense_kernel,
    dense_layer_norms,
    dense_norms,
    estimate,
    mean_norms,
    pooled_kernel,
    pooled_norms,
    same_position_kernel,
)
from initscope.networks.fused.stack import ConvStack, Own, layer_norms
from initscope.networks.fused.tangents import dense_tangents, stack_tangents

__all__ = [
    "ConvStack",
    "Estimate",
    "Own",
    "compiled_path",
    "dense_kernel",
    "dense_layer_norms",
    "dense_norms",
    "dense_tangents",
    "estimate",
    "layer_norms",
    "mean_norms",
    "pooled_kernel",
    "pooled_norms",
    "same_position_kernel",
    "stack_tangents",
]
