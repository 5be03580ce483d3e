"""DC Figures 12 and 13: pictures that trained decoders give back from random features."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.figures import Picture
from initscope.images import Cell, Encoder, TrainedDecoder, compare_pictures, picture_grid
from initscope.papers.item import Desk, Item, Outcome, claim
from initscope.papers.random_cnn.training_runs import LAWS, NETWORKS, SAME, SCALED, SET, Budget, below, make_budget

SHOWN = 3


@dataclass(frozen=True)
class Column:
    """One encoder of a sheet; `scaled`: its features are divided by their root mean square."""

    name: str
    encoder: Encoder
    scaled: bool = False


def _decoded(run: TrainedDecoder, encoder: Encoder, pictures: Tensor) -> Tensor:
    with torch.no_grad():
        size = (pictures.shape[-2], pictures.shape[-1])
        out: Tensor = run.decoder(encoder(pictures) / run.scale, size)
    return out.clamp(0, 1)


def _sheet(
    budget: Budget, rows: list[list[Column]], title: str, report: Callable[[int, int], None]
) -> tuple[Picture, dict[str, float], dict[str, float]]:
    """Held-out pictures through every encoder and its trained decoder; mean SSIM and loss by name."""
    cells: list[list[Cell]] = []
    ssim: dict[str, float] = {}
    loss: dict[str, float] = {}
    for row in rows:
        line = [[Cell(budget.held_out[i], "original")] for i in range(SHOWN)]
        for column in row:
            report(len(loss), sum(len(row) for row in rows))
            run = budget.train(column.encoder, budget.seeds[0], scaled=column.scaled)
            out = _decoded(run, column.encoder, budget.held_out)
            each = compare_pictures(out, budget.held_out).ssim
            ssim[column.name], loss[column.name] = float(each.mean()), run.held_out[-1][1]
            for i in range(SHOWN):
                line[i].append(Cell(out[i], f"{column.name}: SSIM {float(each[i]):.2f}"))
        cells += line
    return picture_grid(cells, title), ssim, loss


def run_figure12(desk: Desk) -> Outcome:
    budget = make_budget(desk, 20, 100, 1000, seeds=1)
    depths = desk.pick((1, 2), (1, 2, 3), (1, 2, 3, 4, 5))
    rows = [
        [Column(f"{name} CD{k}", Encoder(arch, k, seed=desk.seed)) for k in depths] for name, arch in NETWORKS.items()
    ]
    title = "Trained decoders on random features: pictures they never saw"
    picture, ssim, loss = _sheet(budget, rows, title, desk.progress)
    checks = []
    for name in NETWORKS:
        for a, b in itertools.pairwise(depths):
            says = f"{name}: the loss rises from CD{a} to CD{b}"
            checks.append(below(says, [loss[f"{name} CD{a}"]], [loss[f"{name} CD{b}"]], budget.short))
    for k in depths:
        says = f"CD{k}: random VGG16 is more accurate than random AlexNet"
        checks.append(below(says, [loss[f"VGG16 CD{k}"]], [loss[f"AlexNet CD{k}"]], budget.short))
    frame = (
        "AlexNet from CD2 on: zeros around upsampled features leave outer pixels that no filter reaches: a bias only"
    )
    return Outcome(tuple(checks), {"ssim": ssim, "held_out": loss}, picture, (budget.words, frame))


def run_figure13(desk: Desk) -> Outcome:
    budget = make_budget(desk, 30, 100, 1000, seeds=1)
    width = desk.pick(8, 32, None)

    def column(name: str, law: str, *, scaled: bool) -> Column:
        return Column(name, Encoder("vgg16", 2, channels=width, law=law, seed=desk.seed), scaled)

    columns = [column(law.removeprefix("dc_"), law, scaled=True) for law in LAWS]
    columns.append(column("N(0, 1)", "gaussian_fixed(1.0)", scaled=False))
    title = "VGG16 CD2: trained decoders on the features of five laws"
    picture, ssim, loss = _sheet(budget, [columns], title, desk.progress)
    four = [loss[law.removeprefix("dc_")] for law in LAWS]
    ratio = max(four) / min(four)
    checks = (
        claim(f"the four laws give pictures of similar loss, within {SAME:g}: largest ratio", ratio < SAME, exact=ratio,
              why="" if ratio < SAME else budget.short),
        below("and of lower loss than N(0, 1)", [max(four)], [loss["N(0, 1)"]], budget.short),
    )  # fmt: skip
    notes = (
        budget.words,
        f"{width or 'its own'} channels; the four: {SCALED}; N(0, 1): as it is. Without biases ReLU features are the same up to "
        "a factor for every variance: divided by it, N(0, 1) is as good as any other variance",
    )
    return Outcome(checks, {"ssim": ssim, "held_out": loss}, picture, notes)


ITEMS = (
    Item(
        "random-cnn/fig12", "Reconstructions by trained decoders",
        "The quality decays for deeper layers; random VGG yields more accurate reconstructions than random AlexNet.",
        run_figure12, (SET,), 90,
    ),
    Item(
        "random-cnn/fig13", "Reconstructions by trained decoders for several laws",
        "Except for N(0, 1), the reconstruction quality is indistinguishable by naked eyes.", run_figure13, (SET,), 60,
    ),
)  # fmt: skip
