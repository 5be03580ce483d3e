"""`stylize`: the content of one picture in the style of others, by optimisation, with random filters or trained
ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from initscope.images.architectures import Widths
from initscope.images.files import write_picture
from initscope.images.laws import Law
from initscope.images.modules import Pooling
from initscope.images.networks import Encoder
from initscope.images.style import setup
from initscope.images.style.decoding import StyleDecoder, fit_decoder
from initscope.images.style.recipe import Scales, check_memory, choose_scales, fit_size
from initscope.images.style.search import Losses, Optimizer, search
from initscope.images.style.setup import INITS, EncoderKind, Picture
from initscope.images.style.spaces import FreeFeatures, Method, Pixels, Space, Tie, TiedFeatures, encode, fit_patches
from initscope.images.style.statistics import ContentTerm, Loss, StyleTerm
from initscope.images.tiling import clear_memory_errors
from initscope.networks.planning import memory_bytes

SIZE, STEPS, STYLE_WEIGHT = 256, 60, 1.0


@dataclass(frozen=True)
class Stylized:
    """A picture in the style of others.

    image: (3, h, w) in [0, 1]. content_loss: squared distance to the content's features, 1 is what a flat map has.
    style_loss: squared distance of the statistics to the styles', 1 is where the content stands, 0 the style itself;
    both as the network that was used sees the optimised features, mean over its layers, at the best point found, which
    the image shows. losses: (content, style) before every step, and at the end.
    """

    image: Tensor
    content_loss: float
    style_loss: float
    steps: int
    seconds: float
    losses: tuple[Losses, ...]
    interrupted: bool
    memory: int  # bytes of the estimate
    settings: dict[str, Any]
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings; the picture itself is left out."""
        names = ("content_loss", "style_loss", "steps", "seconds", "interrupted", "memory")
        found = {name: getattr(self, name) for name in names}
        return {**found, "shape": list(self.image.shape), **self.settings, "notes": list(self.notes)}

    def save(self, path: str | Path) -> Path:
        """Write the picture; the suffix says how (.png, .jpg, .webp, .bmp, .tif)."""
        return write_picture(self.image, path)


def stylize(
    content: Picture,
    styles: Picture | Sequence[Picture],
    *,
    method: Method = "features",
    encoder: EncoderKind | Encoder = "random",
    loss: Loss = "whitened",
    style_weight: float = STYLE_WEIGHT,
    content_weight: float = 1.0,
    blend: Sequence[float] | None = None,
    size: int | None = SIZE,
    init: Picture = "content",
    preserve_color: bool = False,
    steps: int = STEPS,
    optimizer: Optimizer = "lbfgs",
    rate: float | None = None,
    seed: int = 0,
    arch: str = "vgg16",
    depth: int = 1,
    channels: Widths | None = None,
    kernel: int | None = None,
    law: Law = "he",
    pooling: Pooling | None = None,
    tie: Tie = "patches",
    decoder: StyleDecoder = "least-squares",
    style_layers: Sequence[int] | None = None,
    content_layers: Sequence[int] | None = None,
    memory: int | str = "2 GiB",
    device: str | torch.device = "cpu",
    every: int = 0,
    watch: Callable[[int, Tensor], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    keep_on_interrupt: bool = False,
) -> Stylized:
    """Give `content` the style of one picture or of several, without trained weights (DC A.4).

    Pictures are files, or (c, h, w) in [0, 1]. method "features": the feature vectors of Conv[depth] are optimised
    over the stages after it, and decoded; "pixels" optimises the picture itself over all stages (Gatys et al. 2016).
    encoder "random", "pretrained" (ImageNet), or an `Encoder` with all its stages. `blend`: weights of several
    styles. `size`: longer side of the result, None keeps the content's. `init`: "content", "style", "noise" or a
    picture. `preserve_color` keeps the content's hues and takes only brightness from the result.

    loss "gram" and "moments" are DC's; "whitened" compares covariances in units of the style's own. tie "free" moves
    every feature by itself, as DC does; "patches" moves them as changes of a picture would. decoder "random" is DC's;
    "least-squares" is fitted on the pictures. The random stages have at most 128 channels unless `channels` says
    otherwise, and pool by l2; trained ones average.

    `watch(step, picture)` is called every `every` steps. With `keep_on_interrupt`, Ctrl-C returns what has been found
    so far.

    >>> stripes = torch.tensor([0.0, 0.0, 1.0, 1.0] * 8).expand(3, 32, 32)
    >>> found = stylize(torch.rand(3, 32, 32), stripes, channels=8, size=None, steps=5)
    >>> tuple(found.image.shape), found.style_loss < 1
    ((3, 32, 32), True)
    """
    started = time.perf_counter()
    setup.check_numbers(steps, every, style_weight=style_weight, content_weight=content_weight, rate=rate)
    setup.choose("method", method, Method)
    setup.choose("tie", tie, Tie)
    given, painted, weights = setup.read_pictures(content, styles, blend, device)
    shape = fit_size((given.shape[-2], given.shape[-1]), size)
    plan = setup.plan_layers(encoder, arch, channels, kernel)
    head = None if method == "pixels" else setup.head_of(plan, depth)
    first = 0 if head is None else depth
    scales = choose_scales(plan, shape, max(first, 1), style_layers, content_layers)
    free = head is not None and tie == "free"
    allowed = memory_bytes(memory)
    needed = check_memory(plan, shape, first, scales.deepest, free, optimizer, allowed)
    with clear_memory_errors("use a smaller size, or fewer channels"):
        target, *paintings = (setup.scaled(picture, max(shape)) for picture in (given, *painted))
        base = setup.first_picture(init, target, paintings[0], seed)
        net, drawn = setup.make_encoder(encoder, plan, law=law, pooling=pooling, seed=seed, device=device)
        with torch.no_grad():
            terms = _Terms(net, scales, loss, target, paintings, weights)
        notes: list[str] = []
        space: Space = Pixels(base)
        if head is not None:
            pictures = [target, *paintings]
            decode = fit_decoder(decoder, net, head, pictures, law=drawn, seed=seed, allowed=allowed)
            start = encode(net, head, base)
            if free:
                space = FreeFeatures(start, shape, first, decode)
            else:
                patches = fit_patches(net, head, pictures)
                notes.append(f"patches explain {patches.explained:.1%} of the variance of the features")
                space = TiedFeatures(start, shape, first, decode, patches)

        def shown() -> Tensor:
            found = space.picture().clamp(0, 1)
            return (setup.with_hues(found, target) if preserve_color else found)[0].detach().cpu().contiguous()

        def after(step: int) -> None:
            if progress is not None:
                progress(step, steps)
            if watch is not None and every and step % every == 0:
                watch(step, shown())

        found = search(
            space.variable, lambda: terms(space), (content_weight, style_weight),
            steps=steps, optimizer=optimizer, rate=rate, after=after, keep_on_interrupt=keep_on_interrupt,
        )  # fmt: skip
    settings = {
        "method": method, "encoder": encoder if isinstance(encoder, str) else "given", "loss": loss, "style_weight": style_weight,
        "content_weight": content_weight, "blend": weights, "size": list(shape), "preserve_color": preserve_color,
        "init": init if isinstance(init, str) and init in INITS else "picture", "optimizer": optimizer, "seed": seed,
        "arch": plan.arch, "depth": first or None, "channels": [stage.convs[-1].outputs for stage in plan.stages],
        "law": None if drawn is None else drawn.name, "pooling": net.pooling,
        "tie": tie if first else None, "decoder": decoder if first else None,
        "style_layers": list(scales.style), "content_layers": list(scales.content),
    }  # fmt: skip
    return Stylized(
        image=shown(),
        content_loss=found.best.content,
        style_loss=found.best.style,
        steps=found.steps,
        seconds=time.perf_counter() - started,
        losses=found.losses,
        interrupted=found.interrupted,
        memory=needed,
        settings=settings,
        notes=tuple(notes),
    )


class _Terms:
    """Content and style loss of the features that a space gives."""

    def __init__(
        self,
        net: Encoder,
        scales: Scales,
        loss: Loss,
        content: Tensor,
        styles: Sequence[Tensor],
        weights: Sequence[float],
    ) -> None:
        self.net, self.scales = net, scales
        maps = self._maps(content, 0)
        self.content = {stage: ContentTerm(maps[stage]) for stage in scales.content}
        self.style: dict[int, list[StyleTerm]] = {stage: [] for stage in scales.style}
        for picture, weight in zip(styles, weights, strict=True):
            wanted = self._maps(picture, 0)
            for stage in scales.style:
                self.style[stage].append(StyleTerm(loss, wanted[stage], maps[stage], weight))

    def __call__(self, space: Space) -> tuple[Tensor, Tensor]:
        maps = self._maps(space.features(), space.first)
        content = torch.stack([term(maps[stage]) for stage, term in self.content.items()]).mean()
        style = torch.stack(
            [torch.stack([term(maps[stage]) for term in terms]).sum() for stage, terms in self.style.items()]
        )
        return content, style.mean()

    def _maps(self, x: Tensor, first: int) -> dict[int, Tensor]:
        """The features by stage, counted from 1; `x` is the input of stage first + 1."""
        wanted = {*self.scales.style, *self.scales.content}
        found = {first: x} if first in wanted else {}
        for number in range(first, self.scales.deepest):
            x = self.net.stages[number](x)
            if number + 1 in wanted:
                found[number + 1] = x
        return found
