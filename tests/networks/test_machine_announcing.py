"""The line before a loop is compiled: once, only where nothing is kept, and only for those who listen."""

from __future__ import annotations

import pytest
import torch

from initscope.networks import kernel, parse
from initscope.networks.machine import announcing, compiling_announced

NET, INPUTS = parse("dense gelu dense", width=8), torch.eye(3)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcing, "_told", set())


@pytest.mark.usefixtures("forgetful")
def test_cold_loops_are_announced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcing, "_ready", lambda loop, dtype: False)
    said: list[str] = []
    with compiling_announced(said.append):
        kernel(NET, INPUTS, progress=lambda done, total: None)
        kernel(NET, INPUTS)
    assert said == [announcing.MESSAGE]


@pytest.mark.usefixtures("forgetful")
def test_loops_that_are_kept_are_not_announced() -> None:
    kernel(NET, INPUTS)
    said: list[str] = []
    with compiling_announced(said.append):
        kernel(NET, INPUTS)
    assert said == []


@pytest.mark.usefixtures("forgetful")
def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(announcing, "_ready", lambda loop, dtype: False)
    kernel(NET, INPUTS)
    assert capsys.readouterr() == ("", "")


def test_what_is_compiled_is_known_by_type() -> None:
    from initscope.networks.machine.interpreter import run_products

    kernel(NET, INPUTS)
    assert announcing._ready(run_products, "float32")
    assert not announcing._ready(run_products, "float16")
