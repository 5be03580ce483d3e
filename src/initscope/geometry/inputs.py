"""Raw inputs as the start of a propagation: pairs of vectors (n, d), or of inputs (n, c, *positions) with up to three axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput
from initscope.geometry.state import Side, State

MOST_AXES = 3  # along which inputs have positions
_CHANNELS = 16  # from which on products of matrices are cheaper than differences
_FEW = 8  # near pairs are computed one by one where they are fewer than one in so many
_AT_ONCE = 1 << 20  # numbers of near pairs held at once
_ROUNDINGS = 4e12  # 1 - cosine in units of rounding from which on a difference from 1 is known to 1e-12


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
            Side(t.square().mean(2), t.mean(2), _excess(t, t, True, True) if all_positions else None) for t in (x, y)
        ]
        return State(
            x=sides[0],
            y=sides[0] if self.joint else sides[1],
            excess=_excess(x, y, self.zipped, all_positions),
            product=_product(x, y, self.zipped, all_positions),
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
    _check_one("x", x)
    if y is None:
        return
    _check_one("y", y)
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
    _check_kind(name, t)
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


def _check_kind(name: str, t: Tensor) -> None:
    """A plain array of numbers that torch computes with."""
    if t.is_nested:
        raise BadInput(name, "got a nested tensor, expected inputs of one shape", "pad it, or pass one shape at a time")
    if t.layout != torch.strided:
        raise BadInput(
            name, f"got the layout {str(t.layout).removeprefix('torch.')}, expected a dense tensor", "pass x.to_dense()"
        )
    if t.is_quantized:
        raise BadInput(name, f"got quantized numbers, {t.dtype}, expected plain ones", "pass x.dequantize()")
    if t.is_meta:
        raise BadInput(name, "is on the meta device and has no values", "pass a tensor with values")
    if t.is_floating_point() and t.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise BadInput(name, f"got {t.dtype}, expected float16 or wider", "convert it with .float()")


def _few(indices: list[int]) -> str:
    shown = ", ".join(str(i) for i in indices[:8])
    return shown if len(indices) <= 8 else f"{shown}, ... ({len(indices)} in all)"


def _kinds_first(t: Tensor, groups: int) -> Tensor:
    return t.reshape(len(t), groups, t.shape[1] // groups, *t.shape[2:]).transpose(0, 1)


def _product(x: Tensor, y: Tensor, zipped: bool, all_positions: bool) -> Tensor:
    """Mean over channels of x y, (K, n, [m,] *p[, *p])."""
    if zipped and not all_positions:
        return (x * y).mean(2)
    channels, positions = x.shape[2], x.shape[3:]
    if not positions:
        return x @ y.transpose(1, 2) / channels
    a, b = x.flatten(3), y.flatten(3)  # (K, n, c, P)
    if zipped:
        return _with_positions(torch.einsum("kncp,kncq->knpq", a, b) / channels, positions, True)
    if all_positions:
        return _with_positions(torch.einsum("kncp,kmcq->knmpq", a, b) / channels, positions, True)
    return _with_positions(torch.einsum("kncp,kmcp->knmp", a, b) / channels, positions, False)


def _excess(x: Tensor, y: Tensor, zipped: bool, all_positions: bool) -> Tensor:
    """√(AB) |x/√A - y/√B|², A and B the mean squares over channels, with its digits however small it is.

    Differences cost channels times pairs; of vectors, most pairs are far apart and known from a product of matrices.
    """
    if zipped or x.ndim > 3 or x.shape[2] < _CHANNELS or x.device.type == "mps":
        return _by_differences(x, y, zipped, all_positions)
    excess, near = _by_products(x, y)
    where = near.nonzero()
    if _FEW * len(where) > near.numel():
        return _by_differences(x, y, zipped, all_positions)
    for part in torch.split(where, max(1, _AT_ONCE // x.shape[2])):
        k, i, j = part.unbind(1)
        # One pair after the other as zipped inputs, (1, pairs, c).
        excess[k, i, j] = _by_differences(x[k, i][None], y[k, j][None], True, False)[0]
    return excess


def _by_products(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """2√(AB)(1 - cosine) of all pairs of vectors (K, n, c), and where that is not known to 1e-12 of itself."""
    (unit_x, norm_x), (unit_y, norm_y) = _units(x.double()), _units(y.double())
    channels = x.shape[2]
    apart = 1 - unit_x @ unit_y.transpose(1, 2) / channels
    least = _ROUNDINGS * torch.finfo(torch.float64).eps * math.sqrt(channels)
    both = norm_x[:, :, None] * norm_y[:, None]
    return (2 * both * apart).to(x.dtype), ~((apart > least) & (both > 0))


def _by_differences(x: Tensor, y: Tensor, zipped: bool, all_positions: bool) -> Tensor:
    """√(AB) |x/√A - y/√B|², A and B the mean squares over channels, with its digits however small it is.

    Unit vectors know pairs of unequal norm. Where the norms are closer than the directions, it is `D - (√A - √B)²` instead, from
    the differences x - y alone: √A - √B = E (x - y)(x + y) / (√A + √B). Channel by channel, so that nothing larger is stored.
    """
    (unit_x, norm_x), (unit_y, norm_y) = _units(x), _units(y)
    positions, channels = x.shape[3:], x.shape[2]
    if zipped and not positions:  # vectors pair by pair: nothing larger than they are
        one, two, three = ((unit_x - unit_y).square(), (x - y).square(), (x - y) * (x + y))
        return _smaller(one.mean(2) * norm_x * norm_y, two.mean(2), three.mean(2), norm_x + norm_y)

    def left(t: Tensor) -> Tensor:
        t = t.flatten(2) if positions else t[..., None]
        t = t if zipped else t[:, :, None]
        return t[..., None] if all_positions else t

    def right(t: Tensor) -> Tensor:
        t = t.flatten(2) if positions else t[..., None]
        t = t if zipped else t[:, None]
        return t[..., None, :] if all_positions else t

    turned = _summed(channels, lambda c: (left(unit_x[:, :, c]) - right(unit_y[:, :, c])).square_())
    turned *= left(norm_x) / channels
    turned *= right(norm_y)
    distance = _summed(channels, lambda c: (left(x[:, :, c]) - right(y[:, :, c])).square_()) / channels
    sides = _summed(
        channels, lambda c: (left(x[:, :, c]) - right(y[:, :, c])).mul_(left(x[:, :, c]) + right(y[:, :, c]))
    )
    excess = _smaller(turned, distance, sides / channels, left(norm_x) + right(norm_y))
    return _with_positions(excess, positions, all_positions) if positions else excess[..., 0]


def _smaller(turned: Tensor, distance: Tensor, sides: Tensor, total: Tensor) -> Tensor:
    """The excess by unit vectors, or by D - (√A - √B)² where the norms are closer than the directions."""
    gap = (sides / torch.where(total > 0, total, 1)).square()
    return torch.where(gap <= turned, (distance - gap).clamp_min(0), turned)


def _summed(count: int, term: Callable[[int], Tensor]) -> Tensor:
    total = term(0)
    for i in range(1, count):
        total += term(i)
    return total


def _units(t: Tensor) -> tuple[Tensor, Tensor]:
    """t (K, n, c, *p) over the root of its mean square over channels, and that root."""
    norm = t.square().mean(2).sqrt()
    return t / torch.where(norm > 0, norm, 1)[:, :, None], norm


def _with_positions(t: Tensor, positions: tuple[int, ...], pairs: bool) -> Tensor:
    lead = t.shape[: t.ndim - 1 - pairs]
    return t.reshape(*lead, *positions, *(positions if pairs else ()))
