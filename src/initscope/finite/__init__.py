"""Finite networks: Monte Carlo estimates that carry their standard error."""

from initscope.finite.estimate import Estimate
from initscope.finite.simulation import LayerEstimate, Simulation, simulate

__all__ = ["Estimate", "LayerEstimate", "Simulation", "simulate"]
