"""Style transfer: seconds for a step, features against pixels, and what a trained network says about the results.

    python benchmarks/style.py speed [--size 256]
    python benchmarks/style.py judge --pair CONTENT STYLE [--size 160] [--steps 30] [--sheet sheet.png]

`judge` needs the ImageNet filters of VGG16 (see benchmarks/pretrained.py), and so does the last row of `speed`. Without
--pair it takes two photographs of scikit-image. One thread.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import Any

import torch
from torch import Tensor

from initscope.data import load
from initscope.errors import InitscopeError
from initscope.images import Cell, judge_style, picture_grid, pretrained_encoder, read_picture, stylize

DC = {"tie": "free", "loss": "gram", "decoder": "random", "pooling": "max"}  # as in the paper's appendix A.4
WAYS: dict[str, dict[str, Any]] = {
    "random, seed 0": {},
    "random, seed 1": {"seed": 1},
    "random, seed 2": {"seed": 2},
    "random, style weight 0.1": {"style_weight": 0.1},
    "random, style weight 10": {"style_weight": 10.0},
    "random, Gram loss": {"loss": "gram"},
    "random, moments loss": {"loss": "moments"},
    "random, features free": {"tie": "free"},
    "as DC A.4": DC,
    "as DC, least-squares decoder": {**DC, "decoder": "least-squares"},
    "random, pixels": {"method": "pixels"},
    "random, pixels, Gram": {"method": "pixels", "loss": "gram"},
    "pre-trained": {"encoder": "pretrained"},
    "pre-trained, pixels": {"encoder": "pretrained", "method": "pixels"},
    "pre-trained, pixels, Gram (Gatys)": {"encoder": "pretrained", "method": "pixels", "loss": "gram"},
}


def step_seconds(content: Tensor, style: Tensor, steps: int, **options: Any) -> list[float]:
    """Seconds of the processor between the ends of successive steps: with one thread, other work does not count."""
    ends: list[float] = []
    stylize(content, style, steps=steps, progress=lambda done, total: ends.append(time.process_time()), **options)
    return [after - before for before, after in itertools.pairwise(ends)]


def speed(content: Tensor, style: Tensor, size: int, rounds: int = 3, steps: int = 4) -> None:
    ways = {"features": {}, "features, free": {"tie": "free"}, "pixels": {"method": "pixels"}}
    encoders: dict[str, dict[str, Any]] = {
        "random, default widths": {},
        "random, VGG16's widths": {"channels": (64, 128, 256, 512, 512)},
        "pre-trained": {"encoder": "pretrained"},
    }
    print(
        f"\nprocessor seconds a step, longer side {size}, L-BFGS, median of {rounds} interleaved rounds of {steps - 1}\n"
    )
    print("| encoder | " + " | ".join(ways) + " | pixels / features |")
    print("| --- " * (len(ways) + 2) + "|", flush=True)
    for name, encoder in encoders.items():
        times: dict[str, list[float]] = {way: [] for way in ways}
        try:
            for _ in range(rounds):
                for way, options in ways.items():
                    times[way] += step_seconds(content, style, steps, size=size, **encoder, **options)
        except InitscopeError as error:
            print(f"| {name} | {error} |")
            continue
        middle = {way: statistics.median(found) for way, found in times.items()}
        ratio = middle["pixels"] / middle["features"]
        print(f"| {name} | " + " | ".join(f"{middle[way]:.3f}" for way in ways) + f" | {ratio:.2f} |", flush=True)


def judge(content: Tensor, style: Tensor, size: int, steps: int, sheet: str | None, ways: str) -> None:
    vgg = pretrained_encoder("vgg16", 5)
    cells = [Cell(content[0], "content"), Cell(style[0], "style")]
    print(f"\nlonger side {size}, {steps} steps; judged by VGG16 as trained on ImageNet\n")
    print("| way | content loss | Gram loss |\n| --- | --- | --- |", flush=True)
    chosen = {name: options for name, options in WAYS.items() if ways in name}
    for name, options in chosen.items():
        found = stylize(content, style, size=size, steps=steps, **options)
        verdict = judge_style(found.image, content, style, encoder=vgg)
        print(f"| {name} | {verdict.content:.3f} | {verdict.style:.3f} |", flush=True)
        cells.append(Cell(found.image, f"{name}\n{verdict.content:.2f} / {verdict.style:.2f}"))
    if sheet is not None:
        rows = [cells[i : i + 6] for i in range(0, len(cells), 6)]
        picture_grid(rows, "content / Gram loss as the trained network sees them").save(sheet)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "judge"))
    parser.add_argument("--pair", nargs=2, metavar=("CONTENT", "STYLE"))
    parser.add_argument("--size", type=int, default=None)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--sheet", default=None)
    parser.add_argument("--ways", default="", help="only rows of the table that contain this text")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.pair:
        photos = [read_picture(path) for path in given.pair]
    else:
        photos = list(load("photos", count=2, size=256, seed=3).images[:, None])
    if given.what == "speed":
        speed(photos[0], photos[1], given.size or 256)
    else:
        judge(photos[0], photos[1], given.size or 160, given.steps, given.sheet, given.ways)
