"""Numbers and findings of a check in words, the same in the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from initscope.probe import LayerReport, Report
from initscope.probe.findings import Note
from initscope.probe.theory import Predicted
from initscope.report.finding_words import SHORT, times
from initscope.report.finding_words import advice_text as advice_text
from initscope.report.finding_words import finding_text as finding_text

MISSING = "-"


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


def followed_text(layer: LayerReport) -> str:
    """The measured mean cosine over the pairs that theory follows."""
    theory = prediction(layer)
    return MISSING if theory is None or math.isnan(theory.measured) else short_cosine(theory.measured)


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
    """What is beyond a limit at a step in one word each, the worst first."""
    return tuple(SHORT[kind] for kind, _ in layer.marks)


def layer_reason(layer: LayerReport) -> str:
    """What is beyond a limit at a step, the worst first."""
    return "; ".join(_mark_text(layer, kind) for kind, _ in layer.marks)


def _mark_text(layer: LayerReport, kind: str) -> str:
    if kind == "non-finite":
        return "values are NaN or infinite" if layer.broken else "the gradient is NaN or infinite"
    if kind == "collapse" and layer.angle_deg is not None and math.isfinite(layer.angle_deg):
        return f"samples are {layer.angle_deg:.2g} degrees apart"
    if kind == "collapse":
        return "samples are zero"
    if kind == "activation-scale" and layer.norm_ratio is not None:
        return (
            f"activations are {times(layer.norm_ratio)} than the data" if layer.norm_ratio else "activations are zero"
        )
    if kind == "gradient-scale" and layer.grad_norm_ratio is not None:
        return f"the gradient is {layer.grad_norm_ratio:.2g} of the one at the output"
    if kind == "dead-units" and layer.dead_fraction is not None:
        return f"{layer.dead_fraction:.0%} of the units are dead"
    if kind == "saturated" and layer.saturated_fraction is not None:
        return f"{layer.saturated_fraction:.0%} of the values saturate"
    return _MARKS.get(kind, SHORT[kind])


_MARKS = {
    "zero-weights": "all weights are zero, or nothing arrives",
    "dead-units": "it feeds units that are dead",
    "saturated": "it feeds units that saturate",
    "symmetric-units": "units repeat each other",
    "norm-statistics": "running statistics do not fit the batch",
    "dropout-rate": "most units are dropped",
    "not-followed": "samples cannot be followed from here on",
}


def verdict_text(report: Report) -> str:
    """The verdict in a sentence: what decides it, and where."""
    leading = report.leading
    if leading is None:
        return f"No problems found in any of the {len(report.layers)} steps"
    others = sum(f.status != "note" for f in report.findings) - 1
    more = f" (and {others} more finding{'s' * (others > 1)})" if others else ""
    return f"{finding_text(leading)}{more}"


def score_text(report: Report) -> str:
    """The score and what it is made of.

    The geometry alone gives a chance; a finding may hold the score in the band of its verdict.
    """
    chance = report.chance
    if math.isnan(chance.geometry):
        return "score 0.00: the model does not run" if report.failure else "no score: too little could be measured"
    parts = [f"{name} {value:+.1f}" for name, value in chance.terms.items() if name != "intercept"]
    odds = f"log odds {chance.terms['intercept']:.1f}, {', '.join(parts)}"
    if not chance.held_by:
        return f"score {chance.value:.2f}, the chance that it trains with Adam ({odds})"
    return f"score {chance.value:.2f}, held there by {chance.held_by}; the geometry alone gives {chance.geometry:.2f} ({odds})"


def report_line(report: Report) -> str:
    """One line: what `repr` shows."""
    at = f" at {report.first_bad_layer}" if report.first_bad_layer else ""
    kind = f" ({report.leading.kind}{at})" if report.leading is not None else ""
    score = "no score" if math.isnan(report.score) else f"score {report.score:.2f}"
    return f"<Report: {report.verdict}{kind}, {score}, {len(report.layers)} steps, {report.samples} samples>"


def summary_text(report: Report) -> str:
    """The verdict, the score and every finding with its advice."""
    score = "no score" if math.isnan(report.score) else f"score {report.score:.2f}"
    lines = [f"{report.verdict}, {score}: {verdict_text(report)}."]
    for finding in report.findings:
        lines.append(f"{finding.status}: {finding_text(finding)}. {advice_text(finding)}")
    text = draws_text(report)
    return "\n".join([*lines, *([text] if text else [])])


def draws_text(report: Report) -> str:
    """How other draws of the weights would be judged; empty without any."""
    if not report.draws:
        return ""
    verdicts = [draw.verdict for draw in report.draws]
    same = sum(v == report.verdict for v in verdicts)
    if same == len(verdicts):
        return f"{len(verdicts)} other draw{'s' * (len(verdicts) > 1)} of the weights: the same verdict."
    return f"{len(verdicts)} other draws of the weights would get: {', '.join(verdicts)}."


def note_texts(notes: Sequence[Note]) -> list[str]:
    """A sentence for each kind of note, functions and steps grouped."""
    texts = []
    for kind, words in _NOTES.items():
        mine = [note for note in notes if note.kind == kind]
        if mine:
            counted = [f"{note.detail} ({_steps(note.steps)})" if note.steps else note.detail for note in mine]
            texts.append(words.format(_some(counted)))
    texts += [
        f"The model writes to {_some(note.steps)} as it runs; "
        + ("it is too large to be copied, so they stay changed." if note.detail else "they were put back.")
        for note in notes
        if note.kind == "written"
    ]
    return texts


_MOST_OPS = 8  # functions that a note names
_NOTES = {
    "no-theory": "Measured only, there is no theory for: {}.",
    "layout": "Measured only, there is no theory for this layout of axes or groups: {}.",
    "too-long": 'Measured only, they take longer to predict than to measure (theory="full", --full-theory): {}.',
    "left-out": "Measured only, theory had no time for them (theory_seconds=, --theory-seconds; it may differ next time): {}.",
    "thinned": "Predicted with fewer pairs, or from a random part of the positions, to save time (it may differ next time): {}.",
    "batch": "Batch: {}.",
    "draws": "Other draws were {}.",
}


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_OPS]) + _more(len(names) - _MOST_OPS)


def _steps(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} steps, first {names[0]}"


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def facts(report: Report) -> str:
    """What was measured, in one line."""
    seeds = "1 draw" if report.seeds == 1 else f"{report.seeds} draws"
    loss = f"loss: {report.loss}" if report.loss else "no loss"
    return f"{report.samples} samples, {seeds}, {report.parameters:,} parameters, {loss}, {report.seconds:.1f} s"


def resolution_text(report: Report) -> str | None:
    """From which layer on the samples differ by less than a number format can tell; None if always told apart."""
    lost = [f"{kind} from {name}" for kind, name in report.resolution.items() if name is not None]
    return f"samples cannot be told apart in {', in '.join(lost)} on" if lost else None
