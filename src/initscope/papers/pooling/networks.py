"""Figures 1 and 5: ReLU features against average-pooled features in whole networks before training."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from scipy.stats import spearmanr
from torch import Tensor

from initscope.figures import Line, Picture
from initscope.geometry import angle, similarity
from initscope.papers.item import Check, Desk, Item, Outcome, Sampled, claim, undecided
from initscope.papers.pooling.drawing import Cloud, Frame, clouds
from initscope.papers.pooling.measures import larger, mean_over_pairs, plain
from initscope.papers.pooling.zoo import NETWORKS, features

DENSE = next(name for name in NETWORKS if name.startswith("DenseNet"))
FIGURE_1 = ("DLA-34", "ResNet-32", DENSE)
FIGURE_5 = ("ResNet-32", "ResNet-50")
_TEXT = {"DLA-34": "dla", "ResNet-32": "resnet32", DENSE: "densenet150", "ResNet-50": "resnet50"}
_NOTES = (
    "networks of pytorchcv 0.0.67 at their own initialization (He, uniform), batch norm with the statistics of the batch; "
    "the paper does not say how its networks were drawn or normalised",
    "the paper's DenseNet150 does not exist in the 6 L + 4 family: DenseNet-148 with growth 12 and bottlenecks stands for it; "
    "DLA and ResNet-50 are in their usual form for 32x32 images, with 4x4 positions before the pooling",
)


@dataclass(frozen=True)
class Measured:
    """Pairs in several draws of one network: cosines (draws, n) before and after pooling, angles (degrees) at three places."""

    name: str
    relu: Tensor
    pooled: Tensor
    angles: tuple[Tensor, Tensor, Tensor]  # input, ReLU features, pooled features, (draws, n)

    @property
    def order(self) -> Sampled:
        """Spearman's rank correlation of ReLU and pooled cosines, mean over draws, with its error over pairs and draws."""
        each = [float(spearmanr(a, b).statistic) for a, b in zip(self.relu, self.pooled, strict=True)]
        pairs = self.relu.shape[1]
        mean = sum(each) / len(each)
        # To first order the error of a rank correlation over pairs (Bonett and Wright 2000), the same pairs in all draws.
        return Sampled(mean, ((1 - mean**2) ** 2 * (1 + mean**2 / 2) / (pairs - 3)) ** 0.5, pairs)


def measure(desk: Desk, name: str, x: Tensor, y: Tensor, draws: int) -> Measured:
    """Several networks on the same pairs."""
    rows: list[tuple[Tensor, ...]] = []
    for draw in range(draws):
        found = features(name, torch.cat([x, y]), desk.seed + draw)
        flat = found.flatten(1).chunk(2)
        pooled = found.mean((2, 3)).chunk(2)
        degrees = [angle(*pair).double().rad2deg() for pair in ((x.flatten(1), y.flatten(1)), flat, pooled)]
        rows.append((similarity(*flat).double(), similarity(*pooled).double(), *degrees))
    relu, after, *angles = (torch.stack(column) for column in zip(*rows, strict=True))
    return Measured(name, relu, after, (angles[0], angles[1], angles[2]))


def run(desk: Desk, names: tuple[str, ...]) -> Outcome:
    """Random pairs of centred images through each network, its last ReLU features and their global average."""
    pairs, draws = desk.pick(16, 60, 150), desk.pick(1, 2, 5)
    given = desk.pairs("cifar10", pairs=pairs, centre=True)
    rows = []
    for place, name in enumerate(names):
        rows.append(measure(desk, name, given.x, given.y, draws))
        desk.progress(place + 1, len(names))
    checks = [check for row in rows for check in _checks(row)]
    checks += _compare_order(rows)
    checks += [_accuracy(row, desk) for row in rows]
    data = {row.name: {"relu": [plain(r) for r in row.relu], "pooled": [plain(p) for p in row.pooled]} for row in rows}
    return Outcome(tuple(checks), {"draws": draws, "networks": data}, _picture(rows), _NOTES)


def _checks(row: Measured) -> list[Check]:
    gain = float((row.pooled - row.relu).min())
    start, before, after = (mean_over_pairs(a.mean(0)) for a in row.angles)
    by_layers = row.angles[0].mean(0) - row.angles[1].mean(0)
    by_pool = row.angles[1].mean(0) - row.angles[2].mean(0)
    lost = mean_over_pairs(by_pool - by_layers)
    words = f"mean angles: {start.value:.1f}° images, {before.value:.1f}° ReLU features, {after.value:.1f}° pooled"
    return [
        claim(f"{row.name}: average pooling brings every pair closer (smallest gain of cosine)", gain > 0, measured=gain,
              why="" if gain > 0 else "some pairs move apart"),
        larger(
            f"{row.name}: pooling takes more of the angle than all layers before it ({words}; difference in degrees)",
            lost, 0.0, why="the layers before it take more",
        ),
    ]  # fmt: skip


def _compare_order(rows: list[Measured]) -> list[Check]:
    """§5: like ReLU features have like pooled features in DLA, DenseNet and ResNet-50, not in ResNet-32."""
    chaotic = next(row for row in rows if row.name == "ResNet-32").order
    checks = []
    for row in rows:
        if row.name == "ResNet-32":
            continue
        says = (
            f"{row.name} keeps the order of pairs better than ResNet-32 (Spearman's rank correlation of ReLU and pooled cosines; "
            f"ResNet-32: {chaotic.value:.2f} ± {chaotic.stderr:.2f})"
        )
        checks.append(larger(says, row.order, chaotic, why="it keeps it less"))
    says = "ResNet-32 induces chaotic cosines: its ReLU and pooled cosines are not ordered alike (rank correlation)"
    low, high = chaotic.interval()
    checks.append(
        claim(
            says,
            low <= 0 <= high,
            sampled=chaotic,
            why="" if low <= 0 <= high else "they are: the correlation is not zero",
        )
    )
    return checks


def _accuracy(row: Measured, desk: Desk) -> Check:
    says = f"{row.name}: test accuracy on CIFAR-10 after training, percent"
    return undecided(says, "this item looks at networks before training", published=desk.published.get(_TEXT[row.name]))


def _picture(rows: list[Measured]) -> Picture:
    frames = []
    for row in rows:
        marks = [
            Cloud(f"draw {draw + 1} of the network", plain(row.relu[draw]), plain(row.pooled[draw]), draw)
            for draw in range(min(len(row.relu), 3))
        ]
        lines = [Line("no contraction", [0, 1], [0, 1], hue=6, dash=3)]
        heading = f"{row.name}, rank correlation {row.order.value:.2f}"
        frames.append(Frame(heading, marks, lines, "cosine of the ReLU features", "cosine after average pooling"))
    title = "Average pooling brings all pairs of images together in untrained networks"
    ends = "; ".join(f"{row.name} from {float(row.relu.mean()):.2f} to {float(row.pooled.mean()):.2f}" for row in rows)
    words = f"Cosine after global average pooling against cosine of the last ReLU features. Means: {ends}."
    return clouds(frames, title, words, columns=len(frames), size=(3.8, 3.7))


ITEMS = (
    Item(
        "pooling/fig1",
        "Figure 1: average pooling in DLA, ResNet-32 and DenseNet",
        "In untrained networks with batch norm the global average pooling is the main source of contraction.",
        partial(run, names=FIGURE_1),
        sets=("cifar10",),
        full_minutes=10,
    ),
    Item(
        "pooling/fig5",
        "Figure 5: average pooling in ResNet-32 and ResNet-50",
        "ResNet-50 keeps the order of pairs through average pooling, ResNet-32 does not.",
        partial(run, names=FIGURE_5),
        sets=("cifar10",),
        full_minutes=8,
    ),
)
