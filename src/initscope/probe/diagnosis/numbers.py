"""Where NaN and infinities are born, if they reach a value or a gradient that counts."""

from __future__ import annotations

from collections.abc import Sequence

from initscope.probe.diagnosis.case import Case, Judgement
from initscope.probe.findings import Finding

# Functions whose derivative has a pole, the likeliest first: where one of several consumers broke a gradient, it is one of these.
_POLES = (
    "sqrt",
    "norm",
    "pow",
    "div",
    "truediv",
    "log",
    "rsqrt",
    "reciprocal",
    "acos",
    "asin",
    "atan2",
    "where",
    "cdist",
    "std",
)


_TAKES_MASKS = ("softmax", "log_softmax", "logsumexp", "scaled_dot_product_attention", "multi_head_attention_forward")


def non_finite(case: Case, found: Judgement) -> None:
    """For what reaches the output or the loss, else for what reaches a gradient; a mask that a softmax takes is no defect."""
    rows = case.rows
    output = next((i for i in reversed(range(len(rows))) if rows[i].output), case.way.way[-1] if case.way.way else None)
    if output is not None and rows[output].broken:
        _forward(case, found, output)
    elif case.broken_loss:
        found.add(Finding("non-finite", "fail", "loss", None, None, {"pass": "loss", "what": "NaN"}))
    elif any(
        _bad(f.gradient) for f in case.weights
    ):  # a pole in front of a ReLU that lets nothing through harms nobody
        _backward(case, found)


def _forward(case: Case, found: Judgement, output: int) -> None:
    what = case.rows[output].broken
    birth = _walk(case, output, what)
    if what == "NaN" and case.rows[birth].op not in _TAKES_MASKS:
        birth = _walk(case, birth, "infinite")  # ∞ - ∞ and 0 · ∞: the infinity came first
    for index in range(birth, len(case.rows)):
        if case.rows[index].broken:
            found.mark(index, "non-finite", "fail")
    evidence = {"pass": "forward", "what": case.rows[birth].broken or what, "op": case.rows[birth].op}
    found.add(Finding("non-finite", "fail", case.rows[birth].name, None, None, evidence), birth)


def _walk(case: Case, index: int, what: str) -> int:
    """Back along steps that hold it; infinities may become NaN on the way, so the birth of a NaN ends the walk."""
    while True:
        broken = [j for j in case.rows[index].inputs if j >= 0 and case.rows[j].broken == what]
        if not broken:
            return index
        index = min(broken)


OVERFLOW = 1e10  # a gradient that grew so much before it broke has left the range of float32; it met no pole


def _backward(case: Case, found: Judgement) -> None:
    rows = case.rows
    if any(ratio > OVERFLOW for ratio in case.way.gradients.values()):
        for index, row in enumerate(rows):
            if row.gradient_broken:
                found.mark(index, "gradient-scale", "fail")
        return  # an exploding gradient, and found as such
    birth = _backward_birth(case)
    for index, row in enumerate(rows):
        if row.gradient_broken:
            found.mark(index, "non-finite", "fail")
    op = rows[birth].op if birth is not None else "loss"
    evidence = {"pass": "backward", "what": "NaN or infinite", "op": op}
    step = "loss" if birth is None else rows[birth].name
    found.add(Finding("non-finite", "fail", step, None, None, evidence), birth)


def _backward_birth(case: Case) -> int | None:
    """The step whose own gradient is finite while that of what it takes is not; None for the loss."""
    rows = case.rows
    for index in reversed(range(len(rows))):
        if not rows[index].gradient_broken:
            continue
        takers = case.consumers.get(index, [])
        if not takers:
            return None
        sound = [j for j in takers if not rows[j].gradient_broken]
        return _likeliest(case, sound or takers)
    for index, row in enumerate(rows):  # only weights are hit: the step that uses them
        if any(_bad(case.facts[name].gradient) for name in row.parameters if name in case.facts):
            return index
    return None


def _likeliest(case: Case, takers: Sequence[int]) -> int:
    ops = {case.rows[j].op: j for j in reversed(takers)}
    return next((ops[op] for op in _POLES if op in ops), takers[0])


def _bad(gradient: float | None) -> bool:
    return gradient is not None and not -float("inf") < gradient < float("inf")
