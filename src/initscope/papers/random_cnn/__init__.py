"""DC: a random CNN and a random DCN give the picture back."""

from initscope.papers.item import Item
from initscope.papers.random_cnn import figure7, inputs, limit, sheets, style, training, training_sheets, variance

ITEMS: tuple[Item, ...] = (
    *sheets.ITEMS,
    *figure7.ITEMS,
    *training.ITEMS,
    *training_sheets.ITEMS,
    *style.ITEMS,
    *limit.ITEMS,
    *variance.ITEMS,
    *inputs.ITEMS,
)
