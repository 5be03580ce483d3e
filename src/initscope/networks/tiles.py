"""Rectangles of pairs."""

from __future__ import annotations


def tiles(n: int, m: int, side: int, symmetric: bool) -> list[tuple[slice, slice]]:
    """Rectangles of at most side x side pairs that together cover (n, m), or its upper triangle.

    >>> tiles(3, 3, 2, symmetric=True)
    [(slice(0, 2, None), slice(0, 2, None)), (slice(0, 2, None), slice(2, 3, None)), (slice(2, 3, None), slice(2, 3, None))]
    """
    return [
        (slice(i, min(i + side, n)), slice(j, min(j + side, m)))
        for i in range(0, n, side)
        for j in range(i if symmetric else 0, m, side)
    ]
