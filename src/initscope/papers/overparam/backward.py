"""OP Proposition 1 and Lemmas 4 and 5 as statements about numbers: one layer backwards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.stats import binom, chisquare, kstest
from torch import Tensor

from initscope.finite import relu_norm_law
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.overparam.forward import EPSILONS, WIDTHS, log_margin, printed_failure


def proposition1(desk: Desk) -> Outcome:
    draws, width, depth = desk.pick(2000, 20_000), 40, 3
    source = torch.Generator().manual_seed(desk.seed)
    h = torch.randn(width, generator=source).expand(draws, width)
    for layer in range(depth):
        desk.progress(layer, depth)
        weights = torch.randn(draws, width, width, generator=source) * math.sqrt(2 / width)
        a = (weights @ h.unsqueeze(2)).squeeze(2)
        h = torch.relu(a)
    active = (a > 0).double()
    counts = active.sum(1)
    seen = np.bincount(counts.int().numpy(), minlength=width + 1)
    expected = draws * binom.pmf(np.arange(width + 1), width, 0.5)
    pvalue = _fit(seen, expected)
    centred = active - 0.5
    product = 4 * centred[:, 0] * centred[:, 1]
    share = Sampled(float(active.mean()), float(active.mean(1).std()) / math.sqrt(draws), draws)
    checks = (
        _holds(f"P(a > 0) = 1/2 for a unit of layer {depth}, over {draws} networks", share, 0.5),
        _holds(
            "two units of the layer are active independently: the correlation of their masks is 0",
            Sampled(float(product.mean()), float(product.std()) / math.sqrt(draws), draws),
            0.0,
        ),
        claim(
            f"so the number of active units is Binomial({width}, 1/2); shown is the p-value of a chi-square test",
            pvalue > 0.05,
            measured=pvalue,
            why="" if pvalue > 0.05 else "One seed in twenty gives a smaller one.",
        ),
    )
    notes = (f"Given h = 0 all units are silent; that has probability {relu_norm_law([width] * 2).dead:.1e} here.",)
    return Outcome(checks, {"counts": seen.tolist(), "expected": expected.tolist()}, None, notes)


def _fit(seen: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """Chi-square test with the rare counts put together."""
    rare = expected < 5
    both = [np.append(side[~rare], side[rare].sum()) for side in (seen, expected)]
    return float(chisquare(both[0], both[1] * both[0].sum() / both[1].sum()).pvalue)


def _holds(says: str, found: Sampled, truth: float) -> Check:
    low, high = found.interval()
    inside = low <= truth <= high
    return claim(says, inside, exact=truth, sampled=found, why="" if inside else "One in twenty such intervals misses.")


def masked(width: int, size: int, share: float, draws: int, seed: int) -> Tensor:
    """|(Ru) ⊙ z|²/|u|² with R ~ N(0, 1/(p m)) and z ~ Bernoulli(p), one for each draw."""
    source = torch.Generator().manual_seed(seed)
    u = torch.randn(size, generator=source, dtype=torch.float64)
    found = []
    for _ in range(draws):
        weights = torch.randn(width, size, generator=source, dtype=torch.float64)
        z = torch.rand(width, generator=source) < share
        found.append((weights @ u)[z].square().sum() / (share * width * u.square().sum()))
    return torch.stack(found)


def lemma4(desk: Desk) -> Outcome:
    draws, width = desk.pick(500, 5000), 60
    checks = []
    for case, share in enumerate((0.1, 0.5, 0.9)):
        desk.progress(case, 3)
        found = masked(width, 30, share, draws, desk.seed + case)
        mean = Sampled(float(found.mean()), float(found.std()) / math.sqrt(draws), draws)
        checks.append(_holds(f"E|(Ru) ⊙ z|² = |u|² for p = {share}, {width} units", mean, 1.0))
    off = max(abs(relu_norm_law(width).mean - 1) for width in WIDTHS)
    exact = claim("for p = 1/2 by the exact law, largest difference over widths 1 to 10000", off < 1e-12, exact=off)
    return Outcome((exact, *checks), {"draws": draws})


def lemma5(desk: Desk) -> Outcome:
    draws, width, strength = desk.pick(500, 4000), 50, 0.2
    grid = [(m, e) for m in desk.pick(WIDTHS[::2], WIDTHS) for e in desk.pick(EPSILONS[::2], EPSILONS)]
    rows = [(m, e, relu_norm_law(m).outside(1 - e, 1 + e), printed_failure([m], e)) for m, e in grid]
    told = [row for row in rows if row[3] < 1]
    worst = max(told, key=lambda row: row[2] / row[3])
    ratios = masked(width, 30, 0.5, draws, desk.seed).numpy()
    law = relu_norm_law(width)
    test = kstest(ratios, lambda r: law.cdf(np.asarray(r)))
    # E exp(λ v²) of one unit v = z a, a standard normal: half of the time v = 0.
    true = 0.5 + 0.5 / math.sqrt(1 - 2 * strength)
    printed = 0.5 + 1 / math.sqrt(1 - 2 * strength)
    half = 0.5 * (1 + 0.5 / math.sqrt(1 - 2 * strength))
    sampled = _moment(strength, desk.pick(200_000, 2_000_000), desk.seed)
    checks = (
        claim(
            f"eq. 21: the failure probability is at most the bound, at {len(rows)} pairs of width and ε; shown is the largest "
            f"exact/bound where the bound is below 1 (m = {worst[0]}, ε = {worst[1]})",
            all(log_margin(bound, exact) >= 0 for _, _, exact, bound in rows),
            exact=worst[2] / worst[3],
            why="The law is that of Lemma 2: a mask that is a fair coin acts like the sign of a Gaussian.",
        ),
        claim(
            f"(Ru) ⊙ z drawn for {width} units follows that law; shown is the p-value of Kolmogorov and Smirnov's test",
            test.pvalue > 0.05,
            measured=float(test.pvalue),
            why="" if test.pvalue > 0.05 else "One seed in twenty gives a smaller one.",
        ),
        claim(
            f"eq. 120: E exp(λv²) = 0.5 + 1/√(1 - 2λ), at λ = {strength}",
            abs(printed - true) < 1e-9,
            published=f"{printed:.4f}",
            exact=true,
            sampled=sampled,
            why="The second term lacks its factor 1/2; 0.5 + 0.5/√(1 - 2λ).",
        ),
        claim(
            f"eq. 121: that is at most 0.5 (1 + 0.5/√(1 - 2λ)), at λ = {strength}",
            true <= half,
            published=f"{half:.4f}",
            exact=true,
            why="Too small as printed; eq. 122, with 1 in place of the inner 0.5, is the true value, and the lemma stands.",
        ),
    )
    return Outcome(checks, {"grid": [list(row) for row in rows], "draws": draws})


def _moment(strength: float, draws: int, seed: int) -> Sampled:
    source = torch.Generator().manual_seed(seed)
    v = torch.randn(draws, generator=source, dtype=torch.float64) * (torch.rand(draws, generator=source) < 0.5)
    values = (strength * v.square()).exp()
    return Sampled(float(values.mean()), float(values.std()) / math.sqrt(draws), draws)


ITEMS = (
    Item(
        "overparam/prop1",
        "Proposition 1: masks are fair coins",
        "Given h, the entries of 1(a) are independent and 1 with probability 1/2.",
        proposition1,
    ),
    Item(
        "overparam/lemma4",
        "Lemma 4: a masked Gaussian layer keeps the squared norm on average",
        "E|(Ru) ⊙ z|² = |u|² for R with entries N(0, 1/(pm)) and z Bernoulli(p).",
        lemma4,
    ),
    Item(
        "overparam/lemma5",
        "Lemma 5: how likely a masked layer changes a norm by more than ε",
        "The bound of Lemma 2 holds for (Ru) ⊙ z with fair coins z.",
        lemma5,
    ),
)
