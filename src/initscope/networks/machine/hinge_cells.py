"""What the compiled step of hinges needs: numbers of every input, numbers of the step.

Fields of an input: 1/s, s, a_0, a_1, a_2 of f, η_0, η_1, η_2 of its hinges (Hermite coefficients), then for each place h of
hinges α = h/s, φ(α), Φ(-α) and, but for h = 0, B(α, 0) and the coefficients of B(α, .).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from initscope.networks.machine.cells import Array, Laid
from initscope.networks.machine.frames import SNAP
from initscope.networks.machine.kinks import Hinges
from initscope.networks.machine.owen import DOUBLE, HIGH, LOW, SINGLE, Rule

LEAD, EDGE = 8, 3  # fields before those of the hinges, and of a hinge at 0
HEADER, PER_VERTEX = 11, 9
_LEAST_ROOT = 1e-11  # of 1 - ρ²: equal inputs have hinges at equal places or far apart
RULES: dict[torch.dtype, Rule] = {torch.float32: SINGLE, torch.float64: DOUBLE}


@dataclass(frozen=True, eq=False)
class HingeCells(Laid):
    """The fields, for coefficients of B by the rule."""

    hinges: Hinges
    rule: Rule

    @property
    def fields(self) -> int:
        return self.starts[-1]

    @property
    def starts(self) -> list[int]:
        """Where the fields of each place begin, and where they end."""
        found = [LEAD]
        for h in self.hinges.places:
            found.append(found[-1] + EDGE + (1 + self.rule.terms if h else 0))
        return found

    def filling(self, a: Tensor, out: Array, width: int) -> list[Callable[[], None]]:
        from initscope.networks.machine.filling import fill_hinges

        return [
            partial(
                fill_hinges, some, self.hinges.table, np.array(self.hinges.center), LOW * math.log(2), HIGH * math.log(2),
                self.rule.cells / math.log(2), self.rule.table, np.array(self.starts), part, width,
            )
            for some, part in self.parts(a, out, width)
        ]  # fmt: skip

    @property
    def constants(self) -> tuple[float, ...]:
        """Those of the rule; for each vertex where the fields of both hinges begin, the sign, its sums, whether they have a B."""
        found = [0.0, 1.0, 0.5, 1 / (2 * math.pi), math.pi / 2, SNAP, _LEAST_ROOT, self.rule.per, self.rule.reach]
        found += self.rule.places
        for v in self.hinges.vertices:
            beside = [float(self.hinges.places[i] > 0) for i in (v.i, v.j)]
            found += [self.starts[v.i], self.starts[v.j], v.sign, v.cc, v.cd, v.dc, v.dd, *beside]
        return tuple(found)
