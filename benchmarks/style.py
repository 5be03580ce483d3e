"""Style transfer: seconds for a step, features against pixels, and what a trained network says about the results.

    python benchmarks/style.py speed [--size 256]
    python benchmarks/style.py memory
    python benchmarks/style.py judge --pair CONTENT STYLE [--size 160] [--steps 30] [--folder stylized]
    python benchmarks/style.py report      # the table and the figure of docs/style.md, from style.jsonl

`judge` needs the ImageNet filters of VGG16 (see benchmarks/pretrained.py), and so does the last row of `speed`. Without
--pair `speed` takes two photographs of scikit-image. `judge` uses one thread and keeps its rows in style.jsonl.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from initscope.data import load
from initscope.data.pixels import fit
from initscope.errors import InitscopeError
from initscope.figures import Panel, Points, curves_and_points
from initscope.images import Cell, judge_style, picture_grid, pretrained_encoder, read_picture, stylize
from initscope.images.style.search import HISTORY

HERE = Path(__file__).parent
RESULTS, FIGURE = HERE / "style.jsonl", HERE.parent / "docs" / "figures" / "style.svg"
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


class Turns:
    """Transfers in threads of their own that take turns step by step, so that other work slows all of them alike."""

    def __init__(self, count: int) -> None:
        self.count, self.now, self.changed = count, 0, threading.Condition()
        self.times: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        self.starts = [(0.0, 0.0)] * count
        self.errors: list[BaseException] = []

    def wait(self, own: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.now == own or self.errors)
        self.starts[own] = (time.perf_counter(), time.process_time())

    def ended(self, own: int) -> None:
        """A step has ended: note how long it took, and let the next one go."""
        begin = self.starts[own]
        self.times[own].append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
        self.pass_on(own)

    def pass_on(self, own: int) -> None:
        with self.changed:
            self.now = (own + 1) % self.count
            self.changed.notify_all()

    def run(self, own: int, content: Tensor, style: Tensor, steps: int, options: dict[str, Any]) -> None:
        def after(done: int, total: int) -> None:
            self.ended(own)
            if done < total:
                self.wait(own)

        self.wait(own)
        try:
            stylize(content, style, steps=steps, progress=after, **options)
        except BaseException as error:
            self.errors.append(error)
            self.pass_on(own)


def step_times(
    content: Tensor, style: Tensor, steps: int, ways: list[dict[str, Any]]
) -> list[list[tuple[float, float]]]:
    """For each way, seconds on the clock and of the processors of its steps, those without a full memory left out."""
    turns = Turns(len(ways))
    threads = [
        threading.Thread(target=turns.run, args=(own, content, style, steps, options))
        for own, options in enumerate(ways)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if turns.errors:
        raise turns.errors[0]
    return [times[HISTORY + 1 :] for times in turns.times]


def speed(content: Tensor, style: Tensor, size: int, steps: int = 40) -> None:
    ways = {"features": {}, "features, free": {"tie": "free"}, "pixels": {"method": "pixels"}}
    encoders: dict[str, dict[str, Any]] = {
        "random, default widths": {},
        "random, VGG16's widths": {"channels": (64, 128, 256, 512, 512)},
        "pre-trained": {"encoder": "pretrained"},
    }
    content, style = (fit(picture, (size, size)) for picture in (content, style))
    print(f"\n{size}x{size}, {torch.get_num_threads()} threads, L-BFGS, taking turns step by step; ", end="")
    print(
        f"ms a step on the clock (of the processors), medians of {steps - HISTORY - 1}; ratios: median and quartiles\n"
    )
    print("| encoder | " + " | ".join(ways) + " | pixels / features | pixels / free |")
    print("| --- " * (len(ways) + 3) + "|", flush=True)
    for name, encoder in encoders.items():
        try:
            found = step_times(
                content, style, steps, [{"size": size, **encoder, **options} for options in ways.values()]
            )
        except InitscopeError as error:
            print(f"| {name} | {error} |")
            continue
        cells = []
        for times in found:
            clock, processors = (statistics.median(step[i] for step in times) for i in (0, 1))
            cells.append(f"{1000 * clock:.0f} ({1000 * processors:.0f})")
        for other in found[:2]:
            low, middle, high = statistics.quantiles((a[0] / b[0] for a, b in zip(found[2], other, strict=True)), n=4)
            cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


GROUPS = {
    "random, default (3 seeds)": ["random, seed 0", "random, seed 1", "random, seed 2"],
    "random, weights 0.1 and 10": ["random, style weight 0.1", "random, style weight 10"],
    "random, pixels": ["random, pixels", "random, pixels, Gram"],
    "as DC A.4 (both decoders)": ["as DC A.4", "as DC, least-squares decoder"],
    "pre-trained": ["pre-trained"],
    "pre-trained, pixels": ["pre-trained, pixels", "pre-trained, pixels, Gram (Gatys)"],
}


def peak_kib() -> int:
    """The peak of this process alone; getrusage remembers that of the process which started it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def peak(size: int, options: dict[str, Any]) -> None:
    """Print how far one transfer raises the peak of a fresh process, beside its estimate: called by `memory`."""
    pictures = torch.rand(2, 3, size, size)
    stylize(*pictures[..., :32, :32], size=None, steps=2, channels=8)
    before = peak_kib()
    found = stylize(*pictures, size=None, steps=12, memory="32 GiB", **options)
    print(json.dumps([found.memory, 1024 * (peak_kib() - before)]))


def memory() -> None:
    ways: dict[str, dict[str, Any]] = {
        "features": {}, "features, free": {"tie": "free"}, "pixels": {"method": "pixels"}, "Adam": {"optimizer": "adam"},
    }  # fmt: skip
    print("\nMiB, estimated / measured; 12 steps\n\n| way | 256x256 | 512x512 | 768x768 |\n| --- | --- | --- | --- |")
    for name, options in ways.items():
        row = []
        for size in (256, 512, 768):
            words = [sys.executable, __file__, "peak", "--size", str(size), "--options", json.dumps(options)]
            told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
            row.append(" / ".join(f"{number / 2**20:.0f}" for number in told))
        print(f"| {name} | {' | '.join(row)} |", flush=True)


def judge(pair: tuple[str, str], size: int, steps: int, folder: Path, ways: str) -> None:
    """Pictures go to `folder`, as 8-bit files, and those that are there already are not made again."""
    vgg = pretrained_encoder("vgg16", 5)
    content, style = (read_picture(path) for path in pair)
    name = " in the style of ".join(
        Path(path).stem.partition("_")[2].replace("_", " ") or Path(path).stem for path in pair
    )
    folder.mkdir(parents=True, exist_ok=True)
    cells, rows = [Cell(content[0], "content\n"), Cell(style[0], "style\n")], []
    print(f"\n{name}: longer side {size}, {steps} steps; judged by VGG16 as trained on ImageNet\n")
    print("| way | content loss | Gram loss |\n| --- | --- | --- |", flush=True)
    for way, options in WAYS.items():
        if ways not in way:
            continue
        file = folder / f"{re.sub('[^a-z0-9.]+', '-', f'{name} {size} {steps} {way}'.lower()).strip('-')}.png"
        if not file.exists():
            stylize(content, style, size=size, steps=steps, **options).save(file)
        verdict = judge_style(file, content, style, encoder=vgg)
        print(f"| {way} | {verdict.content:.3f} | {verdict.style:.3f} |", flush=True)
        rows.append({"pair": name, "size": size, "steps": steps, "way": way, **asdict(verdict)})
        cells.append(Cell(read_picture(file)[0], f"{way}\n{verdict.content:.2f} / {verdict.style:.2f}"))
    if not ways:
        kept = [row for row in known() if row["pair"] != name]
        RESULTS.write_text("".join(json.dumps(row) + "\n" for row in [*kept, *rows]))
        lines = [cells[i : i + 6] for i in range(0, len(cells), 6)]
        sheet = folder / f"{name.replace(' ', '-')}.png"
        picture_grid(lines, f"{name}: content / Gram loss as the trained network sees them").save(sheet)


def known() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def report() -> None:
    """All pairs side by side, and where each way stands between content and style."""
    pairs: dict[str, dict[str, tuple[float, float]]] = {}
    for row in known():
        pairs.setdefault(row["pair"], {})[row["way"]] = (row["content"], row["style"])
    print("| way | " + " | ".join(f"{pair}: content | Gram" for pair in pairs) + " |")
    print("| --- " * (1 + 2 * len(pairs)) + "|")
    for name in WAYS:
        numbers = [f"{value:.3f}" for found in pairs.values() for value in found[name]]
        print(f"| {name} | {' | '.join(numbers)} |")
    panels = []
    for pair, found in pairs.items():
        marks = [
            Points(label, *zip(*(found[name] for name in names), strict=True), hue=hue)
            for hue, (label, names) in enumerate(GROUPS.items())
        ]
        panels.append(Panel(marks, "content distance", "Gram distance", pair, scale_up="log", level=1.0))
    title = "Random filters reach the style and give up more of the content, as a trained network sees it"
    words = "Content distance (0: the content, 1: a flat map) against Gram distance (0: the style, 1: the content)."
    FIGURE.parent.mkdir(exist_ok=True)
    curves_and_points(panels, title, words, legend_columns=3).save(FIGURE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory", "judge", "report", "peak"))
    parser.add_argument("--pair", nargs=2, metavar=("CONTENT", "STYLE"))
    parser.add_argument("--size", type=int, default=None)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument(
        "--folder", type=Path, default=Path("stylized"), help="where `judge` keeps pictures and their sheet"
    )
    parser.add_argument("--ways", default="", help="only rows of the table that contain this text")
    parser.add_argument("--options", default="{}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "judge":
        torch.set_num_threads(1)
        if not given.pair:
            parser.error("judge needs --pair")
        judge(tuple(given.pair), given.size or 160, given.steps, given.folder, given.ways)
    elif given.what == "speed":
        photos = [read_picture(path) for path in given.pair or ()] or load("photos", count=2, size=256, seed=3).images[
            :, None
        ]
        speed(photos[0], photos[1], given.size or 256)
    elif given.what == "memory":
        memory()
    elif given.what == "peak":
        peak(given.size, json.loads(given.options))
    else:
        report()
