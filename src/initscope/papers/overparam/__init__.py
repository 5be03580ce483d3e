"""OP: activation and gradient norms of deep ReLU networks, and how wide is wide enough."""

from initscope.papers.item import Item
from initscope.papers.overparam import backward, figure1, figure2, figure3, forward, inner, subspace, theorem3

ITEMS: tuple[Item, ...] = (
    *figure1.ITEMS,
    *figure2.ITEMS,
    *figure3.ITEMS,
    *forward.ITEMS,
    *subspace.ITEMS,
    *backward.ITEMS,
    *theorem3.ITEMS,
    *inner.ITEMS,
)
