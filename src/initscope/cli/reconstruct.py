"""`initscope reconstruct`: a picture through an untrained network and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from initscope.cli.common import Settings, advancing, common_options, pick_device, progress_bar
from initscope.cli.options import DATA_HELP, memory_size, numbers
from initscope.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from initscope.images import Reconstruction, Sheet

ARCHITECTURES = ("vgg16", "alexnet", "alexnet2014")
DECODERS = ("random", "averaged", "matched", "least-squares")


@click.command("reconstruct", short_help="A picture through an untrained network and back.")
@common_options
@click.argument("photo", type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), default=None, help="Write the picture, or the sheet, here."
)
@click.option("--arch", type=click.Choice(ARCHITECTURES), default="vgg16", show_default=True, help="Which network.")
@click.option(
    "--depth", default=None, metavar="K", help="Conv[K]-DeConv[K], 1 to 5, or one layer such as 1_1 [default: 1]."
)
@click.option(
    "--channels", default=None, metavar="N[,N...]", help="One width, or one a stage [default: the network's own]."
)
@click.option("--kernel", default=None, metavar="N", help="Side of all kernels [default: the network's own].")
@click.option(
    "--law", default="he", show_default=True, help="Weight law, such as he, orthogonal or laplace_fixed(0.01)."
)
@click.option(
    "--variant", type=click.Choice(["paper", "average"]), default="paper", show_default=True,
    help="End in a random convolution, or in the mean over channels.",
)  # fmt: skip
@click.option("--decoder", type=click.Choice(DECODERS), default="random", show_default=True, help="How to decode.")
@click.option("--decoders", type=click.IntRange(1, 1000), default=8, show_default=True, help="With --decoder averaged.")
@click.option("--examples", default=None, metavar="NAME", help=f"Fit least squares on these instead: {DATA_HELP}")
@click.option("--count", type=click.IntRange(1, 1000), default=8, show_default=True, help="How many --examples.")
@click.option(
    "--pooling", type=click.Choice(["max", "average", "l2"]), default="max", show_default=True, help="Kind of pooling."
)
@click.option(
    "--upsampling",
    type=click.Choice(["zeros", "nearest"]),
    default="zeros",
    show_default=True,
    help="Kind of upsampling.",
)
@click.option(
    "--tone", type=click.Choice(["range", "match", "clamp"]), default=None,
    help="Show the output stretched to its range, with the original's mean and contrast, or as it is.",
)  # fmt: skip
@click.option(
    "--sheet", default=None, metavar="WHAT[=N,N...]",
    help="A contact sheet over depth, channels or kernel, such as channels=4,64,512.",
)  # fmt: skip
@click.option(
    "--memory", default="2GiB", show_default=True, metavar="SIZE", help="Memory to use; large pictures go in tiles."
)
def command(settings: Settings, photo: Path, out: Path | None, sheet: str | None, **options: Any) -> None:
    """Encode PHOTO with random filters and decode it without any training.

    Prints how near the result is (SSIM, PSNR) and what the theorems say: the picture that wide networks tend to, its
    angle to the input and this network's angle to it.
    """
    from initscope.images import read_picture
    from initscope.images.files import check_output, check_sheet, refuse_inputs

    if out is not None and sheet is None:
        check_output(out, "--out")
    elif out is not None:
        check_sheet(out, "--out")
    if out is not None:
        refuse_inputs(out, photo)
    if sheet is not None and out is None:
        raise BadInput("--sheet", "is a picture and needs a file", "add -o sheet.png")
    picture = read_picture(photo)
    asked = _asked(settings, options)
    if sheet is None:
        _one(settings, picture, out, asked, photo)
    else:
        _sheet(settings, picture, out, asked, sheet)


def _asked(settings: Settings, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the library's function."""
    import torch

    asked = {name: options[name] for name in ("arch", "law", "variant", "decoder", "decoders", "pooling", "upsampling")}
    asked |= {"tone": options["tone"], "memory": memory_size(options["memory"]), "seed": settings.seed}
    asked["device"] = pick_device(settings.device, torch.float32)
    if options["depth"] is not None:
        asked["depth"] = options["depth"]
    widths = numbers(options["channels"], "--channels")
    if widths is not None:
        asked["channels"] = widths[0] if len(widths) == 1 else widths
    kernel = numbers(options["kernel"], "--kernel", example="3")
    if kernel is not None:
        if len(kernel) > 1:
            raise BadInput(
                "--kernel", f"got '{options['kernel']}', expected one number", "compare several with --sheet"
            )
        asked["kernel"] = kernel[0]
    if options["examples"] is not None:
        asked["examples"] = _examples(settings, options)
    return asked


def _examples(settings: Settings, options: dict[str, Any]) -> list[Tensor]:
    if options["decoder"] != "least-squares":
        raise BadInput("--examples", "are for --decoder least-squares", "add it, or leave them out")
    from initscope.data import load

    kind = options["examples"].partition(":")[0]
    size = 128 if kind in ("photos", "dead-leaves", "gaussian", "shapes") else None
    return list(load(options["examples"], count=options["count"], size=size, seed=settings.seed).images)


def _one(settings: Settings, picture: Tensor, out: Path | None, asked: dict[str, Any], photo: Path) -> None:
    from initscope.images import reconstruct, write_picture

    with progress_bar(settings) as bar:
        job = bar.add_task("tiles", total=1.0)
        found = reconstruct(picture, **asked, progress=advancing(bar, job))
    if out is not None:
        write_picture(found.image, out, "--out")
        settings.say(f"wrote {out}")
    if settings.json:
        settings.print_json("reconstruct", {**found.to_dict(), "out": None if out is None else str(out)})
    else:
        _print(settings, found, photo)


def _sheet(settings: Settings, picture: Tensor, out: Path | None, asked: dict[str, Any], sheet: str) -> None:
    from initscope.images import contact_sheet

    assert out is not None
    over, _, listed = sheet.partition("=")
    if over in ("depth", "channels", "kernel") and over in asked:
        raise BadInput("--sheet", f"goes over {over}", f"leave --{over} out")
    values = numbers(listed, "--sheet") if listed else None
    with progress_bar(settings) as bar:
        job = bar.add_task("pictures", total=1.0)
        found = contact_sheet(picture, over, values, progress=advancing(bar, job), **asked)  # type: ignore[arg-type]
    found.save(out)
    settings.say(f"wrote {out}")
    if settings.json:
        settings.print_json("reconstruct", {**found.to_dict(), "out": str(out)})
    else:
        _print_sheet(settings, found)


def _print(settings: Settings, found: Reconstruction, photo: Path) -> None:
    from initscope.report import facts_table

    said = found.settings
    height, width = found.image.shape[-2:]
    facts = {"SSIM": "undefined below 11x11 pixels" if found.ssim is None else f"{found.ssim:.4f}"}
    facts["PSNR"] = f"{found.psnr:.2f} dB"
    theory, why = found.theory, found.theory.why
    sure = f"with probability {1 - theory.delta:g}"
    rows = (
        ("limit to input", theory.input_angle, "input_angle", ""),
        ("  Theorem 3", theory.input_bound, "input_bound", "at most "),
        ("output to limit", theory.output_angle, "output_angle", ""),
        ("  Theorem 2", theory.output_bound, "output_bound", "at most "),
        ("  sharper", theory.sharper_bound, "sharper_bound", "at most "),
    )
    told: set[str] = set()
    for name, value, key, least in rows:
        if value is not None:
            bound = f", {sure}" if key in ("output_bound", "sharper_bound") else ""
            facts[name] = f"{least}{value:.2f}°{bound}"
        elif key in why and why[key] not in told:
            facts[name] = f"none: {why[key]}"
            told.add(why[key])
    if found.tiles > 1:
        facts["tiles"] = str(found.tiles)
    for number, note in enumerate(found.notes):
        facts["note" if number == 0 else " " * number] = note
    out = settings.stdout()
    kind = f"{said['arch']} CD{said['depth']}, {said['decoder']} decoder, {said['variant']} variant"
    out.print(f"{photo.name}, {width}x{height}: {kind}", style="bold", markup=False)
    out.print(facts_table(facts))


def _print_sheet(settings: Settings, found: Sheet) -> None:
    from initscope.report.tables import house_table

    table = house_table(f"by {found.over}")
    for name in (found.over, "SSIM", "PSNR (dB)"):
        table.add_column(name, justify="right")
    for value, result in zip(found.values, found.results, strict=True):
        table.add_row(str(value), "" if result.ssim is None else f"{result.ssim:.4f}", f"{result.psnr:.2f}")
    settings.stdout().print(table)
