"""Classification by a kernel matrix: kernel ridge regression on the classes, the mean of a Gaussian process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope.errors import BadInput

_FIRST_JITTER, _LAST_JITTER = 1e-14, 1e-2  # relative to the mean of the diagonal


@dataclass(frozen=True)
class Jitter:
    """What had to be added to the diagonal, beyond the noise asked for, before the Cholesky factor existed."""

    added: float  # relative to the mean of the diagonal; 0: nothing
    failures: int  # factorisations that failed before


@dataclass(frozen=True)
class KernelClassification:
    """Predictions on new inputs and how they were made."""

    predictions: Tensor  # (m,) classes
    scores: Tensor  # (m, classes) float64: the regression of each class's indicator, centred
    classes: Tensor  # (classes,) in the order of the scores' columns
    noise: float  # relative to the mean of the diagonal
    jitter: Jitter
    left_out_error: float  # share of training inputs that the others classify wrongly (leave-one-out, exact)
    accuracy: float | None  # None: no labels to compare with
    stderr: float | None  # of the accuracy, binomial

    @property
    def error(self) -> float | None:
        return None if self.accuracy is None else 1 - self.accuracy


def kernel_classifier(
    kernel: Tensor,
    labels: Tensor,
    cross: Tensor,
    truth: Tensor | None = None,
    *,
    noise: float | Sequence[float] = 0.0,
) -> KernelClassification:
    """Classify m inputs from n labelled ones: argmax over classes of `cross (kernel + s² I)^-1 (Y - 1/classes)`.

    kernel: (n, n) over the training inputs, labels: (n,) their classes, cross: (m, n) between new and training inputs,
    truth: (m,) to compare with. noise: s² over the mean of the diagonal; of several, the one with the least
    leave-one-out error on the training inputs (the residual of input i without itself is `a_i / (K^-1)_ii`). Solved by
    Cholesky in float64; where the factor does not exist, the smallest sufficient power of ten is added and reported.

    >>> x = torch.tensor([[0.0], [1.0], [4.0], [5.0]])
    >>> near = torch.exp(-(x - x.T) ** 2)
    >>> found = kernel_classifier(near, torch.tensor([0, 0, 1, 1]), near[1:3], torch.tensor([0, 1]))
    >>> found.predictions, found.accuracy, found.jitter
    (tensor([0, 1]), 1.0, Jitter(added=0.0, failures=0))
    """
    kernel, labels, cross = _checked(kernel, labels, cross, truth)
    classes, codes = torch.unique(labels, return_inverse=True)
    targets = torch.nn.functional.one_hot(codes, len(classes)).double() - 1 / len(classes)
    scale = float(kernel.diagonal().mean())
    best: tuple[float, float, Jitter, Tensor] | None = None
    for amount in _noises(noise):
        factor, jitter = _factor(kernel, amount, scale)
        inverse = torch.cholesky_inverse(factor)
        weights = inverse @ targets
        left_out = targets - weights / inverse.diagonal()[:, None]
        wrong = float((left_out.argmax(1) != codes).double().mean())
        if best is None or wrong < best[0]:
            best = wrong, amount, jitter, weights
    assert best is not None
    wrong, amount, jitter, weights = best
    scores = cross @ weights
    predictions = classes[scores.argmax(1)]
    accuracy = None if truth is None else float((predictions == truth.to(predictions)).double().mean())
    stderr = None if accuracy is None else math.sqrt(accuracy * (1 - accuracy) / len(cross))
    return KernelClassification(predictions, scores, classes, amount, jitter, wrong, accuracy, stderr)


def _factor(kernel: Tensor, noise: float, scale: float) -> tuple[Tensor, Jitter]:
    """The Cholesky factor of the kernel with noise, and as little more as it takes."""
    added, failures = 0.0, 0
    while True:
        shifted = kernel.clone()
        shifted.diagonal().add_((noise + added) * scale)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info) == 0:
            return factor, Jitter(added, failures)
        failures += 1
        added = 10 * added if added else _FIRST_JITTER
        if added > _LAST_JITTER:
            problem = f"is not positive semidefinite: {_LAST_JITTER:g} of its diagonal more did not suffice"
            raise BadInput("kernel", problem, "give the symmetric matrix of products or cosines of the training inputs")


def _noises(noise: float | Sequence[float]) -> list[float]:
    noises = [float(noise)] if isinstance(noise, int | float) else [float(amount) for amount in noise]
    if not noises or not all(amount >= 0 and math.isfinite(amount) for amount in noises):
        raise BadInput("noise", f"got {noise!r}, expected numbers that are not negative", "use for example 1e-3")
    return noises


def _checked(kernel: Tensor, labels: Tensor, cross: Tensor, truth: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    count = len(kernel) if kernel.ndim else 0
    if count == 0 or kernel.shape != (count, count):
        raise BadInput("kernel", f"shape {tuple(kernel.shape)}, expected (n, n)", "give all pairs of training inputs")
    if labels.shape != (count,) or labels.is_floating_point():
        got = f"shape {tuple(labels.shape)} of {labels.dtype}"
        raise BadInput("labels", f"{got}, expected ({count},) of whole numbers", "give one class per training input")
    if cross.ndim != 2 or cross.shape[1] != count:
        problem = f"shape {tuple(cross.shape)}, expected (m, {count})"
        raise BadInput("cross", problem, "one row for each new input, one column for each training input")
    if truth is not None and truth.shape != (len(cross),):
        raise BadInput("truth", f"shape {tuple(truth.shape)}, expected ({len(cross)},)", "give one class per new input")
    for name, matrix in (("kernel", kernel), ("cross", cross)):
        if not bool(matrix.isfinite().all()):
            raise BadInput(name, "contains NaN or infinity", "leave out inputs that are zero")
    kernel = kernel.detach().cpu().double()
    if not torch.allclose(kernel, kernel.T, rtol=1e-5, atol=1e-6 * float(kernel.diagonal().abs().mean())):
        raise BadInput("kernel", "is not symmetric", "give all pairs of the training inputs, in the same order twice")
    return kernel, labels.detach().cpu(), cross.detach().cpu().double()
