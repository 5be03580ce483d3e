"""Decoders trained for random and for pre-trained encoders, with the same budget (DC 3.2, A.2, Figures 10 to 13).

    INITSCOPE_DATA=folder INITSCOPE_WEIGHTS=folder python benchmarks/decoders.py run [--minutes 8]
    python benchmarks/decoders.py report       # the tables and the figure of docs/decoders.md, from decoders.jsonl
    python benchmarks/decoders.py speed        # against a plain PyTorch loop, with kept features and with crops

`run` appends a line for each finished training to decoders.jsonl, and keeps the unfinished one in a folder beside it: it may
be stopped at any time and goes on where it stopped. One thread, but for `speed`. The folder of INITSCOPE_DATA holds
imagenet224.npz, `python benchmarks/pretrained.py FOLDER` makes the one of INITSCOPE_WEIGHTS.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from initscope.data import load
from initscope.figures import Line, Panel, Points, curves_and_points
from initscope.images import Encoder, Recipe, pretrained_encoder, train_decoder

HERE = Path(__file__).parent
RESULTS, UNFINISHED = HERE / "decoders.jsonl", HERE / ".decoders_unfinished"
FIGURE = HERE.parent / "docs" / "figures" / "decoders.svg"

SIDE, TRAIN, HELD_OUT = 64, 300, 100
RECIPE = Recipe(steps=200, batch=4, rate=1e-3, evaluate_every=50, save_every=50)
SEEDS = (0, 1)
LAWS = ("dc_gaussian", "dc_uniform", "dc_logistic", "dc_laplace")  # DC A.1.2


@dataclass(frozen=True)
class Task:
    """One training. `filters`: he, pretrained, or one of DC's laws; `scaled`: features divided by their root mean square."""

    arch: str
    depth: int
    filters: str
    seed: int
    scaled: bool = False

    @property
    def name(self) -> str:
        return f"{self.arch}-cd{self.depth}-{self.filters}{'-scaled' if self.scaled else ''}-{self.seed}"

    def encoder(self) -> Encoder:
        if self.filters == "pretrained":
            return pretrained_encoder(self.arch, self.depth)
        return Encoder(self.arch, self.depth, law=self.filters, seed=self.seed)


def tasks() -> list[Task]:
    """All trainings, those that say most first."""
    both = ("he", "pretrained")
    found = [Task("vgg16", depth, filters, seed) for seed in SEEDS for depth in (1, 2, 3) for filters in both]
    found += [Task("alexnet2014", depth, filters, seed) for seed in SEEDS for depth in (1, 2, 3) for filters in both]
    found += [Task("vgg16", 2, filters, seed, scaled=True) for seed in SEEDS for filters in (*LAWS, "pretrained")]
    return [*found, Task("vgg16", 2, "dc_gaussian", 0)]


def rows() -> list[dict[str, object]]:
    """What the file holds; a last line cut short is left out."""
    if not RESULTS.exists():
        return []
    whole = RESULTS.read_text()
    return [json.loads(line) for line in whole[: whole.rfind("\n") + 1].splitlines()]


def crops(seed: int) -> tuple[Tensor, Tensor]:
    """The middle 64x64 pixels of ImageNet pictures of 224x224: 300 to train on, 100 others; the seed draws the split."""
    folder = os.environ.get("INITSCOPE_DATA")
    if not folder:
        sys.exit("set INITSCOPE_DATA to a folder that holds imagenet224.npz")
    found = load(f"npz:{folder}/imagenet224.npz:images", count=TRAIN + HELD_OUT, seed=seed).images
    start = (found.shape[-1] - SIDE) // 2
    pixels = found[..., start : start + SIDE, start : start + SIDE].float().contiguous()
    return pixels[:TRAIN], pixels[TRAIN:]


def run(minutes: float) -> None:
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * minutes
    known = {row["name"] for row in rows()}
    todo = [task for task in tasks() if task.name not in known]
    print(f"{len(known)} trainings are in {RESULTS.name}, {len(todo)} are left", flush=True)

    def stop_in_time(done: int, total: int) -> None:
        if time.monotonic() > end:
            raise TimeoutError

    for task in todo:
        if time.monotonic() > end:
            return
        images, held_out = crops(task.seed)
        recipe = Recipe(**{**asdict(RECIPE), "seed": task.seed, "scale_features": task.scaled})
        try:
            found = train_decoder(
                task.encoder(),
                images,
                held_out,
                recipe,
                out=UNFINISHED / task.name,
                memory="3 GiB",
                progress=stop_in_time,
            )
        except TimeoutError:
            print(f"time is up within {task.name}")
            return
        row = {"name": task.name, **asdict(task), **found.to_dict()}
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        shutil.rmtree(UNFINISHED / task.name)
        print(f"{task.name}: held-out {found.held_out[-1][1]:.5f}, {found.seconds:.0f} s", flush=True)
    shutil.rmtree(UNFINISHED, ignore_errors=True)


def final(found: list[dict], **wanted: object) -> list[float]:
    """Last held-out losses of the rows that match, by seed."""
    some = [row for row in found if all(row[key] == value for key, value in wanted.items())]
    return [row["held_out"][-1][1] for row in sorted(some, key=lambda row: row["seed"])]


def halfway(row: dict, level: float) -> int | None:
    """The first step from which the mean training loss of ten steps is below `level`."""
    losses = row["losses"]
    for step in range(10, len(losses) + 1):
        if statistics.fmean(losses[step - 10 : step]) < level:
            return step
    return None


def report() -> None:
    found = rows()
    both = ("he", "pretrained")
    print("| | random, held out | pre-trained, held out | ratio | one colour |\n| --- | --- | --- | --- | --- |")
    for arch in ("vgg16", "alexnet2014"):
        for depth in (1, 2, 3):
            losses = [final(found, arch=arch, depth=depth, filters=f, scaled=False) for f in both]
            colour = [r["constant_loss"] for r in found if r["arch"] == arch and r["depth"] == depth]
            if not all(losses):
                continue
            cells = [" ".join(f"{loss:.4f}" for loss in part) for part in losses]
            ratios = " ".join(f"{b / a:.1f}" for a, b in zip(*losses, strict=False))
            level = f"{statistics.fmean(colour):.4f}"
            print(f"| {arch} CD{depth} | {cells[0]} | {cells[1]} | {ratios} | {level} |")
    print("\n| VGG16 CD2, features of scale 1 | held out |\n| --- | --- |")
    for name in (*LAWS, "pretrained"):
        losses = final(found, arch="vgg16", depth=2, filters=name, scaled=True)
        print(f"| {name} | {' '.join(f'{loss:.4f}' for loss in losses)} |")
    print(f"\ngaussian as it is: {final(found, filters='dc_gaussian', scaled=False)}")
    print(f"steps to a training loss of 0.05: { {row['name']: halfway(row, 0.05) for row in found} }")
    print(f"seconds spent in steps: {sum(row['seconds'] for row in found):.0f}")
    draw(found)


def draw(found: list[dict]) -> None:
    """Loss curves of CD1 to CD3 for both networks: lines for each seed, points for held-out losses."""
    panels = []
    for arch, title, limits in (("vgg16", "VGG16", (0.001, 10)), ("alexnet2014", "AlexNet", (0.005, 1))):
        for depth in (1, 2, 3):
            marks: list[Line | Points] = []
            for hue, (filters, name) in enumerate((("he", "random"), ("pretrained", "pre-trained"))):
                for row in found:
                    if (row["arch"], row["depth"], row["filters"], row["scaled"]) != (arch, depth, filters, False):
                        continue
                    losses = row["losses"]
                    smooth = [statistics.fmean(losses[max(0, i - 9) : i + 1]) for i in range(len(losses))]
                    marks.append(Line(f"{name}, training", range(1, len(smooth) + 1, 4), smooth[::4], hue=hue))
                    steps, values = zip(*row["held_out"], strict=True)
                    marks.append(Points(f"{name}, held out", steps, values, hue=hue))
            panel = Panel(marks, "step", "squared error", f"{title} CD{depth}", scale_up="log", limits_up=limits)
            panels.append(panel)
    kinds = [
        {"arch": arch, "depth": depth, "scaled": False} for arch in ("vgg16", "alexnet2014") for depth in (1, 2, 3)
    ]
    pairs = [(final(found, filters="he", **kind), final(found, filters="pretrained", **kind)) for kind in kinds]
    ratios = [theirs / ours for pair in pairs for ours, theirs in zip(*pair, strict=False)]  # a seed has its own images
    title = f"Held-out loss on pre-trained features is {min(ratios):.2f} to {max(ratios):.0f} times that on random ones"
    words = f"Squared error against the step; batches of {RECIPE.batch}, 64x64 crops of ImageNet, a line for each of two seeds."
    FIGURE.parent.mkdir(exist_ok=True)
    curves_and_points(panels, title, words, columns=3, size=(3.4, 2.7)).save(FIGURE)


class PlainUpsample(nn.Module):
    """Zeros between the values, twice the size."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.new_zeros(*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
        wide[..., ::2, ::2] = x
        return wide


def plain_networks(depth: int) -> tuple[nn.Module, nn.Module]:
    """VGG16's Conv[depth] and DeConv[depth] as one would write them, depth 1 or 2."""

    def conv(inputs: int, outputs: int) -> nn.Conv2d:
        return nn.Conv2d(inputs, outputs, 3, padding=1)

    encoder = [conv(3, 64), nn.ReLU(), conv(64, 64), nn.ReLU()]
    decoder = [conv(64, 64), nn.LeakyReLU(0.2), conv(64, 3)]
    if depth == 2:
        encoder += [nn.MaxPool2d(2), conv(64, 128), nn.ReLU(), conv(128, 128), nn.ReLU()]
        before = [conv(128, 128), nn.LeakyReLU(0.2), conv(128, 64), nn.LeakyReLU(0.2), PlainUpsample()]
        decoder = [*before, *decoder]
    return nn.Sequential(*encoder).requires_grad_(False), nn.Sequential(*decoder)


def plain_loop(depth: int, pixels: Tensor, steps: int, batch: int, crop: int | None) -> Callable[[], float]:
    """Seconds a step of a training loop as one would write it; features at hand where there are no crops."""
    encoder, decoder = plain_networks(depth)
    adam = torch.optim.Adam(decoder.parameters(), 1e-4, weight_decay=4e-4, fused=True)
    features = None if crop else encoder(pixels)

    def measure() -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            rows = torch.randperm(len(pixels))[:batch]
            pictures, known = pixels[rows], None if features is None else features[rows]
            if crop:
                corners = torch.randint(0, pixels.shape[-1] - crop + 1, (batch, 2)).tolist()
                windows = [x[:, i : i + crop, j : j + crop] for x, (i, j) in zip(pictures, corners, strict=True)]
                pictures = torch.stack(windows)
                with torch.no_grad():
                    known = encoder(pictures)
            loss = (decoder(known) - pictures).square().sum() / batch
            adam.zero_grad()
            loss.backward()
            adam.step()
            loss.item()
        return (time.perf_counter() - begin) / steps

    return measure


def speed() -> None:
    """Milliseconds a step at 64x64, batches of 8: ours and a plain loop in turns, with features kept and with crops."""
    steps, batch, turns = 8, 8, 15
    print(f"\n{torch.get_num_threads()} threads, median of {turns} turns of {steps} steps (quartiles of the ratio)\n")
    print("| | train_decoder (ms) | plain loop (ms) | ratio |\n| --- | --- | --- | --- |")
    for depth in (1, 2):
        for name, crop in (("features kept", None), ("random crops", SIDE)):
            side = SIDE if crop is None else 2 * SIDE
            pixels = torch.rand(32, 3, side, side, generator=torch.Generator().manual_seed(0))
            encoder, recipe = Encoder("vgg16", depth), Recipe(steps=steps, batch=batch, crop=crop)
            plain, times = plain_loop(depth, pixels, steps, batch, crop), []
            for _ in range(turns + 1):
                ours = train_decoder(encoder, pixels, None, recipe).seconds / steps
                times.append((ours, plain()))
            own, theirs = (statistics.median(part) for part in zip(*times[1:], strict=True))
            low, middle, high = statistics.quantiles([a / b for a, b in times[1:]], n=4)
            row = f"{1000 * own:.1f} | {1000 * theirs:.1f} | {middle:.2f} ({low:.2f} to {high:.2f})"
            print(f"| VGG16 CD{depth}, {name} | {row} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["run", "report", "speed"])
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after that many")
    asked = parser.parse_args()
    {"run": lambda: run(asked.minutes), "report": report, "speed": speed}[asked.what]()


if __name__ == "__main__":
    main()
