"""Classification by the kernels of infinitely wide convolutional networks, with and without average pooling.

    python benchmarks/classification.py --data FOLDER [--kernels FOLDER] [--workers N] [--json FILE]

FOLDER holds mnist.npz and fashion_mnist.npz (x_train, y_train, x_test, y_test). Kernels are computed in tiles into the
folder of --kernels and kept: a run that was stopped goes on where it was.

Two comparisons on each set. The first is the check: one stack of convolutions with and without global average pooling,
beside an RBF and a linear kernel, all on the same 2000 + 1000 images averaged to 14 x 14, because pooling sums over all
pairs of positions (28 x 28 would take 16 times longer, all 4000 training images 4 times). The second shows what needs
no pooling on the whole images and 4000 + 1000 of them. Noise, and the width of the RBF, are those with the least
leave-one-out error on the training images; the test images are used once, for the errors shown.
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

NOISES = [1e-6, 1e-4, 1e-3, 1e-2, 1e-1]
WIDTHS = [0.5, 1.0, 2.0, 4.0]  # of the RBF, over the median squared distance
SETS = ("mnist", "fashion_mnist")
STACK = "2x(conv5(64, padding=valid) relu)"  # 14 x 14 -> 10 x 10 -> 6 x 6
DEEP = "3x(conv3(64, padding=zero) relu)"
TILE = 125


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
    left_out_error: float
    noise: float
    jitter: float
    minutes: float  # that the kernel's tiles took, one after the other


def load(folder: Path, name: str, train: int, test: int, shrink: int) -> Images:
    with np.load(folder / f"{name}.npz") as file:
        x = np.concatenate([file["x_train"][:train], file["x_test"][:test]])
        labels = np.concatenate([file["y_train"][:train], file["y_test"][:test]])
    images = torch.from_numpy(x)[:, None].float() / 255
    pixels = torch.nn.functional.avg_pool2d(images, shrink)
    return Images(f"{pixels.shape[2]}x{pixels.shape[3]}", pixels, torch.from_numpy(labels.astype(np.int64)), train)


def classify(images: Images, kernel: Tensor) -> tuple[scale.KernelClassification, Tensor]:
    """The result, and which test images were classified wrongly."""
    n, truth = images.train, images.labels[images.train :]
    found = iscope.kernel_classifier(kernel[:n, :n], images.labels[:n], kernel[n:, :n], truth, noise=NOISES)
    return found, found.predictions != truth


def radial(images: Images) -> tuple[str, Tensor]:
    """The RBF kernel whose width has the least leave-one-out error."""
    flat = images.x.flatten(1).double()
    distance = torch.cdist(flat, flat).square()
    median = distance[: images.train, : images.train].median()
    kernels = {width: torch.exp(-width * distance / median) for width in WIDTHS}
    best = min(WIDTHS, key=lambda width: classify(images, kernels[width])[0].left_out_error)
    return f"RBF, width {best:g}", kernels[best]


def linear(images: Images) -> tuple[str, Tensor]:
    flat = images.x.flatten(1).double()
    flat = flat - flat[: images.train].mean(0)
    return "linear", flat @ flat.T + 1


class Table:
    """Rows as they come, and where kernels are kept."""

    def __init__(self, kernels: Path, workers: int) -> None:
        self.kernels, self.workers = kernels, workers
        self.rows: list[Row] = []

    def add(self, data: str, images: Images, name: str, kernel: Tensor, seconds: float) -> Tensor:
        found, wrong = classify(images, kernel)
        assert found.error is not None
        assert found.stderr is not None
        facts = (found.error, found.stderr, found.left_out_error, found.noise, found.jitter.added, seconds / 60)
        row = Row(data, images.name, images.train, len(images.x) - images.train, name, *facts)
        self.rows.append(row)
        print(
            f"{row.data:14}{row.images:7}{row.train:5} +{row.test:5}  {row.kernel:50}{row.error:7.2%} ± {row.stderr:.2%}"
            f"{row.left_out_error:10.2%}{row.noise:9.0e}{row.jitter:9.0e}{row.minutes:8.1f}",
            flush=True,
        )
        return wrong

    def network(self, data: str, images: Images, text: str, label: str) -> Tensor:
        """The kernel of a network, from its folder or into it."""
        place = self.kernels / f"{data}-{images.name}-{len(images.x)}-{label}.zarr"
        run = scale.kernel_to(
            iscope.parse(text), images.x, place, quantity="cosine", tile=TILE, workers=self.workers, resume=True
        )
        stored = run.open()
        seconds = sum(record["seconds"] for record in stored.records())
        return self.add(data, images, text, stored.tensor().double(), seconds)


def compare(table: Table, folder: Path, data: str) -> dict[str, Any]:
    """Both comparisons on one set; what pooling gains over the best of the others, on the same test images."""
    small = load(folder, data, 2000, 1000, 2)
    wrong = {name: table.add(data, small, name, kernel, 0.0) for name, kernel in (linear(small), radial(small))}
    flat = f"{STACK} flatten dense"
    wrong[flat] = table.network(data, small, flat, "flat")
    pooled = table.network(data, small, f"{STACK} gap", "pooled")
    whole = load(folder, data, 4000, 1000, 1)
    for name, kernel in (linear(whole), radial(whole)):
        table.add(data, whole, name, kernel, 0.0)
    table.network(data, whole, f"{DEEP} flatten dense", "deep")
    other = min(wrong, key=lambda name: float(wrong[name].double().mean()))
    difference = wrong[other].double() - pooled.double()
    gain, stderr = float(difference.mean()), float(difference.std()) / math.sqrt(len(difference))
    best = gain > 0
    print(f"{data}: pooling {'is' if best else 'is NOT'} best; {gain:.2%} ± {stderr:.2%} fewer errors than {other}\n")
    return {"data": data, "pooling_best": best, "gain": gain, "stderr": stderr, "next": other}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--kernels", type=Path, default=Path("build/classification"))
    options.add_argument("--workers", type=int, default=0)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    chosen.kernels.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    print(f"{'data':14}{'images':7}{'train + test':14}{'kernel':50}{'error':15}{'left out':>10}    noise   jitter min")
    table = Table(chosen.kernels, chosen.workers)
    checks = [compare(table, chosen.data, name) for name in SETS]
    print(f"{time.perf_counter() - start:.0f} s; min: minutes that the tiles of the kernel took, one after the other")
    if chosen.json:
        chosen.json.write_text(json.dumps({"rows": [asdict(row) for row in table.rows], "checks": checks}, indent=1))


if __name__ == "__main__":
    main()
