"""DC Figures 10 and 11: the loss of decoders trained for random and for pre-trained encoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from initscope.figures import Line, Panel, Points, curves_and_points
from initscope.images import Encoder, TrainedDecoder
from initscope.papers.item import Check, Desk, Item, Outcome, claim, undecided
from initscope.papers.random_cnn.training_runs import (
    LAWS,
    NETWORKS,
    SAME,
    SCALED,
    SET,
    Budget,
    below,
    last,
    make_budget,
    mean,
    pretrained_or_why,
)

# Standard deviations of Gaussian filters; DC leaves N(0, 1) out of its figure.
DEVIATIONS = (0.015, 0.05, 0.15, 1.0)


def _train_kinds(
    budget: Budget, depths: Sequence[int], archs: Sequence[str], report: Callable[[int, int], None]
) -> tuple[dict[str, list[TrainedDecoder]], str]:
    """Runs by "VGG16 CD2, random", seed by seed, and why pre-trained ones are missing."""
    found: dict[str, list[TrainedDecoder]] = {}
    missing = ""
    jobs = [(name, depth, kind) for name in archs for depth in depths for kind in ("random", "pre-trained")]
    for number, (name, depth, kind) in enumerate(jobs):
        report(number, len(jobs))
        for seed in budget.seeds:
            arch = NETWORKS[name]
            encoder = Encoder(arch, depth, seed=seed) if kind == "random" else pretrained_or_why(arch, depth)
            if isinstance(encoder, str):
                missing = encoder
                continue
            found.setdefault(f"{name} CD{depth}, {kind}", []).append(budget.train(encoder, seed))
    return found, missing


def _mean_curve(runs: Sequence[TrainedDecoder]) -> list[float]:
    """Training losses, mean over seeds and over the last ten steps."""
    losses = torch.stack([run.losses for run in runs]).mean(0)
    return [float(losses[max(0, i - 9) : i + 1].mean()) for i in range(len(losses))]


def run_figure10(desk: Desk) -> Outcome:
    budget = make_budget(desk, 20, 100, 1000, seeds=desk.pick(1, 2, 2))
    kinds, missing = _train_kinds(budget, (2,), list(NETWORKS), desk.progress)
    width = desk.pick(8, 32, None)

    def trained(law: str, *, scaled: bool) -> list[TrainedDecoder]:
        return [
            budget.train(Encoder("vgg16", 2, channels=width, law=law, seed=seed), seed, scaled=scaled)
            for seed in budget.seeds
        ]

    spreads = {f"N(0, {d:g}²)": trained(f"gaussian_fixed({d * d!r})", scaled=False) for d in DEVIATIONS}
    laws = {law.removeprefix("dc_"): trained(law, scaled=True) for law in LAWS}
    small = dict(list(spreads.items())[:-1])  # N(0, 1) is far above, and DC leaves it out of its figure too
    checks = [
        *_kind_checks(kinds, missing, budget.short),
        *_spread_checks(spreads, budget.short),
        _similar(laws, budget.short),
    ]
    groups = (("(a) random and pre-trained", kinds), ("(b) Gaussian filters", small), ("(c) four laws, scaled", laws))
    panels = []
    first = 0
    for title, group in groups:
        lines = [
            Line(name, range(1, budget.steps + 1), _mean_curve(runs), hue=first + n, dash=n)
            for n, (name, runs) in enumerate(group.items())
        ]
        panels.append(Panel(lines, "step", "squared error per pixel and channel", title, scale_up="log", counts=True))
        first += len(lines)
    title = "CD2: the loss of the decoder in training, by the encoder's filters"
    ends = ", ".join(f"{name} {mean(runs):.4f}" for _, group in groups for name, runs in group.items())
    picture = curves_and_points(panels, title, f"{title}. Held-out losses at the end: {ends}.", size=(4.2, 3.4))
    data = {name: _rows(runs) for group in (kinds, spreads, laws) for name, runs in group.items()}
    notes = (budget.words, f"(b) and (c): VGG16 of {width or 'its own'} channels; (c): {SCALED}")
    return Outcome(tuple(checks), data, picture, notes)


def _rows(runs: Sequence[TrainedDecoder]) -> dict[str, list[float]]:
    return {"training": _mean_curve(runs), "held_out": last(runs)}


def _kind_checks(kinds: dict[str, list[TrainedDecoder]], missing: str, short: str) -> list[Check]:
    checks = []
    for name in NETWORKS:
        quicker, lower = (
            f"{name} CD2 converges quicker on random filters",
            f"{name} CD2 yields lower loss on random filters",
        )
        if missing:
            checks += [undecided(quicker, missing), undecided(lower, missing)]
            continue
        ours, theirs = kinds[f"{name} CD2, random"], kinds[f"{name} CD2, pre-trained"]
        means = [[float(run.losses.mean()) for run in runs] for runs in (ours, theirs)]
        checks.append(below(f"{quicker} (mean loss over all steps)", means[0], means[1], short))
        checks.append(below(f"{lower} (held out)", last(ours), last(theirs), short))
    vgg, alex = (kinds[f"{name} CD2, random"] for name in NETWORKS)
    checks.append(
        below("random VGG16 CD2 has lower loss than random AlexNet CD2 (held out)", last(vgg), last(alex), short)
    )
    return checks


def _spread_checks(spreads: dict[str, list[TrainedDecoder]], short: str) -> list[Check]:
    small, large = list(spreads.values())[:-1], list(spreads.values())[-1]
    ends, begins = [mean(runs) for runs in small], [float(runs[0].losses[0]) for runs in small]
    ratio = max(ends) / min(ends)
    why = "filters of a small variance give small features, which this few steps do not make up for"
    return [
        claim("small variances change the loss at the beginning: largest ratio", max(begins) / min(begins) > 1.01,
              measured=max(begins) / min(begins)),
        claim(f"they end at the same magnitude, within {SAME:g}: largest ratio", ratio < SAME, measured=ratio,
              why="" if ratio < SAME else why),
        below("and below N(0, 1)", [max(ends)], [mean(large)], short),
    ]  # fmt: skip


def _similar(laws: dict[str, list[TrainedDecoder]], short: str) -> Check:
    ends = [mean(runs) for runs in laws.values()]
    ratio = max(ends) / min(ends)
    return claim(
        f"the four laws acquire similar loss, within {SAME:g}: largest ratio",
        ratio < SAME,
        measured=ratio,
        why="" if ratio < SAME else short,
    )


def run_figure11(desk: Desk) -> Outcome:
    budget = make_budget(desk, 20, 100, 1000, seeds=desk.pick(1, 2, 2))
    depths = desk.pick((1, 2), (1, 2, 3), (1, 2, 3, 4, 5))
    found, missing = _train_kinds(budget, depths, ["VGG16"], desk.progress)
    ours = [mean(found[f"VGG16 CD{k}, random"]) for k in depths]
    gaps = [
        max(run.held_out[-1][1] / float(run.losses[-10:].mean()) for run in found[f"VGG16 CD{k}, random"])
        for k in depths
    ]
    checks = [claim(f"random VGG16 generalises: held-out over training loss at most {SAME:g}: largest",
                    max(gaps) < SAME, measured=max(gaps))]  # fmt: skip
    marks: list[Line | Points] = [Points("random", depths, ours, hue=0)]
    if missing:
        checks += [undecided("random VGG16 yields less loss than pre-trained VGG16", missing),
                   undecided("the loss grows faster with depth for pre-trained VGG16", missing)]  # fmt: skip
    else:
        theirs = [mean(found[f"VGG16 CD{k}, pre-trained"]) for k in depths]
        for k in depths:
            one, two = (last(found[f"VGG16 CD{k}, {kind}"]) for kind in ("random", "pre-trained"))
            checks.append(
                below(f"CD{k}: random VGG16 yields less held-out loss than pre-trained", one, two, budget.short)
            )
        growth = [theirs[-1] / theirs[0], ours[-1] / ours[0]]
        why = "after so few steps the loss of shallow decoders on pre-trained features is still far from its end"
        holds = growth[0] > growth[1]
        says = f"from CD{depths[0]} to CD{depths[-1]} the loss grows faster for pre-trained than for random: ratio"
        checks.append(claim(says, holds, measured=growth[0] / growth[1], why="" if holds else why))
        marks.append(Points("pre-trained", depths, theirs, hue=1))
    title = "VGG16: held-out loss of the trained decoder, by depth"
    panel = Panel(marks, "depth k of CDk", "squared error per pixel and channel", scale_up="log", counts=True)
    picture = curves_and_points([panel], title, f"{title}. {_said(found)}", size=(6.4, 3.6))
    return Outcome(tuple(checks), {name: _rows(runs) for name, runs in found.items()}, picture, (budget.words,))


def _said(found: dict[str, list[TrainedDecoder]]) -> str:
    return ", ".join(f"{name}: {mean(runs):.4f}" for name, runs in found.items()) + "."


ITEMS = (
    Item(
        "random-cnn/fig10", "Training loss of CD2",
        "Training of the decoder converges much quicker on a random CNN and yields slightly lower loss.",
        run_figure10, (SET,), 120, ("vgg16", "alexnet"),
    ),
    Item(
        "random-cnn/fig11", "Generalization error",
        "Random VGG yields much less loss than pre-trained VGG, and the more so the deeper.", run_figure11, (SET,), 240,
        ("vgg16", "alexnet"),
    ),
)  # fmt: skip
