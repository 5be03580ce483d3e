"""Importing the package stays light: nothing heavy before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("code", ["import initscope", "import initscope\ndir(initscope)\ninitscope.__version__"])
def test_importing_needs_no_torch(code: str) -> None:
    ask = "\nimport sys\nsys.exit(str({'torch', 'numpy', 'scipy', 'click'} & set(sys.modules) or 0))"
    done = subprocess.run([sys.executable, "-c", code + ask], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "0", done.stderr


def test_names_are_loaded_when_used() -> None:
    code = "import sys, initscope\nassert callable(initscope.parse)\nsys.exit('torch' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
