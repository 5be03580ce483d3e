"""A notebook run by Jupyter: the last expression of a cell shows as HTML."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor

pytestmark = pytest.mark.slow  # a kernel is started

SETUP = """
import torch
from torch import nn
import initscope as iscope
x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
_ = torch.manual_seed(0)
model = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(16, 16), nn.ReLU())))
"""
CELLS = {
    "check": "iscope.check(model, x, seeds=1)",
    "fix": "iscope.fix(model, x, seeds=1)",
    "predict": "net = iscope.parse('2x(dense(32) relu)')\niscope.predict(net, x[:4], x[4:])",
    "simulate": "iscope.simulate(net, x[:4], x[4:], draws=5)",
    "print": "print(iscope.predict(net, x[:4], x[4:]))",
    "network": "net",
}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    """All cells, executed."""
    folder = tmp_path_factory.mktemp("jupyter")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(code) for code in (SETUP, *CELLS.values())]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder / name.lower()))  # nothing of the user's own
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        ExecutePreprocessor(timeout=120, kernel_name="python3").preprocess(book, {"metadata": {"path": str(folder)}})
    return book


def outputs(book: nbformat.NotebookNode, name: str) -> list[nbformat.NotebookNode]:
    return list(book.cells[1 + list(CELLS).index(name)].outputs)


@pytest.mark.parametrize("name", ["check", "fix", "predict", "simulate"])
def test_the_last_expression_is_html(notebook: nbformat.NotebookNode, name: str) -> None:
    (shown,) = outputs(notebook, name)
    assert shown.output_type == "execute_result"
    assert "<table" in shown.data["text/html"] or "<svg" in shown.data["text/html"]
    assert "<script" not in shown.data["text/html"]
    assert "\n" not in shown.data["text/plain"], "the repr is one line"


def test_print_is_the_table_and_a_network_its_text(notebook: nbformat.NotebookNode) -> None:
    (printed,) = outputs(notebook, "print")
    assert printed.output_type == "stream"
    assert "norm ratio" in printed.text
    assert "\x1b" not in printed.text
    (net,) = outputs(notebook, "network")
    assert net.data["text/plain"] == "2x(dense(32) relu)"


def test_the_exported_page_shows_the_tables(notebook: nbformat.NotebookNode, tmp_path: Path) -> None:
    page, _ = HTMLExporter().from_notebook_node(notebook)
    (tmp_path / "notebook.html").write_text(page)
    assert page.count('<div class="initscope">') >= 3
