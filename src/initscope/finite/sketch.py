"""Kernels of networks that end in a global average, without the sum over all pairs of positions: unbiased, with an error.

One layer: the kernel is K(x, y) = E f_x(w) f_y(w) over a random filter w, f_x(w) being the mean over positions of σ(w·a). Some
patches r of the images serve as references: h(w) = σ(w·r) has the exact Gram matrix G = E h hᵀ and the exact products
C_x = E f_x h, means over the positions of one image alone. For any numbers α_x

    K(x, y) = C_x·α_y + α_x·C_y - α_x·G α_y + E (f_x - α_x·h)(f_y - α_y·h),

and with α = C G⁻¹ little is left in the last term, which random filters estimate. The cost is linear in the images.

Deep: the sum over pairs of positions is a sum over displacements q - p, and for each of them a pass of the network at
equal positions. Displacements are drawn, one in every cell of a grid: quadratic in the images, but linear in the pixels.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from initscope.errors import BadInput, NoExactForm
from initscope.finite.estimate import Estimate
from initscope.geometry import check_inputs, generator
from initscope.layers import Layer
from initscope.networks import Sequential
from initscope.networks.fast import FastPlan, fast_plan
from initscope.networks.fused import ConvStack, compiled_path
from initscope.networks.fused.plain import psi
from initscope.networks.fused.stack import displacements, pad
from initscope.networks.progress import Progress

REFERENCES = 256  # patches
GROUPS = 16  # independent repetitions: their spread is the standard error
_BLOCK = 1 << 24  # numbers that exist at once


def sketch_kernel(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    work: int = 1024,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> Estimate:
    """E h(x) h(y) of `conv relu ... gap [dense]` for all pairs of x (n, c, h, w) and y (m, c, h, w): (n, m) values with errors.

    work: random filters where there is one convolution, displacements where there are more; it is rounded up to a
    multiple of 16. The error falls like 1/√work or faster.

    >>> from initscope.networks import kernel, parse
    >>> net, x = parse("conv3 relu gap"), torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    >>> low, high = sketch_kernel(net, x).interval(0.9999)
    >>> exact = kernel(net, x.double())
    >>> bool(((low <= exact) & (exact <= high)).all()), bool(((high - low) / exact).max() < 1e-3)
    (True, True)
    """
    check_inputs(x, y, zipped=False)
    if isinstance(work, bool) or not isinstance(work, int) or work < 1:
        raise BadInput(
            "sketch_kernel", f"work is {work!r}, expected a whole number from 1 on", "pass for example work=1024"
        )
    net = net if isinstance(net, Sequential) else Sequential(net)
    net.output_shape(tuple(x.shape[1:]))
    plan = _plan(net, x)
    x, other = x.detach().to(dtype), None if y is None else y.detach().to(dtype)
    each = -(-work // GROUPS)
    assert plan.stack is not None
    if len(plan.stack.kernels) == 1:
        found = _by_filters(plan.stack, x, other, each, seed, progress)
    else:
        found = _by_displacements(plan.stack, x, other, each, seed, progress)
    gain, bias = plan.readout
    return Estimate(gain * found.value + bias, gain * found.stderr, found.draws)


def _plan(net: Sequential, x: Tensor) -> FastPlan:
    plan = fast_plan(net, tuple(x.shape[1:]))
    if plan is None or plan.stack is None or not plan.pooled:
        raise NoExactForm(
            "sketch_kernel", "is for convolutions and leaky ReLUs with a global average at the end", "use kernel"
        )
    return plan


def _by_filters(
    stack: ConvStack, x: Tensor, y: Tensor | None, each: int, seed: int, progress: Progress | None
) -> Estimate:
    """One convolution: exact against references, random filters for the rest."""
    both = x if y is None else torch.cat([x, y])
    left, right = slice(0, len(x)), slice(0 if y is None else len(x), None)
    references = _references(stack, both, generator(seed, GROUPS))  # (d, R)
    gram = _product(stack, references.T @ references)
    # Chosen in float64 with a floor under the eigenvalues: α need not be the best one for the identity to hold.
    values, vectors = torch.linalg.eigh(gram)
    keep = values > 1e-8 * values[-1]
    products = torch.cat([_products(stack, chunk, references) for chunk in _chunks(stack, both, references.shape[1])])
    alpha = (products @ vectors[:, keep] / values[keep]) @ vectors[:, keep].T
    one, two = products[left] @ alpha[right].T, alpha[left] @ products[right].T
    exact = one + two - alpha[left] @ gram @ alpha[right].T
    rest = []
    for group in range(GROUPS):
        if progress is not None:
            progress(group, GROUPS)
        features = _rest(stack, both, references, alpha, each, generator(seed, group))
        rest.append(features[left] @ features[right].T)
    if progress is not None:
        progress(GROUPS, GROUPS)
    found = Estimate.from_draws(torch.stack(rest))
    return Estimate(exact + found.value, found.stderr, GROUPS)


def _references(stack: ConvStack, images: Tensor, g: Generator) -> Tensor:
    """Directions of patches, picked at random over all images: (d, R) in float64."""
    each = -(-REFERENCES // len(images))
    order = torch.randperm(len(images), generator=g).tolist()
    picked = []
    for image in order[: -(-REFERENCES // each)]:
        patches = _patches(stack, images[image : image + 1])[0]
        picked.append(patches[:, torch.randint(patches.shape[1], (each,), generator=g)])
    found = torch.cat(picked, 1)[:, :REFERENCES].double()
    norms = torch.linalg.vector_norm(found, dim=0)
    directions: Tensor = found[:, norms > 0] / norms[norms > 0]
    return directions


def _product(stack: ConvStack, inner: Tensor) -> Tensor:
    """E σ(w·a) σ(w·b) = s ρ + (1-s)²/2 rhat(ρ) for unit vectors with inner products ρ."""
    s, rho = stack.slopes[0], inner.clamp(-1, 1)
    product: Tensor = s * rho + (1 - s) ** 2 / 2 * psi((1 + rho) / 2)
    return product


def _products(stack: ConvStack, images: Tensor, references: Tensor) -> Tensor:
    """C: the mean over positions of E σ(w·a) σ(w·r), (n, R) in float64."""
    patches = _patches(stack, images.double())
    norms = patches.norm(dim=1)  # (n, positions)
    inner = references.T @ (patches / norms.clamp_min(torch.finfo(norms.dtype).tiny)[:, None])
    means: Tensor = (_product(stack, inner) @ norms[..., None])[..., 0] / norms.shape[1]
    return means


def _patches(stack: ConvStack, images: Tensor) -> Tensor:
    """(n, d, positions), scaled so that a filter of unit Gaussians has the layer's law; the bias is one more entry."""
    kernel = stack.kernels[0]
    columns = F.unfold(pad(images, kernel // 2, stack.padding), kernel)
    columns = columns * math.sqrt(stack.gains[0] / columns.shape[1])
    if stack.biases[0] > 0:
        ones = columns.new_full((len(columns), 1, columns.shape[2]), math.sqrt(stack.biases[0]))
        columns = torch.cat([columns, ones], 1)
    return columns


def _chunks(stack: ConvStack, images: Tensor, width: int) -> list[Tensor]:
    """Few enough images at a time that `width` numbers per position fit."""
    positions = images.shape[2] * images.shape[3]
    return list(
        torch.split(images, max(1, _BLOCK // (positions * max(width, images.shape[1] * stack.kernels[0] ** 2))))
    )


def _rest(stack: ConvStack, images: Tensor, references: Tensor, alpha: Tensor, count: int, g: Generator) -> Tensor:
    """f - α·h for `count` filters: (n, count) in float64, scaled so that their products add up to the mean.

    Filters have the length √d instead of a Gaussian vector's: σ is homogeneous, so the mean is the same, and the tails are
    lighter.
    """
    s, d = stack.slopes[0], len(references)
    w = torch.randn(d, count, generator=g, dtype=torch.float64)
    w = w / w.norm(dim=0) * math.sqrt(d / count)

    def mean(values: Tensor) -> Tensor:
        linear = s * values.mean(2) if s else 0.0
        found: Tensor = linear + (1 - s) * values.relu_().mean(2)
        return found.double()

    found = [mean(w.T.to(chunk) @ _patches(stack, chunk)) for chunk in _chunks(stack, images, count)]
    return torch.cat(found) - alpha @ F.leaky_relu(references.T @ w, s)


def _by_displacements(
    stack: ConvStack, x: Tensor, y: Tensor | None, each: int, seed: int, progress: Progress | None
) -> Estimate:
    """Several convolutions: `each` displacements, one in every cell of a grid, in each of the groups."""
    path = compiled_path()
    if path is None or stack.padding == "reflect":
        raise NoExactForm("sketch_kernel", "deep networks need numba and another padding than reflect", "use kernel")
    size = x.shape[2:]
    final = stack.sizes(*size)[-1]
    counts = [len(displacements(n, f, stack.padding)) for n, f in zip(size, final, strict=True)]
    scale = math.prod(counts) / float(math.prod(final)) ** 2
    found = []
    for group in range(GROUPS):
        if progress is not None:
            progress(group, GROUPS)
        chosen = _stratified(counts, each, generator(seed, group))
        sums = path.pooled(stack, x, x if y is None else y, y is None, None, None, chosen)
        found.append(sums * (scale / len(chosen)))
    if progress is not None:
        progress(GROUPS, GROUPS)
    values = torch.stack(found)
    if y is None:
        values = values.triu() + values.triu(1).mT
    return Estimate.from_draws(values)


def _stratified(counts: list[int], number: int, g: Generator) -> list[tuple[int, int]]:
    """About `number` places of a rows x columns grid, one drawn in every cell of a coarser grid of equal cells, then shifted.

    The random shift makes every place equally likely also where the cells do not divide the grid.
    """
    side = max(1, round(math.sqrt(number)))
    cells = [min(side, count) for count in counts]
    shift = [int(torch.randint(count, (1,), generator=g)) for count in counts]
    jitter = torch.rand(2, cells[0], cells[1], generator=g, dtype=torch.float64)
    found = []
    for i in range(cells[0]):
        for j in range(cells[1]):
            row, column = (
                (int((cell + float(jitter[axis, i, j])) * counts[axis] / cells[axis]) + shift[axis]) % counts[axis]
                for axis, cell in enumerate((i, j))
            )
            found.append((row, column))
    return found
