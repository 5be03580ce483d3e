"""All that is tried."""

from __future__ import annotations

from fuzz import inputs, kept, models

TARGETS = (*inputs.TARGETS, *kept.TARGETS, *models.TARGETS)
