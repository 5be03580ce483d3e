"""`initscope demo`: photos and Gaussian images through a plain convolutional network, exact next to sampled."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from initscope.cli.common import Settings, advancing, common_options, pick_device, progress_bar
from initscope.errors import BadInput

if TYPE_CHECKING:
    from initscope.report import Compared

LAYERS = 8
ARCHITECTURE = f"{LAYERS}x(conv3 relu) gap"
SETS = {"photos": "photos", "Gaussian images": "gaussian:0"}
TITLE = "Before training: cosine of two images, layer by layer"


@dataclass(frozen=True)
class _Size:
    pairs: int = 6
    side: int = 24
    width: int = 128
    draws: int = 16


@click.command("demo", short_help="See what an untrained network does to photos and to noise.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("initscope-demo"), show_default=True,
    help="Folder for the figure.",
)  # fmt: skip
@common_options
def command(settings: Settings, out: Path) -> None:
    """Pairs of photos and pairs of Gaussian images through eight random convolutions and a global average.

    The exact answer for infinite width stands next to sampled networks of 128 channels, with 95 % intervals.
    """
    from initscope.figures import check_writable

    path = out / "similarity.svg"
    make_folder(out)
    check_writable(path, "--out")
    started = time.perf_counter()
    names, sets = _measure(settings, _Size())
    _draw(names, sets, path)
    seconds = time.perf_counter() - started
    if settings.json:
        _print_json(settings, names, sets, path, seconds)
    else:
        _print_story(settings, names, sets, path, seconds)


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            "--out", f"cannot make the folder {folder} ({error.strerror})", "choose another folder"
        ) from error


def _measure(settings: Settings, size: _Size) -> tuple[list[str], list[Compared]]:
    """Exact and sampled cosines, averaged over the pairs, of both sets."""
    import torch

    from initscope.data import load_pairs
    from initscope.finite import simulate
    from initscope.networks import predict
    from initscope.networks.language import parse
    from initscope.report import Compared

    net = parse(ARCHITECTURE, width=size.width)
    device = pick_device(settings.device, torch.float32)
    names: list[str] = []
    sets = []
    with progress_bar(settings) as bar:
        for label, source in SETS.items():
            job = bar.add_task(label, total=1.0)
            pairs = load_pairs(source, pairs=size.pairs, size=size.side, seed=settings.seed)
            x, y = pairs.x.to(device), pairs.y.to(device)
            exact = predict(net, x, y, seed=settings.seed, dtype=torch.float32, progress=advancing(bar, job, until=0.5))
            sampled = simulate(net, x, y, draws=size.draws, seed=settings.seed, progress=advancing(bar, job, since=0.5))
            names = [layer.name for layer in exact.layers]
            estimates = [layer.cosine for layer in sampled.layers]
            sets.append(
                Compared(
                    label,
                    exact=[float(layer.cosine.mean()) for layer in exact.layers],
                    sampled=[float(e.value.mean()) for e in estimates],
                    # All pairs went through the same networks: their errors may all point the same way.
                    margin=[float((e.interval()[1] - e.value).mean()) for e in estimates],
                )
            )
    return names, sets


def _draw(names: list[str], sets: list[Compared], path: Path) -> None:
    from initscope.figures import Curve, similarity_curves

    curves = [Curve(item.label, item.exact, sampled=item.sampled, margin=item.margin) for item in sets]
    similarity_curves(names, curves, title=TITLE).save(path)


def _print_json(settings: Settings, names: list[str], sets: list[Compared], path: Path, seconds: float) -> None:
    layers = [
        {
            "name": name,
            **{
                item.label: {"exact": item.exact[i], "sampled": item.sampled[i], "margin95": item.margin[i]}
                for item in sets
            },
        }
        for i, name in enumerate(names)
    ]
    seeds = {"data": settings.seed, "networks": settings.seed}
    content = {"architecture": ARCHITECTURE, "sets": SETS, "layers": layers, "figure": str(path)}
    settings.print_json("demo", {**content, "seeds": seeds, "seconds": round(seconds, 3)})


def _print_story(settings: Settings, names: list[str], sets: list[Compared], path: Path, seconds: float) -> None:
    from initscope.report import comparison_table

    out = settings.stdout()
    out.print(
        comparison_table(names, sets, f"Cosine of two images through {ARCHITECTURE}, mean over {_Size().pairs} pairs")
    )
    for line in story(sets, _Size().width):
        out.print(line, markup=False, width=min(out.width, 100))
        out.print()
    out.print(f"Figure: {path}   ({seconds:.0f} s)", markup=False, soft_wrap=True)
    out.print("Try next:")
    program = "initscope" if shutil.which("initscope") else sys.argv[0]
    for line in NEXT:
        out.print(f"  {program} {line}", markup=False, soft_wrap=True)


NEXT = (
    'predict "6x(conv3 relu) gap" --data photos --size 16 --centre',
    'predict "conv3 10x(res(relu conv3))" --data photos',
    'kernel "3x(conv3 relu) gap" --count 50 --size 16 --out kernel.npy',
)


def story(sets: list[Compared], width: int) -> list[str]:
    """What the numbers show, in sentences that take every number from them."""
    lines = []
    for item in sets:
        first, one, before, last = item.exact[0], item.exact[2], item.exact[-2], item.exact[-1]
        lines.append(
            f"{item.label}: two of them begin at cosine {first:.2f}. One conv + relu makes it {one:.2f}, "
            f"{LAYERS} make it {before:.2f}, the global average {last:.4f}."
        )
    gap = max(abs(e - s) for item in sets for e, s in zip(item.exact, item.sampled, strict=True))
    return [
        *lines,
        "Photos are nearly left alone by the first layers: their pixels are positive, and a patch of one looks like a "
        "patch of the other. Noise contracts at once, along the arc-cosine curve. Averaging over the image then pulls "
        "both together: what told them apart was where things are, and that is gone.",
        f"Exact is for infinite width; the intervals are for the mean over networks of {width} channels, which lies up "
        f"to {gap:.3f} away from it here.",
    ]
