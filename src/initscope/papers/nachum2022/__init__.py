"""Nachum, Hazla, Gastpar, Khina 2022: similarity of two inputs through one random convolution (JL)."""

from initscope.papers.item import Item
from initscope.papers.nachum2022 import (
    boundary,
    bounds,
    colour,
    concentration,
    corollary,
    depth,
    expansion,
    figure1,
    means,
    resolution,
    slope,
    tails,
)

_FOUND = {
    item.key.partition("/")[2]: item
    for module in (
        figure1,
        slope,
        means,
        concentration,
        corollary,
        tails,
        bounds,
        boundary,
        resolution,
        colour,
        depth,
        expansion,
    )
    for item in module.ITEMS
}
# In the order of the paper.
_ORDER = (
    "eq2 fig1a fig1b fig1c fig1d slope thm1 thm2 remark1 cor1 lemma1 lemma2 thm3 remark2 remark3 thm4 fig2 example1 "
    "thm5 resolution channels depth orthogonal zerosum batchnorm lemma3 lemma4 thm6"
)
ITEMS: tuple[Item, ...] = tuple(_FOUND[name] for name in _ORDER.split())

__all__ = ["ITEMS"]
