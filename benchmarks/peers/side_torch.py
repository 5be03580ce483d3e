"""What one would write in plain torch, and initscope beside it: simulation, inspection with hooks, and `check`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from models import build
from serve import serve
from torch import Tensor, nn

import initscope as iscope
from initscope.probe import check

DRAWS, DEPTH, WIDTH, PAIRS = 100, 10, 1000, 100


def pairs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(PAIRS, WIDTH, generator=generator)
    return x, 0.6 * x + 0.8 * torch.randn(PAIRS, WIDTH, generator=generator)


def simulated() -> Tensor:
    """Mean norms and cosines after each of ten layers, over 100 draws of all weights; (2, depth)."""
    x, y = pairs()
    generator = torch.Generator().manual_seed(1)
    found = torch.zeros(DRAWS, DEPTH, 2)
    for draw in range(DRAWS):
        both = torch.cat([x, y])
        for layer in range(DEPTH):
            weight = torch.randn(WIDTH, WIDTH, generator=generator) * math.sqrt(2 / WIDTH)
            both = (both @ weight.T).relu_()
            found[draw, layer, 0] = both.square().mean()
            found[draw, layer, 1] = F.cosine_similarity(both[:PAIRS], both[PAIRS:]).mean()
    return found.mean(0).T


def hooked(model: nn.Module, x: Tensor) -> float:
    """Norms, mean cosine of neighbours in the batch, and norms of the gradients, behind every layer; forward and backward."""
    found: list[Tensor] = []

    def look(_: nn.Module, __: Any, out: Tensor) -> None:
        flat = out.detach().flatten(1)
        found.extend((flat.norm(dim=1).mean(), F.cosine_similarity(flat[1:], flat[:-1]).mean()))
        out.register_hook(lambda grad: found.append(grad.flatten(1).norm(dim=1).mean()))

    handles = [part.register_forward_hook(look) for part in model.children()]
    out = model(x)
    torch.autograd.grad(out.square().mean(), list(model.parameters()))
    for handle in handles:
        handle.remove()
    return float(torch.stack(found).sum())


def prepare(setting: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], dict[str, str]]:
    what = setting["what"]
    if what.startswith("simulate"):
        net = iscope.parse(f"{DEPTH}x(dense({WIDTH}) relu)")
        x, y = pairs()
        run: Callable[[], Any] = {
            "simulate by hand": simulated,
            "simulate outputs": lambda: iscope.simulate(net, x, y, draws=DRAWS).draws,
            "simulate weights": lambda: iscope.simulate(net, x, y, draws=DRAWS, materialise=True).draws,
        }[what]
    else:
        model, batch = build(setting["model"])
        run = {
            "hooks": lambda: hooked(model, batch),
            "check": lambda: len(check(model, batch, seeds=1).layers),
            "measure": lambda: len(check(model, batch, seeds=1, theory=False).layers),
        }[what]
    return run, run, {"torch": torch.__version__, "initscope": iscope.__version__}


if __name__ == "__main__":
    serve(prepare)
