"""Numbers and findings of a check in words, the same in the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from initscope.probe import LayerReport, Report
from initscope.probe.theory import Predicted

MISSING = "-"
# How a reason that `probe.verdict` gives is recognised, and the word that stands for it in a narrow column.
_TAGS = {
    "degrees apart": "angle",
    "activations": "norm",
    "gradient": "gradient",
    "are dead": "dead",
    "saturate": "saturated",
    "NaN": "NaN",
    "weights are zero": "zero",
}


def number_text(value: float | None) -> str:
    """Three digits, fewer where an exponent is needed.

    >>> number_text(0.62721), number_text(3.85e-14), number_text(None), number_text(1234.5), number_text(float("inf"))
    ('0.627', '3.9e-14', '-', '1.2e+03', 'inf')
    """
    if value is None or math.isnan(value):
        return MISSING
    if value == 0 or 1e-3 <= abs(value) < 1e3 or math.isinf(value):
        return f"{value:.3g}"
    return f"{value:.1e}"


def angle_text(degrees: float | None) -> str:
    text = number_text(degrees)
    return text if text == MISSING else f"{text}°"


def percent_text(share: float | None) -> str:
    """
    >>> percent_text(0.3125), percent_text(0.0), percent_text(0.001), percent_text(None)
    ('31 %', '0 %', '<1 %', '-')
    """
    if share is None or math.isnan(share):
        return MISSING
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def short_cosine(defect: float) -> str:
    """A cosine from its defect in at most eight letters.

    >>> short_cosine(0.25), short_cosine(3.2e-7), short_cosine(1.25)
    ('0.750', '1-3e-07', '-0.250')
    """
    return f"1-{defect:.0e}" if 0 < defect < 5e-4 else f"{1 - defect:.3f}"


def prediction(layer: LayerReport) -> Predicted | None:
    """What theory says about a layer; None too where it says that there is no angle, behind weights of zero."""
    theory = layer.predicted
    return None if theory is None or math.isnan(theory.defect) else theory


def predicted_text(layer: LayerReport) -> str:
    theory = prediction(layer)
    return MISSING if theory is None else short_cosine(theory.defect)


def interval_text(layer: LayerReport) -> str:
    """The interval of the predicted mean cosine that this width explains."""
    theory = prediction(layer)
    return MISSING if theory is None else f"{short_cosine(min(theory.most, 2.0))}..{short_cosine(theory.least)}"


def angle_of(defect: float) -> float:
    """Degrees from 1 - cosine, accurate for small angles: sin²(t/2) = (1 - cos t)/2.

    >>> round(angle_of(1.0), 9), round(angle_of(0.5), 9)
    (90.0, 60.0)
    """
    return math.degrees(2 * math.asin(math.sqrt(min(max(defect / 2, 0.0), 1.0))))


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(str(side) for side in shape) or "scalar"


def tags(layer: LayerReport) -> tuple[str, ...]:
    """The findings of a layer in one word each, the worst first."""
    found = (next((tag for sign, tag in _TAGS.items() if sign in part), part) for part in layer.reason.split("; "))
    return tuple(found) if layer.reason else ()


def first_bad(report: Report) -> LayerReport | None:
    return next((layer for layer in report.layers if layer.name == report.first_bad_layer), None)


def verdict_text(report: Report) -> str:
    """The verdict in a sentence: where it goes wrong first, and how."""
    if report.failure is not None:
        return f"the forward or backward pass stopped at {report.failure}"
    bad = first_bad(report)
    if bad is None:
        return f"all {len(report.layers)} steps keep samples, norms and gradients apart"
    count = sum(layer.status == bad.status for layer in report.layers)
    return f"first at {bad.name} ({bad.op}): {bad.reason} [{count} of {len(report.layers)} steps]"


def facts(report: Report) -> str:
    """What was measured, in one line."""
    seeds = "1 seed" if report.seeds == 1 else f"{report.seeds} seeds"
    loss = f"loss: {report.loss}" if report.loss else "no loss"
    return f"{report.samples} samples, {seeds}, {report.parameters:,} parameters, {loss}, {report.seconds:.1f} s"


def resolution_text(report: Report) -> str | None:
    """From which layer on the samples differ by less than a number format can tell; None if always told apart."""
    lost = [f"{kind} from {name}" for kind, name in report.resolution.items() if name is not None]
    return f"samples cannot be told apart in {', in '.join(lost)} on" if lost else None
