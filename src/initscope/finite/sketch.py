"""Kernels of networks that end in a global average, without the sum over all pairs of positions: with a proved error.

The kernel is the mean of κ(p, q) = <k_p, k_q> over positions p of x and q of y, k_p being the random features of a position
(for one layer the function w -> σ(w·a) of the filter). Some positions of the images serve as references. Projected on the
span of their features, a position becomes φ(p), from its kernel with the references alone (Nyström), and

    K(x, y) = φ̄(x)·φ̄(y) + <R_x, R_y>,    φ̄ and R the means over one image of φ(p) and of what the projection leaves.

The first term is the sketch: linear in images and pixels, positive semidefinite, and on the diagonal never too large. The
second is bounded by the proof in `certificate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from initscope.errors import BadInput, NoExactForm
from initscope.finite.certificate import CertifiedEstimate, Residuals
from initscope.finite.patches import Field, Patches
from initscope.geometry import check_inputs, generator
from initscope.layers import Layer
from initscope.networks import Sequential, as_network
from initscope.networks.fast import FastPlan, fast_plan
from initscope.networks.fused import ConvStack
from initscope.networks.progress import Progress

SHALLOW, DEEP = 512, 128  # references if nothing is said: of one convolution, of several
CANDIDATES = 2  # patches drawn for each reference
PAIRS = 8192  # of positions, drawn in each image for its error
# Sums in float64 are exact to about 1e-16; directions below FLOOR of the largest eigenvalue are left out, so that solving
# with the others keeps features exact to ROUNDING of a position's norm.
FLOOR, ROUNDING = 1e-9, 1e-9
_BLOCK, _KEPT = 1 << 22, 1 << 26  # numbers that exist at once: of a strip, of one image
_CACHED = 1 << 19  # of pairs of positions: gathered rows stay in the cache


def sketch_kernel(
    net: Layer,
    x: Tensor,
    y: Tensor | None = None,
    *,
    work: int | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> CertifiedEstimate:
    """E h(x) h(y) of `conv relu ... gap [dense]` for all pairs of x (n, c, h, w) and y (m, c, h, w): (n, m) values with errors.

    work: how many patches of the images serve as references (512 for one convolution, 128 for more). The time grows
    in proportion, and the error falls quickly. `reach(level)` bounds the error of each entry: for every image and every
    amount of work, it is exceeded with a probability of at most 1 - level. dtype: to which the images are rounded; sums are in
    float64.

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
            "sketch_kernel", f"work is {work!r}, expected a whole number from 1 on", "pass for example work=256"
        )
    net = as_network("sketch_kernel", net)
    net.output_shape(tuple(x.shape[1:]))
    plan = _plan(net, x)
    assert plan.stack is not None
    both = (x if y is None else torch.cat([x, y])).detach().to(dtype).double().cpu()
    if not plan.in_range(both):
        problem = "norms leave the range of float64 inside the network"
        raise BadInput("sketch_kernel", problem, "use inputs and gains nearer to 1")
    field = Field(plan.stack, (x.shape[2], x.shape[3]))
    projection = Projection.fit(field, both, work or default_work(plan.stack), generator(seed, 0))
    means, errors = [], []
    for done, image in enumerate(both):
        if progress is not None:
            progress(done, len(both))
        mean, error = projection.image(image, generator(seed, 1, done))
        means.append(mean)
        errors.append(error)
    if progress is not None:
        progress(len(both), len(both))
    phi, table = torch.stack(means), torch.tensor(errors, dtype=torch.float64)
    left, right = slice(0, len(x)), slice(0 if y is None else len(x), None)
    size, mean_cosine, variance, rounding = table.unbind(1)
    residuals = Residuals(size, mean_cosine, variance, rounding, PAIRS)
    gain, bias = plan.readout
    return CertifiedEstimate.of(gain * phi[left] @ phi[right].T + bias, residuals[left], residuals[right], gain)


def default_work(stack: ConvStack) -> int:
    """References of a sketch if nothing is said."""
    return SHALLOW if len(stack.kernels) == 1 else DEEP


def _plan(net: Sequential, x: Tensor) -> FastPlan:
    plan = fast_plan(net, tuple(x.shape[1:]))
    if plan is None or plan.stack is None or not plan.pooled:
        raise NoExactForm(
            "sketch_kernel", "is for convolutions and leaky ReLUs with a global average at the end", "use kernel"
        )
    if plan.stack.padding == "reflect" and len(plan.stack.kernels) > 1:
        raise NoExactForm("sketch_kernel", "deep networks need another padding than reflect", "use kernel")
    return plan


@dataclass(frozen=True)
class Projection:
    """φ(p) = κ(p, references) · basis: coordinates in an orthonormal basis of the references' features."""

    field: Field
    references: Patches
    basis: Tensor  # (references, rank)

    @classmethod
    def fit(cls, field: Field, images: Tensor, count: int, g: Generator) -> Projection:
        """At most `count` references, picked from patches drawn over all images."""
        candidates = _draw(field, images, CANDIDATES * count, g)
        gram = field.products(candidates, candidates)
        scale = gram.diagonal().rsqrt()
        gram = (gram + gram.T) / 2 * torch.outer(scale, scale)
        picked = _pivots(gram, count, g)
        values, vectors = torch.linalg.eigh(gram[picked][:, picked])
        keep = values > FLOOR * values.max() if len(picked) else values > 0
        basis = scale[picked, None] * vectors[:, keep] / values[keep].sqrt()
        return cls(field, candidates[picked], basis)

    def features(self, patches: Patches) -> Tensor:
        """φ: (n, rank)."""
        if not self.basis.numel():
            return torch.zeros(len(patches), 0, dtype=torch.float64)
        return self.field.products(patches, self.references) @ self.basis

    def image(self, image: Tensor, g: Generator) -> tuple[Tensor, tuple[float, float, float, float]]:
        """φ̄ of one image (c, h, w), and its row of `Residuals`."""
        field, count, rank = self.field, self.field.positions, self.basis.shape[1]
        strip = max(1, _BLOCK // (max(len(self.references), 1) + image.shape[0] * (field.span + 1) ** 2))
        total, projected, kept = torch.zeros(rank, dtype=torch.float64), [], []
        for index in torch.split(torch.arange(count), strip):
            phi = self.features(field.patches(image, index))
            total += phi.sum(0)
            projected.append(phi.square().sum(1))
            kept += [phi] if count * rank <= _KEPT else []
        squares = field.squares(image)
        # |r_p|² is what the projection leaves; rounding may hide some of it.
        lengths = ((squares - torch.cat(projected)).clamp_min(0) + ROUNDING * squares).sqrt()
        rounding = math.sqrt(ROUNDING) * float(squares.sqrt().mean())
        size = float(lengths.mean())
        if size == 0:
            return total / count, (0.0, 0.0, 0.0, 0.0)
        p, q = torch.multinomial(lengths / lengths.sum(), 2 * PAIRS, replacement=True, generator=g).chunk(2)
        cosines = self._cosines(image, p, q, torch.cat(kept) if kept else None) / (lengths[p] * lengths[q])
        cosines = cosines.clamp(-1, 1)
        return total / count, (size, float(cosines.mean()), float(cosines.var()), rounding)

    def _cosines(self, image: Tensor, p: Tensor, q: Tensor, known: Tensor | None) -> Tensor:
        """<r_p, r_q> = κ(p, q) - φ(p)·φ(q) of pairs of positions of one image."""
        found, strip = (
            [],
            max(1, _CACHED // (2 * self.basis.shape[1] + 2 * image.shape[0] * (self.field.span + 1) ** 2)),
        )
        for one, two in zip(torch.split(p, strip), torch.split(q, strip), strict=True):
            left, right = self.field.patches(image, one), self.field.patches(image, two)
            phi = (known[one], known[two]) if known is not None else (self.features(left), self.features(right))
            found.append(self.field.paired(left, right) - torch.linalg.vecdot(*phi))
        return torch.cat(found)


def _draw(field: Field, images: Tensor, count: int, g: Generator) -> Patches:
    """Different patches of all images in turn, the positions of an image in proportion to their norms; none that is zero."""
    order = torch.randperm(len(images), generator=g)
    which = order[torch.arange(count) % len(images)]
    parts = [field.patches(images[0], torch.zeros(0, dtype=torch.long))]
    for image in sorted(set(which.tolist())):
        weights = field.squares(images[image]).sqrt()
        share = min(int((which == image).sum()), int((weights > 0).sum()))
        if share:
            index = torch.multinomial(weights / weights.max(), share, generator=g)
            parts.append(field.patches(images[image], index))
    return Patches.join(parts)


def _pivots(gram: Tensor, count: int, g: Generator) -> Tensor:
    """Randomly pivoted Cholesky (Chen, Epperly, Tropp, Webber 2023): rows drawn by what those before leave of their diagonal."""
    left, factor, picked = gram.diagonal().clone(), gram.new_zeros(len(gram), count), []
    for step in range(count):
        left = torch.where(left > FLOOR, left, 0.0)
        if not bool(left.any()):
            break
        pivot = int(torch.multinomial(left, 1, generator=g))
        column = gram[:, pivot] - factor[:, :step] @ factor[pivot, :step]
        factor[:, step] = column / column[pivot].sqrt()
        left = left - factor[:, step].square()
        left[pivot] = 0.0
        picked.append(pivot)
    return torch.tensor(picked, dtype=torch.long)
