"""Sets the score's weights and the verdict's thresholds on the networks, and prints them.

    python benchmarks/trainability/fit.py

The numbers stand in `initscope.probe.score` and `initscope.probe.thresholds`. What the score is worth is told by
`left_out`: the chance of each network by weights that were set without it.
"""

from __future__ import annotations

import numpy as np
from outcomes import Flags, Numbers, Outcomes, area, outcomes
from scipy.optimize import minimize
from training import MAIN

from initscope.probe.score import WEIGHTS
from networks import NETWORKS

NAMES = list(WEIGHTS)
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0)
FOLDS, REPEATS = 8, 10
WARN, FAIL = 0.125, 0.0  # at most this share of the networks beyond a threshold trains
# Candidates for the thresholds: degrees, and ratios.
ANGLES = (0.1, 0.2, 0.3, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25)
RATIOS = (10, 15, 20, 30, 50, 100, 200, 300, 500, 1000, 2000, 3000, 5000)


def logistic(x: Numbers, trains: Flags, penalty: float) -> tuple[float, Numbers]:
    """Intercept and weights of least Σ log(1 + exp(-±log odds)) + penalty/2 Σ (weight · spread)²."""
    middle, spread = x.mean(0), x.std(0) + 1e-12
    z = np.column_stack([np.ones(len(x)), (x - middle) / spread])
    sign = np.where(trains, 1.0, -1.0)

    def loss(w: Numbers) -> tuple[float, Numbers]:
        margin = sign * (z @ w)
        slope = -sign / (1 + np.exp(margin))
        ridge = np.concatenate([[0.0], w[1:]])
        return float(np.logaddexp(0, -margin).sum() + penalty / 2 * ridge @ ridge), slope @ z + penalty * ridge

    w = minimize(loss, np.zeros(z.shape[1]), jac=True).x
    weights = w[1:] / spread
    return float(w[0] - weights @ middle), weights


def cross_validated(x: Numbers, trains: Flags, penalty: float) -> tuple[float, float]:
    """Mean loss per network, and the area under the ROC curve, of networks left out."""
    losses, areas = [], []
    for repeat in range(REPEATS):
        order = np.random.default_rng(repeat).permutation(len(x))
        odds = np.zeros(len(x))
        for fold in range(FOLDS):
            out = order[fold::FOLDS]
            rest = np.setdiff1d(order, out)
            intercept, weights = logistic(x[rest], trains[rest], penalty)
            odds[out] = intercept + x[out] @ weights
        losses.append(np.logaddexp(0, -np.where(trains, odds, -odds)).mean())
        areas.append(area(odds, trains))
    return float(np.mean(losses)), float(np.mean(areas))


def left_out(half: Outcomes, penalty: float) -> Numbers:
    """The chance of each network, the mean over repeats, by weights set on the folds that it is not in."""
    x = half.signs(NAMES)
    chances = np.zeros((REPEATS, len(x)))
    for repeat in range(REPEATS):
        order = np.random.default_rng(repeat).permutation(len(x))
        for fold in range(FOLDS):
            out = order[fold::FOLDS]
            rest = np.setdiff1d(order, out)
            intercept, weights = logistic(x[rest], half.trains[rest], penalty)
            chances[repeat, out] = 1 / (1 + np.exp(-intercept - x[out] @ weights))
    return chances.mean(0)


def fitted(half: Outcomes) -> tuple[float, dict[str, float], float]:
    """Intercept, weights and the penalty of least cross-validated loss."""
    x = half.signs(NAMES)
    penalty = min(PENALTIES, key=lambda p: cross_validated(x, half.trains, p)[0])
    intercept, weights = logistic(x, half.trains, penalty)
    return intercept, dict(zip(NAMES, weights.tolist(), strict=True)), penalty


def extremes(half: Outcomes) -> tuple[Numbers, Numbers, Numbers]:
    """Angle in degrees, and the ratios of norm and gradient, of each network."""
    angle, norm, gradient = half.signs(["angle", "norm", "gradient"]).T
    return 90 / 10**angle, 10**norm, 10**gradient


def limits(half: Outcomes, share: float) -> tuple[float, float, float]:
    """For angle, norm and gradient the mildest limit beyond which at most this share of the networks trains."""
    angle, norm, gradient = extremes(half)

    def holds(beyond: Flags) -> bool:
        return bool(beyond.any()) and bool(half.trains[beyond].mean() <= share)

    return (
        max(a for a in ANGLES if holds(angle < a)),
        min(r for r in RATIOS if holds(norm > r)),
        min(r for r in RATIOS if holds(gradient > r)),
    )


def main() -> None:
    half = outcomes(list(range(NETWORKS)), MAIN)
    print(f"{len(half.numbers)} networks, {half.trains.sum()} train")
    for names in (NAMES[:2], NAMES[:3], NAMES):
        for penalty in PENALTIES:
            loss, found = cross_validated(half.signs(names), half.trains, penalty)
            print(f"{', '.join(names)}, penalty {penalty:g}: cross-validated loss {loss:.3f}, area {found:.3f}")
    intercept, weights, penalty = fitted(half)
    print(f"penalty {penalty:g}: INTERCEPT = {intercept:.2f}, WEIGHTS =", end=" ")
    print(", ".join(f"{name}={value:.2f}" for name, value in weights.items()))
    for word, share in (("warn", WARN), ("fail", FAIL)):
        print("{}: angle {:g}, norm {:g}, gradient {:g}".format(word, *limits(half, share)))


if __name__ == "__main__":
    main()
