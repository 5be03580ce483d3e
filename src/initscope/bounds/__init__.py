"""What the papers guarantee and what is exactly true, each result with its hypotheses and its source."""

from initscope.bounds.convergence import Convergence, convergence_image
from initscope.bounds.filters import FilterCount, filters_for
from initscope.bounds.printed_width import rate as norm_rate
from initscope.bounds.reconstruction import AngleToInput, angle_to_input, measure_angle
from initscope.bounds.result import Bound, Interval
from initscope.bounds.similarity import SharedBoundaryBounds, relu_conv_similarity_bounds, shared_boundary_bounds
from initscope.bounds.subspace import SubspaceAnswer, width_for_subspace
from initscope.bounds.variance import AngleToLimit, angle_to_limit
from initscope.bounds.width import FailureAnswer, WidthAnswer, failure_probability, width_for

__all__ = [
    "AngleToInput",
    "AngleToLimit",
    "Bound",
    "Convergence",
    "FailureAnswer",
    "FilterCount",
    "Interval",
    "SharedBoundaryBounds",
    "SubspaceAnswer",
    "WidthAnswer",
    "angle_to_input",
    "angle_to_limit",
    "convergence_image",
    "failure_probability",
    "filters_for",
    "measure_angle",
    "norm_rate",
    "relu_conv_similarity_bounds",
    "shared_boundary_bounds",
    "width_for",
    "width_for_subspace",
]
