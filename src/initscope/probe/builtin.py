"""Small models by name, with PyTorch's own initialization: something to check without writing a model first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from initscope.errors import BadInput

CLASSES = 10
_MOST = 10_000  # layers or channels; beyond that a number is far more often a slip than a wish


def builtin_model(name: str, shape: Sequence[int]) -> Callable[[], nn.Module]:
    """What builds the model `KIND[:DEPTH[:WIDTH]]` for samples of `shape`: (channels, height, width), or any for `mlp`.

    >>> model = builtin_model("plain-cnn:3:8", (3, 16, 16))()
    >>> [type(m).__name__ for m in model][:4], sum(p.numel() for p in model.parameters())
    (['Conv2d', 'ReLU', 'Conv2d', 'ReLU'], 1482)
    """
    kind, *numbers = name.split(":")
    if kind not in BUILTIN or len(numbers) > 2:
        raise BadInput("model", f"got '{name}'", f"write one of {', '.join(FORMS)}")
    depth, width = (_count(name, text) for text in [*numbers, *map(str, _DEFAULTS[kind][len(numbers) :])])
    if kind != "mlp" and len(shape) != 3:
        got = "x".join(map(str, shape))
        raise BadInput("model", f"{kind} takes images, got samples of shape {got}", "use mlp, or images as data")
    return lambda: BUILTIN[kind](tuple(shape), depth, width)


def _count(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST:
        raise BadInput(
            "model", f"'{text}' in '{name}' is no number of layers or units", "write for example plain-cnn:30:64"
        )
    return int(text)


def mlp(shape: Sequence[int], depth: int, width: int) -> nn.Sequential:
    """`depth` hidden layers of `width` units and ReLU, then a linear classifier."""
    layers: list[nn.Module] = [nn.Flatten()]
    for i in range(depth):
        layers += [nn.Linear(math.prod(shape) if i == 0 else width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def plain_cnn(shape: Sequence[int], depth: int, width: int, *, norm: bool = False) -> nn.Sequential:
    """`depth` convolutions 3x3 of `width` channels with ReLU, global average, linear classifier; no shortcuts."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers.append(nn.Conv2d(shape[0] if i == 0 else width, width, 3, padding=1))
        layers += [nn.BatchNorm2d(width), nn.ReLU()] if norm else [nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def normed_cnn(shape: Sequence[int], depth: int, width: int) -> nn.Sequential:
    """`plain_cnn` with batch normalisation behind every convolution."""
    return plain_cnn(shape, depth, width, norm=True)


def resnet(shape: Sequence[int], depth: int, width: int) -> nn.Sequential:
    """One convolution, `depth` residual blocks of two convolutions with batch normalisation, global average, classifier."""
    blocks = [_Block(width) for _ in range(depth)]
    start = nn.Conv2d(shape[0], width, 3, padding=1)
    return nn.Sequential(start, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


class _Block(nn.Module):
    """x + branch(x), the branch normalised before each ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        first, second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        norms = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.branch = nn.Sequential(norms[0], nn.ReLU(), first, norms[1], nn.ReLU(), second)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.branch(x)
        return out


BUILTIN: dict[str, Callable[[Sequence[int], int, int], nn.Module]] = {
    "plain-cnn": plain_cnn,
    "bn-cnn": normed_cnn,
    "resnet": resnet,
    "mlp": mlp,
}
_DEFAULTS = {"plain-cnn": (30, 32), "bn-cnn": (30, 32), "resnet": (6, 32), "mlp": (10, 128)}
FORMS = tuple(f"{kind}[:DEPTH[:WIDTH]]" for kind in BUILTIN)
