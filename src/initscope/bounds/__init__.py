"""What the papers guarantee and what is exactly true, each result with its hypotheses and its source."""

from initscope.bounds.result import Bound, Interval
from initscope.bounds.similarity import SharedBoundaryBounds, relu_conv_similarity_bounds, shared_boundary_bounds

__all__ = ["Bound", "Interval", "SharedBoundaryBounds", "relu_conv_similarity_bounds", "shared_boundary_bounds"]
