"""Classification by the kernels of infinitely wide convolutional networks, with and without average pooling.

    python benchmarks/classification.py --data FOLDER [--kernels FOLDER] [--workers N] [--json FILE] [--only small|whole]

FOLDER holds mnist.npz and fashion_mnist.npz (x_train, y_train, x_test, y_test): 4000 images to train on, 1000 to test.
Kernels are computed in tiles or blocks of rows into the folder of --kernels and kept: a run that was stopped goes on
where it was.

On each set two comparisons of convolutions with and without global average pooling, beside an RBF and a linear kernel.
`small`: two convolutions on images averaged to 14 x 14, all kernels exact. `whole`: the images as they are, 28 x 28; there
the exact sum over all pairs of positions would take the hours that are printed first, so pooling is shown behind one wide
convolution, as a sketch, whose matrix is positive semidefinite as a classifier needs it.
Noise, and the width of the RBF, are those with the least error on the last fifth of the training images when the others
train; then all training images train, and the test images are used once, for the errors shown.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import initscope as iscope
from initscope import scale
from initscope.files import write_atomically
from initscope.finite import sketch_kernel

NOISES = [1e-6, 1e-4, 1e-3, 1e-2, 1e-1]
WIDTHS = [0.5, 1.0, 2.0, 4.0]  # of the RBF, over the median squared distance
SETS = ("mnist", "fashion_mnist")
STACK = "2x(conv5(64, padding=valid) relu)"  # 14 x 14 -> 10 x 10 -> 6 x 6
WIDE = "conv7(64, padding=valid) relu"
TRAIN, TEST = 4000, 1000
TILE = 125
REFERENCES = 256  # of a sketch


@dataclass(frozen=True)
class Images:
    """Training images first, then the others: one symmetric kernel holds both."""

    name: str
    x: Tensor
    labels: Tensor
    train: int


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    data: str
    images: str
    train: int
    test: int
    kernel: str
    error: float
    stderr: float
    validation: float
    noise: float
    jitter: float
    minutes: float  # that the kernel took, its tiles or blocks one after the other


def load(folder: Path, name: str, train: int, test: int, shrink: int) -> Images:
    with np.load(folder / f"{name}.npz") as file:
        x = np.concatenate([file["x_train"][:train], file["x_test"][:test]])
        labels = np.concatenate([file["y_train"][:train], file["y_test"][:test]])
    images = torch.from_numpy(x)[:, None].float() / 255
    pixels = torch.nn.functional.avg_pool2d(images, shrink)
    return Images(f"{pixels.shape[2]}x{pixels.shape[3]}", pixels, torch.from_numpy(labels.astype(np.int64)), train)


def choose(images: Images, kernels: dict[str, Tensor]) -> tuple[str, float, float]:
    """Kernel, noise and error with the least error on the last fifth of the training images."""
    fit, end = images.train * 4 // 5, images.train
    best = ("", 0.0, math.inf)
    for name, kernel in kernels.items():
        for noise in NOISES:
            found = iscope.kernel_classifier(
                kernel[:fit, :fit], images.labels[:fit], kernel[fit:end, :fit], images.labels[fit:end], noise=noise
            )
            assert found.error is not None
            if found.error < best[2]:
                best = (name, noise, found.error)
    return best


def radial(images: Images) -> dict[str, Tensor]:
    """RBF kernels of several widths."""
    flat = images.x.flatten(1).double()
    distance = torch.cdist(flat, flat).square()
    median = distance[: images.train, : images.train].median()
    return {f"RBF, width {width:g}": torch.exp(-width * distance / median) for width in WIDTHS}


def linear(images: Images) -> dict[str, Tensor]:
    flat = images.x.flatten(1).double()
    flat = flat - flat[: images.train].mean(0)
    return {"linear": flat @ flat.T + 1}


def cosines(kernel: Tensor) -> Tensor:
    norms = kernel.diagonal().sqrt()
    return kernel / (norms[:, None] * norms)


class Table:
    """Rows as they come, and where kernels are kept."""

    def __init__(self, kernels: Path, workers: int) -> None:
        self.kernels, self.workers = kernels, workers
        self.rows: list[Row] = []

    def add(self, data: str, images: Images, kernels: dict[str, Tensor], seconds: float) -> Tensor:
        """Choose among the kernels, classify; returns which test images were classified wrongly."""
        name, noise, validation = choose(images, kernels)
        kernel, n, truth = kernels[name], images.train, images.labels[images.train :]
        found = iscope.kernel_classifier(kernel[:n, :n], images.labels[:n], kernel[n:, :n], truth, noise=noise)
        assert found.error is not None
        assert found.stderr is not None
        facts = (found.error, found.stderr, validation, noise, found.jitter.added, seconds / 60)
        row = Row(data, images.name, images.train, len(images.x) - images.train, name, *facts)
        self.rows.append(row)
        print(
            f"{row.data:14}{row.images:7}{row.train:5} +{row.test:5}  {row.kernel:52}{row.error:7.2%} ± {row.stderr:.2%}"
            f"{row.validation:12.2%}{row.noise:9.0e}{row.jitter:9.0e}{row.minutes:8.1f}",
            flush=True,
        )
        return found.predictions != truth

    def exact(self, data: str, images: Images, text: str, label: str) -> Tensor:
        """By the kernel of a network, from its folder or into it."""
        place = self.kernels / f"{data}-{images.name}-{len(images.x)}-{label}.zarr"
        run = scale.kernel_to(
            iscope.parse(text), images.x, place, quantity="cosine", tile=TILE, workers=self.workers, resume=True
        )
        stored = run.open()
        seconds = sum(record["seconds"] for record in stored.records())
        return self.add(data, images, {text: stored.tensor().double()}, seconds)

    def sketch(self, data: str, images: Images, text: str, label: str) -> Tensor:
        """By a sketch of it, kept in a file."""
        place = self.kernels / f"{data}-{images.name}-{len(images.x)}-{label}.npz"
        if not place.exists():
            began = time.perf_counter()
            found = sketch_kernel(iscope.parse(text), images.x, work=REFERENCES)
            error = float((found.reach() / found.value).median())
            values = {"value": found.value.numpy(), "error": error, "seconds": time.perf_counter() - began}
            write_atomically(place, lambda file: np.savez(file, **values), "--kernels")
        with np.load(place) as file:
            kernel, error, seconds = torch.from_numpy(file["value"]), float(file["error"]), float(file["seconds"])
        print(f"  sketch of {text}: median 95 % error {error:.1e} of an entry", flush=True)
        return self.add(data, images, {f"{text}, sketch": cosines(kernel)}, seconds)


def compare(table: Table, images: Images, data: str) -> dict[str, Any]:
    """One comparison; what pooling gains over the best of the others, on the same test images."""
    small = images.x.shape[-1] < 28
    stacks = (STACK,) if small else (WIDE, STACK)
    for stack in stacks:
        plan = scale.plan(iscope.parse(f"{stack} gap"), images.x[:64], count=len(images.x))
        hours = plan.hours_on(2) or 0.0
        print(f"{data} {images.name}, {stack} gap: exactly {hours:.2g} hours on two cores", flush=True)
    wrong = {
        "linear": table.add(data, images, linear(images), 0.0),
        "RBF": table.add(data, images, radial(images), 0.0),
    }
    for number, stack in enumerate(stacks):
        flat = f"{stack} flatten dense"
        wrong[flat] = table.exact(data, images, flat, f"flat{number}")
    run = table.exact if small else table.sketch
    pooled = run(data, images, f"{stacks[0]} gap", "pooled")
    other = min(wrong, key=lambda name: float(wrong[name].double().mean()))
    difference = wrong[other].double() - pooled.double()
    gain, stderr = float(difference.mean()), float(difference.std()) / math.sqrt(len(difference))
    verdict = "is" if gain > 0 else "is NOT"
    print(f"{data} {images.name}: pooling {verdict} best; {gain:.2%} ± {stderr:.2%} fewer errors than {other}\n")
    return {
        "data": data,
        "images": images.name,
        "pooling_best": gain > 0,
        "gain": gain,
        "stderr": stderr,
        "next": other,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--kernels", type=Path, default=Path("build/classification"))
    options.add_argument("--workers", type=int, default=0)
    options.add_argument("--json", type=Path)
    options.add_argument("--only", choices=("small", "whole"))
    options.add_argument("--train", type=int, default=TRAIN)
    options.add_argument("--test", type=int, default=TEST)
    chosen = options.parse_args()
    chosen.kernels.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    print(
        f"{'data':14}{'images':7}{'train + test':14}{'kernel':52}{'error':15}{'validation':>12}    noise   jitter     min"
    )
    table = Table(chosen.kernels, chosen.workers)
    shrinks = {"small": (2,), "whole": (1,), None: (2, 1)}[chosen.only]
    checks = [
        compare(table, load(chosen.data, name, chosen.train, chosen.test, shrink), name)
        for shrink in shrinks
        for name in SETS
    ]
    print(f"{time.perf_counter() - start:.0f} s; min: that the tiles or blocks of the kernel took, one after the other")
    if chosen.json:
        chosen.json.write_text(json.dumps({"rows": [asdict(row) for row in table.rows], "checks": checks}, indent=1))


if __name__ == "__main__":
    main()
