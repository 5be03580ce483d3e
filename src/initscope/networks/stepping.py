"""Kernels by compiled steps, which carry products: what cosines and distances need beside them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from initscope.networks.accuracy import Accuracy
from initscope.networks.composition import Sequential
from initscope.networks.machine import Unknown, answer
from initscope.networks.prediction import Totals
from initscope.networks.progress import Progress

Quantity = Literal["product", "cosine", "distance", "defect"]
DIGITS = 2e5  # distances must keep five digits of what is twice the error of a product
LEAST = 1e-11  # error of products in float64, relative to the norms


def has_digits(quantity: Quantity, dtype: torch.dtype) -> bool:
    """Whether products hold enough digits for answers of a type; distances in float64 are to have more."""
    return quantity in ("product", "cosine") or dtype == torch.float32


def steps_dtype(quantity: Quantity, dtype: torch.dtype) -> torch.dtype:
    """The type that the steps run in: distances are differences of products."""
    return dtype if quantity in ("product", "cosine") else torch.float64


def totals_by_steps(
    net: Sequential, x: Tensor, y: Tensor | None, quantity: Quantity, allowed: int, progress: Progress | None
) -> tuple[Totals, Accuracy] | None:
    """Norms, products and distances in at most `allowed` bytes; None where a layer has no step or digits would be lost."""
    if not has_digits(quantity, x.dtype):
        return None
    wide = steps_dtype(quantity, x.dtype)
    try:
        found = answer(net, x.to(wide), None if y is None else y.to(wide), progress=progress, allowed=allowed)
    except Unknown:
        return None
    if quantity == "product":
        return Totals(found.norm_x, found.norm_y, found.product, found.product), found.accuracy
    a, b, product = found.norm_x.double(), found.norm_y.double(), found.product.double()
    excess = 2 * ((a[:, None] * b).sqrt() - product).clamp_min(0)
    if y is None:
        excess.fill_diagonal_(0)
    return Totals(a, b, excess, product), found.accuracy


def near_pairs(found: Totals, accuracy: Accuracy, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Rows and columns with pairs whose difference of products has too few digits; `symmetric`: each pair counts once."""
    least = DIGITS * max(accuracy.error, LEAST)
    near = found.excess < least * (found.a[:, None] * found.b).sqrt()
    near = near.triu(1) if symmetric else near
    return near.any(1).nonzero().flatten(), near.any(0).nonzero().flatten()
