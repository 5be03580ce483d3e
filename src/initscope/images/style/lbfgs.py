"""L-BFGS for variables of millions of numbers: what it remembers lies in one matrix and is read twice a step.

The two-loop recursion (Nocedal 1980) runs on inner products instead of vectors. There is no line search: a step is one
gradient and one move.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST = 1e-10  # curvature of a pair that is worth remembering


class LBFGS:
    """Moves `variable` along -H grad, H from the last `history` pairs of moves s and gradient changes y.

    >>> point = torch.tensor([3.0, -2.0], requires_grad=True)
    >>> search = LBFGS(point, rate=1.0, history=4)
    >>> for _ in range(12):
    ...     point.grad = None
    ...     (point * torch.tensor([1.0, 10.0])).square().sum().backward()
    ...     search.step()
    >>> bool(point.detach().abs().max() < 1e-4)
    True
    """

    def __init__(self, variable: Tensor, rate: float, history: int) -> None:
        numbers = variable.numel()
        self.variable, self.rate, self.history = variable, rate, history
        self._pairs = torch.zeros(2 * history, numbers, dtype=variable.dtype, device=variable.device)  # s, then y
        self._products = torch.zeros(2 * history, history, dtype=torch.float64)  # of all of them with every y
        self._slopes = torch.zeros(2 * history, dtype=torch.float64)  # of all of them with the gradient
        self._order: list[int] = []  # rows in use, oldest first
        self._gradient: Tensor | None = None
        self._move: Tensor | None = None

    @torch.no_grad()
    def step(self) -> None:
        """One move, by the gradient that `variable.grad` holds."""
        assert self.variable.grad is not None
        gradient = self.variable.grad.reshape(-1)
        if self._gradient is not None and self._move is not None:
            self._remember(gradient, self._gradient, self._move)
            self._gradient.copy_(gradient)
        else:
            self._gradient, self._move = gradient.clone(), torch.empty_like(gradient)
        if self._order:
            weights, share = self._direction()
            torch.mv(self._pairs.T, weights.to(self._pairs), out=self._move).add_(gradient, alpha=-share)
            if float(self._move @ gradient) > 0:  # rounding has spoilt the pairs
                self._order.clear()
        rate = self.rate
        if not self._order:  # downhill, with no idea yet of how far
            torch.neg(gradient, out=self._move)
            rate *= min(1.0, 1.0 / max(float(gradient.abs().sum()), 1e-30))
        self._move.mul_(rate)
        self.variable.add_(self._move.view_as(self.variable))

    def forget(self, rate: float) -> None:
        """Begin again, from where the variable is now."""
        self.rate, self._gradient, self._move = rate, None, None
        self._order.clear()

    def _remember(self, gradient: Tensor, before: Tensor, move: Tensor) -> None:
        """The move and what it did to the gradient, in the place of the oldest pair; and all products that change."""
        change = torch.sub(gradient, before, out=before)
        full = len(self._order) == self.history
        row = self._order[0] if full else len(self._order)
        worth = float(move @ change) > _LEAST
        if worth:
            self._order = [*self._order[full:], row]
            self._pairs[row].copy_(move)
            self._pairs[row + self.history].copy_(change)
        # g = g before + y, so that the products with g need no pass of their own but for the new pair.
        with_change = (self._pairs @ change).double().cpu()
        self._slopes += with_change
        if worth:
            self._products[:, row] = with_change
            self._products[row + self.history, :] = with_change[self.history :]
            for place in (row, row + self.history):
                self._slopes[place] = float(self._pairs[place] @ gradient)

    def _direction(self) -> tuple[Tensor, float]:
        """Weights w and share c of -H g = Σ w_r pair_r - c g."""
        count, products = self.history, self._products
        weights = torch.zeros(2 * count, dtype=torch.float64)
        newest = self._order[-1]
        share = float(products[newest, newest] / products[newest + count, newest])  # s·y / y·y
        first: dict[int, float] = {}
        for row in reversed(self._order):  # q = g - Σ a_j y_j over newer j; a = s·q / s·y
            newer = [j for j in self._order if j in first]
            left = float(self._slopes[row]) - sum(first[j] * float(products[row, j]) for j in newer)
            first[row] = left / float(products[row, row])
        for row in self._order:
            weights[row + count] = -share * first[row]
        for row in self._order:  # r = c q + Σ (a_j - b_j) s_j over older j; b = y·r / s·y
            found = share * float(self._slopes[row + count])
            found += float(weights[count:] @ products[count:, row]) + float(weights[:count] @ products[:count, row])
            weights[row] = first[row] - found / float(products[row, row])
        return -weights, share
