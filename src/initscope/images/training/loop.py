"""`train_decoder`: Adam on the squared error of what a decoder makes of an encoder's features (DC 3.2)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.files import locked, remove_parts
from initscope.images.architectures import Size
from initscope.images.modules import LEAK, Upsampling
from initscope.images.networks import Decoder, Encoder
from initscope.images.tiling import clear_memory_errors, decoder_moves, refuse
from initscope.images.training.batches import (
    Order,
    caching,
    crop_windows,
    encode_all,
    encoding_bytes,
    feature_bytes,
    middle,
    parts,
)
from initscope.images.training.recipe import Recipe
from initscope.images.training.result import TrainedDecoder, describe_layout, write_run
from initscope.images.training.state import CHECKPOINT, Progressed, fingerprint, load_checkpoint, save_checkpoint
from initscope.networks.planning import memory_bytes

MEMORY = "2 GiB"
_SMALLER = "use a smaller batch, smaller images or crops, or fewer channels; less memory keeps fewer features"
Progress = Callable[[int, int], None]


def train_decoder(
    encoder: Encoder,
    images: Tensor,
    held_out: Tensor | None = None,
    recipe: Recipe | None = None,
    *,
    out: str | Path | None = None,
    restart: bool = False,
    memory: int | str = MEMORY,
    upsampling: Upsampling = "zeros",
    about: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> TrainedDecoder:
    """Train the decoder that mirrors `encoder` (DC A.1.1: leaky ReLU 0.2, He's initialisation); the encoder stays as it is.

    `images`, `held_out`: (n, c, h, w) in [0, 1], on the encoder's device. `out`: a folder, made if needed, that gets
    checkpoints, run.json, loss.svg and decoder.safetensors; a call with the same arguments goes on where a killed one
    stopped, to the same bits with as many threads, and Ctrl-C saves before it stops. `restart` drops what the folder holds.
    Features are worked out once and kept where images come again, and where they fit into `memory`. `about` is kept in
    run.json. `progress(done, total)` counts steps.

    >>> pixels = torch.rand(16, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    >>> recipe = Recipe(steps=30, batch=8, rate=1e-2)
    >>> found = train_decoder(Encoder("vgg16", "1_1", channels=16), pixels[:12], pixels[12:], recipe)
    >>> bool(found.losses[-1] < 0.5 * found.losses[0]), found.held_out[-1][0]
    (True, 30)
    """
    recipe = recipe or Recipe()
    _check_images("images", images, encoder, recipe)
    if held_out is not None:
        _check_images("held_out", held_out, encoder, recipe)
    with _claimed(out, restart) as folder:
        side = None if recipe.crop is None else (recipe.crop, recipe.crop)
        size = side or (images.shape[-2], images.shape[-1])
        left = memory_bytes(memory) - _check_memory(encoder, recipe, size, memory_bytes(memory))
        with clear_memory_errors(_SMALLER):
            job = _prepare(encoder, images, held_out, recipe, size, left, upsampling)
        facts = {**recipe.to_dict(), **describe_layout(encoder.layout), "upsampling": upsampling}
        key = fingerprint([*encoder.state_dict().values(), images, held_out], facts)
        done = Progressed()
        if folder is not None:
            done = load_checkpoint(folder, job.decoder, job.optimizer, key, facts) or done
        start = done.step

        def keep() -> None:
            if folder is not None:
                save_checkpoint(folder, job.decoder, job.optimizer, done, key, facts)

        def result() -> TrainedDecoder:
            constant = None if held_out is None else _constant_loss(images, job.shown)
            return TrainedDecoder(
                job.decoder, recipe, torch.tensor(done.losses, dtype=torch.float64), tuple(done.held_out), constant,
                done.seconds, job.cached, job.why, job.scale, start, dict(about or {}),
            )  # fmt: skip

        with clear_memory_errors(_SMALLER):
            _steps(job, done, keep, progress)
        if folder is not None:
            if done.step > start:
                keep()
            write_run(result(), folder, job.sample())
        return result()


@dataclass
class _Job:
    """What a training works with; `features` where they are kept, `shown` are the held-out pictures."""

    encoder: Encoder
    decoder: Decoder
    optimizer: torch.optim.Optimizer
    recipe: Recipe
    order: Order
    size: Size
    images: Tensor
    shown: Tensor | None
    features: Tensor | None
    shown_features: Tensor | None
    scale: float
    cached: bool
    why: str
    format: torch.memory_format

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Features and the pictures they are of."""
        rows = self.order.rows(step).to(self.images.device)
        if self.features is not None:
            return self.features[rows].contiguous(memory_format=self.format), self.images[rows]
        if self.recipe.crop is None:
            pictures = self.images[rows]
        else:
            pictures = crop_windows(self.images, rows, self.recipe.crop, self.recipe.seed, step)
        return self.encode(pictures), pictures

    @torch.no_grad()
    def encode(self, pictures: Tensor) -> Tensor:
        features: Tensor = self.encoder(pictures)
        features = features if self.scale == 1 else features.div_(self.scale)
        return features.contiguous(memory_format=self.format)

    def step(self, step: int) -> float:
        """One step of Adam; the loss per pixel and channel before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate_at(step)
        features, pictures = self.batch(step)
        loss = (self.decoder(features, self.size) - pictures).square().sum() / len(pictures)  # DC eq. (1)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        value = float(loss.detach()) / pictures[0].numel()
        if not value < float("inf"):
            remedy = "lower the rate, or use scale_features (--scale-features)"
            raise BadInput("train-decoder", f"the loss is {value} in step {step}", remedy)
        return value

    @torch.no_grad()
    def evaluate(self) -> float:
        """The loss per pixel and channel on the held-out pictures."""
        assert self.shown is not None
        total = 0.0
        for part in parts(len(self.shown), self.recipe.batch):
            total += float((self.decode(part) - self.shown[part]).square().sum(dtype=torch.float64))
        return total / self.shown.numel()

    @torch.no_grad()
    def decode(self, part: slice) -> Tensor:
        assert self.shown is not None
        known = self.shown_features
        features = self.encode(self.shown[part]) if known is None else known[part]
        out: Tensor = self.decoder(features.contiguous(memory_format=self.format), self.size)
        return out

    def sample(self, count: int = 6) -> tuple[Tensor, Tensor] | None:
        """Some held-out pictures and what the decoder makes of their features."""
        if self.shown is None:
            return None
        return self.shown[:count].cpu(), self.decode(slice(0, count)).cpu()


def _prepare(
    encoder: Encoder, images: Tensor, held_out: Tensor | None, recipe: Recipe, size: Size, left: int, kind: Upsampling
) -> _Job:
    """The decoder as it begins, and the features that are worth keeping."""
    decoder = Decoder(encoder.layout, slope=LEAK, bias=True, upsampling=kind, seed=recipe.seed).to(images.device)
    # Large kernels are twice as fast when the channels of a pixel lie side by side; small ones are not.
    wide = any(conv.kernel > 3 for conv in encoder.layout.convs)
    order = torch.channels_last if wide else torch.contiguous_format
    decoder = decoder.to(memory_format=order)  # type: ignore[call-overload]
    cached, why = caching(recipe, encoder, len(images), size, left)
    features = encode_all(encoder, images, order) if cached else None
    shown = held_out if held_out is None or recipe.crop is None else middle(held_out, recipe.crop)
    left -= feature_bytes(encoder, len(images), size) if cached else 0
    keep_shown = shown is not None and feature_bytes(encoder, len(shown), size) <= left
    shown_features = encode_all(encoder, shown, order) if shown is not None and keep_shown else None
    scale = _scale(encoder, images, features, recipe)
    for kept in (features, shown_features):
        if kept is not None:
            kept /= scale
    betas = (recipe.betas[0], recipe.betas[1])
    adam = torch.optim.Adam(decoder.parameters(), recipe.rate, betas, weight_decay=recipe.decay, fused=True)
    line = Order(len(images), recipe.batch, recipe.seed)
    return _Job(
        encoder, decoder, adam, recipe, line, size, images, shown, features, shown_features, scale, cached, why, order
    )


def _scale(encoder: Encoder, images: Tensor, features: Tensor | None, recipe: Recipe) -> float:
    """The root mean square of the features, or 1."""
    if not recipe.scale_features:
        return 1.0
    if features is None:
        some = images[:64] if recipe.crop is None else middle(images[:64], recipe.crop)
        features = encode_all(encoder, some, torch.contiguous_format)
    found = float(features.square().mean(dtype=torch.float64).sqrt())
    return found if found > 0 else 1.0


def _steps(job: _Job, done: Progressed, keep: Callable[[], None], progress: Progress | None) -> None:
    recipe = job.recipe

    def evaluate() -> None:
        if job.shown is not None and (not done.held_out or done.held_out[-1][0] < done.step):
            done.held_out.append((done.step, job.evaluate()))

    with _asked_to_stop() as stop:
        while done.step < recipe.steps:
            if progress is not None:
                progress(done.step, recipe.steps)
            if done.step % recipe.evaluate_every == 0:
                evaluate()
            begin = time.perf_counter()
            done.losses.append(job.step(done.step))
            done.seconds += time.perf_counter() - begin
            if stop():
                keep()
                raise KeyboardInterrupt
            if done.step % recipe.save_every == 0 and done.step < recipe.steps:
                keep()
        evaluate()
    if progress is not None:
        progress(recipe.steps, recipe.steps)


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Turns Ctrl-C into a question that is asked between steps, where the state is whole; a second one stops at once."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _constant_loss(images: Tensor, shown: Tensor | None) -> float:
    """The loss of one colour for everything: the mean of the training images."""
    assert shown is not None
    colour = images.mean((0, 2, 3), keepdim=True, dtype=torch.float64)
    return float((shown.double() - colour).square().mean())


@contextmanager
def _claimed(out: str | Path | None, restart: bool) -> Iterator[Path | None]:
    """The folder of a run, for this run alone; None where nothing is kept."""
    if out is None:
        yield None
        return
    folder = Path(out).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput("out", f"cannot write in {folder} ({error.strerror})", "choose another folder") from error
    with locked(folder / ".lock", "out", f"training in {folder}"):
        remove_parts(folder)
        if restart:
            (folder / CHECKPOINT).unlink(missing_ok=True)
        yield folder


def _check_images(place: str, images: Tensor, encoder: Encoder, recipe: Recipe) -> None:
    wanted = encoder.layout.inputs
    if images.dim() != 4 or images.shape[1] != wanted or images.numel() == 0:
        problem = f"has shape {tuple(images.shape)}, expected (n, {wanted}, h, w)"
        raise BadInput(place, problem, f"pass images of {wanted} channels, one at least")
    if images.dtype != torch.float32:
        raise BadInput(place, f"holds {images.dtype}, expected float32", "convert it with .float()")
    low, high = (float(value) for value in images.aminmax())
    if not (low >= 0 and high <= 1):
        raise BadInput(place, f"pixels run from {low:g} to {high:g}, expected 0 to 1", "scale the pixels")
    if recipe.crop is not None and recipe.crop > min(images.shape[-2:]):
        problem = f"is {recipe.crop}, images are {images.shape[-2]}x{images.shape[-1]}"
        raise BadInput("crop", problem, "pass a smaller one")


def _check_memory(encoder: Encoder, recipe: Recipe, size: Size, allowed: int) -> int:
    """Bytes that a step takes; BadInput where they are too many."""
    positions, maps = float(encoder.layout.sizes(size)[-1][0] * encoder.layout.sizes(size)[-1][1]), 0.0
    for move in decoder_moves(encoder.layout):
        positions = move.scale(positions)
        maps += move.channels * positions
    weights = sum(conv.weights for conv in encoder.layout.convs)
    # Of each map: itself and its gradient. Of each weight: itself, its gradient, Adam's two moments, and a checkpoint.
    needed = int(4 * (2 * maps * recipe.batch + 6 * weights)) + encoding_bytes(encoder, size)
    if needed > allowed:
        raise refuse(
            "train-decoder", needed, allowed, "raise memory=, or use a smaller batch=, smaller images or crops"
        )
    return needed
