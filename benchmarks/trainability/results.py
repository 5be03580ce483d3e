"""How well the score, the verdict and the baselines tell which networks train; writes the figure.

    python benchmarks/trainability/results.py

Prints Markdown. The score of each network is by weights that were set without it (`fit.left_out`). Every baseline may look
at all networks to choose its direction. Intervals are 95 %, from 4000 bootstrap draws of networks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from fit import fitted, left_out
from outcomes import Numbers, Outcomes, area, curve, interval, outcomes, resamples, turned
from training import MAIN, SECOND

from initscope.figures.style import LINES, PALETTE, Picture, finish, house_style, new_figure
from networks import NETWORKS

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "trainability.svg"
MISTAKES = 15
BASELINES = ("parameters", "depth", "gradient norm", "synflow", "NASWOT", "AnyInit verdict", "AnyInit distance")
WORDS = {MAIN: "Adam, rate 0.001", SECOND: "SGD, rate 0.05, momentum 0.9"}


@cache
def _left_out() -> dict[int, float]:
    """The score of each network by weights set without it, on what Adam does."""
    every = outcomes(list(range(NETWORKS)), MAIN)
    return dict(zip(every.numbers, left_out(every, fitted(every)[2]), strict=True))


def chances(half: Outcomes) -> Numbers:
    return np.array([_left_out()[number] for number in half.numbers])


def scores(half: Outcomes) -> dict[str, Numbers]:
    """The score first, then the baselines, each turned the way that suits it."""
    return {"score": chances(half)} | {name: turned(half.baseline(name), half.trains) for name in BASELINES}


def table(half: Outcomes) -> Iterator[str]:
    """Areas under the ROC curves, and by how much the score's is larger on the same draws of networks."""
    draws = resamples(half.trains)
    found = scores(half)
    drawn = {name: [area(v[d], half.trains[d]) for d in draws] for name, v in found.items()}
    yield "| | area under ROC | 95 % interval | score minus this, 95 % interval |"
    yield "| --- | --- | --- | --- |"
    for name, values in found.items():
        low, high = interval(drawn[name])
        ahead = ""
        if name != "score":
            less, more = interval([a - b for a, b in zip(drawn["score"], drawn[name], strict=True)])
            ahead = f"{less:+.2f} to {more:+.2f}"
        yield f"| {name} | {area(values, half.trains):.3f} | {low:.2f} to {high:.2f} | {ahead} |"


def confusion(half: Outcomes) -> Iterator[str]:
    yield "| verdict | trains | does not train |"
    yield "| --- | --- | --- |"
    verdicts = np.array([m["verdict"] for m in half.measures])
    for verdict in ("healthy", "warn", "fail"):
        mine = verdicts == verdict
        yield f"| {verdict} | {(mine & half.trains).sum()} | {(mine & ~half.trains).sum()} |"


def calibration(half: Outcomes) -> Iterator[str]:
    yield "| score | networks | mean score | share that trains |"
    yield "| --- | --- | --- | --- |"
    found = chances(half)
    for low, high in ((0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)):
        mine = (found >= low) & ((found < high) | (high == 1))
        if mine.any():
            mean, share = found[mine].mean(), half.trains[mine].mean()
            yield f"| {low:g} to {high:g} | {mine.sum()} | {mean:.2f} | {share:.2f} |"


def mistakes(half: Outcomes) -> Iterator[str]:
    """The networks that are farthest on the wrong side of a score of one half."""
    yield "| score | accuracy | network |"
    yield "| --- | --- | --- |"
    found = chances(half)
    wrong = np.flatnonzero((found >= 0.5) != half.trains)
    for i in sorted(wrong, key=lambda i: -abs(found[i] - 0.5))[:MISTAKES]:
        d = half.designs[i]
        gain = "PyTorch's initialization" if d["gain"] is None else f"gain {d['gain']:.2f} of the critical one"
        norm = "" if d["norm"] == "none" else f", {d['norm']} normalization"
        residual = "" if d["residual"] == "none" else f", {d['residual']} residual"
        pools = "" if d["kind"] == "mlp" else f", {d['down']} then {d['head']}"
        words = f"{d['kind']}, {d['depth']} x {d['width']}, {d['activation']}, {gain}{norm}{residual}{pools}, {d['data']} data"
        yield f"| {found[i]:.2f} | {half.accuracy[i]:.2f} | {words} |"


def picture(half: Outcomes) -> Picture:
    found = scores(half)
    areas = {name: area(values, half.trains) for name, values in found.items()}
    order = sorted(found, key=lambda name: (name != "score", -areas[name]))
    with house_style():
        figure, axes = new_figure(width=7.2, height=4.6)
        axes.plot([0, 1], [0, 1], color="#bbbbbb", linewidth=1)
        for index, name in enumerate(order):
            style = {"linewidth": 2.8, "zorder": 3} if name == "score" else {"linewidth": 1.3}
            colour, dashes = PALETTE[index % len(PALETTE)], LINES[index % len(LINES)]
            wrong, right = curve(found[name], half.trains)
            label = f"{name}  {areas[name]:.2f}"
            axes.plot(wrong, right, color=colour, linestyle=dashes, label=label, **style)
        axes.set_aspect("equal")
        axes.set_xlim(-0.01, 1.01)
        axes.set_ylim(-0.01, 1.01)
        axes.set_xlabel("networks that do not train, passed")
        axes.set_ylabel("networks that train, passed")
        title = "Which networks will train, told before training"
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        figure.legend(loc="outside right center", frameon=False, fontsize=8.5, title="area under the curve")
        listed = ", ".join(f"{name} {areas[name]:.2f}" for name in order)
        words = f"ROC curves of {len(half.numbers)} networks, the score by weights set without the network."
        return finish(figure, title, f"{words} Areas: {listed}.")


def page(half: Outcomes, second: Outcomes) -> str:
    """All tables, as they stand in the documentation."""
    parts = []
    for rule, one in ((MAIN, half), (SECOND, second)):
        head = f"**{WORDS[rule]}**: {len(one.numbers)} networks, {one.trains.sum()} train."
        parts += [head, "\n".join(table(one)), "\n".join(confusion(one))]
    parts += ["\n".join(calibration(half)), "\n".join(mistakes(half))]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args()
    half, second = (outcomes(list(range(NETWORKS)), rule) for rule in (MAIN, SECOND))
    options.figure.parent.mkdir(parents=True, exist_ok=True)
    picture(half).save(options.figure)
    print(page(half, second), end="")


if __name__ == "__main__":
    main()
