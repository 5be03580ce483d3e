"""Reconstruction against its own convolutions, tiles against none, and the quality of every way to decode.

    python benchmarks/images.py [speed | tiles | decoders]

Pictures: `content_*.jpg` of the folder `photos` in INITSCOPE_DATA where that is set, else scikit-image's photographs.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import initscope as iscope
from initscope.data.pixels import fit
from initscope.images import read_picture

REPEATS = 5


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

    print("\n256x256, depth 1, 256 channels, median of turns\n")
    print("| variant | reconstruct (s) | bare convolutions (s) | ratio |\n| --- | --- | --- | --- |")
    for variant in ("paper", "average"):
        ours, theirs = seconds(lambda v=variant: iscope.reconstruct(image, channels=256, variant=v), bare)  # type: ignore[misc]
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        print(
            f"| {variant} | {statistics.median(ours):.2f} | {statistics.median(theirs):.2f} | {ratio:.2f} |", flush=True
        )


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


def decoders() -> None:
    """SSIM of every way to decode, mean over pictures; DC's is the first row."""
    images = pictures(128)
    examples = list(iscope.data.load("photos", count=8, size=128, seed=1).images)
    ways: dict[str, dict[str, object]] = {
        "random (DC)": {},
        "mean over channels (DC, Definition 1)": {"variant": "average"},
        "8 random decoders": {"decoder": "averaged"},
        "matched filters": {"decoder": "matched"},
        "least squares, 8 other photographs": {"decoder": "least-squares", "examples": examples},
        "least squares, the picture itself": {"decoder": "least-squares"},
    }
    settings: dict[str, dict[str, object]] = {
        "CD1, 64": {"depth": 1}, "CD1, 256": {"depth": 1, "channels": 256}, "CD2": {"depth": 2}, "CD3": {"depth": 3},
    }  # fmt: skip
    print(f"\nSSIM (PSNR in dB), mean over {len(images)} pictures of 128x128 and two seeds\n")
    print(f"| decoder | {' | '.join(settings)} |\n| --- |{' --- |' * len(settings)}")
    for name, way in ways.items():
        row = []
        for setting in settings.values():
            found = [
                iscope.reconstruct(image, seed=seed, **{**setting, **way})  # type: ignore[arg-type]
                for image in images.values()
                for seed in (0, 1)
            ]
            ssim = statistics.mean(r.ssim for r in found if r.ssim is not None)
            row.append(f"{ssim:.3f} ({statistics.mean(r.psnr for r in found):.1f})")
        print(f"| {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    asked = sys.argv[1:] or ["speed", "tiles", "decoders"]
    for word in asked:
        {"speed": speed, "tiles": tiles, "decoders": decoders}[word]()
