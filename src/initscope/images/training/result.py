"""A trained decoder with its losses; the files of a run: decoder.safetensors, run.json, loss.svg, samples.png."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from initscope.figures import Line, Panel, Picture, Points, curves_and_points
from initscope.files import write_atomically
from initscope.files.tensors import read_tensors, sealed_tensors
from initscope.images.architectures import ConvPlan, Layout, PoolPlan, StagePlan
from initscope.images.modules import Filters
from initscope.images.networks import Decoder
from initscope.images.sheet import Cell, picture_grid
from initscope.images.training.recipe import Recipe

DECODER = "decoder.safetensors"
_KEY = "initscope.decoder/2"
_SMOOTH = 10  # steps of the moving mean in figures


@dataclass(frozen=True, eq=False)
class TrainedDecoder:
    """A decoder and how it came about. All losses are squared errors per pixel and channel, pixels in [0, 1].

    losses: of every step, before it, (steps,). held_out: (step, loss) on pictures it never saw. constant_loss: of the mean
    colour of the training images on the same pictures. seconds: spent in steps. cached: whether features were kept, and `why`.
    scale: what the features were divided by. started: the step this call began with.
    """

    decoder: Decoder
    recipe: Recipe
    losses: Tensor
    held_out: tuple[tuple[int, float], ...]
    constant_loss: float | None
    seconds: float
    cached: bool
    why: str
    scale: float
    started: int
    about: Mapping[str, Any]

    @property
    def images_per_second(self) -> float:
        return len(self.losses) * self.recipe.batch / self.seconds if self.seconds > 0 else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, with all losses."""
        layout = self.decoder.layout
        return {
            **self.about,
            "arch": layout.arch,
            "depth": layout.depth,
            "recipe": self.recipe.to_dict(),
            "losses": [float(f"{loss:.6g}") for loss in self.losses.tolist()],
            "held_out": [[step, float(f"{loss:.6g}")] for step, loss in self.held_out],
            "constant_loss": self.constant_loss,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.images_per_second, 3) if self.seconds > 0 else None,
            "features": {"cached": self.cached, "why": self.why, "divided_by": self.scale},
        }

    def curve(self) -> Picture:
        """The loss of every step and on held-out pictures."""
        layout = self.decoder.layout
        name = f"{self.about.get('encoder', 'given')} encoder"
        title = f"{layout.arch} CD{layout.depth}, {name}: loss of the decoder in training"
        return loss_curves({name: [self]}, title)

    def save(self, path: str | Path) -> Path:
        """Write the decoder for raw features; `load_decoder` reads it."""
        target = Path(path).expanduser()
        decoder = self.decoder
        tensors = {name: value.detach().cpu().contiguous() for name, value in decoder.state_dict().items()}
        # What the features were divided by goes into the first filters, which are the first to touch them but for upsampling.
        first = next(name for name, part in decoder.named_modules() if isinstance(part, Filters))
        tensors[f"{first}.weight"] = tensors[f"{first}.weight"] / self.scale
        about = {**describe_layout(decoder.layout), "upsampling": decoder.upsampling, "slope": decoder.slope}
        content = sealed_tensors(tensors, _KEY, about)
        write_atomically(target, lambda file: file.write(content), "decoder")
        return target


def load_decoder(path: str | Path) -> Decoder:
    """The decoder of decoder.safetensors, or of the folder that holds it."""
    place = Path(path).expanduser()
    file = place / DECODER if place.is_dir() else place
    remedy = "give a folder that train-decoder has written, or train it again"
    tensors, about = read_tensors(file, _KEY, "trained decoder", remedy)
    decoder = Decoder(_layout_of(about), slope=about["slope"], bias=True, upsampling=about["upsampling"])
    decoder.load_state_dict(tensors)
    return decoder.requires_grad_(False)


def describe_layout(plan: Layout) -> dict[str, Any]:
    """The layers of an encoder as plain data."""
    return {"arch": plan.arch, "depth": plan.depth, "stages": [asdict(stage) for stage in plan.stages]}


def _layout_of(about: Mapping[str, Any]) -> Layout:
    stages = tuple(
        StagePlan(
            None if stage["pool"] is None else PoolPlan(**stage["pool"]), tuple(ConvPlan(**c) for c in stage["convs"])
        )
        for stage in about["stages"]
    )
    return Layout(about["arch"], about["depth"], stages)


def loss_curves(runs: Mapping[str, Sequence[TrainedDecoder]], title: str) -> Picture:
    """Training losses as lines (moving means of 10 steps), held-out losses as points; several runs of a name share a colour."""
    marks: list[Line | Points] = []
    for hue, (name, group) in enumerate(runs.items()):
        for run in group:
            smooth = _smoothed(run.losses)
            marks.append(Line(f"{name}, training", range(1, len(smooth) + 1), smooth, hue=hue))
            if run.held_out:
                steps, losses = zip(*run.held_out, strict=True)
                marks.append(Points(f"{name}, held out", steps, losses, hue=hue))
    up = "squared error per pixel and channel"
    words = ", ".join(f"{name} ends at {float(group[0].losses[-_SMOOTH:].mean()):.4f}" for name, group in runs.items())
    panel = Panel(marks, across="step", up=up, scale_up="log", counts=True)
    return curves_and_points([panel], title, f"Loss against the step of training: {words}.", size=(7.0, 3.6))


def _smoothed(losses: Tensor) -> list[float]:
    """Means over the last steps, fewer at the beginning."""
    total = torch.cat([losses.new_zeros(1), losses.cumsum(0)])
    ends = torch.arange(1, len(losses) + 1)
    starts = (ends - _SMOOTH).clamp(min=0)
    found: list[float] = ((total[ends] - total[starts]) / (ends - starts)).tolist()
    return found


def write_run(run: TrainedDecoder, folder: Path, sample: tuple[Tensor, Tensor] | None) -> None:
    """decoder.safetensors, run.json, loss.svg, and samples.png where there are held-out pictures."""
    run.save(folder / DECODER)
    run.curve().save(folder / "loss.svg")
    if sample is not None:
        pictures, outputs = sample
        rows = [
            [Cell(picture, "original") for picture in pictures],
            [
                Cell(out.clamp(0, 1), f"{float((out - x).square().mean()):.4f}")
                for out, x in zip(outputs, pictures, strict=True)
            ],
        ]
        picture_grid(rows, "Held-out pictures, and what the decoder makes of their features (squared error)").save(
            folder / "samples.png"
        )
    content = json.dumps({"schema": "initscope.train-decoder/1", **run.to_dict()}, indent=1).encode()
    write_atomically(folder / "run.json", lambda file: file.write(content + b"\n"), "out")
