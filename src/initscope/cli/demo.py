"""`initscope demo`: a deep plain network on photos is checked, found to collapse, and repaired."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from initscope.cli.common import Settings, common_options, pick_device, progress_bar
from initscope.errors import BadInput

if TYPE_CHECKING:
    from initscope.probe import Fixed

MODEL, DATA, SIZE, SAMPLES, SEEDS = "plain-cnn:30", "photos", 24, 16, 2
PAGE = "report.html"
NEXT = (
    "check resnet:6 --size 16 --html report.html",
    "fix mlp:20 --size 8 --train-steps 20 --save weights.safetensors",
    'predict "6x(conv3 relu) gap" --data photos --size 16 --centre',
)
OWN = "check yourpackage.yourmodule:factory --data folder:your/pictures"


@click.command("demo", short_help="See a deep network collapse on photos, and be repaired.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("initscope-demo"), show_default=True,
    help="Folder for the page.",
)  # fmt: skip
@common_options
def command(settings: Settings, out: Path) -> None:
    """Thirty convolutions with PyTorch's own initialization on photos: what collapses, where, why, and a remedy.

    The page report.html shows all of it, before and after.
    """
    from initscope.files import check_writable

    path = out / PAGE
    make_folder(out)
    check_writable(path, "--out")
    started = time.perf_counter()
    fixed = _repair(settings)
    from initscope.report import write_fix_page

    write_fix_page(fixed, path, title=f"{MODEL} on {DATA}")
    seconds = time.perf_counter() - started
    if settings.json:
        content = {"model": MODEL, "data": DATA, "page": str(path), **fixed.to_dict(), "seconds": round(seconds, 3)}
        settings.print_json("demo", content)
    else:
        _print_story(settings, fixed, path, seconds)


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            "--out", f"cannot make the folder {folder} ({error.strerror})", "choose another folder"
        ) from error


def _repair(settings: Settings) -> Fixed:
    import torch

    from initscope.data import load
    from initscope.probe import fix
    from initscope.probe.builtin import builtin_model

    device = pick_device(settings.device, torch.float32)
    images = load(DATA, count=SAMPLES, size=SIZE, seed=settings.seed).images.to(device)
    factory = builtin_model(MODEL, tuple(images.shape[1:]))
    shell = f"{MODEL} --data {DATA} --size {SIZE}"
    with progress_bar(settings) as bar:
        bar.add_task("check, then every remedy", total=None)
        return fix(lambda: factory().to(device), images, seeds=SEEDS, seed=settings.seed, shell=shell)


def _print_story(settings: Settings, fixed: Fixed, path: Path, seconds: float) -> None:
    from initscope.report import fix_view

    out = settings.stdout()
    for line in story(fixed):
        out.print(line, markup=False, width=min(out.width, 100))
        out.print()
    out.print(fix_view(fixed, width=out.width, title=MODEL))
    out.print()
    out.print(f"Page: {path}   ({seconds:.0f} s)", markup=False, soft_wrap=True)
    out.print("Try next:")
    program = "initscope" if shutil.which("initscope") else sys.argv[0]
    for line in (*NEXT, OWN):
        out.print(f"  {program} {line}", markup=False, soft_wrap=True)


def story(fixed: Fixed) -> list[str]:
    """What the numbers show, in sentences that take every number from them."""
    from initscope.probe import Health
    from initscope.report.wording import angle_text, number_text, percent_text

    before, old, new = fixed.before, Health.of(fixed.before), Health.of(fixed.after)
    kind, share = next(iter(before.blame.items()), ("nothing", 0.0))
    apart = angle_text(before.data["angle_deg"]), angle_text(old.angle_deg)
    left = number_text(old.grad_norm_ratio)
    lines = [
        f"A plain network of 30 convolutions, initialized as PyTorch does it, sees {before.samples} photos. Two of them "
        f"come in {apart[0]} apart and leave {apart[1]} apart: to the classifier all photos are the same. "
        f"{percent_text(share)} of that happens in the {kind} layers. Of the gradient at the output, {left} is left at the "
        "worst layer."
    ]
    if fixed.applied:
        lines.append(
            f"The best of {len(before.remedies)} remedies, each tried on a copy, is {fixed.applied[0].name}: the same photos "
            f"now leave {angle_text(new.angle_deg)} apart, and the worst layer has {number_text(new.grad_norm_ratio)} times "
            "the gradient of the output."
        )
    return lines
