"""Other draws of a model's weights: would another seed be judged alike, or is it luck?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from initscope.probe.safekeeping import copied

SAME_LAW = (
    0.1  # a module's own `reset_parameters` is its law if it gives the mean and the spread that the weights have now
)
NUDGE = 1e-3  # of the size that would keep a signal's norm


class Redraw:
    """Makes copies of a model with other weights; `how` says for the report where they came from.

    A factory builds them again. Otherwise each module's `reset_parameters` draws them where it gives the same constants,
    means and spreads as the weights have now; other weights (set by the model's own code, or by hand) have their inputs put
    into another order. That keeps every entry, norm, singular value and sum, and is a new draw for independent weights.
    Constants, vectors, multiples of the identity and normalizations stay as they are.
    """

    def __init__(self, model: nn.Module, factory: Callable[[], nn.Module] | None = None) -> None:
        self.model, self.factory = model, factory
        self.shuffled: set[str] = set()
        self.failure = ""  # why there are no other draws

    @property
    def how(self) -> str:
        if self.failure:
            return self.failure
        if self.factory is not None:
            return "built again by the factory"
        if not self.shuffled:
            return "drawn again by reset_parameters"
        count = len(self.shuffled)
        by_hand = f"{count} weight{'s' * (count > 1)} set by hand"
        return f"drawn again by reset_parameters, or with inputs reordered ({by_hand})"

    def draw(self, seed: int) -> nn.Module:
        """The model with new weights, in the same modes and on the same devices."""
        with torch.random.fork_rng(), torch.inference_mode(False):
            torch.manual_seed(seed)
            if self.factory is not None:
                return self.factory()
            twin = copied(self.model)
            for name, module in twin.named_modules():
                self._draw(name, module)
            return twin

    def _draw(self, name: str, module: nn.Module) -> None:
        own = {key: p for key, p in module.named_parameters(recurse=False)}
        if not any(p.ndim > 1 for p in own.values()):
            return
        before = {key: p.detach().clone() for key, p in own.items()}
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
            if all(_alike(p, before[key]) for key, p in own.items()):
                return
        with torch.no_grad():
            for key, p in own.items():
                p.copy_(before[key])
                if p.ndim > 1 and _spread(p) > 0 and not _identity(p):
                    p.copy_(p[:, torch.randperm(p.shape[1], device=p.device)])
                    self.shuffled.add(f"{name}.{key}")


def awakened(model: nn.Module, zeros: Sequence[str], seed: int) -> nn.Module:
    """A copy in which small random numbers are added to the named parameters, which are zero or constant."""
    twin = copied(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in twin.named_parameters():
            if name in zeros:
                noise = torch.randn(p.shape, generator=generator) / math.sqrt(max(math.prod(p.shape[1:]), 1))
                p.add_((NUDGE * noise).to(p))
    return twin


def _identity(t: Tensor) -> bool:
    """A multiple of the identity, also in the middle of a filter."""
    sums = t.detach().flatten(2).sum(2) if t.ndim > 2 else t.detach()
    return bool((sums == torch.eye(*sums.shape[:2], dtype=sums.dtype, device=sums.device) * sums[0, 0]).all())


def _spread(t: Tensor) -> float:
    return float(_reals(t).std()) if t.numel() > 1 else 0.0


def _reals(t: Tensor) -> Tensor:
    """In double precision; complex numbers as two real ones."""
    t = t.detach()
    return (torch.view_as_real(t) if t.is_complex() else t).double()


def _alike(new: Tensor, old: Tensor) -> bool:
    """Whether two draws can be of one law, by their mean and spread; few weights spread more."""
    a, b = _spread(new), _spread(old)
    if a == 0 and b == 0:
        return torch.equal(new.detach(), old)
    if not (a > 0 and b > 0):
        return False
    few = 4 / math.sqrt(max(new.numel() - 1, 1))
    shift = abs(float(_reals(new).mean() - _reals(old).mean())) / math.hypot(a, b)
    return abs(math.log(a / b)) < max(SAME_LAW, few / math.sqrt(2)) and shift < max(SAME_LAW, few)
