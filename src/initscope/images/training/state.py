"""Checkpoints: one safetensors file that holds all there is to know, replaced as a whole, so that a kill loses little."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.files import write_atomically
from initscope.files.tensors import read_tensors, sealed_tensors

CHECKPOINT = "checkpoint.safetensors"
_KEY = "initscope.train-decoder/2"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam remembers of each parameter


@dataclass
class Progressed:
    """How far a training has come: losses of its steps, (step, loss) on held-out images, seconds spent in steps."""

    losses: list[float] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def step(self) -> int:
        """Steps done."""
        return len(self.losses)


def fingerprint(tensors: Iterable[Tensor | None], facts: Mapping[str, Any]) -> str:
    """A text that is another one when the encoder, the images or the settings are others."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none")
            continue
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        rows = tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach()
        for start in range(0, len(rows), 64):
            digest.update(rows[start : start + 64].cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def save_checkpoint(
    folder: Path,
    decoder: nn.Module,
    optimizer: torch.optim.Optimizer,
    done: Progressed,
    key: str,
    facts: Mapping[str, Any],
) -> None:
    """Write the checkpoint beside the old one and put it in its place."""
    tensors = {f"decoder.{name}": value for name, value in decoder.state_dict().items()}
    for number, memory in optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{number}.{name}": memory[name] for name in _MOMENTS}
    tensors["losses"] = torch.tensor(done.losses, dtype=torch.float64)
    tensors["held_out"] = torch.tensor(done.held_out, dtype=torch.float64).reshape(-1, 2)
    about = {"fingerprint": key, "seconds": done.seconds, "facts": facts}
    content = sealed_tensors(tensors, _KEY, about)
    write_atomically(folder / CHECKPOINT, lambda file: file.write(content), "out")


def load_checkpoint(
    folder: Path, decoder: nn.Module, optimizer: torch.optim.Optimizer, key: str, facts: Mapping[str, Any]
) -> Progressed | None:
    """Put decoder and optimizer where the checkpoint was; None where there is none; BadInput for one of another run."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    tensors, about = read_tensors(path, _KEY, "checkpoint of a decoder", _REMEDY)
    if about["fingerprint"] != key:
        raise BadInput(str(path), f"belongs to another run: {_differences(about['facts'], facts)}", _REMEDY)
    weights = {name.partition(".")[2]: value for name, value in tensors.items() if name.startswith("decoder.")}
    decoder.load_state_dict(weights)
    memory = {
        number: {name: _like(parameter, tensors[f"adam.{number}.{name}"]) for name in _MOMENTS}
        for number, parameter in enumerate(decoder.parameters())
        if f"adam.{number}.step" in tensors
    }
    optimizer.load_state_dict({"state": memory, "param_groups": optimizer.state_dict()["param_groups"]})
    rows = [(int(step), float(loss)) for step, loss in tensors["held_out"].tolist()]
    return Progressed(tensors["losses"].tolist(), rows, float(about["seconds"]))


def _like(parameter: Tensor, value: Tensor) -> Tensor:
    """The value in the order of the parameter in memory, which Adam in one pass relies on."""
    return value if value.shape != parameter.shape else torch.empty_like(parameter).copy_(value)


_REMEDY = "choose another folder, or start anew with restart (--restart)"


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    now = json.loads(json.dumps(new))
    names = [name for name in sorted({*old, *now}) if old.get(name) != now.get(name)]
    if names == ["stages"]:
        return "its layers are others"
    names = [name for name in names if name != "stages"]
    if not names:
        return "its encoder or its images are others"
    return ", ".join(f"{name} was {old.get(name)!r} and is {now.get(name)!r}" for name in names[:3])
