"""Batch normalisation over the whole batch of inputs (THEORY 7).

A channel's values over batch and positions are z ~ N(0, G). Batch norm gives √M z̃ / √(|z̃|² + Mε) with z̃ the centred
values, of covariance G̃ and M of them. With 1/(σ²+ε) = ∫ exp(-s(σ²+ε)) ds, second moments of the output are

    ∫ exp(-sε) det(I + 2sG̃/M)^(-1/2) (G̃^(-1) + 2sI/M)^(-1) ds,

one integral over tilted Gaussians; for an activation with f(cz) = c f(z) after it, the same integral over f's dual. Where G̃ has
many comparable eigenvalues, σ² is nearly constant, and centring and dividing by its mean is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn

from initscope.errors import BadInput
from initscope.geometry import Pairs, Side, State, Tilt, covariance, draw_units, excess_of, push
from initscope.layers.layer import Shape, SingleLayer, Trace, require_number

EXACT_SIZE = 768  # values per channel up to which the integral is computed; its cost grows with the cube
_STEP = 0.35  # of the trapezoid rule in log s; halving it changes results by less than 1e-12
_NEGLIGIBLE = 1e-13


@dataclass(frozen=True, repr=False)
class BatchNorm(SingleLayer):
    """Each channel centred and scaled over batch and positions, as in training mode."""

    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        require_number("bn", epsilon=self.epsilon)

    @property
    def word(self) -> str:
        return "bn"

    @property
    def needs_all_positions(self) -> bool:
        return True

    @property
    def needs_joint_batch(self) -> bool:
        return True

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def _exact(self, state: State, trace: Trace) -> State:
        _require_several(state.x.norm[0].numel())
        if state.law != "gaussian":
            trace.simulated = True
            return push(state, self._normalise, state.channels, trace.units, trace.generator)
        centred = _centre(state)
        size = state.x.norm[0].numel()
        if size <= EXACT_SIZE:
            return self._integrate(state, centred)
        variance = centred.x.norm.flatten(1).mean(1)
        spread = _divisor_spread(centred, variance)
        trace.note(f"bn: divisor taken as constant; over channels it varies by {100 * spread:.1f} %")
        trace.answer("approximate", spread**2)
        divisor = variance + self.epsilon

        def scale(t: Tensor) -> Tensor:
            return t / divisor.reshape(-1, *(1,) * (t.ndim - 1))

        return centred.map(lambda s: scale(s.norm), lambda block, *_: Pairs(scale(block.excess), scale(block.product)))

    def _integrate(self, state: State, centred: State) -> State:
        """All tilts of every kind of units, and the moments without an activation."""
        matrix = covariance(centred).double()[:, 0]  # (K, M, M)
        values, vectors = torch.linalg.eigh(matrix)
        values = values.clamp_min(0)
        size = matrix.shape[-1]
        nodes = _nodes(values, size, self.epsilon)

        def tilt(tilted: Tensor) -> Callable[[], State]:
            return lambda: _from_matrix(centred, (vectors * tilted[:, None, :]) @ vectors.transpose(1, 2))

        # Without an activation the integral acts on eigenvalues alone.
        total = sum((w[:, None] * tilted for tilted, w, _ in nodes), torch.zeros_like(values))
        plain = _from_matrix(centred, (vectors * total[:, None, :]) @ vectors.transpose(1, 2))

        def draw(units: int, generator: Generator) -> Tensor:
            return self._normalise(draw_units(state, units, generator))

        return replace(plain, law="normalised", draw=draw, tilts=tuple(Tilt(w, m, tilt(t)) for t, w, m in nodes))

    def _normalise(self, samples: Tensor) -> Tensor:
        axes = tuple(range(2, samples.ndim))
        centred = samples - samples.mean(axes, keepdim=True)
        return centred / (centred.square().mean(axes, keepdim=True) + self.epsilon).sqrt()

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        return BatchStandardise(self.epsilon)


class BatchStandardise(nn.Module):
    """The finite face of `BatchNorm`: batch statistics, no learned scale."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        axes = (0, *range(2, x.ndim))
        _require_several(x.numel() // x.shape[1])
        centred = x - x.mean(axes, keepdim=True)
        return centred / (centred.square().mean(axes, keepdim=True) + self.epsilon).sqrt()


def _require_several(values: int) -> None:
    if values < 2:
        raise BadInput("bn", "one value per channel has no variance", "pass more inputs or larger images")


def _centre(state: State) -> State:
    """Subtract the mean over batch and positions: distances stay, A~_i = mean_j D_ij - ½ mean_jk D_jk."""
    size = len(state.positions)
    d = state.distance  # (K, N, N, *p, *p)
    other = (2, *range(3 + size, 3 + 2 * size))
    row = d.mean(other)
    overall = row.flatten(1).mean(1).reshape(-1, *(1,) * (row.ndim - 1))
    norm = (row - overall / 2).clamp_min(0)
    within = state.x.within
    if within is not None:
        index = torch.arange(d.shape[1], device=d.device)
        own = d[:, index, index]
        within = excess_of(norm[(..., *(None,) * size)], norm[(slice(None),) * 2 + (None,) * size], own)
    side = Side(norm, torch.zeros_like(norm), within)
    centred = replace(state, x=side, y=side, activation=None, before=None, tilts=(), draw=None)
    block = centred.cross()
    return replace(
        centred, excess=excess_of(block.norm_a, block.norm_b, d), product=(block.norm_a + block.norm_b - d) / 2
    )


def _divisor_spread(centred: State, variance: Tensor) -> float:
    """Standard deviation of σ² over channels, relative to its mean: √(2 tr G̃²) / tr G̃."""
    product = centred.product
    size = centred.x.norm[0].numel()
    return float((2 * product.square().flatten(1).sum(1)).sqrt().div(size * variance).max())


def _nodes(values: Tensor, size: int, epsilon: float) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Trapezoid nodes in log s: tilted eigenvalues λ/(1 + 2sλ/M) (K, M), and (K,) weights for second and first moments."""
    scale = float(values.sum(-1).max()) / size or 1.0
    nodes = []
    for i in range(-130, 400):
        s = math.exp(i * _STEP) / scale
        shrink = 1 + 2 * s * values / size
        damping = torch.exp(-0.5 * shrink.log().sum(-1) - s * epsilon)  # det(I + 2sG̃/M)^(-1/2) exp(-sε)
        tilted = values / shrink
        weight, mean_weight = damping * _STEP * s, damping * _STEP * math.sqrt(s / math.pi)
        top = tilted.amax(-1)
        if float(torch.maximum(weight * top, mean_weight * top.sqrt()).max()) < _NEGLIGIBLE:
            if i > 0:
                break
            continue
        nodes.append((tilted, weight, mean_weight))
    return nodes


def _from_matrix(like: State, matrix: Tensor) -> State:
    """The state of a joint batch whose second moments are `matrix` (K, N·P, N·P)."""
    k, n = like.x.norm.shape[:2]
    p = like.positions
    count = matrix.shape[-1] // n
    norm = matrix.diagonal(dim1=-2, dim2=-1).clamp_min(0)
    distance = norm[:, :, None] + norm[:, None] - 2 * matrix
    dtype = like.excess.dtype

    def blocks(t: Tensor) -> Tensor:
        return t.reshape(k, n, count, n, count).transpose(2, 3).to(dtype)

    excess, product = blocks(excess_of(norm[:, :, None], norm[:, None], distance)), blocks(matrix)
    norm = norm.reshape(k, n, *p).to(dtype)
    index = torch.arange(n, device=matrix.device)
    within = excess[:, index, index].reshape(k, n, *p, *p) if p else None
    side = Side(norm, torch.zeros_like(norm), within)
    shape = (k, n, n, *p, *p)
    return replace(
        like, x=side, y=side, excess=excess.reshape(shape), product=product.reshape(shape),
        activation=None, before=None, tilts=(),
    )  # fmt: skip
