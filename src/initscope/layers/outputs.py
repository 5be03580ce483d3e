"""What Gaussian weights make of a few inputs, drawn without drawing the weights.

The rows of W are independent N(0, v I). With Hᵀ = QR for the inputs H (n, d), H Wᵀ = Rᵀ (Qᵀ Wᵀ), and Qᵀ Wᵀ is again a matrix
of independent N(0, v): n · width random numbers have the law that d · width weights would give. R comes from reflections of H
itself, never from the Gram matrix, whose rounding would drown the distance of two inputs that are close.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

# Time of one normal random number and of one operation of the QR factorisation, in operations of a matrix product (measured).
_NORMAL, _REFLECTION = 500, 2
_BLOCK = 64  # rows of the triangular product computed at once
_DEPENDENT = 1000  # a diagonal entry of R below this many roundings of its column: the input may repeat another


def saves_weights(inputs: int, fan_in: int, width: int, dtype: torch.dtype) -> bool:
    """Whether drawing the outputs costs less than drawing the weights; decided by sizes alone, so it never varies.

    >>> saves_weights(200, 1000, 1000, torch.float32), saves_weights(200, 1000, 10, torch.float32)
    (True, False)
    """
    if inputs >= fan_in or dtype not in (torch.float32, torch.float64):
        return False
    factor = _REFLECTION * 2 * inputs**2 * (fan_in - inputs / 3)  # Householder QR
    outputs = factor + inputs * width * (2 * inputs + _NORMAL)
    return outputs < fan_in * width * (2 * inputs + _NORMAL)


def gaussian_outputs(inputs: Tensor, width: int, variance: float, generator: Generator) -> Tensor:
    """A draw of H Wᵀ, (n, width), for inputs H (n, d) and independent weights N(0, variance).

    Equal inputs get equal outputs, a zero input gets zeros.

    >>> same = torch.tensor([[3.0, 4.0, 0.0], [3.0, 4.0, 0.0]])
    >>> one, two = gaussian_outputs(same, 5, 0.1, torch.Generator().manual_seed(0))
    >>> torch.equal(one, two)
    True
    """
    root = torch.linalg.qr(inputs.T, mode="r").R  # (min(n, d), n)
    normals = torch.randn(len(root), width, generator=generator, dtype=inputs.dtype).to(inputs.device)
    scaled = root * math.sqrt(variance)
    outputs = inputs.new_empty(len(inputs), width)
    for start in range(0, len(inputs), _BLOCK):
        stop = min(start + _BLOCK, len(inputs))
        # R is triangular: the first inputs depend on the first normals alone.
        torch.mm(scaled[:stop, start:stop].T, normals[:stop], out=outputs[start:stop])
    return _repeat(inputs, root, outputs)


def _repeat(inputs: Tensor, root: Tensor, outputs: Tensor) -> Tensor:
    """Rounding would tell equal inputs apart: each takes the outputs of its first appearance."""
    pivots = root.diagonal().abs()
    lengths = root.square().sum(0).sqrt()[: len(pivots)]
    if bool((pivots > _DEPENDENT * torch.finfo(inputs.dtype).eps * lengths).all()):
        return outputs
    _, group = torch.unique(inputs, dim=0, return_inverse=True)
    index = torch.arange(len(inputs), device=inputs.device)
    first = torch.full_like(index, len(inputs)).scatter_reduce(0, group, index, "amin")
    return outputs[first[group]]
