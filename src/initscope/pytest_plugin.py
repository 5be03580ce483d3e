"""A fixture for projects that test their models with pytest; loaded by pytest itself, so nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def healthy_initialization() -> Callable[..., Any]:
    """`healthy_initialization(model, batch)`: fails the test, with the layer and the reason, if the model starts unhealthy."""
    from initscope.probe.integrations import assert_healthy

    return assert_healthy
