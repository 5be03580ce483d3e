"""What to change about a model: each remedy tried on a copy, measured, and ranked by what it did."""

from initscope.probe.remedies.remedy import Conditions, Effect, Health, Remedy
from initscope.probe.remedies.screening import apply_remedy, prescribe

__all__ = ["Conditions", "Effect", "Health", "Remedy", "apply_remedy", "prescribe"]
