"""l2 pooling: the Euclidean norm of the values in a window (DC Theorem 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln, hyp2f1
from torch import Generator, Tensor, nn

from initscope.geometry import Block, Pairs, Side, State, push
from initscope.geometry.draws import state_from_samples
from initscope.layers.layer import Shape, Trace
from initscope.layers.pooling import Pool, WindowPool, grouped, on_units, require_independent, window_means

_NODES = 20  # of the integral over correlations


@dataclass(frozen=True, repr=False)
class L2Pool(WindowPool):
    """The Euclidean norm of the values in a window: A' = n · mean of A, exactly.

    The angle between two inputs is

    - exact for groups of n independent Gaussian units: E|u||v| = αβ 2 (Γ((n+1)/2)/Γ(n/2))² ₂F₁(-½, -½; n/2; ρ²);
    - otherwise drawn and measured, and the trace says so.
    """

    @property
    def word(self) -> str:
        return f"l2pool{self.size_word}"

    @property
    def needs_draws(self) -> bool:
        return True

    def _exact(self, state: State, trace: Trace) -> State:
        if state.positions:
            trace.simulated = True
            drawn = push(state, on_units(self._pool), state.channels, trace.units, trace.generator)
            return with_norms(drawn, *(self._pool_norm(s.norm) for s in (state.x, state.y)))
        require_independent(self, state)
        if state.law == "gaussian":
            return self._over_units(state)
        trace.simulated = True
        draw = grouped(state, self.group(), lambda t: t.norm(dim=-1))
        drawn = state_from_samples(state, draw(trace.units, trace.generator), state.channels // self.group(), draw)
        return with_norms(drawn, *(self.group() * s.norm for s in (state.x, state.y)))

    def _over_units(self, state: State) -> State:
        n = self.group()
        top = 2 * np.exp(2 * (gammaln((n + 1) / 2) - gammaln(n / 2)))  # (E|z|)², z standard in n dimensions

        def pairs(block: Block, *_: Tensor) -> Pairs:
            ab = block.root_a * block.root_b
            defect = torch.where(ab > 0, block.excess / torch.where(ab > 0, 2 * ab, 1), 1).clamp(0, 2)  # 1 - rho
            lost = torch.from_numpy(length_defect(n, defect.double().cpu().numpy())).to(ab)
            return Pairs(2 * ab * lost, ab * (n - lost))

        return state.map(
            lambda s: n * s.norm,
            pairs,
            lambda s: float(np.sqrt(top)) * s.norm.sqrt(),
            law="other",
            channels=state.channels // n,
            draw=grouped(state, n, lambda t: t.norm(dim=-1)),
        )

    def _pool(self, t: Tensor) -> Tensor:
        frame = self.frame(t.ndim - 2)
        return (window_means(frame, t.square()) * math.prod(frame.kernel)).sqrt()

    def _pool_norm(self, norm: Tensor) -> Tensor:
        frame = self.frame(norm.ndim - 2)
        pooled = window_means(frame, norm.flatten(0, 1)[:, None])[:, 0]
        return pooled.reshape(*norm.shape[:2], *pooled.shape[1:]) * math.prod(frame.kernel)

    def sample(self, shape: Shape, *, generator: Generator, dtype: torch.dtype = torch.float32) -> nn.Module:
        self.output_shape(shape)
        return Pool(self.group() if len(shape) == 1 else None, self._pool, lambda t: t.norm(dim=-1))


def length_defect(n: int, defect: NDArray[np.float64]) -> NDArray[np.float64]:
    """n - E|u||v| of n standard normal pairs with correlation rho = 1 - defect, relatively accurate where it is small.

    It is even in rho, and the integral of the slope (T/n) r ₂F₁(½, ½; n/2 + 1; r²), T = (E|z|)², from |rho| to 1. The slope has a
    root at r = 1, which goes with r = 1 - (1 - |rho|) s².

    >>> float(length_defect(1, np.array([1.0]))[0] * np.pi)  # 1 - E|u|E|v| = 1 - 2/π
    1.14159265358...
    """
    top = 2 * np.exp(2 * (gammaln((n + 1) / 2) - gammaln(n / 2)))
    reach = np.minimum(defect, 2 - defect)  # 1 - |rho|
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    total = np.zeros_like(reach)
    for s, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        r = 1 - reach * s * s
        total += weight * 2 * s * r * hyp2f1(0.5, 0.5, n / 2 + 1, r * r)
    return np.asarray(top / n * reach * total)


def with_norms(state: State, norm_x: Tensor, norm_y: Tensor) -> State:
    """The state's angles with other norms: the excess grows as the product of the norms does."""

    def norm(side: Side) -> Tensor:
        return norm_x if side is state.x else norm_y

    def pairs(block: Block, a: Tensor, b: Tensor) -> Pairs:
        before = block.root_a * block.root_b
        ratio = torch.where(before > 0, a * b / torch.where(before > 0, before, 1), 0)
        return Pairs(block.excess * ratio, block.product * ratio)

    return state.map(norm, pairs, lambda s: s.mean, draw=state.draw)
