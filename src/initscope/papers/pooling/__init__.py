"""Contraction property of pooling layer: what average and max pooling do to angles (PC)."""

from initscope.papers.item import Item
from initscope.papers.pooling import (
    conv_figure,
    conv_theorems,
    dense_figure,
    dense_theorems,
    gaussian_theorem,
    networks,
    shift,
    toy,
    windows,
)

_BY_KEY = {
    item.key: item
    for module in (
        networks,
        dense_figure,
        conv_figure,
        shift,
        toy,
        dense_theorems,
        conv_theorems,
        gaussian_theorem,
        windows,
    )
    for item in module.ITEMS
}
_ORDER = (
    "fig1", "fig2", "fig3", "table2", "fig4", "fig5", "fig6", "thm4-1", "thm4-2", "cor4-3", "thm4-4", "discussion", "appendix-d",
)  # fmt: skip

ITEMS: tuple[Item, ...] = tuple(_BY_KEY[f"pooling/{name}"] for name in _ORDER)

__all__ = ["ITEMS"]
