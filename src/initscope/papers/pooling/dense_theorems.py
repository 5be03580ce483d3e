"""Theorems 4.1 and 4.2, and the comparison that the discussion draws from them: dense layer, groups of n units."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from initscope.activations import RELU
from initscope.figures import Line, Panel, Picture, Points, curves_and_points
from initscope.finite import Estimate
from initscope.networks import predict
from initscope.papers.item import Check, Desk, Item, Outcome, claim
from initscope.papers.pooling.measures import all_agree, arc_cosine, dense_net, plain, plane_pairs, sampled_defect

COSINES = (-1.0, -0.5, 0.0, 0.5, 0.9)
GROUPS_SAMPLED = 20  # as in the paper's network: 1000 units in groups of 50
RELU_VARIANCE = 0.5 - 1 / (2 * math.pi)


def defects(pool: str, sizes: list[int], cosines: tuple[float, ...] = COSINES) -> Tensor:
    """1 - cosine after pooling over n units, exact, (sizes, cosines)."""
    x, y = plane_pairs(cosines)
    return torch.stack([predict(dense_net(pool, n, n), x, y).layers[-1].defect for n in sizes])


def sampled(desk: Desk, pool: str, sizes: list[int]) -> Estimate:
    """The same from finite networks of 20 groups, (sizes, cosines)."""
    x, y = plane_pairs(COSINES)
    draws, found = desk.pick(200, 1000, 4000), []
    for place, n in enumerate(sizes):
        net = dense_net(pool, GROUPS_SAMPLED * n, n)
        found.append(sampled_defect(net, x, y, draws, desk.seed))
        desk.progress(place + 1, len(sizes))
    return Estimate(torch.stack([e.value for e in found]), torch.stack([e.stderr for e in found]), draws)


def _flat(found: Estimate, exact: Tensor, says: str) -> Check:
    return all_agree(says, Estimate(found.value.flatten(), found.stderr.flatten(), found.draws), exact.flatten())


def theorem_1(desk: Desk) -> Outcome:
    """n (1 - rho_A) is bounded for all n and all angles, by pi, and exactly known; two steps of the proof are not right."""
    sizes = [1, 2, 5, 10, 20, 50, 100, 1000, 10**4, 10**6]
    exact = defects("average", sizes)
    n = torch.tensor(sizes, dtype=torch.float64)[:, None]
    relu = 1 - arc_cosine(torch.tensor(COSINES, dtype=torch.float64))
    formula = math.pi * relu / (math.pi + n - 1)
    few = [2, 10, 50, 250]
    found = sampled(desk, "average", few)
    scaled = float((n * exact).max())
    off = float((exact / formula - 1).abs().max())
    checks = (
        claim(
            f"1 - cosine is O(1/n) for every pair: n (1 - cosine) never exceeds π, n up to 10^6 (largest; sup is {math.pi:.4f})",
            scaled <= math.pi, exact=scaled, published="O(1/n)",
        ),
        claim("it equals π (1 - r̂) / (π + n - 1) for all n and angles (largest relative difference)", off < 1e-10, exact=off),
        _flat(found, defects("average", few), "sampled networks of 20 groups follow the exact value"),
        *_proof_of_theorem_1(),
    )  # fmt: skip
    data = {
        "n": sizes,
        "cosine": list(COSINES),
        "exact": exact.tolist(),
        "sampled_n": few,
        "sampled": found.value.tolist(),
    }
    title = "Average pooling over n dense units: 1 - cosine = π (1 - r̂) / (π + n - 1), a rate of 1/n"
    return Outcome(checks, data, _rates("average", few, found, title, 1000))


def _proof_of_theorem_1() -> tuple[Check, ...]:
    """The proof's variance 1/(4n), and its step E (A_x - A_y)² <= 2 Var, with n = 1 (all three scale with 1/n)."""
    one = torch.ones(201, dtype=torch.float64)
    rho = torch.linspace(-1, 1, 201, dtype=torch.float64)
    apart = RELU.distance(one, one, 2 * (1 - rho))  # E (r(u) - r(v))²
    beyond = rho[apart > 2 * RELU_VARIANCE * (1 + 1e-12)]
    above_half = rho[apart > 0.5]
    return (
        claim(
            "proof: the variance of a pooled unit times n is at most 1/4", RELU_VARIANCE <= 0.25, exact=RELU_VARIANCE,
            published="0.25", why="Var r(u) = 1/2 - 1/(2π); the theorem survives with the larger constant",
        ),
        claim(
            "proof: E(A_x - A_y)² is at most 2 Var for all pairs (largest ratio)", len(beyond) == 0,
            exact=float(apart.max()) / (2 * RELU_VARIANCE),
            why=f"it needs a covariance that is not negative; false for cosines below {float(beyond.max()) + 0.01:.2f}",
        ),
        claim(
            "proof: n E(A_x - A_y)² is at most 1/2 for all pairs (largest)", len(above_half) == 0, exact=float(apart.max()),
            published="0.5", why=f"false for cosines up to {float(above_half.max()):.2f}; the largest is 1, at opposite inputs",
        ),
    )  # fmt: skip


def theorem_2(desk: Desk) -> Outcome:
    """(1 - rho_M) log n is bounded, but it goes to zero: the rate is pi²/(24 log² n)."""
    sizes = [2, 5, 10, 20, 50, 100, 1000, 10**4, 10**6, 10**9, 10**12]
    cosines = (-1.0, -0.5, 0.0, 0.5)
    exact, logs = (
        defects("max", sizes, cosines),
        torch.tensor([math.log(n) for n in sizes], dtype=torch.float64)[:, None],
    )
    times_log = exact * logs
    ratio = exact * 24 * logs.square() / math.pi**2
    few = [2, 10, 50, 250]
    found = sampled(desk, "max", few)
    late = ratio[sizes.index(1000) :]
    slope = float(torch.log(exact[-1, 2] / exact[-3, 2]) / torch.log(logs[-1] / logs[-3]))
    margins = _mean_square_times_log(sizes, cosines)
    checks = (
        claim(
            "1 - cosine is O(1/log n) for every pair: (1 - cosine) log n stays below 1, n from 2 to 10^12 (largest)",
            float(times_log.max()) < 1, exact=float(times_log.max()), published="O(1/log n)",
        ),
        claim(
            "§5: the bound 1/log n is not optimal: (1 - cosine) log n falls from n = 50 on (orthogonal inputs, at n = 10^12)",
            bool((times_log[sizes.index(50) :].diff(dim=0) < 0).all()), exact=float(times_log[-1, 2]),
        ),
        claim(
            "true rate: (1 - cosine) 24 log² n / π² falls towards 1, n from 10^3 to 10^12 (last, orthogonal inputs)",
            bool((late.diff(dim=0) < 0).all() and (late > 1).all()), exact=float(ratio[-1, 2]),
        ),
        claim(
            "true rate: power of log n between 10^6 and 10^12, orthogonal inputs, nearer -2 than -1", abs(slope + 2) < 0.5,
            exact=slope,
        ),
        claim(
            "eq. 14: E(M_x - M_y)² is at most 2 / log n (largest product with log n / 2)", float(margins.max()) <= 1,
            exact=float(margins.max()),
        ),
        _flat(found, defects("max", few), "sampled networks of 20 groups follow the exact value"),
    )  # fmt: skip
    data = {
        "n": sizes,
        "cosine": list(cosines),
        "exact": exact.tolist(),
        "sampled_n": few,
        "sampled": found.value.tolist(),
    }
    title = "Max pooling over n dense units: the rate is π²/(24 log² n), faster than the theorem's 1/log n"
    return Outcome(checks, data, _rates("max", few, found, title, 10**6))


def _mean_square_times_log(sizes: list[int], cosines: tuple[float, ...]) -> Tensor:
    """E (M_x - M_y)² log(n) / 2 for units of variance 1, from the distance after pooling, (sizes, cosines)."""
    x, y = plane_pairs(cosines)
    rows = []
    for n in sizes:
        layer = predict(dense_net("max", n, n), x, y).layers
        variance = layer[1].norm_x.square() / n  # of one unit before the ReLU: the gain of He's weights
        rows.append(layer[-1].distance.square() / variance * math.log(n) / 2)
    return torch.stack(rows)


def _rates(pool: str, few: list[int], found: Estimate, title: str, top: int) -> Picture:
    sizes = sorted({round(10 ** (k / 8)) for k in range(2, round(8 * math.log10(top)) + 1)})
    exact = defects(pool, sizes)
    marks: list[Line | Points] = []
    for hue, rho in enumerate(COSINES):
        marks.append(Line(f"cosine {rho:g} before", sizes, plain(exact[:, hue]), hue))
    for hue, _ in enumerate(COSINES):
        reach = plain(found.reach()[:, hue])
        marks.append(Points("sampled, 95 % interval" if hue == 0 else "", few, plain(found.value[:, hue]), hue, reach))
    bound = [1 / n if pool == "average" else 1 / math.log(n) for n in sizes]
    marks.append(Line("1/n" if pool == "average" else "1/log n, the theorem's", sizes, bound, 6, dash=3))
    if pool == "max":
        marks.append(Line("π²/(24 log² n)", sizes, [math.pi**2 / (24 * math.log(n) ** 2) for n in sizes], 5, dash=0))
    panel = Panel(marks, "units in a group, n", "1 - cosine after pooling", scale_across="log", scale_up="log")
    words = f"1 - cosine after {pool} pooling against group size for five input angles, exact curves with sampled points on them."
    return curves_and_points([panel], title, words, size=(8.0, 5.0))


def comparison(desk: Desk) -> Outcome:
    """§5 holds that max pooling contracts more than average pooling: only up to a group size that depends on the angle."""
    sizes = sorted({round(10 ** (k / 10)) for k in range(3, 36)})
    cosines = (-1.0, -0.5, 0.0, 0.5, 0.9)
    ratio = defects("max", sizes, cosines) / defects("average", sizes, cosines)
    desk.progress(1, 1)
    turning = [_last_below(sizes, ratio[:, i], rho) for i, rho in enumerate(cosines)]
    at_50 = defects("max", [50], cosines) / defects("average", [50], cosines)
    holding = [f"{value:.3f} at cosine {rho:g}" for value, rho in zip(at_50[0].tolist(), cosines, strict=True)]
    ends = [f"{n} at cosine {rho:g}" for n, rho in zip(turning, cosines, strict=True)]
    checks = (
        claim(
            "max pooling contracts more than average pooling in the paper's dense network (1 - cosine, max over average)",
            float(at_50.max()) < 1, exact=float(at_50.max()), why=f"with groups of 50 the ratio is {', '.join(holding)}",
        ),
        claim(
            "max pooling contracts more for every group size (largest ratio of 1 - cosine for orthogonal inputs, n to 3162)",
            bool((ratio[:, 2] < 1).all()), exact=float(ratio[:, 2].max()),
            why=f"1/n falls below π²/(24 log² n); the largest n at which max pooling is ahead is {', '.join(ends)}",
        ),
    )  # fmt: skip
    marks: list[Line | Points] = [
        Line(f"cosine {rho:g} before", sizes, plain(ratio[:, hue]), hue) for hue, rho in enumerate(cosines)
    ]
    panel = Panel(
        marks, "units in a group, n", "1 - cosine, max over average", scale_across="log", scale_up="log", level=1.0
    )  # fmt: skip
    title = "Max pooling contracts more only in small groups (below the dotted line); the paper's 50 is at the border"
    words = (
        "Ratio of 1 - cosine after max and after average pooling over group size, exact; all curves cross 1 and rise."
    )
    picture = curves_and_points([panel], title, words, size=(8.0, 4.4))
    data = {"n": sizes, "cosine": list(cosines), "ratio": ratio.tolist(), "last_n_with_max_ahead": turning}
    return Outcome(checks, data, picture)


def _last_below(sizes: list[int], ratio: Tensor, rho: float) -> int:
    """The largest n with max pooling ahead, 0 if there is none; the ratio rises once it has begun to."""
    below = [i for i, value in enumerate(ratio.tolist()) if value < 1]
    if not below:
        return 0
    low, high = sizes[below[-1]], sizes[min(below[-1] + 1, len(sizes) - 1)]
    while high - low > 1:
        middle = (low + high) // 2
        ahead = defects("max", [middle], (rho,)) < defects("average", [middle], (rho,))
        low, high = (middle, high) if bool(ahead) else (low, middle)
    return low


ITEMS = (
    Item(
        "pooling/thm4-1",
        "Theorem 4.1: average pooling in a dense network",
        "1 - cosine after average pooling over n dense ReLU units is O(1/n) for any two inputs.",
        theorem_1,
    ),
    Item(
        "pooling/thm4-2",
        "Theorem 4.2: max pooling in a dense network",
        "1 - cosine after max pooling over n dense ReLU units is O(1/log n) for any two inputs.",
        theorem_2,
    ),
    Item(
        "pooling/discussion",
        "Section 5: max against average pooling",
        "Max pooling contracts more than average pooling in the dense network.",
        comparison,
    ),
)
