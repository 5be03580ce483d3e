"""The house style of plots."""

from initscope.figures.check import Series, layer_curves, share_bar, shorten, step_curves
from initscope.figures.files import check_writable, write_atomically
from initscope.figures.similarity import Curve, similarity_curves
from initscope.figures.style import Picture, check_suffix, new_figure
from initscope.figures.width import FailureCurve, failure_curves

__all__ = [
    "Curve",
    "FailureCurve",
    "Picture",
    "Series",
    "check_suffix",
    "check_writable",
    "failure_curves",
    "layer_curves",
    "new_figure",
    "share_bar",
    "shorten",
    "similarity_curves",
    "step_curves",
    "write_atomically",
]
