"""A user's model: trace it, measure it, predict it, diagnose it, prescribe, verify."""

from initscope.probe.checking import check
from initscope.probe.findings import Finding
from initscope.probe.fixing import Fixed, fix
from initscope.probe.operations import register_operation
from initscope.probe.remedies import Conditions, Effect, Health, Remedy, apply_remedy, prescribe
from initscope.probe.report import Draw, LayerReport, Report, Unhealthy
from initscope.probe.thresholds import Thresholds
from initscope.probe.training import LossCurve, Training

__all__ = [
    "Conditions",
    "Draw",
    "Effect",
    "Finding",
    "Fixed",
    "Health",
    "LayerReport",
    "LossCurve",
    "Remedy",
    "Report",
    "Thresholds",
    "Training",
    "Unhealthy",
    "apply_remedy",
    "check",
    "fix",
    "prescribe",
    "register_operation",
]
