"""What all results share: valid JSON, and showing them changes no random numbers."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
import torch
from torch import nn

import initscope as iscope
from initscope.errors import UndefinedSimilarity
from initscope.finite import simulate
from initscope.networks import parse, predict
from initscope.results import jsonable


def test_what_json_does_not_have_is_null() -> None:
    found = jsonable({"a": (1.0, math.nan, [-math.inf]), 2: torch.tensor([1.0, math.inf]), "b": {"c": None, "d": True}})
    assert found == {"a": [1.0, None, [None]], "2": [1.0, None], "b": {"c": None, "d": True}}


def test_every_result_is_json() -> None:
    zero = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    nn.init.zeros_(zero[2].weight)
    nn.init.zeros_(zero[2].bias)
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    report = iscope.check(zero, x)
    assert report.layers[-1].to_dict()["cosine_interval"] == [None, None]
    with pytest.warns(UndefinedSimilarity):
        nothing = predict(parse("dense relu"), torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.warns(UndefinedSimilarity):
        drawn = simulate(parse("dense(4) relu"), torch.zeros(2, 3), torch.zeros(2, 3), draws=2)
    for document in (
        report.to_dict(),
        iscope.fix(zero, x, seeds=1).to_dict(),
        nothing.to_dict(),
        drawn.to_dict(),
    ):
        assert json.loads(json.dumps(document, allow_nan=False)) == document


SHOWS = """
import random, tempfile, torch
from torch import nn
import initscope as iscope
x = torch.randn(8, 16)
net = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(16, 16), nn.ReLU())))
result = iscope.{call}(net, x, seeds=1)
state = random.getstate()
{shown}
assert random.getstate() == state
"""


def _changes_nothing(call: str, shown: str) -> None:
    """In a new process: what is shown first imports the report room."""
    done = subprocess.run([sys.executable, "-c", SHOWS.format(call=call, shown=shown)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_printing_changes_no_random_numbers() -> None:
    _changes_nothing("check", "str(result)")


def test_other_views_change_no_random_numbers() -> None:
    page = "result.to_html(tempfile.mkdtemp() + '/page.html')"
    _changes_nothing("check", f"repr(result); result._repr_html_(); {page}; result.to_dict()")
    _changes_nothing("fix", f"repr(result); str(result); result._repr_html_(); {page}; result.to_dict()")
