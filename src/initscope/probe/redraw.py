"""New draws of a model's own initialization, so that one seed's luck can be told from what always happens."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

SAME_SPREAD = 0.1  # a module's own `reset_parameters` is its law if it gives the spread that the weights have now


class Redraw:
    """Makes copies of a model with weights drawn anew; `how` says for the report where they came from.

    A factory builds them again. Otherwise each module's `reset_parameters` draws them where it gives the spread found in the
    model; other weights (set by the model's own code) are shuffled, which is a new draw for independent weights.
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
        return (
            f"drawn again by reset_parameters, or shuffled ({len(self.shuffled)} weights set by the model's own code)"
        )

    def draw(self, seed: int) -> nn.Module:
        """The model with new weights, in the same modes and on the same devices."""
        with torch.random.fork_rng(), torch.inference_mode(False):
            torch.manual_seed(seed)
            if self.factory is not None:
                return self.factory()
            twin = copy.deepcopy(self.model)
            for name, module in twin.named_modules():
                self._draw(name, module)
            return twin

    def _draw(self, name: str, module: nn.Module) -> None:
        own = {key: p for key, p in module.named_parameters(recurse=False)}
        if not own:
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
                if _spread(p) > 0:
                    p.copy_(p.flatten()[torch.randperm(p.numel(), device=p.device)].view_as(p))
                    self.shuffled.add(f"{name}.{key}")


def _spread(t: Tensor) -> float:
    return float(t.detach().double().std()) if t.numel() > 1 else 0.0


def _alike(new: Tensor, old: Tensor) -> bool:
    """Whether two draws can be of one law, by their spread; few weights spread more."""
    a, b = _spread(new), _spread(old)
    if a == b:
        return True
    slack = max(SAME_SPREAD, 4 / math.sqrt(2 * max(new.numel() - 1, 1)))
    return b > 0 and abs(math.log(a / b)) < slack if a > 0 else False
