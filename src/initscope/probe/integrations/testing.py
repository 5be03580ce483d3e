"""For a project's own tests: a model that starts unhealthy fails them."""

from __future__ import annotations

from typing import Any

from initscope.probe.checking import check
from initscope.probe.report import Report


def assert_healthy(model: Any, batch: Any, *, allow_warnings: bool = True, **options: Any) -> Report:
    """`check`, and `Unhealthy` (an AssertionError) with the first bad layer and its reason if it fails.

    Options are those of `check`. As a pytest fixture it is called `healthy_initialization`.

    >>> import torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> assert_healthy(net, torch.randn(16, 8, generator=torch.Generator().manual_seed(0)), seeds=1).samples
    16
    """
    report = check(model, batch, **options)
    report.assert_healthy(allow_warnings=allow_warnings)
    return report
