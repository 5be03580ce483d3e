"""Reconstruction against its own convolutions, tiles against none, and the quality of every way to decode.

    python benchmarks/images.py [speed | tiles | memory | decoders | report]

Pictures: of INITSCOPE_DATA where that is set, `photos/content_*.jpg` and, for `decoders`, imagenet224.npz; else scikit-image's
photographs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import initscope as iscope
from initscope.data.pixels import fit
from initscope.figures import Panel, Points, curves_and_points
from initscope.finite import Estimate
from initscope.images import read_picture

REPEATS = 7
PICTURES, PIXELS = 16, 96  # of the table of decoders
RESULTS = Path(__file__).with_suffix(".jsonl")
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "images.svg"


def pictures(size: int) -> dict[str, Tensor]:
    """Some photographs, (3, size, size)."""
    folder = Path(os.environ.get("INITSCOPE_DATA", "")) / "photos"
    if "INITSCOPE_DATA" in os.environ and folder.is_dir():
        files = sorted(folder.glob("content_*.jpg"))
        return {file.stem.removeprefix("content_"): fit(read_picture(file), (size, size))[0] for file in files}
    return {f"photo {i}": image for i, image in enumerate(iscope.data.load("photos", count=6, size=size).images)}


def seconds(*functions: Callable[[], object]) -> list[list[float]]:
    """Times of the functions, run in turns so that a busy machine slows all of them alike."""
    found: list[list[float]] = [[] for _ in functions]
    for function in functions:
        function()
    for _ in range(REPEATS):
        for times, function in zip(found, functions, strict=True):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    return found


def speed() -> None:
    """256x256, depth 1, 256 channels: reconstruct over the four bare convolutions."""
    image = next(iter(pictures(256).values()))
    shapes = ((256, 3), (256, 256), (256, 256), (3, 256))
    weights = [torch.randn(*shape, 3, 3) for shape in shapes]

    @torch.no_grad()
    def bare() -> None:
        x = image[None]
        for weight in weights:
            x = F.conv2d(x, weight, padding=1)

    print(f"\n256x256, depth 1, 256 channels, {torch.get_num_threads()} threads, median of {REPEATS} turns\n")
    print(
        "| variant | reconstruct (s) | bare convolutions (s) | ratio, smallest to largest |\n| --- | --- | --- | --- |"
    )
    for variant in ("paper", "average"):
        ours, theirs = seconds(lambda v=variant: iscope.reconstruct(image, channels=256, variant=v), bare)  # type: ignore[misc]
        ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
        words = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {variant} | {statistics.median(ours):.2f} | {statistics.median(theirs):.2f} | {words} |", flush=True)


def tiles() -> None:
    """The same picture in tiles: how much longer, and how different."""
    image = next(iter(pictures(512).values()))
    print("\n512x512, depth 2, 64 and 128 channels\n")
    print("| memory | tiles | seconds | largest difference, of the range |\n| --- | --- | --- | --- |")
    whole = None
    for memory in ("2 GiB", "200 MB", "100 MB", "80 MB"):
        start = time.perf_counter()
        found = iscope.reconstruct(image, depth=2, memory=memory)
        taken = time.perf_counter() - start
        whole = found.output if whole is None else whole
        apart = float((found.output - whole).abs().max() / (whole.max() - whole.min()))
        print(f"| {memory} | {found.tiles} | {taken:.2f} | {apart:.1e} |", flush=True)


def peak_kib() -> int:
    """The peak of this process alone; getrusage remembers that of the process which started it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def peak(side: int, options: dict[str, object]) -> None:
    """Print how far one reconstruction raises the peak of a fresh process, beside its plan: called by `memory`."""
    iscope.reconstruct(torch.rand(3, 32, 32), **{**options, "memory": "2 GiB"})  # type: ignore[arg-type]
    image = torch.rand(3, side, side)
    before, start = peak_kib(), time.perf_counter()
    found = iscope.reconstruct(image, **options)  # type: ignore[arg-type]
    print(json.dumps([found.tiles, found.memory, 1024 * (peak_kib() - before), time.perf_counter() - start]))


def memory() -> None:
    """Sizes and budgets: the peak must follow the budget and not the size."""
    print("\ndepth 1; the theorems included where they fit\n")
    print("| picture | channels | budget (MiB) | tiles | planned (MiB) | measured (MiB) | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for side, channels, budget in (
        (512, 64, 2048), (1024, 64, 2048), (2048, 64, 2048), (512, 256, 2048), (1024, 256, 2048),
        (512, 64, 256), (1024, 64, 256), (2048, 64, 512),
    ):  # fmt: skip
        options = json.dumps({"channels": channels, "memory": f"{budget} MiB", "variant": "average"})
        words = [sys.executable, __file__, "peak", str(side), options]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        tiles, planned, measured, taken = json.loads(told)
        row = f"{budget} | {tiles} | {planned / 2**20:.0f} | {measured / 2**20:.0f} | {taken:.1f}"
        print(f"| {side}x{side} | {channels} | {row} |", flush=True)


def real_pictures(size: int) -> list[Tensor]:
    """Photographs that none of the examples of least squares is among, where INITSCOPE_DATA holds some."""
    file = Path(os.environ.get("INITSCOPE_DATA", "")) / "imagenet224.npz"
    name = f"npz:{file}:images" if file.is_file() else "photos"
    return list(iscope.data.load(name, count=PICTURES, size=size, seed=0).images)


WAYS: dict[str, dict[str, object]] = {
    "random (DC)": {},
    "mean over channels (DC, Definition 1)": {"variant": "average"},
    "8 random decoders": {"decoder": "averaged"},
    "matched filters": {"decoder": "matched"},
    "least squares, 8 other photographs": {"decoder": "least-squares", "examples": True},
    "least squares, the picture itself": {"decoder": "least-squares"},
}
SETTINGS: dict[str, dict[str, object]] = {f"CD{depth}": {"depth": depth} for depth in (1, 2, 3)}


def decoders() -> None:
    """SSIM and PSNR of every way to decode, with intervals over pictures, each with a network of its own; DC's come first.

    Each result is kept in images.jsonl, so that it may be stopped at any time.
    """
    known = {tuple(json.loads(line)[:3]) for line in RESULTS.read_text().splitlines()} if RESULTS.exists() else set()
    images = real_pictures(PIXELS)
    examples = list(iscope.data.load("photos", count=8, size=PIXELS, seed=1).images)
    with RESULTS.open("a") as file:
        for name, way in WAYS.items():
            options = {**way, "examples": examples} if "examples" in way else way
            for place, setting in SETTINGS.items():
                for seed, image in enumerate(images):
                    if (name, place, seed) not in known:
                        found = iscope.reconstruct(image, seed=seed, **{**setting, **options})  # type: ignore[arg-type]
                        file.write(
                            json.dumps([name, place, seed, round(found.ssim or 0.0, 5), round(found.psnr, 4)]) + "\n"
                        )
                        file.flush()
    report()


def report() -> None:
    """The table, and the figure of docs/images.md."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    print(f"\nSSIM; PSNR in dB: mean over {PICTURES} pictures of {PIXELS}x{PIXELS} and its 95 % interval\n")
    print(f"| decoder | {' | '.join(SETTINGS)} |\n| --- |{' --- |' * len(SETTINGS)}")
    marks: list[list[Points]] = [[], []]
    for hue, name in enumerate(WAYS):
        cells, values = [], []
        for place in SETTINGS:
            some = torch.tensor([row[3:] for row in rows if row[:2] == [name, place]], dtype=torch.float64)
            both = Estimate.from_draws(some)
            (ssim, psnr), (near, loud) = both.value.tolist(), both.reach().tolist()
            cells.append(f"{ssim:.3f} ± {near:.3f}; {psnr:.1f} ± {loud:.1f}")
            values.append((ssim, near, psnr, loud))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        across = [depth + 0.06 * (hue - len(WAYS) / 2) for depth in (1, 2, 3)]
        ssims, nears, psnrs, louds = zip(*values, strict=True)
        marks[0].append(Points(name, across, ssims, hue=hue, error=nears))
        marks[1].append(Points(name, across, psnrs, hue=hue, error=louds))
    panels = [Panel(marks[0], "CD", "SSIM", counts=True), Panel(marks[1], "CD", "PSNR, dB", counts=True)]
    title = "A fitted decoder gives back what a random encoder kept; a random one cannot show it"
    words = f"SSIM and PSNR against depth for six decoders, {PICTURES} pictures, 95 % intervals."
    FIGURE.parent.mkdir(exist_ok=True)
    curves_and_points(panels, title, words, legend_columns=3).save(FIGURE)


if __name__ == "__main__":
    if sys.argv[1:2] == ["peak"]:
        peak(int(sys.argv[2]), json.loads(sys.argv[3]))
    else:
        asked = sys.argv[1:] or ["speed", "tiles", "memory", "decoders"]
        for word in asked:
            {"speed": speed, "tiles": tiles, "memory": memory, "decoders": decoders, "report": report}[word]()
