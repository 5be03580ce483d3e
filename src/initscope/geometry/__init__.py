"""The travelling state (squared norms, squared distances), angles, pairs, shared boundaries."""

from initscope.geometry.boundaries import (
    boundary_weight,
    rectangle_boundary_size,
    shared_boundary,
    shared_boundary_size,
)
from initscope.geometry.channels import ChannelStatistics, channel_statistics
from initscope.geometry.cyclic import cyclic_convolution
from initscope.geometry.draws import covariance, draw_units, generator, push, then
from initscope.geometry.inputs import Inputs, check_inputs, ordinary
from initscope.geometry.kinds import centred_pairs, equal_shares, merge_kinds, regroup, together
from initscope.geometry.pairs import angle, defect, similarity, squared_distance, warn_undefined
from initscope.geometry.state import (
    Block,
    Draw,
    Pairs,
    Side,
    State,
    Tilt,
    balance,
    diagonal,
    excess_of,
    unequal,
    variance,
)

__all__ = [
    "Block",
    "ChannelStatistics",
    "Draw",
    "Inputs",
    "Pairs",
    "Side",
    "State",
    "Tilt",
    "angle",
    "balance",
    "boundary_weight",
    "centred_pairs",
    "channel_statistics",
    "check_inputs",
    "covariance",
    "cyclic_convolution",
    "defect",
    "diagonal",
    "draw_units",
    "equal_shares",
    "excess_of",
    "generator",
    "merge_kinds",
    "ordinary",
    "push",
    "rectangle_boundary_size",
    "regroup",
    "shared_boundary",
    "shared_boundary_size",
    "similarity",
    "squared_distance",
    "then",
    "together",
    "unequal",
    "variance",
    "warn_undefined",
]
