"""Results into terminal tables and one-file HTML."""

import initscope.report.first_import  # noqa: F401  isort: skip  before anything else that needs rich

from initscope.report.check_table import blame_bar, check_view, layers_table
from initscope.report.check_views import check_html, check_text
from initscope.report.fix_table import fix_view
from initscope.report.page import check_page, fix_page, write_check_page, write_fix_page
from initscope.report.papers_page import papers_page, write_papers_page
from initscope.report.papers_table import papers_list, papers_table, tally
from initscope.report.remedy_words import remedies_table
from initscope.report.tables import (
    Compared,
    LayerRow,
    comparison_table,
    cosine_text,
    facts_table,
    layer_rows,
    layer_table,
)

__all__ = [
    "Compared",
    "LayerRow",
    "blame_bar",
    "check_html",
    "check_page",
    "check_text",
    "check_view",
    "comparison_table",
    "cosine_text",
    "facts_table",
    "fix_page",
    "fix_view",
    "layer_rows",
    "layer_table",
    "layers_table",
    "papers_list",
    "papers_page",
    "papers_table",
    "remedies_table",
    "tally",
    "write_check_page",
    "write_fix_page",
    "write_papers_page",
]
