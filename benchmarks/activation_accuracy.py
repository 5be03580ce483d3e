"""How far every activation's E f(u) f(v) and 1 - cosine are off, beside the error that is stated, against mpmath.

    python benchmarks/activation_accuracy.py --page docs/accuracy.md

The true values are in activation_accuracy.json; `--references` makes those that are missing, some minutes for all.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath as mp
import torch
from torch import Tensor

from initscope.activations import Activation, Pair, by_name, listen

HERE = Path(__file__).parent
KEPT = HERE / "activation_accuracy.json"
# Deviations and defects of few binary digits: variances, products and excesses are then exact in float32 too.
LOW, ONE, HIGH = 80 / 256, 1.0, 811 / 256
SIDES = ((LOW, LOW), (ONE, ONE), (HIGH, HIGH), (LOW, HIGH))
DEFECTS = (2.0, 1.5, 1.0, 0.25, 2.0**-7, 2.0**-14, 2.0**-27)  # 1 - cosine of u and v
STATES = [(s, t, q) for s, t in SIDES for q in DEFECTS]
MANY = 10  # copies of the states: enough, with those of equal variances alone, to be answered by a series
ROUNDING = 16  # units in the last place that a closed form states


@dataclass(frozen=True)
class Truth:
    """E f(u)² by deviation, and 1 - cosine of f(u), f(v) for every state."""

    moments: dict[float, float]
    defects: list[float]


@dataclass(frozen=True)
class Row:
    """Errors and stated errors of one activation for one dtype, state by state."""

    name: str
    rung: str
    dtype: torch.dtype
    value: Tensor
    value_stated: Tensor
    defect: Tensor
    defect_stated: Tensor

    @property
    def kept(self) -> bool:
        """Whether every error is at most what is stated."""
        return bool((self.value <= self.value_stated).all() and (self.defect <= self.defect_stated).all())


def named(name: str) -> Activation:
    """tanh, or leaky_relu(0.2)."""
    word, _, numbers = name.rstrip(")").partition("(")
    return by_name(word, *(float(n) for n in numbers.split(",") if n))


def load() -> dict[str, Truth]:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return {
        name: Truth({float(s): m for s, m in entry["moments"].items()}, entry["defects"])
        for name, entry in kept.items()
    }


def make_references(names: list[str]) -> None:
    """Compute what is not kept yet, and keep it after every activation."""
    sys.path.insert(0, str(HERE))
    from activation_references import DIGITS, REFERENCES

    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in names or REFERENCES:
        if name in kept:
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        with mp.workdps(DIGITS):
            reference = REFERENCES[name]
            moments = {str(s): float(reference.second_moment(mp.mpf(s))) for s in (LOW, ONE, HIGH)}
            defects = [float(reference.defect(*map(mp.mpf, state))) for state in STATES]
        kept[name] = {"moments": moments, "defects": defects}
        ordered = {n: kept[n] for n in REFERENCES if n in kept}
        KEPT.write_text(json.dumps(ordered, indent=1) + "\n")


def measure(name: str, truth: Truth, dtype: torch.dtype, copies: int) -> Row:
    """Ask for all states at once, `copies` of each, and compare."""
    activation = named(name)
    s, t, q = torch.tensor(STATES * copies, dtype=torch.float64).unbind(-1)
    A, B, excess, product = (x.to(dtype) for x in (s * s, t * t, 2 * s * t * q, s * t * (1 - q)))
    rounding = ROUNDING * torch.finfo(dtype).eps
    with listen() as evidence:
        a, b = activation.second_moment(A).sqrt(), activation.second_moment(B).sqrt()
        found = activation.carry(Pair(A, B, excess, product), a, b)
    told = max(evidence.errors.values(), default=0.0)
    size = torch.tensor(
        [truth.moments[i] * truth.moments[j] for i, j, _ in STATES * copies], dtype=torch.float64
    ).sqrt()
    defect = torch.tensor(truth.defects * copies, dtype=torch.float64)
    value_off = (found.product.double() - size * (1 - defect)).abs() / size
    defect_off = (found.excess.double() / (2 * a.double() * b.double()) - defect).abs()
    some = defect > 0  # even functions have the cosine 1 at opposite inputs
    return Row(
        name,
        " + ".join(evidence.errors) or activation.rung,
        dtype,
        value_off,
        torch.full_like(value_off, told + rounding),
        (defect_off / defect)[some],
        (_stated_defect(activation, A, B, excess, told, defect) + rounding)[some],
    )


def _stated_defect(activation: Activation, A: Tensor, B: Tensor, excess: Tensor, told: float, defect: Tensor) -> Tensor:
    """Relative: the error of the distance where the norms are equal, else that of the value beside 1 - cosine."""
    stated = told / defect
    equal = A == B
    answer = activation.evaluate(A[equal], B[equal], excess[equal])
    stated[equal] = (answer.error / answer.distance).double() + told
    return stated


def rows(names: list[str] | None = None) -> list[Row]:
    """Few states and many of them, both dtypes; what has a closed form once."""
    answer = []
    for name, truth in load().items():
        if names and name not in names:
            continue
        for copies in (1, MANY) if named(name).rung == "quadrature" else (1,):
            answer += [measure(name, truth, dtype, copies) for dtype in (torch.float64, torch.float32)]
    return answer


_COLUMNS = [f"{what}, {dtype}" for dtype in ("float64", "float32") for what in ("value", "1 - cosine")]
HEAD = ["activation", "answered by", *(c for column in _COLUMNS for c in (column, "stated"))]


def table(found: list[Row]) -> str:
    lines = []
    for double, single in zip(found[::2], found[1::2], strict=True):
        cells = [
            f"{float(x.max()):.1e}"
            for row in (double, single)
            for x in (row.value, row.value_stated, row.defect, row.defect_stated)
        ]
        lines.append(f"| {double.name} | {double.rung} | {' | '.join(cells)} |\n")
    broken = sorted({row.name for row in found if not row.kept})
    verdict = (
        f"Stated errors exceeded by: {', '.join(broken)}."
        if broken
        else "No error exceeds the stated one in any state."
    )
    head = f"| {' | '.join(HEAD)} |\n{'| --- ' * len(HEAD)}|\n"
    return f"{head}{''.join(lines)}\n{verdict}\n"


def put(page: Path, text: str) -> None:
    """Replace what the page has between the marks."""
    name, old = "benchmarks/activation_accuracy.py", page.read_text()
    begin, end = f"<!-- output of {name} -->\n", f"<!-- end of {name} -->"
    page.write_text(old[: old.index(begin) + len(begin)] + text + old[old.index(end) :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ACTIVATION", help="only these")
    parser.add_argument("--references", action="store_true", help="compute the true values that are not kept yet")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also put the table into FILE, between its marks")
    arguments = parser.parse_args()
    if arguments.references:
        make_references(arguments.names)
    text = table(rows(arguments.names))
    print(text, end="")
    if arguments.page:
        put(arguments.page, text)


if __name__ == "__main__":
    main()
