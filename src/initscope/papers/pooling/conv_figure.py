"""Figure 3: global average and max pooling after a ReLU convolution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.figures import Line, Picture
from initscope.finite import Estimate
from initscope.geometry import similarity
from initscope.layers import Conv
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim
from initscope.papers.pooling.drawing import Cloud, Frame, clouds
from initscope.papers.pooling.measures import (
    CHANNELS,
    KERNEL,
    KERNEL_NOTE,
    PairSet,
    all_agree,
    arc_cosine,
    centred_pairs,
    conv_net,
    global_average_defect,
    larger,
    mean_over_pairs,
    plain,
    relu_defect,
    sampled_defect,
)

SETS = ("cifar10", "cifar100", "gaussian", "mnist")
NATURAL, ARTIFICIAL = (0, 1), (2, 3)
_DISTINCT = 1e-3  # pairs that nearly agree have no contraction to speak of


@dataclass(frozen=True)
class Pooled:
    """One set through the network: 1 - cosine of inputs, ReLU features and both poolings, (n,) each."""

    pairs: PairSet
    before: Tensor
    relu: Tensor
    average: Tensor
    sampled_average: Estimate
    sampled_max: Estimate

    def left(self, pool: str) -> Sampled:
        """The share of 1 - cosine of the ReLU features that pooling leaves, mean over pairs."""
        keep = self.relu > _DISTINCT
        if pool == "average":
            return mean_over_pairs((self.average / self.relu)[keep])
        common = float((self.sampled_max.stderr / self.relu)[keep].mean())
        return mean_over_pairs((self.sampled_max.value / self.relu)[keep], common)


def run(desk: Desk) -> Outcome:
    """Average pooling exact and sampled, max pooling sampled, on four sets."""
    pairs, draws = desk.pick(10, 48, 120), desk.pick(6, 16, 50)
    done = 0

    def tick(steps: int = 1) -> None:
        nonlocal done
        done += steps
        desk.progress(done, 4 * len(SETS) * pairs)

    rows = []
    for name in SETS:
        each = centred_pairs(desk, name, pairs)
        average = global_average_defect(each.x, each.y, tick)
        found = []
        for pool in ("average", "max"):
            found.append(sampled_defect(conv_net(pool), each.x, each.y, draws, desk.seed))
            tick(3 * pairs // 2)
        before = 1 - similarity(each.x.flatten(1), each.y.flatten(1)).double()
        rows.append(Pooled(each, before, relu_defect(each, Conv(1, KERNEL)), average, *found))
    data = {
        row.pairs.title: {
            "input": plain(1 - row.before),
            "relu": plain(1 - row.relu),
            "average": plain(1 - row.average),
            "average_sampled": plain(1 - row.sampled_average.value),
            "max_sampled": plain(1 - row.sampled_max.value),
            "max_stderr": plain(row.sampled_max.stderr),
        }
        for row in rows
    }
    notes = (
        KERNEL_NOTE,
        "global max pooling has no closed form: it is sampled; global average pooling is exact, pair by pair",
    )
    return Outcome(_checks(rows), {"draws": draws, "sets": data}, _picture(rows), notes)


def _checks(rows: list[Pooled]) -> tuple[Check, ...]:
    values = Estimate(
        torch.cat([row.sampled_average.value for row in rows]),
        torch.cat([row.sampled_average.stderr for row in rows]),
        rows[0].sampled_average.draws,
    )
    agreement = all_agree(
        "average pooling: sampled networks follow the exact 1 - cosine of each pair",
        values,
        torch.cat([r.average for r in rows]),
    )
    return (
        agreement,
        *(_kernel_or_isometry(row) for row in rows),
        *(_milder(rows[i], rows[j]) for i in NATURAL for j in ARTIFICIAL),
        *(_max_is_heavy(row) for row in rows),
        *(_max_is_heavier(row) for row in rows),
        _max_is_steadier(rows),
    )


def _kernel_or_isometry(row: Pooled) -> Check:
    """§1.1: without pooling the CNN fits the arc-cosine kernel, rather than being an isometry."""
    off_kernel = float((row.relu - (1 - arc_cosine(1 - row.before))).square().mean().sqrt())
    off_isometry = float((row.relu - row.before).square().mean().sqrt())
    says = (
        f"{row.pairs.title}, centred: the ReLU features follow the arc-cosine kernel, not an isometry "
        f"(root mean square distance to the kernel; to the isometry it is {off_isometry:.3f})"
    )
    why = "" if off_kernel < off_isometry else "the images keep their similarity more than the kernel says"
    return claim(says, off_kernel < off_isometry, exact=off_kernel, why=why)


def _milder(natural: Pooled, artificial: Pooled) -> Check:
    first, second = natural.left("average"), artificial.left("average")
    says = (
        f"average pooling leaves a larger share of 1 - cosine on {natural.pairs.title} than on {artificial.pairs.title} "
        f"({second.value:.3f} ± {second.stderr:.3f})"
    )
    return larger(says, first, second, why="it leaves less")


def _max_is_heavy(row: Pooled) -> Check:
    left = row.left("max")
    says = (
        f"{row.pairs.title}: max pooling contracts heavily, read as leaving less than half of 1 - cosine (share left)"
    )
    return larger(says, Sampled(0.5, 0.0, left.draws), left, why="it leaves more than half", show=left)


def _max_is_heavier(row: Pooled) -> Check:
    keep = row.relu > _DISTINCT
    gap = ((row.average - row.sampled_max.value) / row.relu)[keep]
    found = mean_over_pairs(gap, float((row.sampled_max.stderr / row.relu)[keep].mean()))
    says = f"{row.pairs.title}: max pooling contracts more than average pooling (share left, average less max)"
    return larger(says, found, 0.0, why="on these images average pooling contracts more")


def _max_is_steadier(rows: list[Pooled]) -> Check:
    spread = {}
    for pool in ("average", "max"):
        shares = [row.left(pool).value for row in rows]
        spread[pool] = max(shares) - min(shares)
    says = (
        "max pooling depends less on the data than average pooling "
        f"(range of the share left over the sets; average pooling: {spread['average']:.3f})"
    )
    holds = spread["max"] < spread["average"]
    return claim(says, holds, exact=spread["max"], why="" if holds else "its share varies more between the sets")


def _picture(rows: list[Pooled]) -> Picture:
    marks: dict[str, list[Cloud]] = {"average": [], "max": []}
    for hue, row in enumerate(rows):
        across = plain(1 - row.relu)
        for pool, found in (("average", row.sampled_average), ("max", row.sampled_max)):
            reach = plain(found.reach())
            marks[pool].append(Cloud(row.pairs.title, across, plain(1 - found.value), hue, reach=reach))
        marks["average"].append(Cloud(row.pairs.title, across, plain(1 - row.average), hue, exact=True))
    same = [Line("no contraction", [0, 1], [0, 1], hue=6, dash=3)]
    frames = [
        Frame(heading, marks[pool], same, "cosine of the ReLU features (exact)", f"cosine after global {pool} pooling")
        for pool, heading in (
            ("average", "average pooling, exact and sampled"),
            ("max", "max pooling, sampled: no closed form"),
        )
    ]
    shares = ", ".join(
        f"{row.pairs.title} {row.left('average').value:.2f} and {row.left('max').value:.2f}" for row in rows
    )
    title = f"After {CHANNELS} random filters average pooling contracts as the data decide, max pooling contracts all"
    words = (
        f"Cosine after pooling against cosine of ReLU features. Share of 1 - cosine left by average and max: {shares}."
    )
    return clouds(frames, title, words, columns=2, size=(4.6, 4.4))


ITEMS = (
    Item(
        "pooling/fig3",
        "Figure 3: pooling in a convolutional network",
        "Max pooling contracts whatever the data; average pooling mildly on natural images, severely on Gaussian ones and MNIST.",
        run,
        sets=("cifar10", "cifar100", "mnist"),
        full_minutes=8,
    ),
)
