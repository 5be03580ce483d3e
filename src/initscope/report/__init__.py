"""Results into terminal tables."""

from initscope.report.tables import (
    Compared,
    LayerRow,
    comparison_table,
    cosine_text,
    facts_table,
    layer_rows,
    layer_table,
)

__all__ = ["Compared", "LayerRow", "comparison_table", "cosine_text", "facts_table", "layer_rows", "layer_table"]
