"""How pairs of inputs lie in memory, and the numbers that a step of the machine is made of.

A tile has `ROWS` inputs of x and `LANES` inputs of y. A register holds one number for every pair of a tile at every place of a
window, the pairs of one place side by side: what belongs to an input of y is loaded as lanes, what belongs to one of x is
spread over them, and a sum over taps adds whole tiles. So a step need not know how wide an image is, and steps on vectors are
steps on an image of one row.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from initscope.networks.fused.lanes import LANES

ROWS = 4  # inputs of x in a tile: steps are written for four
WIDTH = int(LANES)  # inputs of y
TILE = ROWS * WIDTH
MIXED = 512  # coefficients of an input of x that a step of MODES may mix
# Cosines times this are cut off at ±1 where an angle is taken: rounding would cost equal and opposite inputs half their digits.
SNAP = 1 + 2.0**-48


class Code(IntEnum):
    """What a step does; activations come last."""

    LOAD = 0  # products of raw inputs
    FETCH = 1  # what an average over windows left
    CONV = 2
    MIX = 3  # alpha a + beta b + shift
    SIDES = 4  # a s_x s_y + alpha t_x t_y + beta m_x m_y
    TIMES = 5
    TOTAL = 6  # into the sums over positions
    POOL = 7  # into the store of pairs of windows
    BEND = 8  # leaky ReLU
    ARC = 9  # erf: shift + alpha asin(a e_x e_y)
    GELU = 10
    SERIES = 11
    BENT_SERIES = 12  # with rectified powers taken out
    MODES = 13  # a series over a range of variances as few products
    HINGES = 14  # pieces of degree two at most


class Step(NamedTuple):
    """Integers of one step, in the order in which the machine reads them.

    `a`, `b` are registers that are read, `out` the one that is written; `slope_a`, `slope_out` those of the tangent kernel, -1
    without one. `height`, `width`: places of `out`; `stride` how many places of the first window lie between two of this one.
    `fields`: how many numbers of each input the step has for each place.
    """

    code: int
    out: int
    a: int
    b: int
    slope_a: int
    slope_out: int
    height: int
    width: int
    stride_y: int
    stride_x: int
    fields: int
    even: int  # terms of even order, odd order (SERIES); HINGES: whether there are squares
    odd: int  # HINGES: vertices
    in_height: int  # places of `a` (CONV)
    in_width: int
    taps_y: int
    taps_x: int
    step_y: int
    step_x: int
    between_y: int  # dilation
    between_x: int
    before_y: int  # padded places
    before_x: int
