"""What a style transfer is asked to do, checked; and how much memory it will take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from initscope.errors import BadInput
from initscope.images.architectures import ConvPlan, Layout, PoolPlan, Size
from initscope.images.style.search import HISTORY
from initscope.images.tiling import refuse

_FLOAT = 4
_SMALLEST = 16  # pixels along the shorter side
_POSITIONS = 16  # of a map whose statistics are worth comparing
# Maps of the widest layer held besides those of the graph, measured: gradients, statistics, copies for kernels.
_LIVE = 7
_ROUGH = 2**27  # what Python and the libraries take anyway


@dataclass(frozen=True)
class Scales:
    """Which stages, counted from 1, are compared for style and for content."""

    style: tuple[int, ...]
    content: tuple[int, ...]

    @property
    def deepest(self) -> int:
        return max(*self.style, *self.content)


def choose_scales(
    plan: Layout, size: Size, first: int, style: Sequence[int] | None, content: Sequence[int] | None
) -> Scales:
    """The stages asked for, or else Conv[first] to the last for style and the last but one for content.

    Stages whose maps are too small are left out.
    """
    sizes = stage_sizes(plan, size)
    possible = [k for k in range(first, len(sizes) + 1) if math.prod(sizes[k - 1]) >= _POSITIONS]
    if not possible:
        problem = f"{size[1]}x{size[0]} pixels leave fewer than {_POSITIONS} positions at Conv{first}"
        raise BadInput("size", problem, "use larger pictures, or a smaller depth")
    words = f"choose from {', '.join(map(str, possible))}"
    for name, asked in (("style_layers", style), ("content_layers", content)):
        wrong = [stage for stage in asked or () if stage not in possible]
        if wrong:
            raise BadInput(name, f"got {wrong[0]!r}, which cannot be compared at {size[1]}x{size[0]} pixels", words)
        if asked is not None and not len(asked):
            raise BadInput(name, "names no stage", words)
    last = min(possible[-1], len(sizes) - 1)
    return Scales(tuple(style or possible), tuple(content or (max(first, last),)))


def stage_sizes(plan: Layout, size: Size) -> list[Size]:
    """Height and width of the feature of every stage."""
    sizes, found, position = plan.sizes(size), [], 0
    for stage in plan.stages:
        position += len(stage.convs) + (stage.pool is not None)
        found.append(sizes[position])
    return found


def fit_size(size: Size, longest: int | None) -> Size:
    """Height and width with the longer side at `longest`, the shape kept; None keeps the size.

    >>> fit_size((300, 400), 200)
    (150, 200)
    """
    if longest is not None:
        if isinstance(longest, bool) or not isinstance(longest, int) or longest < 1:
            raise BadInput("size", f"got {longest!r}, expected a number of pixels", "pass for example 256")
        ratio = longest / max(size)
        size = (max(1, round(size[0] * ratio)), max(1, round(size[1] * ratio)))
    if min(size) < _SMALLEST:
        problem = f"{size[1]}x{size[0]} pixels are too few to have a style"
        raise BadInput("size", problem, f"use at least {_SMALLEST} along the shorter side")
    return size


def transfer_bytes(plan: Layout, size: Size, first: int, deepest: int, variable: int, optimizer: str) -> int:
    """An estimate of the peak: the maps of the graph, gradients of the widest, filters, what the optimizer remembers."""
    sizes, held, widest, position, channels = plan.sizes(size), 0, 0, 0, plan.inputs
    for number, stage in enumerate(plan.stages[:deepest]):
        steps: list[PoolPlan | ConvPlan] = [*([stage.pool] if stage.pool else []), *stage.convs]
        for step in steps:
            position += 1
            channels = channels if isinstance(step, PoolPlan) else step.outputs
            numbers = channels * math.prod(sizes[position])
            widest = max(widest, numbers)
            if number >= first:
                held += numbers
    filters = sum(conv.weights for stage in plan.stages for conv in stage.convs)
    remembered = (2 * HISTORY + 6 if optimizer == "lbfgs" else 6) * variable
    return _FLOAT * (held + _LIVE * widest + 2 * filters + remembered) + _ROUGH


def check_memory(plan: Layout, size: Size, first: int, deepest: int, free: bool, optimizer: str, allowed: int) -> int:
    """The estimate; BadInput, naming a size that fits, where it is more than is allowed."""

    def needed(height: int, width: int) -> int:
        rows, columns = plan.sizes((height, width))[0] if not first else stage_sizes(plan, (height, width))[first - 1]
        channels = plan.stages[first - 1].convs[-1].outputs if free else plan.inputs
        variable = channels * (rows * columns if free else height * width)
        return transfer_bytes(plan, (height, width), first, deepest, variable, optimizer)

    total = needed(*size)
    if total <= allowed:
        return total
    longest = max(size)
    side = longest
    while side > _SMALLEST and needed(*(max(1, n * side // longest) for n in size)) > allowed:
        side = side * 15 // 16
    fitting = f"size {side} fits" if side > _SMALLEST else "use fewer channels"
    raise refuse("stylize", total, allowed, f"{fitting}, or raise memory")
