"""An encoder and a decoder put together within a budget of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from initscope.errors import BadInput
from initscope.images.architectures import ConvPlan, Layout, Size
from initscope.images.decoding import (
    Averaged,
    DecoderKind,
    LeastSquares,
    Matched,
    fit_least_squares,
    least_squares_moves,
)
from initscope.images.modules import Pooling, Upsampling
from initscope.images.networks import Decoder, Encoder, Variant, decoder_sources, encoder_sources
from initscope.images.quality import Tone
from initscope.images.tiling import Move, TilePlan, decoder_moves, encoder_moves, plan_tiles, refuse
from initscope.weights import WeightLaw

_FLOAT = 4
# What decoders hold beyond the maps of one layer, measured: features for the next decoder, sums, products.
_LIVE: dict[DecoderKind, float] = {"random": 2.0, "averaged": 3.4, "matched": 3.4, "least-squares": 2.4}
_PICTURES = 6  # copies of a picture alive at once: input, output, picture, grey ones, temporaries


@dataclass(frozen=True)
class Job:
    """What is asked for."""

    plan: Layout
    law: WeightLaw
    pooling: Pooling
    upsampling: Upsampling
    variant: Variant
    decoder: DecoderKind
    decoders: int
    seed: int
    normalise: bool

    @property
    def count(self) -> int:
        """Random decoders."""
        return {"random": 1, "averaged": self.decoders}.get(self.decoder, 0)

    def moves(self, channels: int) -> list[Move]:
        """Encoder and decoder as tiles see them."""
        if self.decoder == "least-squares":
            return least_squares_moves(self.plan, channels)
        return encoder_moves(self.plan) + decoder_moves(self.plan, transposed=self.decoder == "matched")


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Ready to run: call it with a part of the image and its size."""

    job: Job
    encoder: Encoder
    decode: Callable[[Tensor, Size], Tensor]
    tiles: TilePlan
    channels: int  # that `decode` gives
    tone: Tone
    bytes: int
    fitted: LeastSquares | None = None
    notes: tuple[str, ...] = field(default=())

    def __call__(self, part: Tensor, size: Size) -> Tensor:
        return self.decode(self.encoder(part), size)


def build(job: Job, picture: Tensor, examples: Sequence[Tensor] | None, allowed: int) -> Pipeline:
    """Encoder, decoder and tiles; BadInput where not even the smallest tile fits."""
    _check(job)
    inputs, size = picture.shape[1], (picture.shape[-2], picture.shape[-1])
    channels = {"averaged": inputs * job.decoders + 1}.get(job.decoder, 1 if job.variant == "average" else inputs)
    if job.decoder in ("matched", "least-squares"):
        channels = inputs
    fixed = picture_bytes(picture) + channels * size[0] * size[1] * _FLOAT
    keep, weights = _weights(job, allowed - fixed)
    rest = allowed - fixed - weights
    moves = job.moves(inputs)
    live = _LIVE[job.decoder]
    tiles = plan_tiles(moves, inputs, size, rest, live) if rest > 0 else None
    if tiles is None:
        smallest = plan_tiles(moves, inputs, (16, 16), 2**62, live)
        assert smallest is not None
        needed = fixed + weights + smallest.bytes
        raise refuse("reconstruct", needed, allowed, "raise memory, or use fewer channels or a smaller picture")
    encoder = _encoder(job, keep).to(picture.device)
    fitted, decode = _decode(job, encoder, keep, picture, examples, rest)
    notes = () if keep else ("the filters do not fit into memory and are drawn again for every tile",)
    return Pipeline(job, encoder, decode, tiles, channels, _tone(job), fixed + weights + tiles.bytes, fitted, notes)


def picture_bytes(picture: Tensor) -> int:
    """Bytes of the picture and of what is made of it, the maps of the networks left out."""
    return picture.numel() * _FLOAT * _PICTURES


def _decode(
    job: Job, encoder: Encoder, keep: bool, picture: Tensor, examples: Sequence[Tensor] | None, allowed: int
) -> tuple[LeastSquares | None, Callable[[Tensor, Size], Tensor]]:
    if job.decoder == "matched":
        return None, Matched(encoder)
    if job.decoder == "least-squares":
        fitted = fit_least_squares(encoder, [picture] if examples is None else examples, allowed)
        return fitted, fitted
    if job.decoder == "averaged":
        return None, Averaged(lambda number: _decoder(job, keep, number), job.decoders).to(picture.device)
    return None, _decoder(job, keep, 0).to(picture.device)


def _encoder(job: Job, keep: bool) -> Encoder:
    return Encoder(job.plan, law=job.law, pooling=job.pooling, normalise=job.normalise, seed=job.seed, keep=keep)


def _decoder(job: Job, keep: bool, number: int) -> Decoder:
    return Decoder(
        job.plan, law=job.law, upsampling=job.upsampling, variant=job.variant, normalise=job.normalise,
        seed=job.seed, number=number, keep=keep,
    )  # fmt: skip


def _weights(job: Job, available: int) -> tuple[bool, int]:
    """Whether all filters may be held, and how many bytes they take: half of what there is, else a block at a time."""
    sources = encoder_sources(job.plan, job.law, 0, False)
    sources += decoder_sources(job.plan, job.law, 0, False, job.variant) * job.count
    held = sum(source.plan.weights for source in sources) * _FLOAT
    if held <= available // 2:
        return True, held
    blocks = (source.rows * _row(source.plan) for source in sources)
    return False, 2 * _FLOAT * max(blocks)


def _row(plan: ConvPlan) -> int:
    return plan.inputs * plan.kernel**2


def _tone(job: Job) -> Tone:
    """Decoders that give pixels are shown as they are; random ones have a scale of their own."""
    return "clamp" if job.decoder in ("matched", "least-squares") else "range"


def _check(job: Job) -> None:
    if job.decoder == "averaged" and (isinstance(job.decoders, bool) or not 1 <= job.decoders <= 1000):
        raise BadInput("decoders", f"got {job.decoders!r}, expected 1 to 1000", "pass for example 8")
    if job.decoder != "random" and job.variant == "average":
        problem = f"the decoder is {job.decoder!r}, and only random ones have an averaging variant"
        raise BadInput("variant", problem, "use variant='paper' or decoder='random'")
