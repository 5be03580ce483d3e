"""What the answers of the differential suite amount to: errors, who is right, and the tables."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from random_networks import Network, kinds, text

sys.path.insert(0, str(Path(__file__).parents[1]))
import kernels

TOLERANCE = {"float64": 1e-6, "float32": 1e-4}
QUANTITIES = ("product", "tangent")
NAMES = {"product": "NNGP", "tangent": "tangent"}


@dataclass(frozen=True)
class Verdict:
    """One kernel of one network in one precision."""

    network: Network
    quantity: str
    precision: str
    between: float  # the two sides' difference; NaN where one has no number
    ours: float  # error by the judge
    theirs: float
    note: str  # why a side has no number

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.precision]

    @property
    def agree(self) -> bool:
        return self.between <= self.tolerance

    @property
    def right(self) -> str:
        """By the judge; in float32 the peer's answer is its float64."""
        ours, theirs = self.ours <= self.tolerance, self.theirs <= self.tolerance
        return {(True, True): "both", (True, False): "initscope", (False, True): "neural-tangents"}.get(
            (ours, theirs), "neither"
        )


def matrix(answer: Any) -> np.ndarray | None:
    return np.array(answer, dtype=float) if isinstance(answer, list) else None


def distance(one: np.ndarray | None, two: np.ndarray | None, scale: np.ndarray | None = None) -> float:
    """Largest error of an entry by the root of its two diagonal entries (of `two`); infinite where one is not finite."""
    if one is None or two is None:
        return np.nan
    reference = two if scale is None else scale
    diagonal = np.sqrt(np.abs(np.diag(reference)))
    norm = np.outer(diagonal, diagonal)
    gap = np.abs(one - two)
    if not np.isfinite(gap).all():
        return np.inf
    return float(np.where(gap == 0, 0.0, gap / np.where(norm == 0, np.finfo(float).tiny, norm)).max())


def compare(ours: dict[str, Any], theirs: dict[str, Any], quantity: str, precision: str) -> float:
    return distance(matrix(ours.get(precision, {}).get(quantity)), matrix(theirs.get(quantity)))


def judge(network: Network, ours: dict[str, Any], theirs: dict[str, Any], truth: dict[str, Any]) -> list[Verdict]:
    found = []
    for precision in TOLERANCE:
        for quantity in QUANTITIES:
            mine, other = ours.get(precision, ours).get(quantity, ours), theirs.get(quantity, theirs)
            errors = [distance(matrix(side), matrix(truth.get(quantity))) for side in (mine, other)]
            note = "; ".join(
                f"{who}: {reason}"
                for who, side in (("initscope", mine), ("neural-tangents", other))
                if isinstance(side, dict)
                for reason in [side.get("refused") or side.get("crashed") or f"over {side.get('timeout')} s"]
            )
            found.append(
                Verdict(network, quantity, precision, compare(ours, theirs, quantity, precision), *errors, note)
            )
    return found


def page(found: list[list[Verdict]]) -> str:
    return "\n".join([*summary(found), "", *by_kind(found), "", *by_cause(found), ""])


def summary(found: list[list[Verdict]]) -> list[str]:
    columns = ("kernel", "precision", "compared", "agree", "initscope right", "neural-tangents right", "neither")
    columns += ("only initscope answers", "only neural-tangents answers", "worst error of initscope")
    lines = [f"{len(found)} networks.", "", f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for place in range(4):
        column = [verdicts[place] for verdicts in found]
        both = [v for v in column if not v.note]
        judged = [v for v in both if not v.agree]
        count = {who: sum(v.right == who for v in judged) for who in ("initscope", "neural-tangents", "neither")}
        alone = [sum(f"{who}:" in v.note for v in column) for who in ("neural-tangents", "initscope")]
        worst = max((v.ours for v in both), default=np.nan)
        cells = [
            NAMES[column[0].quantity],
            column[0].precision,
            len(both),
            sum(v.agree for v in both),
            *count.values(),
            *alone,
        ]
        lines.append(f"| {' | '.join(map(str, cells))} | {worst:.1e} |")
    return lines


def by_kind(found: list[list[Verdict]]) -> list[str]:
    """Per kind of layer: networks that have it, and the worst error of initscope where it was right, by precision."""
    lines = ["| layer | networks | NNGP float64 | tangent float64 | NNGP float32 | tangent float32 | initscope wrong |",
             "| --- " * 7 + "|"]  # fmt: skip
    table: dict[str, list[list[Verdict]]] = defaultdict(list)
    for verdicts in found:
        for kind in kinds(verdicts[0].network["layers"]):
            table[kind].append(verdicts)
    for kind, rows in sorted(table.items()):
        worst = []
        for place in range(4):
            errors = [v.ours for v in (row[place] for row in rows) if not v.note]
            worst.append(max((e for e in errors if e <= 1), default=np.nan))
        wrong = sum(any(_wrong(v) for v in row) for row in rows)
        lines.append(f"| {kind} | {len(rows)} | {' | '.join(f'{w:.1e}' for w in worst)} | {wrong} |")
    return lines


def _wrong(v: Verdict) -> bool:
    return not v.note and not v.ours <= v.tolerance


def by_cause(found: list[list[Verdict]]) -> list[str]:
    """Differences grouped by who is right and why, each with its smallest network."""
    columns = (
        "right",
        "cause",
        "networks",
        "kernels",
        "largest error of initscope",
        "of neural-tangents",
        "smallest network",
    )
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    groups: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for v in every(found):
        if not v.agree and not v.note:
            groups[v.right, cause(v)].append(v)
    for (right, why), rows in sorted(groups.items()):
        smallest = min(rows, key=lambda v: len(words(v)))
        networks = len({v.network["index"] for v in rows})
        errors = (max(v.ours for v in rows), max(v.theirs for v in rows))
        cells = [
            right,
            why,
            networks,
            len(rows),
            *(f"{e:.1e}" for e in errors),
            f"{smallest.network['index']}: `{words(smallest)}`",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    refusals: dict[str, int] = defaultdict(int)
    for v in every(found):
        if v.note and v.precision == "float64":
            refusals[f"{NAMES[v.quantity]}: {v.note}"] += 1
    return [*lines, "", *(f"- {count} times {note}" for note, count in sorted(refusals.items()))]


def differences(found: list[list[Verdict]]) -> str:
    """Every difference, one line each."""
    columns = (
        "network",
        "kernel",
        "precision",
        "between them",
        "error of initscope",
        "of neural-tangents",
        "right",
        "cause",
        "layers",
    )
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for v in every(found):
        if not v.agree and not v.note:
            errors = " | ".join(f"{e:.1e}" for e in (v.between, v.ours, v.theirs))
            start = f"{v.network['index']} | {NAMES[v.quantity]} | {v.precision}"
            lines.append(f"| {start} | {errors} | {v.right} | {cause(v)} | `{words(v)}` |")
    return "\n".join([*lines, ""])


def every(found: list[list[Verdict]]) -> list[Verdict]:
    return [v for verdicts in found for v in verdicts]


def words(v: Verdict) -> str:
    return text(v.network["layers"]).replace("|", "\\|")


def cause(v: Verdict) -> str:
    """Of each side that is wrong: what is known to make it so on such a network; "unknown" asks for a closer look."""
    layers = kinds(v.network["layers"])
    wrong = [side for side, error in (("initscope", v.ours), ("neural-tangents", v.theirs)) if not error <= v.tolerance]
    return "; ".join(f"{side}: {next(why for why, applies in CAUSES[side] if applies(v, layers))}" for side in wrong)


def opposite(network: Network) -> bool:
    """Whether one input is another one's negative."""
    x = np.array(network["inputs"])
    return bool((x[2] == -x[0]).all())


def _always(v: Verdict, layers: set[str]) -> bool:
    return True


Rule = tuple[str, Callable[[Verdict, set[str]], object]]
CAUSES: dict[str, list[Rule]] = {
    "neural-tangents": [
        (
            "rectified powers are NaN where the angle is 0",
            lambda v, on: v.theirs == np.inf and on & {"step", "relupower"},
        ),
        ("ImageResize takes height for width after an odd number of convolutions", lambda v, on: "up" in on),
        (
            "Sign takes the covariance of different positions as 1",
            lambda v, on: "sign" in on and on & {"avgpool", "gap"},
        ),
        ("Gauss-Hermite quadrature, 56 nodes", lambda v, on: on & {"tanh", "sigmoid", "silu", "softplus"}),
        ("covariances lose half of their digits at each jump", lambda v, on: on & {"sign", "step"}),
        ("unknown", _always),
    ],
    "initscope": [
        (
            "float32 where inputs are opposite",
            lambda v, on: v.precision == "float32" and v.ours < 1e-2 and opposite(v.network),
        ),
        ("tangents through jumps", lambda v, on: v.quantity == "tangent" and on & {"sign", "step"}),
        ("tangents where inputs or positions nearly agree", lambda v, on: v.quantity == "tangent"),
        ("float32 where norms differ", lambda v, on: v.precision == "float32"),
        ("unknown", _always),
    ],
}


def put(path: Path, words: str) -> None:
    kernels.put(path, "benchmarks/peers/differential", words)
