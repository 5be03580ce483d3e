"""The figures of a checked model, as SVG elements that sit in a page and follow its colours."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from initscope.figures import Picture, Series, layer_curves, share_bar, step_curves
from initscope.figures.style import BLUE, GREEN, ORANGE
from initscope.probe import Report
from initscope.report.wording import angle_of

SMALL_ANGLE = 2.0  # degrees; where angles fall below, only a logarithmic axis shows them
_COLOURS = {
    "#ffffff": "var(--paper)",
    "#dddddd": "var(--grid)",
    "#666666": "var(--axis)",
    "#000000": "currentColor",
    BLUE.lower(): "var(--blue)",
    ORANGE.lower(): "var(--orange)",
    GREEN.lower(): "var(--green)",
}


@dataclass(frozen=True)
class Drawing:
    """A figure of the page: its heading, a sentence on how to read it, and the element."""

    title: str
    words: str
    svg: Markup


def drawings(report: Report, before: Report | None = None) -> list[Drawing]:
    """Angle, norm, gradient and rank over the layers, and the shares of the contraction; with `before`, both networks."""
    if before is not None and [a.name for a in before.layers] != [b.name for b in report.layers]:
        before = None  # another network: there is no common axis
    made = [
        ("Angle between samples", _ANGLE_WORDS, _angle(report, before)),
        ("Size of the activations", _NORM_WORDS, _norm(report, before)),
        ("Size of the gradient", _GRADIENT_WORDS, _gradient(report, before)),
        ("Effective rank of the batch", _RANK_WORDS.format(report.samples), _rank(report, before)),
    ]
    if report.blame:
        made.append(("What brings the samples together", _BLAME_WORDS, share_bar(report.blame, title="Contraction")))
    return [Drawing(title, words, inline(p, f"f{i}")) for i, (title, words, p) in enumerate(made) if p is not None]


def training_drawing(curves: Mapping[str, Sequence[float]]) -> Drawing:
    """Losses over training steps."""
    title = "Training loss"
    picture = step_curves(curves, title=title, quantity="loss")
    return Drawing(
        title, "Both start from their own weights; data, optimizer and seed are the same.", inline(picture, "t")
    )


def inline(picture: Picture, prefix: str) -> Markup:
    """The <svg> element for a page: identifiers that no other figure has, and the page's colours for paper and ink."""
    svg = own_names(picture.svg(), prefix)
    svg = re.sub("|".join(_COLOURS), lambda m: _COLOURS[m[0]], svg)
    return Markup(svg)  # the words in it were escaped when it was drawn


def own_names(svg: str, prefix: str) -> str:
    """The element with identifiers that start with the prefix; those that nothing refers to are left out."""
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg)) | {n for t in _LABELS.findall(svg) for n in t.split()}

    def name(match: re.Match[str]) -> str:
        return f' id="{prefix}-{match[1]}"' if match[1] in used else ""

    svg = re.sub(r'\sid="([^"]+)"', name, svg)
    svg = re.sub(r'(url\(#|href="#)([^")]+)', rf"\1{prefix}-\2", svg)
    return _LABELS.sub(lambda m: f'aria-labelledby="{" ".join(f"{prefix}-{n}" for n in m[1].split())}"', svg)


_LABELS = re.compile(r'aria-labelledby="([^"]+)"')
_ANGLE_WORDS = (
    "Mean over pairs of samples. Near zero the network cannot tell its inputs apart. The band is what theory and this width "
    "allow for the pairs that theory follows; the circles are those pairs in this network."
)
_NORM_WORDS = "Root mean square of the units, against the data's."
_GRADIENT_WORDS = "Norm of the gradient of the loss by the activations, against the one at the output."
_RANK_WORDS = "How many directions the batch of {} samples still fills; 1 means that all samples look alike."
_BLAME_WORDS = "Share of each kind of operation in the loss of angle from the data to the output."


def _angle(report: Report, before: Report | None) -> Picture | None:
    angles = [layer.angle_deg for layer in report.layers]
    old = [] if before is None else [layer.angle_deg for layer in before.layers]
    theory = [layer.predicted for layer in report.layers]
    series = []
    if any(theory):
        series = [
            Series(
                "theory",
                [None if t is None else angle_of(t.defect) for t in theory],
                look="dashed",
                low=[None if t is None else angle_of(t.least) for t in theory],
                high=[None if t is None else angle_of(t.most) for t in theory],
                colour=GREEN,
                band="theory at this width, 95 %",
            ),
            Series(
                "measured, theory's pairs",
                [None if t is None else angle_of(t.measured) for t in theory],
                look="points",
                colour=BLUE,
            ),
        ]
    known = [a for a in [*angles, *old] if a is not None and math.isfinite(a)]
    log = bool(known) and min(known) < SMALL_ANGLE
    return _curves(report, angles, old, "Angle between samples", "degrees", log=log, theory=series)


def _norm(report: Report, before: Report | None) -> Picture | None:
    theory = [layer.norm_ratio_predicted for layer in report.layers]
    extra = [Series("theory", theory, look="dashed", colour=GREEN)] if any(t is not None for t in theory) else []
    old = [] if before is None else [layer.norm_ratio for layer in before.layers]
    values = [layer.norm_ratio for layer in report.layers]
    return _curves(report, values, old, "Size of the activations", "norm ratio", log=True, theory=extra)


def _gradient(report: Report, before: Report | None) -> Picture | None:
    old = [] if before is None else [layer.grad_norm_ratio for layer in before.layers]
    values = [layer.grad_norm_ratio for layer in report.layers]
    return _curves(report, values, old, "Size of the gradient", "gradient ratio", log=True)


def _rank(report: Report, before: Report | None) -> Picture | None:
    old = [] if before is None else [layer.effective_rank for layer in before.layers]
    values = [layer.effective_rank for layer in report.layers]
    return _curves(report, values, old, "Effective rank of the batch", "effective rank", log=False)


def _curves(
    report: Report,
    values: Sequence[float | None],
    old: Sequence[float | None],
    title: str,
    quantity: str,
    *,
    log: bool,
    theory: Sequence[Series] = (),
) -> Picture | None:
    """The measured curve and what it is compared with; None where nothing was measured."""
    if all(v is None or not math.isfinite(v) for v in [*values, *old]):
        return None
    series = [Series("after" if old else "measured", values)]
    if old:
        series.append(Series("before", old, look="dashed", colour=ORANGE))
    series += theory
    names = [layer.name for layer in report.layers]
    mark = names.index(report.first_bad_layer) if report.first_bad_layer in names and not old else None
    return layer_curves(names, series, title=title, quantity=quantity, log=log, mark=mark)
