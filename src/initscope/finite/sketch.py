"""Kernels of networks that end in a global average, without the sum over all pairs of positions: unbiased, with an error.

One layer: the kernel is K(x, y) = E f_x(w) f_y(w) over a random filter w, f_x(w) being the mean over positions of σ(w·a). Some
patches r of the images serve as references: h(w) = σ(w·r) has the exact Gram matrix G = E h hᵀ and the exact products
C_x = E f_x h, means over the positions of one image alone. For any numbers α_x

    K(x, y) = C_x·α_y + α_x·C_y - α_x·G α_y + E (f_x - α_x·h)(f_y - α_y·h),

and with α = C G⁻¹ little is left in the last term, which random filters estimate. The cost is linear in the images, and the
matrix is positive semidefinite. Deeper networks are in `sketch_deep`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from initscope.errors import BadInput, NoExactForm
from initscope.finite.estimate import Estimate
from initscope.finite.running import Running
from initscope.finite.sketch_deep import add_group, by_windows, group_mean
from initscope.geometry import check_inputs, generator
from initscope.layers import Layer
from initscope.networks import Sequential, as_network
from initscope.networks.fast import FastPlan, fast_plan
from initscope.networks.fused import ConvStack, dense_kernel
from initscope.networks.fused.plain import psi
from initscope.networks.fused.stack import pad
from initscope.networks.progress import Progress

FILTERS, WINDOWS = 1024, 64  # if nothing is said
REFERENCES = 256  # patches
GROUPS = 16  # independent repetitions: their spread is the standard error
_BLOCK = 1 << 22  # numbers that exist at once


def sketch_kernel(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    work: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> Estimate:
    """E h(x) h(y) of `conv relu ... gap [dense]` for all pairs of x (n, c, h, w) and y (m, c, h, w): (n, m) values with errors.

    work: random filters where there is one convolution (1024), windows where there are more (64); rounded up to a multiple of 16.
    The error falls like 1/√work or faster, and `stderr` says how large it is; with fewer filters than 1024 it says too little.

    >>> from initscope.networks import kernel, parse
    >>> net, x = parse("conv3 relu gap"), torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    >>> low, high = sketch_kernel(net, x).interval(0.9999)
    >>> exact = kernel(net, x.double())
    >>> bool(((low <= exact) & (exact <= high)).all()), bool(((high - low) / exact).max() < 1e-3)
    (True, True)
    """
    check_inputs(x, y, zipped=False)
    if work is not None and (isinstance(work, bool) or not isinstance(work, int) or work < 1):
        raise BadInput(
            "sketch_kernel", f"work is {work!r}, expected a whole number from 1 on", "pass for example work=1024"
        )
    net = as_network("sketch_kernel", net)
    net.output_shape(tuple(x.shape[1:]))
    plan = _plan(net, x)
    x, other = x.detach().to(dtype), None if y is None else y.detach().to(dtype)
    assert plan.stack is not None
    each = -(-(work or default_work(plan.stack)) // GROUPS)
    if len(plan.stack.kernels) == 1:
        found = _by_filters(plan.stack, x, other, each, seed, progress)
    else:
        found = by_windows(plan.stack, x, other, GROUPS, each, seed, progress)
    gain, bias = plan.readout
    return Estimate(gain * found.value + bias, gain * found.stderr, found.draws)


def default_work(stack: ConvStack) -> int:
    """Filters or windows that a sketch draws if nothing is said."""
    return FILTERS if len(stack.kernels) == 1 else WINDOWS


def _plan(net: Sequential, x: Tensor) -> FastPlan:
    plan = fast_plan(net, tuple(x.shape[1:]))
    if plan is None or plan.stack is None or not plan.pooled:
        raise NoExactForm(
            "sketch_kernel", "is for convolutions and leaky ReLUs with a global average at the end", "use kernel"
        )
    if plan.stack.padding == "reflect" and len(plan.stack.kernels) > 1:
        raise NoExactForm("sketch_kernel", "deep networks need another padding than reflect", "use kernel")
    return plan


def _by_filters(
    stack: ConvStack, x: Tensor, y: Tensor | None, each: int, seed: int, progress: Progress | None
) -> Estimate:
    """One convolution: exact against references, random filters for the rest."""
    both = x if y is None else torch.cat([x, y])
    left, right = slice(0, len(x)), slice(0 if y is None else len(x), None)
    references = _references(stack, both, generator(seed, GROUPS))  # (R, d)
    gram = _product(stack, references @ references.T)
    filters = torch.cat([_filters(references.shape[1], each, generator(seed, group)) for group in range(GROUPS)])
    sums, means = [], []
    for done, image in enumerate(torch.split(both, 1)):
        if progress is not None:
            progress(done, len(both))
        patches = _patches(stack, image.double())[0]
        sums.append(_exact(stack, patches, references))
        means.append(_sampled(stack, patches.to(image), filters))
    products, sampled = torch.stack(sums), torch.stack(means)  # C (n, R); f (n, filters)
    # In float64 with a floor under the eigenvalues: α need not be the best one for the identity to hold.
    values, vectors = torch.linalg.eigh(gram)
    keep = values > 1e-8 * values[-1]
    alpha = (products @ vectors[:, keep] / values[keep]) @ vectors[:, keep].T
    one, two = products[left] @ alpha[right].T, alpha[left] @ products[right].T
    exact = one + two - alpha[left] @ gram @ alpha[right].T
    rest = sampled - alpha @ F.leaky_relu(references @ filters.T, stack.slopes[0])
    groups = Running([(0, 0)])
    for part in torch.split(rest, each, 1):
        add_group(groups, part[left] @ part[right].T)
    found = group_mean(groups)
    if progress is not None:
        progress(len(both), len(both))
    return Estimate(exact + found.value, found.stderr, GROUPS)


def _references(stack: ConvStack, images: Tensor, g: Generator) -> Tensor:
    """Directions of patches, picked at random over all images: (R, d) in float64."""
    each = -(-REFERENCES // len(images))
    order = torch.randperm(len(images), generator=g).tolist()
    picked = []
    for image in order[: -(-REFERENCES // each)]:
        patches = _patches(stack, images[image : image + 1])[0]
        picked.append(patches[:, torch.randint(patches.shape[1], (each,), generator=g)])
    found = torch.cat(picked, 1)[:, :REFERENCES].T.double()
    norms = torch.linalg.vector_norm(found, dim=1)
    if not bool((norms > 0).any()):  # nothing but zeros: any direction will do
        return torch.eye(1, found.shape[1], dtype=torch.float64)
    directions: Tensor = found[norms > 0] / norms[norms > 0, None]
    return directions


def _product(stack: ConvStack, inner: Tensor) -> Tensor:
    """E σ(w·a) σ(w·b) = s ρ + (1-s)²/2 rhat(ρ) for unit vectors with inner products ρ."""
    s, rho = stack.slopes[0], inner.clamp(-1, 1)
    product: Tensor = s * rho + (1 - s) ** 2 / 2 * psi((1 + rho) / 2)
    return product


def _filters(d: int, count: int, g: Generator) -> Tensor:
    """(count, d) in float64, scaled so that products of features add up to their mean.

    Filters have the length √d instead of a Gaussian vector's: σ is homogeneous, so the mean is the same, and the tails are
    lighter.
    """
    w = torch.randn(d, count, generator=g, dtype=torch.float64)
    filters: Tensor = (w / w.norm(dim=0) * math.sqrt(d / count)).T
    return filters


def _exact(stack: ConvStack, patches: Tensor, references: Tensor) -> Tensor:
    """C: the mean over positions of E σ(w·a) σ(w·r), (R,) in float64, for patches (d, positions)."""
    d, total = references.shape[1], torch.zeros(len(references), dtype=torch.float64)
    for part in torch.split(patches.T, max(1, _BLOCK // len(references))):
        found = dense_kernel((float(d),), (0.0,), (stack.slopes[0],), references, part.contiguous())
        total += found.sum(1)
    return total / patches.shape[1]


def _sampled(stack: ConvStack, patches: Tensor, filters: Tensor) -> Tensor:
    """f: the mean over positions of σ(w·a) for each filter, (filters,) in float64, for patches (d, positions)."""
    s, found = stack.slopes[0], []
    for part in torch.split(filters.to(patches), max(1, _BLOCK // patches.shape[1])):
        values = part @ patches
        linear = s * values.mean(1) if s else 0.0
        found.append(linear + (1 - s) * values.relu_().mean(1))
    return torch.cat(found).double()


def _patches(stack: ConvStack, images: Tensor) -> Tensor:
    """(n, d, positions), scaled so that a filter of unit Gaussians has the layer's law; the bias is one more entry."""
    kernel = stack.kernels[0]
    columns = F.unfold(pad(images, kernel // 2, stack.padding), kernel)
    columns = columns * math.sqrt(stack.gains[0] / columns.shape[1])
    if stack.biases[0] > 0:
        ones = columns.new_full((len(columns), 1, columns.shape[2]), math.sqrt(stack.biases[0]))
        columns = torch.cat([columns, ones], 1)
    return columns
