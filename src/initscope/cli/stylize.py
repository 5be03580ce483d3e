"""`initscope stylize`: one picture in the style of others, without trained weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from initscope.cli.common import Settings, advancing, common_options, pick_device, progress_bar
from initscope.cli.entry import INTERRUPTED
from initscope.cli.options import memory_size, numbers
from initscope.cli.reconstruct import ARCHITECTURES
from initscope.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from initscope.images import Stylized

_SEEDS = "initscope.seeds"
_MOST = 24  # pictures on a sheet
_PASSED = ("method", "encoder", "loss", "style_weight", "content_weight", "init", "preserve_color", "steps", "optimizer", "rate",
           "arch", "depth", "law", "pooling", "tie", "decoder")  # fmt: skip


def _seeds(ctx: click.Context, parameter: click.Parameter, text: str) -> int:
    """The first seed; the whole range is kept with the context."""
    match = re.fullmatch(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
    if not 0 <= last - first < _MOST:
        raise BadInput("--seed", f"got '{text}'", f"give a whole number, or a range of at most {_MOST} such as 0..5")
    ctx.meta[_SEEDS] = range(first, last + 1)
    return first


@click.command("stylize", short_help="One picture in the style of others.")
@common_options
@click.argument("content", type=click.Path(path_type=Path))
@click.argument("styles", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="STYLE...")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), required=True, help="Write the picture, or the sheet, here."
)
@click.option("--style-weight", type=float, default=None, help="How much the style counts [default: 1].")
@click.option("--content-weight", type=float, default=1.0, show_default=True, help="How much the content counts.")
@click.option("--blend", default=None, metavar="X[,X...]", help="Weights of several styles [default: equal].")
@click.option("--preserve-color", is_flag=True, help="Keep the hues of the content.")
@click.option("--size", type=click.IntRange(1, 100_000), default=256, show_default=True, help="Longer side, pixels.")
@click.option(
    "--init", default="content", show_default=True, metavar="WHAT", help="content, style, noise or a picture."
)
@click.option("--steps", type=click.IntRange(1, 1_000_000), default=None, help="Steps of the optimizer [default: 60].")
@click.option(
    "--optimizer", type=click.Choice(["lbfgs", "adam"]), default="lbfgs", show_default=True, help="Which one."
)
@click.option("--rate", type=float, default=None, help="Its learning rate [default: 1 for lbfgs, 0.03 for adam].")
@click.option("--save-every", type=click.IntRange(1), default=None, metavar="N", help="Also write OUT_N, OUT_2N, ...")
@click.option(
    "--method", type=click.Choice(["features", "pixels"]), default="features", show_default=True,
    help="Optimise features and decode them, or optimise the pixels.",
)  # fmt: skip
@click.option(
    "--encoder", type=click.Choice(["random", "pretrained"]), default="random", show_default=True,
    help="Random filters, or those of ImageNet from $INITSCOPE_WEIGHTS.",
)  # fmt: skip
@click.option(
    "--loss", type=click.Choice(["whitened", "gram", "moments"]), default="whitened", show_default=True,
    help="What is compared with the style.",
)  # fmt: skip
@click.option("--arch", type=click.Choice(ARCHITECTURES), default="vgg16", show_default=True, help="Which network.")
@click.option("--depth", type=click.IntRange(1, 4), default=1, show_default=True, help="Whose features: Conv[DEPTH].")
@click.option("--channels", default=None, metavar="N[,N...]", help="One width, or one a stage [default: at most 128].")
@click.option("--kernel", type=click.IntRange(1, 99), default=None, help="Side of all kernels.")
@click.option("--law", default="he", show_default=True, help="Weight law of the random filters.")
@click.option("--pooling", type=click.Choice(["max", "average", "l2"]), default=None, help="[default: l2 if random].")
@click.option(
    "--tie", type=click.Choice(["patches", "free"]), default="patches", show_default=True,
    help="Move features as pictures can, or each by itself.",
)  # fmt: skip
@click.option(
    "--decoder", type=click.Choice(["least-squares", "matched", "random"]), default="least-squares", show_default=True,
    help="How features become a picture.",
)  # fmt: skip
@click.option("--memory", default="2GiB", show_default=True, metavar="SIZE", help="Refuse what would need more.")
def command(settings: Settings, content: Path, styles: tuple[Path, ...], out: Path, **options: Any) -> None:
    """Paint CONTENT in the style of one STYLE picture, or of several.

    No weights are downloaded: the filters are random, and another --seed is another picture. --seed 0..5 writes one
    picture for each seed and a sheet of them all. Ctrl-C keeps what has been found so far.
    """
    from initscope.images import read_picture
    from initscope.images.files import check_output, check_sheet, refuse_inputs

    seeds: range = click.get_current_context().meta[_SEEDS]
    if len(seeds) > 1:
        check_sheet(out, "--out")
        if options["save_every"]:
            raise BadInput("--save-every", "is for one seed", "leave it out, or give one --seed")
    else:
        check_output(out, "--out")
    refuse_inputs(out, content, *styles)
    pictures = [read_picture(path) for path in (content, *styles)]
    asked = _asked(settings, options)
    results = _run(settings, pictures, out, seeds, asked, options["save_every"])
    _tell(settings, results, out, seeds, content)
    if any(result.interrupted for result in results):
        click.echo("interrupted", err=True)
        click.get_current_context().exit(INTERRUPTED)


# A range of seeds makes a sheet; everything else about the common options stays.
command.params = [
    click.Option(["--seed"], default="0", show_default=True, metavar="N[..N]", callback=_seeds,
                 help="Seed of all randomness, or a range of them.")
    if parameter.name == "seed" else parameter
    for parameter in command.params
]  # fmt: skip


def _asked(settings: Settings, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the library's function."""
    import torch

    asked = {name: options[name] for name in _PASSED if options[name] is not None}
    asked |= {"size": options["size"], "memory": memory_size(options["memory"]), "kernel": options["kernel"]}
    asked["device"] = pick_device(settings.device, torch.float32)
    asked["blend"] = numbers(options["blend"], "--blend", float, "2, or 2,1,1")
    widths = numbers(options["channels"], "--channels", int)
    if widths is not None:
        asked["channels"] = widths[0] if len(widths) == 1 else widths
    return asked


def _run(
    settings: Settings, pictures: list[Tensor], out: Path, seeds: range, asked: dict[str, Any], every: int | None
) -> list[Stylized]:
    from initscope.images import stylize, write_picture

    def watch(step: int, picture: Tensor) -> None:
        write_picture(picture, _beside(out, f"{step:04d}"), "--save-every")

    results: list[Stylized] = []
    with progress_bar(settings) as bar:
        job = bar.add_task("steps", total=1.0)
        for number, seed in enumerate(seeds):
            advance = advancing(bar, job, since=number / len(seeds), until=(number + 1) / len(seeds))
            found = stylize(
                pictures[0], pictures[1:], **asked, seed=seed, every=every or 0, watch=watch, progress=advance,
                keep_on_interrupt=True,
            )  # fmt: skip
            results.append(found)
            write_picture(found.image, out if len(seeds) == 1 else _beside(out, f"seed{seed}"), "--out")
            if found.interrupted:
                break
    return results


def _tell(settings: Settings, results: list[Stylized], out: Path, seeds: range, content: Path) -> None:
    from initscope.images import Cell, picture_grid

    if len(seeds) > 1:
        cells = [
            Cell(r.image, f"seed {s}\ncontent {r.content_loss:.2f}, style {r.style_loss:.2f}")
            for s, r in zip(seeds, results, strict=False)
        ]
        columns = min(len(cells), 4)
        rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
        picture_grid(rows, f"{content.name}, one random network each").save(out)
    settings.say(f"wrote {out}")
    if settings.json:
        found = [result.to_dict() for result in results]
        alone = {**found[0], "out": str(out)}
        settings.print_json("stylize", alone if len(seeds) == 1 else {"out": str(out), "results": found})
        return
    from initscope.report.tables import house_table

    table = house_table(f"{content.name}, {results[0].image.shape[-1]}x{results[0].image.shape[-2]}")
    for name in ("seed", "content loss", "style loss", "steps", "seconds"):
        table.add_column(name, justify="right")
    for seed, result in zip(seeds, results, strict=False):
        losses = (f"{result.content_loss:.4f}", f"{result.style_loss:.4f}")
        table.add_row(str(seed), *losses, str(result.steps), f"{result.seconds:.1f}")
    settings.stdout().print(table)


def _beside(out: Path, word: str) -> Path:
    """OUT with a word before its suffix; sheets may be .svg, pictures are then .png."""
    return out.with_name(f"{out.stem}_{word}{'.png' if out.suffix.lower() == '.svg' else out.suffix}")
