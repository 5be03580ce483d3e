"""`kernel` with a choice of method: exact, or a sketch with errors."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.finite.estimate import Estimate
from initscope.finite.sketch import sketch_kernel
from initscope.layers import Layer
from initscope.networks import kernel as exact_kernel
from initscope.networks.progress import Progress
from initscope.networks.stepping import Quantity


@overload
def kernel(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    quantity: Quantity = "product",
    method: Literal["exact"] = "exact",
    dtype: torch.dtype | None = None,
    memory: int | None = None,
    work: None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor: ...


@overload
def kernel(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    quantity: Quantity = "product",
    method: Literal["sketch"],
    dtype: torch.dtype | None = None,
    memory: None = None,
    work: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Estimate: ...


def kernel(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    quantity: Quantity = "product",
    method: Literal["exact", "sketch"] = "exact",
    dtype: torch.dtype | None = None,
    memory: int | None = None,
    work: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tensor | Estimate:
    """The (n, m) matrix over all pairs of x (n, ...) and y (m, ...); y defaults to x, and each pair is computed once.

    quantity: "product" is E h(x) h(y), the mean over units (the NNGP kernel); "distance" is the root of E (h(x) - h(y))²;
    "cosine", and "defect" = 1 - cosine. method: "exact" is `networks.kernel`; "sketch" is `finite.sketch_kernel`, for products
    of convolutions with a global average at the end: without the sum over all pairs of positions, from `work` reference
    patches, an Estimate whose `reach` bounds the error of each entry.

    >>> from initscope.networks import parse
    >>> net, x = parse("conv3 relu gap"), torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    >>> low, high = kernel(net, x, method="sketch", work=64).interval(0.9999)
    >>> exact = kernel(net, x.double())
    >>> bool(((low <= exact) & (exact <= high)).all())
    True
    """
    if method == "exact":
        _require_none("work", work, "an exact kernel draws nothing", "method='sketch'")
        return exact_kernel(net, x, y, quantity=quantity, dtype=dtype, memory=memory, seed=seed, progress=progress)
    if method != "sketch":
        raise BadInput("kernel", f"method is {method!r}", "choose 'exact' or 'sketch'")
    _require_none("memory", memory, "a sketch has no budget", "method='exact'")
    _require_none("quantity", None if quantity == "product" else quantity, "a sketch is of products", "method='exact'")
    return sketch_kernel(net, x, y, work=work, seed=seed, dtype=dtype or torch.float32, progress=progress)


def _require_none(name: str, value: object, because: str, other: str) -> None:
    if value is not None:
        raise BadInput("kernel", f"{name} is {value!r}, and {because}", f"leave it out, or use {other}")
