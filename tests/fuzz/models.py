"""Random modules through `check`: a report or a refusal, and the model, the batch and the generators as before."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import initscope as iscope
from fuzz.harness import Case, Target

_ACTIVATIONS = (
    nn.ReLU,
    nn.Tanh,
    nn.GELU,
    nn.Sigmoid,
    nn.ELU,
    nn.SiLU,
    nn.Hardtanh,
    nn.Softplus,
    nn.LeakyReLU,
    nn.PReLU,
)
_LAWS = (
    nn.init.kaiming_normal_,
    nn.init.xavier_uniform_,
    nn.init.zeros_,
    nn.init.ones_,
    nn.init.normal_,
    nn.init.orthogonal_,
)
EVIL = "\x1b[31m\n<b>"  # a name as no terminal and no page should get it


class _Residual(nn.Module):
    def __init__(self, body: nn.Module, scale: float) -> None:
        super().__init__()
        self.body, self.scale = body, scale

    def forward(self, x: Tensor) -> Tensor:
        out = self.body(x)
        return x + self.scale * out if out.shape == x.shape else out


class _Odd(nn.Module):
    """Does something unusual to what passes through it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        self.seen += 1
        if self.kind == "random":
            return x + 0.1 * torch.randn_like(x)
        if self.kind == "in place":
            return x.mul_(0.5)
        if self.kind == "branch":
            return x if float(x.detach().mean()) > 0 else -x
        if self.kind == "nan":
            return x / 0.0 * 0.0
        if self.kind == "huge":
            return x * 1e30
        if self.kind == "constant":
            return torch.zeros_like(x)
        if self.kind == "detached":
            return x.detach()
        if self.kind == "raises":
            raise RuntimeError("a layer of yours\nraised")
        if self.kind == "numpy":
            return torch.from_numpy(x.detach().numpy().copy())
        return x.sort(-1).values


_ODD = ("random", "in place", "branch", "nan", "huge", "constant", "detached", "raises", "numpy", "sorted")


class _Ends(nn.Module):
    """Returns what the body makes in another form."""

    def __init__(self, body: nn.Module, form: str) -> None:
        super().__init__()
        self.body, self.form = body, form

    def forward(self, x: Tensor) -> Any:
        out = self.body(x)
        forms = {"dict": {"logits": out, "size": 3}, "tuple": (out, None), "list": [out, out], "mean": out.mean(0)}
        return forms.get(self.form, out)


def _layer(rng: random.Random, width: int, images: bool) -> nn.Module:
    """A layer that keeps the width."""
    kind = rng.randrange(10)
    if kind <= 2:
        return nn.Conv2d(width, width, rng.choice((1, 3)), padding="same") if images else nn.Linear(width, width)
    if kind <= 4:
        return rng.choice(_ACTIVATIONS)()
    if kind == 5:
        return rng.choice((nn.BatchNorm2d, nn.InstanceNorm2d))(width) if images else nn.BatchNorm1d(width)
    if kind == 6:
        return nn.GroupNorm(1, width) if images else nn.LayerNorm(width)
    if kind == 7:
        body = nn.Sequential(*(_layer(rng, width, images) for _ in range(rng.randrange(1, 3))))
        return _Residual(body, rng.choice((1.0, 0.1, 0.0)))
    if kind == 8:
        return rng.choice((nn.Dropout(0.5), nn.Identity(), nn.Softmax(1)))
    return _Odd(rng.choice(_ODD)) if rng.random() < 0.5 else nn.Identity()


def _model(rng: random.Random) -> tuple[nn.Module, Any]:
    """A module and a batch, most often one that fits it."""
    images = rng.random() < 0.4
    width, inputs, samples = rng.choice((2, 4, 8)), rng.choice((1, 3, 8)), rng.choice((1, 2, 3, 5))
    first = nn.Conv2d(inputs, width, 3, padding=1) if images else nn.Linear(inputs, width)
    parts = [first, *(_layer(rng, width, images) for _ in range(rng.choice((0, 1, 3, 6, 20))))]
    if images:
        parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    parts.append(nn.Linear(width, rng.choice((1, 3))))
    if rng.random() < 0.1:
        parts.insert(1, parts[1])  # shared
    body = nn.Sequential()
    for number, part in enumerate(parts):
        body.add_module(f"{number}{EVIL if rng.random() < 0.1 else ''}", part)
    for p in body.parameters():
        if p.dim() > 1 and rng.random() < 0.3:
            rng.choice(_LAWS)(p)
        elif rng.random() < 0.05:
            p.data.mul_(rng.choice((1e-30, 1e20, -1.0)))
        p.requires_grad_(rng.random() < 0.95)
    model = _Ends(body, rng.choice(("", "", "", "dict", "tuple", "list", "mean"))).train(rng.random() < 0.8)
    return model, _batch(rng, (samples, inputs, *((5, 4) if images else ())))


def _batch(rng: random.Random, shape: tuple[int, ...]) -> Any:
    batch = torch.randn(shape) * rng.choice((1.0, 1.0, 0.0, 1e-20, 1e15))
    odd: dict[int, Any] = {
        0: batch[:, :0],
        1: batch.double(),
        2: batch[:1].expand(shape),  # all samples alike
        3: {"x": batch},
        4: (batch, torch.zeros(len(batch), dtype=torch.long)),
    }
    return odd.get(rng.randrange(20), batch)


def _state(model: nn.Module) -> dict[str, Any]:
    return {
        "tensors": {name: value.clone() for name, value in model.state_dict().items()},
        "identities": [id(p) for p in model.parameters()],
        "trained": [p.requires_grad for p in model.parameters()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "modes": [part.training for part in model.modules()],
        "hooks": [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in model.modules()],
        "random": (torch.get_rng_state(), random.getstate()),
    }


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return (
            isinstance(other, Tensor)
            and one.shape == other.shape
            and bool(torch.eq(one, other).logical_or(one != one).all())
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _models(folder: Path) -> Case:
    def case(rng: random.Random) -> str:
        torch.manual_seed(rng.randrange(2**31))
        model, batch = _model(rng)
        given = copy.deepcopy(batch)
        before = _state(model)
        try:
            report = iscope.check(model, batch, seeds=rng.choice((1, 1, 2)), seed=rng.randrange(5))
            views = (str(report), report._repr_html_() if rng.random() < 0.1 else "")  # figures take seconds
            assert "\x1b" not in "".join(views), "a control character in a view"
            report.to_dict()
        finally:
            after = _state(model)
            assert _same(before, after), f"changed: {[name for name in before if not _same(before[name], after[name])]}"
            assert _same(given, batch), "the batch was changed"
        return "stopped, said why" if report.failure is not None else report.verdict

    return case


TARGETS = (
    Target(
        "models",
        "random modules through check",
        "a report, or a refusal; model, batch and generators as before",
        _models,
        share=4,
    ),
)
