"""The house style of plots."""

from initscope.figures.check import Series, layer_curves, share_bar, shorten, step_curves
from initscope.figures.papers import Line, Panel, Points, curves_and_points
from initscope.figures.similarity import Curve, similarity_curves
from initscope.figures.style import (
    LINES,
    MARKERS,
    PALETTE,
    Picture,
    check_suffix,
    dress,
    finish,
    house_style,
    new_figure,
)
from initscope.figures.width import FailureCurve, failure_curves

__all__ = [
    "LINES",
    "MARKERS",
    "PALETTE",
    "Curve",
    "FailureCurve",
    "Line",
    "Panel",
    "Picture",
    "Points",
    "Series",
    "check_suffix",
    "curves_and_points",
    "dress",
    "failure_curves",
    "finish",
    "house_style",
    "layer_curves",
    "new_figure",
    "share_bar",
    "shorten",
    "similarity_curves",
    "step_curves",
]
