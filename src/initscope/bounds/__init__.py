"""What the papers guarantee and what is exactly true, each result with its hypotheses and its source."""

from initscope.bounds.result import Bound as Bound
from initscope.bounds.result import Interval as Interval
from initscope.bounds.similarity import SharedBoundaryBounds as SharedBoundaryBounds
from initscope.bounds.similarity import relu_conv_similarity_bounds as relu_conv_similarity_bounds
from initscope.bounds.similarity import shared_boundary_bounds as shared_boundary_bounds
