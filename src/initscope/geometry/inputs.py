"""Raw inputs as the start of a propagation: pairs of vectors (n, d), or of inputs (n, c, *positions) with up to three axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput
from initscope.geometry.state import Side, State

MOST_AXES = 3  # along which inputs have positions


@dataclass(frozen=True)
class Inputs:
    """The data itself. Layers without weights act on it directly; Dense and Conv turn it into a `State`."""

    x: Tensor  # (n, c, *positions) or (n, d)
    y: Tensor
    zipped: bool = True
    all_positions: bool = False
    joint: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    def apply(self, function: Callable[[Tensor], Tensor]) -> Inputs:
        """Both sets through a deterministic layer, as one batch (batch norm sees all of it)."""
        if self.joint:
            out = function(self.x)
            return replace(self, x=out, y=out)
        both = function(torch.cat([self.x, self.y]))
        return replace(self, x=both[: len(self.x)], y=both[len(self.x) :])

    def state(self, groups: int = 1) -> State:
        """Second moments with the channels as units; `groups` kinds of units where channels are split into groups.

        >>> inputs = Inputs(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 0.0]]))
        >>> inputs.state().x.norm.item(), inputs.state().distance.item()
        (12.5, 8.0)
        """
        x, y = (_kinds_first(t, groups) for t in (self.x, self.y))  # (K, n, c/K, *p)
        positions = tuple(x.shape[3:])
        all_positions = self.all_positions and bool(positions)
        sides = [
            Side(t.square().mean(2), t.mean(2), _gram_distance(t, t, True) if all_positions else None) for t in (x, y)
        ]
        if self.zipped:
            distance = (x - y).square().mean(2) if not all_positions else _gram_distance(x, y, zipped=True)
        elif all_positions:
            distance = _gram_distance(x, y, zipped=False)
        else:
            distance = _pair_distance(x, y)
        return State(
            x=sides[0],
            y=sides[0] if self.joint else sides[1],
            distance=distance,
            shares=torch.full((groups,), 1 / groups, dtype=x.dtype, device=x.device),
            channels=self.x.shape[1],
            positions=positions,
            zipped=self.zipped,
            all_positions=all_positions,
            law="data",
            joint=self.joint,
            independent_units=False,
            alike=False,
            draw=self._draw(x, y),
        )

    def _draw(self, x: Tensor, y: Tensor) -> Callable[[int, Generator], Tensor]:
        """A unit of the data is one of its channels, picked at random."""
        both = x if self.joint else torch.cat([x, y], dim=1)

        def draw(units: int, generator: Generator) -> Tensor:
            pick = torch.randint(both.shape[2], (units,), generator=generator).to(both.device)
            return both.index_select(2, pick).transpose(1, 2)

        return draw


def check_inputs(x: Tensor, y: Tensor | None, *, zipped: bool) -> None:
    """Shapes, dtype and finite values, or one clear error."""
    for name, t in (("x", x), ("y", y)):
        if t is not None:
            _check_one(name, t)
    if y is None:
        return
    same = x.shape == y.shape if zipped else x.shape[1:] == y.shape[1:]
    if not same:
        rule = "equal shapes, since pairs are zipped" if zipped else "inputs of equal shape"
        raise BadInput("x, y", f"got shapes {tuple(x.shape)} and {tuple(y.shape)}, expected {rule}", "match them")
    if x.device != y.device:
        raise BadInput("x, y", f"got devices {x.device} and {y.device}, expected one device", "move one with .to(...)")


def ordinary(t: Tensor) -> Tensor:
    """The tensor itself; its copy where it was made under `torch.inference_mode`: such tensors take no backward pass."""
    if not t.is_inference():
        return t
    with torch.inference_mode(False):
        return t.clone()


def _check_one(name: str, t: object) -> None:
    if not isinstance(t, Tensor):
        raise BadInput(name, f"got a {type(t).__name__}, expected a tensor", "pass torch.as_tensor(...)")
    if not 2 <= t.ndim <= 2 + MOST_AXES:
        raise BadInput(
            name,
            f"got shape {tuple(t.shape)}, expected (n, d), (n, c, l), (n, c, h, w) or (n, c, d, h, w)",
            "add or flatten dimensions",
        )
    if 0 in t.shape:
        raise BadInput(name, f"got the empty shape {tuple(t.shape)}", "pass at least one input")
    if t.is_complex():
        raise BadInput(name, "got complex numbers, expected real ones", "split them into two channels")
    if t.is_floating_point() and not bool(torch.isfinite(t).all()):
        bad = (~torch.isfinite(t)).flatten(1).any(1).nonzero().flatten().tolist()
        raise BadInput(name, f"inputs {_few(bad)} hold NaN or infinite values", "clean the data first")


def _few(indices: list[int]) -> str:
    shown = ", ".join(str(i) for i in indices[:8])
    return shown if len(indices) <= 8 else f"{shown}, ... ({len(indices)} in all)"


def _kinds_first(t: Tensor, groups: int) -> Tensor:
    return t.reshape(len(t), groups, t.shape[1] // groups, *t.shape[2:]).transpose(0, 1)


def _pair_distance(x: Tensor, y: Tensor) -> Tensor:
    """Mean over channels of (x_i - y_j)², channel by channel so that the differences are never stored at once."""
    total = (x[:, :, None, 0] - y[:, None, :, 0]).square()
    for c in range(1, x.shape[2]):
        total += (x[:, :, None, c] - y[:, None, :, c]).square()
    return total / x.shape[2]


def _gram_distance(x: Tensor, y: Tensor, zipped: bool) -> Tensor:
    """Squared distances between all positions of x and of y, (K, n, [m,] *p, *p), by a Gram product.

    The product loses digits where two positions nearly agree; equal positions, which matter most, are set from differences.
    """
    k, n, c, *positions = x.shape
    m = y.shape[1]
    a, b = x.flatten(3).transpose(2, 3), y.flatten(3)  # (K, n, P, c), (K, m, c, P)
    norm_a, norm_b = a.square().sum(3), b.square().sum(2)
    if zipped:
        gram = torch.matmul(a, b)
        distance = (norm_a[..., None] + norm_b[:, :, None, :] - 2 * gram).clamp_min(0) / c
        exact = (x - y).square().mean(2)
    else:
        gram = torch.matmul(a[:, :, None], b[:, None])
        distance = (norm_a[:, :, None, :, None] + norm_b[:, None, :, None, :] - 2 * gram).clamp_min(0) / c
        exact = _pair_distance(x, y)
    distance.diagonal(dim1=-2, dim2=-1).copy_(exact.flatten(-len(positions)))
    lead = (k, n) if zipped else (k, n, m)
    return distance.reshape(*lead, *positions, *positions)
