"""`reconstruct`: a picture through a random encoder and back, with its quality and what the theorems say about it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from initscope.errors import BadInput, InitscopeError
from initscope.images.architectures import Depth, Widths, layout
from initscope.images.decoding import DecoderKind, combine, count_parameters
from initscope.images.files import read_picture, write_picture
from initscope.images.laws import Law, holds_width, read_law
from initscope.images.modules import Pooling, Upsampling
from initscope.images.networks import Variant, check_variant
from initscope.images.pipeline import Job, Pipeline, build, picture_bytes
from initscope.images.quality import Tone, compare_pictures, to_pictures
from initscope.images.theory import Theory, find_theory, limit_network, nothing
from initscope.images.tiling import clear_memory_errors, run_tiles
from initscope.networks.planning import memory_bytes

MEMORY = "2 GiB"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Reconstruction:
    """A picture that came back from random features.

    image: the picture, (c, h, w) in [0, 1], inverted where `inverted`; output: what the decoder gave, of any range.
    ssim and psnr compare grey pictures in DC's convention (§4); ssim is None below 11x11 pixels.
    """

    image: Tensor
    output: Tensor
    ssim: float | None
    psnr: float
    inverted: bool
    theory: Theory
    settings: dict[str, Any]
    tiles: int
    memory: int  # bytes of the plan
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings; the pictures themselves are left out."""
        names = ("ssim", "psnr", "inverted", "tiles", "memory")
        found = {name: getattr(self, name) for name in names}
        shape = list(self.image.shape)
        return {**found, "shape": shape, **self.settings, "theory": self.theory.to_dict(), "notes": list(self.notes)}

    def save(self, path: str | Path) -> Path:
        """Write the picture; the suffix says how (.png, .jpg, .webp, .bmp, .tif)."""
        return write_picture(self.image, path)


def reconstruct(
    image: str | Path | Tensor,
    arch: str = "vgg16",
    depth: Depth = 1,
    channels: Widths | None = None,
    kernel: int | None = None,
    law: Law = "he",
    variant: Variant = "paper",
    decoder: DecoderKind = "random",
    seed: int = 0,
    memory: int | str = MEMORY,
    *,
    pooling: Pooling = "max",
    upsampling: Upsampling = "zeros",
    tone: Tone | None = None,
    decoders: int = 8,
    examples: Sequence[Tensor] | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Reconstruction:
    """Encode a picture with random filters (DC's Conv[depth]) and decode it without any training.

    `image`: a file, or (c, h, w) in [0, 1]. `depth`: 1 to 5, or one convolution such as "1_1". `channels`: one width for all
    layers, or one for each stage. `law`: a weight law or its name; with ReLU and no biases the scale of the weights changes no
    picture. `variant`: "paper" ends in a random convolution, "average" in the mean over channels (Definition 1).

    `decoder`: "random" (DC); "averaged", `decoders` of them; "matched", the encoder's filters transposed; "least-squares", the
    best linear map from features to pixels, fitted on `examples`, each (c, h, w), or else on the picture itself.

    Work goes in tiles that fit into `memory`, with the same result to rounding; what does not fit is refused at once.

    >>> ramp = torch.linspace(0, 1, 24).expand(3, 16, 24)
    >>> found = reconstruct(ramp, depth="1_1", channels=256, variant="average")
    >>> found.ssim > 0.9, found.theory.output_angle < found.theory.output_bound
    (True, True)
    """
    picture = read_picture(image).to(device)
    check_variant(variant)
    if decoder not in get_args(DecoderKind):
        raise BadInput("decoder", f"got {decoder!r}", f"choose from {', '.join(get_args(DecoderKind))}")
    plan = layout(arch, depth, inputs=picture.shape[1], channels=channels, kernel=kernel)
    weights = read_law(law)
    normalise = variant == "average" and not holds_width(weights)
    job = Job(plan, weights, pooling, upsampling, variant, decoder, decoders, seed, normalise)
    allowed = memory_bytes(memory)
    with clear_memory_errors("use a smaller picture or fewer channels, or allow less memory so that tiles are smaller"):
        pipeline = build(job, picture, None if examples is None else _pictures(examples, picture), allowed)
        output = _run(pipeline, picture, progress)
        shown = to_pictures(output, tone or pipeline.tone, picture)
        quality = compare_pictures(shown, picture)
        inverted = bool(quality.inverted[0])
        theory = _theory(job, picture, output, allowed - picture_bytes(picture))
    ssim = float(quality.ssim[0])
    settings = {
        "arch": arch, "depth": depth, "channels": _listed(channels), "kernel": kernel, "law": weights.name,
        "variant": variant, "decoder": decoder, "seed": seed, "pooling": pooling, "upsampling": upsampling,
        "tone": tone or pipeline.tone, "decoders": decoders if decoder == "averaged" else None,
    }  # fmt: skip
    return Reconstruction(
        image=(1 - shown if inverted else shown)[0].cpu(),
        output=output[0].cpu(),
        ssim=None if math.isnan(ssim) else ssim,
        psnr=float(quality.psnr[0]),
        inverted=inverted,
        theory=theory,
        settings=settings,
        tiles=len(pipeline.tiles),
        memory=pipeline.bytes,
        notes=_notes(pipeline, output, ssim, inverted),
    )


@torch.no_grad()
def _run(pipeline: Pipeline, picture: Tensor, progress: Progress | None) -> Tensor:
    height, width = picture.shape[-2:]
    result = picture.new_empty(1, pipeline.channels, height, width)
    run_tiles(pipeline, picture, pipeline.tiles, result, progress)
    if not bool(result.isfinite().all()):
        raise BadInput(
            "law", f"{pipeline.job.law.name} weights overflow in this network", "use he, or variant='average'"
        )
    return combine(result, picture.shape[1]) if pipeline.job.decoder == "averaged" else result


def _theory(job: Job, picture: Tensor, output: Tensor, allowed: int) -> Theory:
    if job.decoder == "matched":
        return nothing(
            "matched filters have the input itself as their mean over filters; the theorems are about random ones"
        )
    if job.decoder == "least-squares":
        return nothing("the decoder is fitted; the theorems are about random ones")
    try:
        net = limit_network(
            job.plan, job.law, pooling=job.pooling, upsampling=job.upsampling, normalise=job.normalise,
            size=(picture.shape[-2], picture.shape[-1]),
        )  # fmt: skip
    except InitscopeError as error:
        return nothing(f"{error.problem}; {error.remedy}")
    averages = job.variant == "average" and job.decoder == "random"
    without = (
        "random weights in the last layer have mean zero: only the mean over channels (variant 'average') has a limit"
    )
    return find_theory(net, picture, output if averages else None, allowed, without)


def _notes(pipeline: Pipeline, output: Tensor, ssim: float, inverted: bool) -> tuple[str, ...]:
    notes = list(pipeline.notes)
    if bool((output == output.flatten()[0]).all()):
        notes.append("the output is constant")
    if inverted:
        notes.append("SSIM was negative: the luminosity is inverted")
    if math.isnan(ssim):
        notes.append("SSIM needs 11x11 pixels or more")
    if pipeline.fitted is not None:
        notes.append(f"{count_parameters(pipeline.fitted):,} numbers were fitted")
    return tuple(notes)


def _pictures(examples: Sequence[Tensor], picture: Tensor) -> list[Tensor]:
    if not len(examples):
        raise BadInput("examples", "no pictures to fit on", "pass one at least, or leave examples= out")
    from initscope.data.pixels import with_channels

    found = (read_picture(example).to(picture.device) for example in examples)
    return [with_channels("examples", example, picture.shape[1]) for example in found]


def _listed(channels: Widths | None) -> int | list[int] | None:
    return channels if channels is None or isinstance(channels, int) else list(channels)
