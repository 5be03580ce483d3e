"""OP Lemma 3 and Theorem 2: all inputs of a subspace at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from scipy.stats import beta
from torch import Tensor

from initscope.bounds import width_for_subspace
from initscope.papers.item import Check, Desk, Item, Outcome, claim
from initscope.papers.overparam.networks import over_networks

DELTA = 0.05


def sphere(dimension: int, count: int, seed: int) -> Tensor:
    """Unit vectors that fill a subspace of d dimensions: a fine circle for two, random ones beyond; (d, count)."""
    if dimension == 2:
        angle = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
        return torch.stack([angle.cos(), angle.sin()])
    points = torch.randn(dimension, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    unit: Tensor = points / torch.linalg.vector_norm(points, dim=0)
    return unit


def extremes(points: Tensor, widths: Sequence[int], seed: int) -> list[tuple[float, float]]:
    """Smallest and largest |h_l|²/|x|² over the points, layer by layer, in one network.

    An orthonormal basis of the subspace leaves the law of the first weights as it is, so inputs are given in coordinates.
    """
    source = torch.Generator().manual_seed(seed)
    h, found = points.float(), []
    for width in widths:
        weights = torch.randn(width, len(h), generator=source) * math.sqrt(2 / width)
        h = torch.relu_(weights @ h)
        squares = torch.linalg.vector_norm(h, dim=0, dtype=torch.float64).square()
        found.append((float(squares.min()), float(squares.max())))
    return found


def upper(failed: int, networks: int) -> float:
    """The 95 % upper limit of the failure probability, by Clopper and Pearson."""
    return float(beta.ppf(0.95, failed + 1, networks - failed))


def lemma3(desk: Desk) -> Outcome:
    networks, count = desk.pick(60, 100), desk.pick(360, 1440)
    cases = [(2, 0.5), (2, 0.9), (3, 0.9)]
    rows, checks = [], []
    for done, (dimension, epsilon) in enumerate(cases):
        desk.progress(done, len(cases))
        answer = width_for_subspace(dimension, 1, epsilon, DELTA)
        points = sphere(dimension, count, desk.seed)
        found = [extremes(points, [answer.printed.value], desk.seed + 1000 * done + i)[0] for i in range(networks)]
        failed = sum(low < 1 - epsilon or high > 1 + epsilon for low, high in found)
        distortions = [max(1 - low, high - 1) for low, high in found]
        row = {"dimension": dimension, "epsilon": epsilon, "width": answer.printed.value}
        rows.append({**row, "distortions": distortions, "chained": answer.chained.value})
        checks.append(
            claim(
                f"d = {dimension}, ε = {epsilon}, width {answer.printed.value} from eq. 9: all directions within 1 ± ε except "
                f"with probability {DELTA}; shown is the largest distortion over the directions, mean over networks",
                upper(failed, networks) <= DELTA,
                sampled=over_networks(distortions),
                why=f"{failed} of {networks} networks fail, so the chance is below {upper(failed, networks):.3f} (95 %). "
                f"By another proof {answer.chained.value} units are enough.",
            )
        )
    checks.append(_grid())
    notes = (
        f"{networks} layers each; {count} directions stand for all of them: a missed maximum between two is possible in three "
        "dimensions, on the circle its effect is below 1e-3.",
        "The proof bounds norms within 1 ± ε (eq. 74, 98), which is more than eq. 10's squared norms allow.",
    )
    return Outcome(tuple(checks), {"cases": rows, "networks": networks}, None, notes)


def _grid() -> Check:
    """A grid of mesh Δ on [-1, 1]^d has more points than the proof counts."""
    steps, dimension, epsilon = 40, 2, 0.5
    counted, there = steps**dimension, (steps + 1) ** dimension
    mesh = min(epsilon / (3 * math.sqrt(dimension)), math.sqrt(epsilon / 3) / dimension)
    logs = [dimension * math.log(points) + math.log(4 / DELTA) for points in (2 / mesh, 2 / mesh + 1)]
    return claim(
        "Proof: a grid of interval Δ on [-1, 1]^d has (2/Δ)^d points; shown is their number for d = 2, Δ = 1/20",
        counted == there,
        published=str(counted),
        exact=float(there),
        why="Both ends of each side count: (2/Δ + 1)^d. For d = 2, ε = 0.5 the width grows by "
        f"{100 * (logs[1] / logs[0] - 1):.1f} %.",
    )


def needed(dimension: int, depth: int, each: float) -> int:
    """A width that is enough for eq. 12 by a proof of our own: layer by layer, with δ/L for each.

    (1 - ε)^l is nearer to 1 than (1 + ε)^l, so the narrower interval 1 ± (1 - (1 - ε)^l) is asked for.
    """
    targets = [-math.expm1(layer * math.log1p(-each)) for layer in range(1, depth + 1)]
    found = [width_for_subspace(dimension, layer, e, DELTA / depth) for layer, e in enumerate(targets, start=1)]
    return max(answer.chained.value for answer in found)


def theorem2(desk: Desk) -> Outcome:
    networks, count, units = desk.pick(8, 20), desk.pick(360, 720), desk.pick(200, 400)
    depth, dimension, total = 3, 2, 0.9
    answer = width_for_subspace(dimension, depth, total, DELTA)
    width, tried = answer.printed.value, desk.pick(1500, 2500)
    each = math.expm1(math.log1p(total) / depth)
    sides = [((1 - each) ** layer, (1 + each) ** layer) for layer in range(1, depth + 1)]
    points, failed, worst = sphere(dimension, count, desk.seed), 0, []
    for network in range(networks):
        desk.progress(network, networks)
        found = extremes(points, [tried] * depth, desk.seed + network)
        failed += any(low < side[0] or high > side[1] for (low, high), side in zip(found, sides, strict=True))
        worst.append(max(max(1 - low, high - 1) for low, high in found))
    rank, enough = _rank(units, 3, desk.seed), needed(dimension, depth, each)
    checks = (
        claim(
            f"eq. 12 for d = {dimension}, L = {depth}, ε = {each:.3f} in each layer, δ = {DELTA}: the {width} units of eq. 11 "
            "are enough; shown is a width that provably is",
            enough <= width,
            exact=float(enough),
            why="By a proof of our own (docs/widths.md). With the paper's argument, repaired by a union bound over the linear "
            f"pieces of each layer, it is {answer.repaired.value}.",
        ),
        claim(
            f"The same sampled at {tried} units, where failures are likelier: none in {networks} networks; shown is the largest "
            "distortion over directions and layers, mean over networks",
            failed == 0,
            sampled=over_networks(worst),
        ),
        claim(
            f"Proof, eq. 16: inputs from 3 dimensions stay in 3 dimensions after a layer of {units} units; shown is the rank",
            rank == 3,
            published="3",
            exact=float(rank),
            why="ReLU is linear on each piece only, and the pieces together fill the whole space.",
        ),
    )
    data = {"width": width, "tried": tried, "repaired": answer.repaired.value, "enough": enough, "rank": rank}
    notes = (f"{networks} networks, {count} directions on the circle.",)
    return Outcome(checks, {**data, "failed": failed, "distortions": worst}, None, notes)


def _rank(width: int, dimension: int, seed: int) -> int:
    points = sphere(dimension, 20 * width, seed)
    source = torch.Generator().manual_seed(seed + 1)
    weights = torch.randn(width, dimension, generator=source, dtype=torch.float64)
    return int(torch.linalg.matrix_rank(torch.relu(weights @ points)))


ITEMS = (
    Item(
        "overparam/lemma3",
        "Lemma 3: one layer keeps the norms of a whole subspace",
        "At the width of eq. 9, |relu(Ru)|²/|u|² is within 1 ± ε for all u of a d-dimensional subspace at once.",
        lemma3,
    ),
    Item(
        "overparam/thm2",
        "Theorem 2: a deep network keeps the norms of a whole subspace",
        "At the width of eq. 11 all layers keep the norms of all inputs of a d-dimensional subspace.",
        theorem2,
    ),
)
