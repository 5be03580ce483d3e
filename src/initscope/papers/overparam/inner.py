"""OP Lemmas 6 and 7: inner products of two projected vectors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from scipy.stats import binom, chi2

from initscope.bounds import norm_rate
from initscope.papers.item import Check, Desk, Item, Outcome, claim

COSINES = (1.0, 0.9, 0.5, 0.0, -0.7)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_REST = 1e-18  # probability left beyond each end of the integral


def difference_outside(a: float, b: float, freedom: int, low: float, high: float) -> float:
    """P(aX - bY < low or > high) for independent chi-square X, Y of the same degrees of freedom; a, b >= 0, not both 0.

    E_Y P(X > (high + bY)/a) + E_Y P(X < (low + bY)/a), the mean over Y by Gauss and Legendre's rule.
    """
    if freedom == 0:
        return 0.0 if low <= 0 <= high else 1.0
    if a == 0:
        return difference_outside(b, 0.0, freedom, -high, -low)
    if b == 0:
        return float(chi2.cdf(low / a, freedom) + chi2.sf(high / a, freedom))
    # In √Y the density has no pole for one degree of freedom; where an argument changes sign a tail has a kink.
    ends = [math.sqrt(chi2.ppf(_REST, freedom)), math.sqrt(chi2.isf(_REST, freedom))]
    kinks = [math.sqrt(-edge / b) for edge in (low, high) if edge < 0]
    cuts = [ends[0], *sorted(kink for kink in kinks if ends[0] < kink < ends[1]), ends[1]]
    return math.fsum(_piece(a, b, freedom, (low, high), part) for part in itertools.pairwise(cuts))


def _piece(a: float, b: float, freedom: int, sides: tuple[float, float], part: tuple[float, float]) -> float:
    """The share of `difference_outside` with √Y in `part`."""
    half, middle = (part[1] - part[0]) / 2, (part[1] + part[0]) / 2
    root = half * _NODES + middle
    y, weight = root**2, half * _WEIGHTS * 2 * root * chi2.pdf(root**2, freedom)
    tails = chi2.cdf((sides[0] + b * y) / a, freedom) + chi2.sf((sides[1] + b * y) / a, freedom)
    return float(weight @ tails)


def projected(width: int, cosine: float, epsilon: float) -> float:
    """P(|<Ru, Rv> - <u, v>| > ε) for unit vectors, R ~ N(0, 1/m): u + v and u - v are orthogonal and have independent images."""
    a, b = (1 + cosine) / (2 * width), (1 - cosine) / (2 * width)
    return difference_outside(a, b, width, cosine - epsilon, cosine + epsilon)


def masked(width: int, cosine: float, epsilon: float) -> float:
    """The same for (Ru) ⊙ z, R ~ N(0, 2/m) and fair coins z: a mixture over the number of coins that are 1."""
    counts = np.arange(width + 1)
    weights = binom.pmf(counts, width, 0.5)
    a, b = (1 + cosine) / width, (1 - cosine) / width
    kept = [(int(k), float(w)) for k, w in zip(counts, weights, strict=True) if w > 1e-20]
    return math.fsum(w * difference_outside(a, b, k, cosine - epsilon, cosine + epsilon) for k, w in kept)


def _table(desk: Desk, exact: Any, bound: Any, epsilons: tuple[float, ...]) -> list[dict[str, float]]:
    widths = desk.pick((20, 200), (5, 20, 100, 400))
    rows = []
    for done, width in enumerate(widths):
        desk.progress(done, len(widths))
        for cosine in COSINES:
            for epsilon in epsilons:
                chance = exact(width, cosine, epsilon)
                row = {"width": width, "cosine": cosine, "epsilon": epsilon}
                rows.append({**row, "exact": chance, "bound": bound(width, epsilon)})
    return rows


def _check(equation: str, rows: list[dict[str, float]]) -> Check:
    told = [row for row in rows if row["bound"] < 1]
    worst = max(told, key=lambda row: row["exact"] / row["bound"])
    return claim(
        f"{equation}: the failure probability is at most the bound, in {len(rows)} cases of width, cosine and ε; shown is the "
        f"largest exact/bound where the bound is below 1 (m = {worst['width']:g}, cosine {worst['cosine']:g}, ε = "
        f"{worst['epsilon']:g})",
        all(row["exact"] <= min(row["bound"], 1.0) for row in rows),
        exact=worst["exact"] / worst["bound"],
    )


def lemma6(desk: Desk) -> Outcome:
    rows = _table(desk, projected, lambda m, e: 4 * math.exp(-m / 4 * (e**2 - e**3)), (0.1, 0.2, 0.3, 0.4, 0.49))
    notes = ("Vectors of unit length: shorter ones deviate less.",)
    return Outcome((_check("eq. 154", rows),), {"cases": rows}, None, notes)


def lemma7(desk: Desk) -> Outcome:
    rows = _table(
        desk, masked, lambda m, e: 4 * math.exp(-m * norm_rate(e)), desk.pick((0.3, 0.9), (0.1, 0.3, 0.5, 0.7, 0.95))
    )
    notes = ("Vectors of unit length: shorter ones deviate less.",)
    return Outcome((_check("eq. 155", rows),), {"cases": rows}, None, notes)


ITEMS = (
    Item(
        "overparam/lemma6",
        "Lemma 6: Gaussian projections keep inner products",
        "|<Ru, Rv> - <u, v>| is at most ε except with probability 4 exp(-m (ε² - ε³)/4), for |u|, |v| at most 1.",
        lemma6,
    ),
    Item(
        "overparam/lemma7",
        "Lemma 7: so do masked ones",
        "|<(Ru) ⊙ z, (Rv) ⊙ z> - <u, v>| is at most ε except with probability 4 exp(-m rate(ε)).",
        lemma7,
    ),
)
