"""What a model or a file is called cannot move the cursor, color the terminal, or add elements to a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import initscope as iscope
from initscope.cli import main
from initscope.printable import one_line, printable
from initscope.report import check_html, check_page, check_text

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]")
EVIL = "a\x1b[31mX\x07\r\n\u202e\x9b2J<b>[red]"
MODEL = f"""
from torch import nn
class Evil(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(6):
            self.add_module(f"{{i}}" + {EVIL!r}, nn.Linear(8, 8))
            self.add_module(f"r{{i}}" + {EVIL!r}, nn.ReLU())
    def forward(self, x):
        for part in self.children():
            x = part(x)
        return x
Evil.__name__ = {EVIL!r}
def raises():
    raise RuntimeError({EVIL!r})
"""


@given(st.text())
def test_nothing_hidden_is_left(text: str) -> None:
    assert not CONTROL.search(printable(text))
    assert "\n" not in printable(text)
    assert "\n" not in one_line(text)
    assert printable(printable(text)) == printable(text)
    assert printable(text, lines=True).count("\n") == text.count("\n")


def test_words_stay_as_they_are() -> None:
    text = "Schicht 1 → größer als 0.5, 層, 👩‍🔬"
    assert printable(text) is text or printable(text) == text


@pytest.fixture(scope="module")
def report() -> iscope.Report:
    torch.manual_seed(0)
    scope: dict[str, type[nn.Module]] = {}
    exec(MODEL, scope)
    return iscope.check(scope["Evil"](), torch.randn(8, 8), seeds=1)


def test_results_in_python_and_notebooks(report: iscope.Report) -> None:
    text = check_text(report)
    assert r"0a\x1b[31mX\x07\r\n\u202e\x9b2J<b>[red]" in text
    for shown in (text, str(report), check_html(report), check_page(report, title=EVIL)):
        assert not CONTROL.search(shown)
    for page in (check_html(report), check_page(report, title=EVIL)):
        assert "<b>" not in page


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "{model}:Evil", "--shape", "8"],
        ["fix", "{model}:Evil", "--shape", "8"],
        ["check", "{model}:raises", "--shape", "8"],
        ["check", "{model}:no" + EVIL, "--shape", "8"],
        ["check", "{model}:Evil", "--data", EVIL],
        ["predict", EVIL],
        ["check", "--no" + EVIL],
        [EVIL],
        ["width", "--depth", EVIL],
    ],
)
def test_commands(tmp_path: Path, arguments: list[str]) -> None:
    path = tmp_path / "evil\x1b[5m.py"
    path.write_text(MODEL)
    arguments = [argument.replace("{model}", str(path)) for argument in arguments]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code in (0, 1, 2), done.output
    assert not CONTROL.search(done.output), repr(done.output)
