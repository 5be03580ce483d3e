"""Weight laws by name, and the drawing of filters in blocks that do not depend on how much memory there is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from initscope import weights
from initscope.errors import BadInput
from initscope.geometry import generator
from initscope.images.architectures import ConvPlan
from initscope.weights import Fans, Independent, WeightLaw

Law = WeightLaw | str
_BLOCK = 2**20  # weights drawn at once; part of what a seed means


def read_law(law: Law) -> WeightLaw:
    """A law, or its name with its numbers in brackets.

    >>> read_law("laplace_fixed(0.01)") == weights.Laplace(0.01, "none")
    True
    """
    if isinstance(law, WeightLaw):
        return law
    match = re.fullmatch(r"\s*([a-z_0-9]+)\s*(?:\(([^()]*)\))?\s*", law) if isinstance(law, str) else None
    if match is None:
        raise BadInput("law", f"got {law!r}, expected a weight law", "write for example he or gaussian_fixed(0.01)")
    try:
        numbers = [float(part) for part in (match[2] or "").split(",") if part.strip()]
    except ValueError as error:
        raise BadInput("law", f"got {law!r}, expected numbers in the brackets", "write laplace_fixed(0.01)") from error
    return weights.by_name(match[1], *numbers)


def holds_width(law: WeightLaw) -> bool:
    """Whether the law divides by the width itself, as DC's Definition 1 does by 1/√N."""
    return not (isinstance(law, Independent) and law.fan == "none")


@dataclass(frozen=True)
class Source:
    """Where the filters of one layer come from: the same source always gives the same filters.

    `part` tells layers apart; `scale` multiplies the weights.
    """

    plan: ConvPlan
    law: WeightLaw
    seed: int
    part: tuple[int, ...]
    scale: float = 1.0

    @property
    def rows(self) -> int:
        """Filters drawn at once: all of them where the law relates them to each other."""
        if not isinstance(self.law, Independent):
            return self.plan.outputs
        return min(self.plan.outputs, max(1, _BLOCK // (self.plan.inputs * self.plan.kernel**2)))

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """The filters (rows, inputs, kernel, kernel), some rows after the other."""
        plan = self.plan
        fans = Fans(plan.inputs, plan.outputs, plan.kernel**2)
        for number in range(math.ceil(plan.outputs / self.rows)):
            rows = slice(number * self.rows, min((number + 1) * self.rows, plan.outputs))
            shape = (rows.stop - rows.start, plan.inputs, plan.kernel, plan.kernel)
            random = generator(self.seed, *self.part, number)
            drawn = self.law.sample(shape, fans, random, torch.float32)
            yield rows, drawn if self.scale == 1 else drawn * self.scale

    def all(self) -> Tensor:
        """All filters, (outputs, inputs, kernel, kernel)."""
        plan = self.plan
        found = torch.empty(plan.outputs, plan.inputs, plan.kernel, plan.kernel)
        for rows, drawn in self.blocks():
            found[rows] = drawn
        return found
