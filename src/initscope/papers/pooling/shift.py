"""Figure 4: how a constant added to standardised images decides between arc-cosine kernel and isometry."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.data import Pairs
from initscope.figures import Line, Picture
from initscope.finite import Estimate
from initscope.geometry import similarity
from initscope.layers import Conv, ReLU
from initscope.networks import Sequential, predict
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim, undecided
from initscope.papers.pooling.drawing import Cloud, Frame, clouds
from initscope.papers.pooling.measures import (
    CHANNELS,
    KERNEL,
    KERNEL_NOTE,
    all_agree,
    arc_cosine,
    larger,
    mean_over_pairs,
    plain,
    sampled_defect,
)

SHIFTS = (0.0, 0.1, 0.3, 1.0, 2.0)  # of these only 2.0 is in the text
SMALL = (0.1, 0.3)
_FAR = 2.0


@dataclass(frozen=True)
class Shifted:
    """Pairs after a shift: 1 - cosine of the inputs, and of the ReLU features, exact, (n,) each; some pairs sampled."""

    label: str
    before: Tensor
    exact: Tensor
    sampled: Estimate

    @property
    def short_of_kernel(self) -> Tensor:
        """How far the similarity stays below r̂ of the input's, (n,)."""
        return self.exact - (1 - arc_cosine(1 - self.before))

    @property
    def contraction(self) -> Tensor:
        """The share of the kernel's contraction that takes place, (n,): 1 on the kernel, 0 for an isometry."""
        return (self.before - self.exact) / (self.before - (1 - arc_cosine(1 - self.before)))


def run(desk: Desk) -> Outcome:
    """300 pairs (the paper's number) of standardised images at several shifts, and the raw images."""
    count, drawn, draws = 300, desk.pick(6, 24, 100), desk.pick(6, 16, 50)
    raw: Pairs = desk.pairs("cifar10", pairs=count)
    both = torch.cat([raw.x, raw.y]).double()
    mean, deviation = float(both.mean()), float(both.std())
    x, y = ((side.double() - mean) / deviation for side in (raw.x, raw.y))
    rows = []
    for place, shift in enumerate(SHIFTS):
        rows.append(_through(f"shift {shift:g}", x + shift, y + shift, drawn, draws, desk.seed))
        desk.progress(place + 1, len(SHIFTS) + 1)
    rows.append(_through("raw pixels", raw.x, raw.y, drawn, draws, desk.seed))
    desk.progress(len(SHIFTS) + 1, len(SHIFTS) + 1)
    data = {
        "mean": mean,
        "deviation": deviation,
        "panels": {r.label: {"input": plain(1 - r.before), "relu": plain(1 - r.exact)} for r in rows},
        "sampled": {r.label: plain(1 - r.sampled.value) for r in rows},
        "stderr": {r.label: plain(r.sampled.stderr) for r in rows},
    }
    notes = (
        KERNEL_NOTE,
        "the text names one shift, 2.0; the others are chosen here. It calls this figure 'Figure 5'",
        f"raw pixels are standardised ones shifted by mean / deviation = {mean / deviation:.3f}, then scaled",
    )
    return Outcome(_checks(rows, mean / deviation), data, _picture(rows), notes)


def _through(label: str, x: Tensor, y: Tensor, drawn: int, draws: int, seed: int) -> Shifted:
    exact = predict(Sequential(Conv(1, KERNEL), ReLU()), x, y).layers[-1].defect
    before = 1 - similarity(x.flatten(1), y.flatten(1)).double()
    found = sampled_defect(Sequential(Conv(CHANNELS, KERNEL), ReLU()), x[:drawn], y[:drawn], draws, seed)
    return Shifted(label, before, exact, found)


def _checks(rows: list[Shifted], own: float) -> tuple[Check, ...]:
    by_shift = dict(zip(SHIFTS, rows, strict=False))
    raw = rows[-1]
    together = Estimate(
        torch.cat([r.sampled.value for r in rows]), torch.cat([r.sampled.stderr for r in rows]), rows[0].sampled.draws
    )
    exact = torch.cat([r.exact[: len(r.sampled.value)] for r in rows])
    agreement = all_agree("sampled networks follow the exact 1 - cosine of each pair at each shift", together, exact)
    shares = {shift: mean_over_pairs(row.contraction) for shift, row in by_shift.items()}
    return (
        agreement,
        *(_small(shift, by_shift) for shift in SMALL),
        *(_slower(shift, shares[shift], shares[0.0]) for shift in (1.0, _FAR)),
        _mimics(by_shift, raw, own),
        undecided("the shifts of panels a to d are those taken here", "the text of the paper does not name them"),
    )


def _small(shift: float, rows: dict[float, Shifted]) -> Check:
    """The change of a pair's distance to the kernel, against that distance between pairs."""
    change = (rows[shift].short_of_kernel - rows[0.0].short_of_kernel).square().mean().sqrt()
    spread = rows[0.0].short_of_kernel.square().mean().sqrt()
    says = (
        f"a shift of {shift:g} does not change the contraction: the distance to the kernel changes by less than its size "
        f"over the pairs without shift, {float(spread):.4f} (root mean square change)"
    )
    holds = bool(change < spread)
    return claim(says, holds, exact=float(change), why="" if holds else "the change is larger")


def _slower(shift: float, share: Sampled, without: Sampled) -> Check:
    says = (
        f"with shift {shift:g} the contraction is slower than the arc-cosine kernel "
        f"(share of the kernel's contraction, mean over pairs; without shift {without.value:.3f} ± {without.stderr:.3f})"
    )
    return larger(says, Sampled(1.0, 0.0, share.draws), share, why="it is faster", show=share)


def _mimics(by_shift: dict[float, Shifted], raw: Shifted, own: float) -> Check:
    gaps = {shift: mean_over_pairs(row.contraction - raw.contraction) for shift, row in by_shift.items()}
    nearest = min(gaps, key=lambda shift: abs(gaps[shift].value))
    says = (
        f"at shift {_FAR:g} the contraction mimics raw pixels: no other of the shifts comes nearer "
        f"(share of the kernel's contraction, less that of raw pixels; their own shift is {own:.2f})"
    )
    why = "" if nearest == _FAR else f"shift {nearest:g} is nearer"
    return claim(says, nearest == _FAR, sampled=gaps[_FAR], published=f"{_FAR:.1f}", why=why)


def _picture(rows: list[Shifted]) -> Picture:
    grid = torch.linspace(-1, 1, 101, dtype=torch.float64)
    lines = (
        Line("arc-cosine kernel", [0, 1], [0, 1], hue=5, dash=0),
        Line("isometry", plain(grid), plain(arc_cosine(grid)), hue=6, dash=1),
    )
    frames = []
    for row in rows:
        kernel = arc_cosine(1 - row.before)
        few, reach = len(row.sampled.value), plain(row.sampled.reach())
        marks = (
            Cloud("pair", plain(1 - row.sampled.value), plain(kernel[:few]), 1, reach=reach, sideways=True),
            Cloud("pair", plain(1 - row.exact), plain(kernel), 0, exact=True),
        )
        frames.append(Frame(row.label, marks, lines, "cosine of the ReLU features", "r̂(cosine of the inputs)"))
    title = "A constant added to the images leads from the arc-cosine kernel to near isometry"
    shares = ", ".join(f"{row.label} {float(row.contraction.mean()):.2f}" for row in rows)
    words = f"r̂ of the input cosine against cosine of ReLU features. Mean share of the kernel's contraction: {shares}."
    return clouds(frames, title, words, columns=3, size=(3.5, 3.3))


ITEMS = (
    Item(
        "pooling/fig4",
        "Figure 4: mean-shifted images through a convolution",
        "Centred images follow the arc-cosine kernel; a shift slows the contraction, and at 2.0 it looks like raw images.",
        run,
        sets=("cifar10",),
        full_minutes=2,
    ),
)
