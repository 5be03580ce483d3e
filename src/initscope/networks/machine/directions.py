"""Directions that hold the curve of an activation's coefficients, see `curves`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from initscope.networks.machine.curves import COSINES, NODES, Array, Strand

MOST = 12  # directions of one strand
_SAFETY = 1.2  # for what lies between the points that are compared


@dataclass(frozen=True, eq=False)
class Directions:
    """V (orders and powers, directions), the coordinates φ (directions, points), and what they miss."""

    strand: Strand
    vectors: Array
    coordinates: Array
    misses: Misses

    @classmethod
    def of(cls, strand: Strand, allowed: tuple[float, float], zeros: bool) -> Directions | None:
        """The fewest that miss no more than allowed of E f f' and of slopes; `zeros`: of variance 0 too."""
        vectors, size = strand.vectors, np.sqrt(strand.curve.energies[0])
        points = vectors.shape[1]
        if zeros and strand.curve.table.at_zero[0]:
            vectors, size = np.concatenate([vectors, strand.constant[:, None]], 1), np.append(size, 1.0)
        plain = strand.plain(vectors) / size
        basis = np.linalg.svd(plain, full_matrices=False)[0]
        back, coordinates = strand.back(basis), (basis.T @ plain) * size
        misses = Misses(strand, vectors[:, NODES:], coordinates[:, NODES:])
        most = min(basis.shape[1], MOST)
        checked = [slope for slope in (False, True) if allowed[slope] < math.inf]
        forms = {slope: strand.products(back[:, :most], COSINES, slope) for slope in checked}
        for count in range(most + 1):
            if all(misses.largest(form[:count, :count], slope) <= allowed[slope] for slope, form in forms.items()):
                return cls(strand, back[:, :count], coordinates[:count, :points], misses)
        return None

    @property
    def count(self) -> int:
        return int(self.vectors.shape[1])

    def sizes(self, slope: bool) -> Array:
        """The largest |φ_r| beside the root of E f² or s² E f'²."""
        root = np.sqrt(self.strand.curve.energies[slope])
        found: Array = np.abs(self.coordinates / root).max(1, initial=0.0)
        return found

    @property
    def at_zero(self) -> Array:
        """The coordinates at variance 0, where f is constant."""
        here = np.linalg.lstsq(self.strand.plain(self.vectors), self.strand.plain(self.strand.constant), rcond=None)[0]
        found: Array = here * self.strand.curve.table.at_zero[0]
        return found


@dataclass(frozen=True, eq=False)
class Misses:
    """What coordinates and products of directions make of a strand beside what it is, at pairs of points and some cosines."""

    strand: Strand
    vectors: Array
    points: Array

    @cached_property
    def _true(self) -> tuple[Array, Array]:
        first, second = (self.strand.products(self.vectors, COSINES, slope) for slope in (False, True))
        return first, second

    def largest(self, forms: Array, slope: bool) -> float:
        """With these Q_pq at `COSINES`, or their derivatives, beside E f² or s² E f'²."""
        points = self.points[: len(forms)]
        made = np.einsum("pm,qn,pqk->mnk", points, points, forms, optimize=True)
        root = np.sqrt(self.strand.curve.energies[slope][NODES:])
        root = np.append(root, np.ones(points.shape[1] - len(root)))
        off = np.abs(made - self._true[slope]) / (root[:, None, None] * root[:, None])
        return _SAFETY * float(off.max(initial=0.0))
