"""How exact the exact numbers are, against mpmath, and what comes out on real images.

    python benchmarks/accuracy.py

With INITSCOPE_DATA set to a folder of image samples (fashion_mnist.npz, cifar10.npz, imagenet224.npz) it also prints how the
similarity of pairs of images goes through one convolution, by filter size (JL figure 1).
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import mpmath as mp
import numpy as np
import torch

import initscope as iscope
from initscope.activations import RELU, leaky_relu

mp.mp.dps = 50


def exact_defect(defect: mp.mpf, slope: float) -> mp.mpf:
    """1 - cosine after leaky ReLU, at high precision."""
    s, t = mp.mpf(slope), 2 * mp.asin(mp.sqrt(defect / 2))
    relu = (mp.pi * defect - (mp.sin(t) - t * mp.cos(t))) / mp.pi
    return (2 * s * defect + (1 - s) ** 2 * relu) / (1 + s**2)


def activations() -> None:
    print("1 - cosine after one activation, largest relative error for 1 - cosine before it from 2 down to 1e-12:")
    for dtype in (torch.float32, torch.float64):
        grid = torch.logspace(math.log10(2), -12, 400, dtype=torch.float64).to(dtype)
        for activation, slope in ((RELU, 0.0), (leaky_relu(0.2), 0.2)):
            truth = [exact_defect(mp.mpf(d), slope) for d in grid.tolist()]
            one = torch.ones_like(grid)
            distance = activation.distance(one, one, 2 * grid) / (2 * activation.second_moment(one))
            for label, found in (("defect", activation.defect(grid)), ("distance", distance)):
                worst = max(abs(f / t - 1) for f, t in zip(found.tolist(), truth, strict=True))
                print(f"  {str(dtype)[6:]} {activation.name:15} by {label:9} {float(worst):.1e}")


def depth() -> None:
    x, y = torch.eye(2, dtype=torch.float64).unsqueeze(1)
    found = float(iscope.predict(iscope.parse("1000x(dense(4) relu)"), x, y).layers[-1].angle)
    defect = mp.mpf(1)
    for _ in range(1000):
        defect = exact_defect(defect, 0.0)
    truth = 2 * mp.asin(mp.sqrt(defect / 2))
    print(
        f"1000 dense ReLU layers, orthogonal inputs: angle {found:.6e} rad, relative error {float(found / truth - 1):.1e}"
    )


def pooling() -> None:
    x, y = torch.eye(2, dtype=torch.float64).unsqueeze(1)
    for n in (10, 50, 1000, 10**6):
        value = iscope.predict(iscope.parse(f"dense({n}) relu maxpool{n}"), x, y).layers[-1].defect.item()
        print(f"max over {n} units, orthogonal inputs: 1 - cosine = {value:.5g}")


def slopes(folder: Path) -> None:
    print("slope of cosine after conv + ReLU against cosine before (raw pixels, exact means), by filter size:")
    for name, key, pairs in (
        ("fashion_mnist", "x_test", 200),
        ("cifar10", "x_test", 200),
        ("imagenet224", "images", 60),
    ):
        with np.load(folder / f"{name}.npz") as file:
            images = torch.from_numpy(file[key])
        images = (images.unsqueeze(1) if images.ndim == 3 else images.movedim(-1, 1)).double() / 255
        pick = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[: 2 * pairs]
        x, y = images[pick].chunk(2)
        line = []
        for size in (3, 5, 7, 11):
            layers = iscope.predict(iscope.parse(f"conv{size} relu"), x, y).layers
            slope = np.polyfit(layers[0].cosine.numpy(), layers[-1].cosine.numpy(), 1)[0]
            line.append(f"{size}x{size} {slope:.3f}")
        print(f"  {name:14} {pairs} pairs   {'   '.join(line)}")


def channels(folder: Path) -> None:
    """JL §4.1: how alike the colour channels of natural images are."""
    for name, key in (("imagenet224", "images"), ("cifar10", "x_test")):
        with np.load(folder / f"{name}.npz") as file:
            images = torch.from_numpy(file[key]).movedim(-1, 1).float() / 255
        found = iscope.geometry.channel_statistics(images)
        parts = [
            f"{label} {scale * values.double().mean():.1f} ± {scale * values.double().std() / math.sqrt(len(values)):.1f}{unit}"
            for label, values, scale, unit in (
                ("angle", found.angle, 1, "°"),
                ("norms apart within pairs", found.norm_difference, 100, " %"),
                ("from the mean norm", found.norm_deviation, 100, " %"),
            )
        ]
        print(f"channels of {len(images)} images, {name}: {', '.join(parts)}")


if __name__ == "__main__":
    activations()
    depth()
    pooling()
    if "INITSCOPE_DATA" in os.environ:
        slopes(Path(os.environ["INITSCOPE_DATA"]))
        channels(Path(os.environ["INITSCOPE_DATA"]))
