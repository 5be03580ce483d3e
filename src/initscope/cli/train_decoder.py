"""`initscope train-decoder`: train the decoder of a random or a pre-trained encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from initscope.cli.common import Settings, advancing, common_options, pick_device, progress_bar
from initscope.cli.options import DATA_HELP, memory_size
from initscope.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from initscope.images import Encoder, TrainedDecoder

ARCHITECTURES = ("vgg16", "alexnet", "alexnet2014")
_ENDLESS = ("photos", "dead-leaves", "gaussian", "shapes")


@click.command("train-decoder", short_help="Train a decoder for a random or a pre-trained encoder.")
@common_options
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where the run is kept.")
@click.option("--data", default="photos", show_default=True, metavar="NAME", help=DATA_HELP)
@click.option("--count", type=click.IntRange(1), default=300, show_default=True, help="Images to train on.")
@click.option("--held-out", type=click.IntRange(0), default=100, show_default=True, help="Images to test on.")
@click.option(
    "--size", type=click.IntRange(1), default=None, help="Scale images to this side [default: 64; files keep theirs]."
)
@click.option("--crop", type=click.IntRange(1), default=None, help="Train on random windows of this side.")
@click.option(
    "--encoder", type=click.Choice(["random", "pretrained"]), default="random", show_default=True, help="Its filters."
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    default=None,
    help="File or folder of the pre-trained filters [default: $INITSCOPE_WEIGHTS].",
)
@click.option("--arch", type=click.Choice(ARCHITECTURES), default="vgg16", show_default=True, help="Which network.")
@click.option(
    "--depth", default="1", show_default=True, metavar="K", help="Conv[K]-DeConv[K], 1 to 5, or one layer such as 1_1."
)
@click.option(
    "--channels", type=click.IntRange(1), default=None, help="Width of a random encoder [default: the network's own]."
)
@click.option("--law", default=None, help="Weight law of a random encoder [default: he].")
@click.option(
    "--pooling", type=click.Choice(["max", "average", "l2"]), default="max", show_default=True, help="Kind of pooling."
)
@click.option("--steps", type=click.IntRange(1), default=300, show_default=True, help="Steps of Adam.")
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Images in a step.")
@click.option(
    "--rate", type=float, default=1e-4, show_default=True, help="Rate of Adam; halved after half and three quarters."
)
@click.option("--decay", type=float, default=4e-4, show_default=True, help="Weight decay.")
@click.option("--scale-features", is_flag=True, help="Divide the features by their root mean square.")
@click.option(
    "--save-every",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="STEPS",
    help="How often a checkpoint is written.",
)
@click.option(
    "--evaluate-every",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    metavar="STEPS",
    help="How often the held-out loss is measured.",
)
@click.option("--restart", is_flag=True, help="Start anew instead of going on with what DIR holds.")
@click.option("--memory", default="2GiB", show_default=True, metavar="SIZE", help="Memory to use.")
def command(settings: Settings, out: Path, restart: bool, **options: Any) -> None:
    """Train the decoder that mirrors an encoder, which stays as it is, to give images back from their features.

    DIR gets checkpoints, the decoder, run.json, loss.svg and samples.png. Ctrl-C saves first; the same command goes on where
    it stopped, also after a kill.
    """
    import torch

    from initscope.images import Recipe, train_decoder

    names = ("steps", "batch", "rate", "decay", "crop", "scale_features", "evaluate_every", "save_every")
    recipe = Recipe(**{name: options[name] for name in names}, seed=settings.seed)
    device = pick_device(settings.device, torch.float32)
    encoder = _encoder(settings, options)
    images, held_out = _images(settings, options, encoder.layout.inputs)
    about = {name: options[name] for name in ("encoder", "law", "channels", "pooling", "data", "count", "size")}
    with progress_bar(settings) as bar:
        job = bar.add_task("steps", total=1.0)
        found = train_decoder(
            encoder.to(device), images.to(device), None if held_out is None else held_out.to(device), recipe,
            out=out, restart=restart, memory=memory_size(options["memory"]), about=about, progress=advancing(bar, job),
        )  # fmt: skip
    settings.say(f"wrote {out}")
    if settings.json:
        settings.print_json("train-decoder", {**found.to_dict(), "out": str(out), "started": found.started})
    else:
        _print(settings, found, out)


def _encoder(settings: Settings, options: dict[str, Any]) -> Encoder:
    from initscope.images import Encoder, pretrained_encoder

    if options["encoder"] == "random":
        if options["weights"] is not None:
            raise BadInput("--weights", "are for --encoder pretrained", "add it, or leave them out")
        return Encoder(
            options["arch"], options["depth"], channels=options["channels"], law=options["law"] or "he",
            pooling=options["pooling"], seed=settings.seed,
        )  # fmt: skip
    for name in ("channels", "law"):
        if options[name] is not None:
            raise BadInput(f"--{name}", "is for random encoders", "leave it out, or use --encoder random")
    return pretrained_encoder(options["arch"], options["depth"], options["weights"], pooling=options["pooling"])


def _images(settings: Settings, options: dict[str, Any], channels: int) -> tuple[Tensor, Tensor | None]:
    """Images to train on, and others to test on: one draw without replacement, cut in two."""
    from initscope.data import load

    kind = options["data"].partition(":")[0]
    size = options["size"] or (64 if kind in _ENDLESS and options["crop"] is None else None)
    if kind in _ENDLESS and size is None:
        size = 2 * options["crop"]
    count = options["count"]
    found = load(options["data"], count=count + options["held_out"], size=size, channels=channels, seed=settings.seed)
    images = found.images.float()
    if images.dim() != 4:
        raise BadInput("--data", "holds vectors, not images", "give images")
    if images.min() < 0 or images.max() > 1:  # generators such as gaussian have no range of their own
        low, high = images.aminmax()
        images = (images - low) / (high - low)
    return images[:count], images[count:] if options["held_out"] else None


def _print(settings: Settings, found: TrainedDecoder, out: Path) -> None:
    from initscope.report import facts_table

    layout, recipe = found.decoder.layout, found.recipe
    last = found.losses[-10:]
    facts = {
        "steps": f"{len(found.losses)} of {recipe.batch} images"
        + (f", from {found.started} on" if found.started else "")
    }
    facts["training loss"] = f"{float(last.mean()):.5f} (mean of the last {len(last)} steps)"
    if found.held_out:
        facts["held-out loss"] = f"{found.held_out[-1][1]:.5f}, from {found.held_out[0][1]:.5f}"
        facts["  one colour"] = f"{found.constant_loss:.5f}"
    facts["images a second"] = f"{found.images_per_second:.1f}"
    facts["features"] = ("kept: " if found.cached else "worked out in every step: ") + found.why
    facts["files"] = f"{out / 'decoder.safetensors'}, run.json, loss.svg" + (", samples.png" if found.held_out else "")
    console = settings.stdout()
    console.print(f"{layout.arch} CD{layout.depth}, {found.about['encoder']} encoder", style="bold", markup=False)
    console.print(facts_table(facts))
