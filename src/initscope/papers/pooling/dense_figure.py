"""Figure 2: average and max pooling after a dense ReLU layer."""

from __future__ import annotations

import torch
from torch import Tensor

from initscope.figures import Line, Panel, Picture, Points, curves_and_points
from initscope.finite import Estimate
from initscope.layers import Dense
from initscope.networks import predict
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.pooling.measures import (
    GROUP,
    WIDTH,
    PairSet,
    all_agree,
    arc_cosine,
    centred_pairs,
    dense_net,
    plain,
    plane_pairs,
    relu_defect,
    sampled_defect,
)

SETS = ("cifar10", "cifar100", "gaussian")
NEARLY_ONE = 0.9  # the paper says "nearly 1" and prints no number


def run(desk: Desk) -> Outcome:
    """Every pair of three sets, sampled, on the one exact curve that depends on nothing but the ReLU similarity."""
    pairs, draws = desk.pick(12, 30, 100), desk.pick(200, 400, 1000)
    sets = [centred_pairs(desk, name, pairs, flat=True) for name in SETS]
    before = [relu_defect(each, Dense(1)) for each in sets]
    exact: dict[str, list[Tensor]] = {}
    found: dict[str, list[Estimate]] = {}
    for index, pool in enumerate(("average", "max")):
        net = dense_net(pool)
        exact[pool] = [predict(net, each.x, each.y).layers[-1].defect for each in sets]
        found[pool] = []
        for place, each in enumerate(sets):
            found[pool].append(sampled_defect(net, each.x, each.y, draws, desk.seed))
            desk.progress(index * len(sets) + place + 1, 2 * len(sets))
    checks = (*_checks(exact, found), _heavier(exact))
    data = {
        "sets": [each.title for each in sets],
        "relu": [plain(1 - t) for t in before],
        "exact": {pool: [plain(1 - t) for t in exact[pool]] for pool in exact},
        "sampled": {pool: [plain(1 - e.value) for e in found[pool]] for pool in found},
        "stderr": {pool: [plain(e.stderr) for e in found[pool]] for pool in found},
        "draws": draws,
    }
    return Outcome(checks, data, _picture(sets, before, found))


def _checks(exact: dict[str, list[Tensor]], found: dict[str, list[Estimate]]) -> list[Check]:
    checks = []
    for pool in ("average", "max"):
        together = Estimate(
            torch.cat([e.value for e in found[pool]]), torch.cat([e.stderr for e in found[pool]]), found[pool][0].draws
        )
        values = torch.cat(exact[pool])
        words = f"{pool} pooling: all sets lie on one exact curve, so the contraction depends on the data only through the angle"
        checks.append(all_agree(words, together, values))
        low = int(together.value.argmax())
        sample = Sampled(1 - float(together.value[low]), float(together.stderr[low]), together.draws)
        checks.append(
            claim(
                f"{pool} pooling: every cosine is nearly 1, read as above {NEARLY_ONE} (the smallest is shown)",
                1 - float(values.max()) > NEARLY_ONE and sample.interval()[0] > NEARLY_ONE,
                exact=1 - float(values.max()),
                sampled=sample,
                published="nearly 1",
            )
        )
    return checks


def _heavier(exact: dict[str, list[Tensor]]) -> Check:
    average, largest = torch.cat(exact["average"]), torch.cat(exact["max"])
    keep = average > 1e-9
    ratio = float((largest[keep] / average[keep]).max())
    return claim(
        "max pooling contracts more than average pooling for every pair (largest ratio of 1 - cosine, max over average)",
        ratio < 1,
        exact=ratio,
        why=""
        if ratio < 1
        else "with groups of 50 the two are level for unlike inputs, average pooling is ahead for like ones",
    )


def _picture(sets: list[PairSet], before: list[Tensor], found: dict[str, list[Estimate]]) -> Picture:
    rho = torch.linspace(-1, 1, 81, dtype=torch.float64)
    x, y = plane_pairs(rho.tolist())
    across = plain(arc_cosine(rho))
    panels = []
    for pool in ("average", "max"):
        theory = plain(1 - predict(dense_net(pool), x, y).layers[-1].defect)
        marks: list[Line | Points] = [Line("exact", across, theory, hue=6, dash=0)]
        for hue, (each, relu, estimate) in enumerate(zip(sets, before, found[pool], strict=True)):
            reach = plain(estimate.reach())
            marks.append(Points(f"{each.title}, sampled, 95 %", plain(1 - relu), plain(1 - estimate.value), hue, reach))
        panels.append(
            Panel(
                marks,
                "cosine of the ReLU features",
                f"cosine after {pool} pooling",
                f"{pool} pooling",
                limits_up=(0.93, 1.005),
            )
        )
    title = f"Both poolings of a dense layer, groups of {GROUP}: cosines near 1 for all data"
    words = (
        f"Two panels, average and max pooling over groups of {GROUP} of {WIDTH} ReLU units. The exact curve rises from 0.94 for "
        "opposite inputs to 1; the sampled pairs of all sets lie on it."
    )
    return curves_and_points(panels, title, words, size=(4.6, 3.8))


ITEMS = (
    Item(
        "pooling/fig2",
        "Figure 2: pooling in a dense network",
        "After a dense ReLU layer both poolings take all cosines close to 1, independently of the data.",
        run,
        sets=("cifar10", "cifar100"),
        full_minutes=2,
    ),
)
