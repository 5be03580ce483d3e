"""OP Lemmas 1 and 2 and Theorem 1 as statements about numbers: the forward pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from initscope.bounds import norm_rate, width_for
from initscope.figures import FailureCurve, Picture, failure_curves
from initscope.finite import relu_norm_law
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.overparam.networks import over_networks

WIDTHS = (1, 2, 5, 20, 100, 500, 2000, 10_000)
EPSILONS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)


def printed_failure(widths: Sequence[int], epsilon: float, factor: float = 2.0) -> float:
    """factor · Σ_l exp(-n_l (ε/4 + log(2/(1 + √(1+ε))))), as in OP eq. 7, 8 and 22."""
    return factor * math.fsum(math.exp(-width * norm_rate(epsilon)) for width in widths)


def log_margin(bound: float, exact: float) -> float:
    """log(bound/exact), the bound not above 1; positive where the statement holds."""
    return math.log(min(bound, 1.0)) - math.log(exact) if exact > 0 else math.inf


def one_layer(u: torch.Tensor, width: int, seed: int) -> float:
    """|relu(Ru)|²/|u|² in one layer with R ~ N(0, 2/m)."""
    weights = torch.randn(width, len(u), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return float(torch.relu(weights @ u).square().sum() * 2 / width / u.square().sum())


def kinds_of_vectors(size: int, seed: int) -> dict[str, torch.Tensor]:
    """Fixed vectors that have little in common."""
    source = torch.Generator().manual_seed(seed)
    return {
        "dense": torch.randn(size, generator=source, dtype=torch.float64),
        "one-coordinate": torch.eye(size, dtype=torch.float64)[0],
        "constant": torch.full((size,), -3.0, dtype=torch.float64),
        "heavy-tailed": torch.randn(size, generator=source, dtype=torch.float64) ** 5,
    }


def lemma1(desk: Desk) -> Outcome:
    draws, size = desk.pick(400, 4000), 50
    off = max(abs(relu_norm_law(width).mean - 1) for width in WIDTHS)
    checks = [
        claim("E|relu(Ru)|² = |u|² by the exact law, largest difference over widths 1 to 10000", off < 1e-12, exact=off)
    ]
    for case, (name, u) in enumerate(kinds_of_vectors(size, desk.seed).items()):
        desk.progress(case, 4)
        width = (1, 7, 60, 300)[case]
        found = over_networks([one_layer(u, width, desk.seed + 10_000 * case + i) for i in range(draws)])
        checks.append(_mean_check(f"the same, sampled: width {width}, a {name} vector in R^{size}", found))
    return Outcome(tuple(checks), {"cases": [_line(check) for check in checks[1:]], "draws": draws})


def _mean_check(says: str, found: Sampled) -> Check:
    low, high = found.interval()
    return claim(
        says,
        low <= 1 <= high,
        exact=1.0,
        sampled=found,
        why="" if low <= 1 <= high else "One in twenty such intervals misses.",
    )


def _line(check: Check) -> dict[str, object]:
    assert check.sampled is not None
    return {"says": check.says, "value": check.sampled.value, "stderr": check.sampled.stderr}


def lemma2(desk: Desk) -> Outcome:
    grid = [(m, e) for m in desk.pick(WIDTHS[::2], WIDTHS) for e in desk.pick(EPSILONS[::2], EPSILONS)]
    rows = []
    for done, (width, epsilon) in enumerate(grid):
        desk.progress(done, len(grid))
        exact = relu_norm_law(width).outside(1 - epsilon, 1 + epsilon)
        rows.append({"width": width, "epsilon": epsilon, "exact": exact, "bound": printed_failure([width], epsilon)})
    margins = [log_margin(row["bound"], row["exact"]) for row in rows]
    worst = rows[min(range(len(rows)), key=lambda i: margins[i] if rows[i]["bound"] < 1 else math.inf)]
    answer = width_for(depth=1, epsilon=0.5, delta=0.05)
    assert answer.theorem1 is not None
    checks = (
        claim(
            f"eq. 7: the failure probability is at most the bound, at {len(rows)} pairs of width and ε; shown is the largest "
            f"exact/bound where the bound is below 1 (m = {worst['width']}, ε = {worst['epsilon']})",
            min(margins) >= 0,
            exact=worst["exact"] / worst["bound"],
        ),
        claim(
            "eq. 63: the lower tail's exponent is at least the upper tail's for every ε in (0, 1); shown is the smallest "
            "difference over ε³",
            (least := _eq63()) > 0,
            exact=least,
        ),
        claim(
            f"The width that eq. 7 asks for is enough (ε = 0.5, δ = 0.05: {answer.theorem1.value}; shown is the smallest)",
            answer.theorem1.value >= answer.exact.value,
            exact=float(answer.exact.value),
        ),
    )
    return Outcome(checks, {"grid": rows}, None)


def _eq63() -> float:
    """The smallest of (log((1 + √(1+ε))/(1 + √(1-ε))) - ε/2)/ε³ over ε in (0, 1)."""
    epsilon = torch.linspace(0.01, 0.999_999, 4000, dtype=torch.float64)
    ratio = torch.log((1 + (1 + epsilon).sqrt()) / (1 + (1 - epsilon).sqrt()))
    return float(((ratio - epsilon / 2) / epsilon**3).min())


NETWORKS = (
    ("2 layers of 200", (200,) * 2),
    ("10 layers of 500", (500,) * 10),
    ("10 layers of 4060", (4060,) * 10),
    ("50 layers of 2000", (2000,) * 50),
    ("widths 100, 1000, 300, 3000", (100, 1000, 300, 3000)),
)


def theorem1(desk: Desk) -> Outcome:
    epsilons = desk.pick((0.1, 0.5), (0.05, 0.1, 0.3, 0.5, 0.9))
    rows: list[dict[str, Any]] = []
    for name, widths in NETWORKS:
        desk.progress(len(rows), len(NETWORKS) * len(epsilons))
        law, depth = relu_norm_law(widths), len(widths)
        for epsilon in epsilons:
            exact = law.outside((1 - epsilon) ** depth, (1 + epsilon) ** depth)
            bound = printed_failure(widths, epsilon)
            rows.append({"network": name, "epsilon": epsilon, "exact": exact, "bound": bound})
    told = [row for row in rows if row["bound"] < 1]
    worst = max(told, key=lambda row: row["exact"] / row["bound"])
    target = (0.5, 0.05)
    answer = width_for(10, *target)
    assert answer.theorem1 is not None
    checks = (
        claim(
            f"eq. 8 with N = 1: the failure probability is at most the bound, for {len(rows)} networks and ε; shown is the "
            f"largest exact/bound where the bound is below 1 ({worst['network']}, ε = {worst['epsilon']})",
            all(log_margin(row["bound"], row["exact"]) >= 0 for row in rows),
            exact=worst["exact"] / worst["bound"],
            why="For N samples both sides get the factor N by the union bound.",
        ),
        claim(
            "Ten layers, |h|²/|x|² within 1 ± 0.5 with probability 0.95: the width from eq. 8 "
            f"({answer.theorem1.value}) is enough; shown is the smallest",
            answer.theorem1.value >= answer.exact.value,
            exact=float(answer.exact.value),
        ),
    )
    return Outcome(checks, {"networks": rows}, _failure_picture(desk, answer.exact.value, answer.theorem1.value))


def _failure_picture(desk: Desk, exact: int, printed: int) -> Picture:
    depth, epsilon, delta = 10, 0.5, 0.05
    count = desk.pick(8, 16)
    widths = [round(20 * (exact * 3 / 20) ** (i / (count - 1))) for i in range(count)]
    chances = [relu_norm_law([w] * depth).outside(1 - epsilon, 1 + epsilon) for w in widths]
    each = math.expm1(math.log1p(epsilon) / depth)
    wide = [round(printed * 10 ** (0.06 * i - 0.6)) for i in range(16)]
    curves = [
        FailureCurve("exact law", widths, chances, meets=exact),
        FailureCurve("Theorem 1", wide, [min(1.0, printed_failure([w] * depth, each)) for w in wide], meets=printed),
    ]
    return failure_curves(curves, delta, "Ten layers within 1 ± 0.5: Theorem 1 asks for fifty times the width")


ITEMS = (
    Item(
        "overparam/lemma1",
        "Lemma 1: one He layer keeps the squared norm on average",
        "E|relu(Ru)|² = |u|² for R with entries N(0, 2/m) and any fixed u.",
        lemma1,
    ),
    Item(
        "overparam/lemma2",
        "Lemma 2: how likely one layer changes a norm by more than ε",
        "P(||v|² - |u|²| > ε|u|²) is at most 2 exp(-m (ε/4 + log(2/(1 + √(1+ε))))).",
        lemma2,
    ),
    Item(
        "overparam/thm1",
        "Theorem 1: norms after L layers, for N samples",
        "|f(x)|²/|x|² lies between (1 - ε)^L and (1 + ε)^L except with probability Σ 2N exp(-n_l rate(ε)).",
        theorem1,
    ),
)
