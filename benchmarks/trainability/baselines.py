"""What else is read off a network before training; larger is not always better, so each may be turned round.

Parameter count and depth; the gradient's norm, synflow (Tanaka et al. 2020) and NASWOT (Mellor et al. 2021), as they are used
without training; AnyInit, where it is installed (`pip install anyinit`, measured with 0.4.0).
"""

from __future__ import annotations

import copy
import importlib
import math
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training import Images

from networks import Design

ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.GELU, nn.ELU, nn.Sigmoid)


def baselines(d: Design, net: nn.Module, images: Images) -> dict[str, float | None]:
    """The net stays as it is: everything runs on copies."""
    return {
        "parameters": math.log(sum(p.numel() for p in net.parameters())),
        "depth": float(d.depth),
        "gradient norm": gradient_norm(copy.deepcopy(net), images),
        "synflow": synflow(copy.deepcopy(net), images.x[:1]),
        "NASWOT": naswot(copy.deepcopy(net), images.x),
        **anyinit(copy.deepcopy(net), images.x),
    }


def gradient_norm(net: nn.Module, images: Images) -> float:
    """log of Σ over weights |∂L/∂W|, L the cross-entropy of the batch."""
    loss = F.cross_entropy(net(images.x), images.y)
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    return _log(sum(g.double().norm() for g in gradients))


def synflow(net: nn.Module, one: Tensor) -> float:
    """log of Σ |w ∂R/∂w|, R the sum of the outputs for an image of ones through the absolute weights, in float64.

    Normalization is in evaluation mode, where it does nothing at initialization; layer normalization is taken out.
    """
    net.double().eval()
    for parent in list(net.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.LayerNorm | nn.GroupNorm):
                setattr(parent, name, nn.Identity())
    with torch.no_grad():
        for p in net.parameters():
            p.abs_()
    net(torch.ones_like(one, dtype=torch.float64)).sum().backward()
    parts = [(p.detach() * p.grad).abs().sum() for p in net.parameters() if p.grad is not None]
    return _log(torch.stack(parts).sum())


def naswot(net: nn.Module, x: Tensor) -> float:
    """log |det K|, K_ij the number of units that are on for both of i, j or off for both, over all activations.

    A unit is on where the activation's input is positive. A singular K counts as -1e4.
    """
    kernel = torch.zeros(len(x), len(x), dtype=torch.float64)

    def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        on = (inputs[0].flatten(1) > 0).double()
        kernel.add_(on @ on.T + (1 - on) @ (1 - on).T)

    for module in net.modules():
        if isinstance(module, ACTIVATIONS):
            module.register_forward_pre_hook(count)
    with torch.no_grad():
        net(x)
    determinant = float(torch.linalg.slogdet(kernel).logabsdet)
    return determinant if math.isfinite(determinant) else -1e4


def anyinit(net: nn.Module, x: Tensor) -> dict[str, float | None]:
    """Two numbers from AnyInit's report on its own initialization of the architecture, which it writes over the weights.

    "AnyInit verdict": 1 if its health assertion passes, else minus the largest gap between prediction and measurement, or
    minus the drift of an activation it calls unstable. "AnyInit distance": the largest |log(own scale / its scale)|
    over weights, how far the network's own weights are from what it prescribes. None where it is not installed or stops.
    """
    try:
        library: Any = importlib.import_module("anyinit")
    except ImportError:
        return {"AnyInit verdict": None, "AnyInit distance": None}
    before = [_scale(p) for p in net.parameters() if p.ndim > 1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = library.initialize(net, "analytic", x)
    except Exception:
        return {"AnyInit verdict": None, "AnyInit distance": None}
    after = [_scale(p) for p in net.parameters() if p.ndim > 1]
    distance = max(abs(math.log(a / b)) for a, b in zip(after, before, strict=True))
    try:
        report.assert_healthy()
        verdict = 1.0
    except AssertionError:
        drift = max((math.log(record.drift) for record in report.unstable if record.drift > 1), default=0.0)
        verdict = -max(report.max_deviation or 0.0, drift)
    return {"AnyInit verdict": verdict, "AnyInit distance": distance}


def _scale(p: Tensor) -> float:
    return float(p.detach().double().square().mean().sqrt())


def _log(value: Tensor | float) -> float:
    """Zero and infinities at the ends of the scale, so that they can be ranked."""
    number = float(value)
    if math.isnan(number):
        return 1e4
    return -1e4 if number <= 0 else min(math.log(number), 1e4)
