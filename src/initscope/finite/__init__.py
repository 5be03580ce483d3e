"""Finite networks: Monte Carlo estimates that carry their standard error."""

from initscope.finite.estimate import Estimate
from initscope.finite.gradients import GradientEstimate, GradientSimulation, simulate_gradients
from initscope.finite.kernels import kernel
from initscope.finite.norm_law import NormLaw, relu_backward_law, relu_gradient_law, relu_norm_law
from initscope.finite.per_sample import SampleGradients, sample_gradients
from initscope.finite.similarity_variance import SimilarityVariance, similarity_variance
from initscope.finite.simulation import LayerEstimate, Simulation, simulate
from initscope.finite.sketch import sketch_kernel
from initscope.finite.tangent import simulate_tangent

__all__ = [
    "Estimate",
    "GradientEstimate",
    "GradientSimulation",
    "LayerEstimate",
    "NormLaw",
    "SampleGradients",
    "SimilarityVariance",
    "Simulation",
    "kernel",
    "relu_backward_law",
    "relu_gradient_law",
    "relu_norm_law",
    "sample_gradients",
    "similarity_variance",
    "simulate",
    "simulate_gradients",
    "simulate_tangent",
    "sketch_kernel",
]
