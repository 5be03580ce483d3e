"""The house style of plots."""

from initscope.figures.files import check_writable, write_atomically
from initscope.figures.similarity import Curve, similarity_curves
from initscope.figures.style import Picture, check_suffix, new_figure

__all__ = [
    "Curve",
    "Picture",
    "check_suffix",
    "check_writable",
    "new_figure",
    "similarity_curves",
    "write_atomically",
]
