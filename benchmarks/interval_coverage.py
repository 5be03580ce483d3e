"""How often stated errors hold: the intervals of `simulate` and the certificates of sketched kernels.

    INITSCOPE_DATA=FOLDER python benchmarks/interval_coverage.py [--only simulate|sketch] [--repeats N] [--seeds N]

`simulate`: N simulations of one pair, each with networks of its own, read at the last layer; the truth is a simulation of many
more networks. Its intervals are meant to be exact: 95 % should lie inside of the binomial interval.

Sketches: N sketches of three images, each with images and references of its own; the truth is the exact kernel in float64.
Entries of one sketch are related, so that the rate counts one entry of each, drawn at random; `all` is the share of all
entries, `stated/true` the median ratio of the 95 % error to the true one. A certificate is a bound: the rate should not lie
below 95 %. Photos come with the project, digits from FOLDER/mnist.npz (x_train: n x 28 x 28).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor

import initscope as iscope
from initscope.finite import sketch_kernel

LEVEL = 0.95
QUANTITIES = ("norm_x", "norm_y", "distance", "defect", "cosine", "angle")
NETWORKS = ("dense(8) relu", "dense(64) relu", "3x(dense(16) relu)", "3x(dense(64) relu)", "2x(conv3(8) relu) gap")
DRAWS = (10, 30, 100)
REFERENCE = 20_000  # draws of the truth
WORK = (16, 32, 64, 256, 1024)
COUNT = 3  # images of one sketch


def rate_text(hits: int, cases: int) -> str:
    low, high = binomtest(hits, cases).proportion_ci(0.95)
    return f"{100 * hits / cases:5.1f} [{100 * low:5.1f}, {100 * high:5.1f}]"


def pair(text: str) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(1, 3, 6, 6, generator=g) if text.startswith("2x(conv") else torch.randn(1, 20, generator=g)
    return x, 0.5 * x + torch.randn(x.shape, generator=g)


def simulated(repeats: int) -> None:
    print(f"simulate, {100 * LEVEL:g} % intervals, {repeats} simulations: rate [its 95 % binomial interval] in %")
    print(f"{'network':24} {'average':9} {'draws':>5}  " + "  ".join(f"{q:^20}" for q in QUANTITIES if q != "norm_y"))
    for text in NETWORKS:
        net, (x, y) = iscope.parse(text), pair(text)
        # Means over networks do not exist where a network makes an input zero: the narrow one has no angle of its own.
        for average in ("moments", "networks") if text == "3x(dense(64) relu)" else ("moments",):
            truth = iscope.simulate(net, x, y, draws=REFERENCE, seed=10**6, average=average).layers[-1]
            for draws in DRAWS:
                hits = dict.fromkeys(QUANTITIES, 0)
                for seed in range(repeats):
                    found = iscope.simulate(net, x, y, draws=draws, seed=seed, average=average).layers[-1]
                    for quantity in QUANTITIES:
                        low, high = getattr(found, quantity).interval(LEVEL)
                        hits[quantity] += bool(low <= getattr(truth, quantity).value <= high)
                cells = "  ".join(rate_text(hits[q], repeats) for q in QUANTITIES if q != "norm_y")
                print(f"{text:24} {average:9} {draws:5}  {cells}", flush=True)


def photos(seed: int) -> Tensor:
    everything = iscope.data.load("photos", count=12, size=16).images
    return everything[torch.randperm(12, generator=torch.Generator().manual_seed(seed))[:COUNT]]


def gaussian(seed: int) -> Tensor:
    return torch.randn(COUNT, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


def dark(seed: int) -> Tensor:
    """Black but for a bright square of 2 x 2."""
    g = torch.Generator().manual_seed(seed)
    images = torch.zeros(COUNT, 1, 16, 16)
    for image in images:
        row, column = torch.randint(14, (2,), generator=g).tolist()
        image[0, row : row + 2, column : column + 2] = torch.rand(2, 2, generator=g)
    return images


def digits(seed: int) -> Tensor:
    with np.load(Path(os.environ["INITSCOPE_DATA"]) / "mnist.npz") as file:
        images = file["x_train"][COUNT * seed : COUNT * (seed + 1)]
    return torch.from_numpy(images).float()[:, None] / 255


IMAGES: dict[str, Callable[[int], Tensor]] = {"photos": photos, "dark": dark, "Gaussian": gaussian, "digits": digits}


def sketched(seeds: int) -> None:
    print(f"sketches, {100 * LEVEL:g} % certificates, {seeds} sketches: rate [its 95 % binomial interval] in %")
    print(f"{'network':34} {'images':9} {'work':>5}  {'one entry of each':20}    all  stated error  stated/true")
    for text in ("conv3 relu gap", "2x(conv3(padding=zero) relu) gap"):
        for name, images in IMAGES.items():
            if name == "digits" and "INITSCOPE_DATA" not in os.environ:
                print(f"{text:34} digits: set INITSCOPE_DATA to a folder with mnist.npz")
                continue
            for work in WORK:
                inside, shares, ratios = zip(*entries(text, images, work, seeds), strict=True)
                g = torch.Generator().manual_seed(work)
                hits = sum(bool(i.flatten()[torch.randint(i.numel(), (1,), generator=g)]) for i in inside)
                every, stated, ratio = (torch.stack(t).double() for t in (inside, shares, ratios))
                print(
                    f"{text:34} {name:9} {work:5}  {rate_text(hits, seeds)}  {100 * float(every.mean()):5.1f}  "
                    f"{float(stated.median()):12.1e}  {float(ratio.median()):11.1f}",
                    flush=True,
                )


def entries(
    text: str, images: Callable[[int], Tensor], work: int, seeds: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Of each sketch: which entries hold, their stated errors in units of the entry, and in units of the true error."""
    net = iscope.parse(text)
    for seed in range(seeds):
        x = images(seed)
        exact = iscope.kernel(net, x.double())
        found = sketch_kernel(net, x, work=work, seed=seed)
        error, reach = (found.value - exact).abs(), found.reach(LEVEL)
        yield error <= reach, reach / exact, reach / error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["simulate", "sketch"], help="one of the two tables")
    parser.add_argument("--repeats", type=int, default=1000, help="simulations of each line")
    parser.add_argument("--seeds", type=int, default=60, help="sketches of each line")
    arguments = parser.parse_args()
    if arguments.only != "sketch":
        simulated(arguments.repeats)
    if arguments.only != "simulate":
        sketched(arguments.seeds)
