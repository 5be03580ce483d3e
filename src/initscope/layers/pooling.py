"""What the pooling layers share: windows over positions, or groups of units where there are no positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from initscope.errors import BadInput, NoExactForm
from initscope.geometry import Draw, State, draw_units
from initscope.layers.layer import Layer, Shape, SingleLayer, require_number, require_positions, require_positive
from initscope.layers.shifts import Size, Sizes, Window, axes_of, check_size, short_size, spread

PoolPadding = Literal["valid", "zero", "same"]
_MEANS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_MAXIMA = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


@dataclass(frozen=True, repr=False)
class WindowPool(SingleLayer):
    """A pooling layer over windows of positions, or over groups of `window` units of a vector.

    A size that is one number holds along every position axis. `padding`: "valid" has none, "zero" keeps the size at
    stride 1 or adds `margin` positions on every side, "same" gives ceil(size / stride) outputs as TensorFlow does.
    """

    window: Size
    stride: Size | None = None  # the window unless given
    padding: PoolPadding = "valid"
    margin: Size | None = None

    def __post_init__(self) -> None:
        for name in ("window", "stride"):
            size = getattr(self, name)
            for value in () if size is None else check_size("pool", name, size):
                require_positive("pool", **{name: value})
        for value in () if self.margin is None else check_size("pool", "margin", self.margin):
            require_number("pool", margin=value)
        if self.padding not in get_args(PoolPadding):
            raise BadInput("pool", f"padding is {self.padding!r}", f"choose from {', '.join(get_args(PoolPadding))}")
        if self.margin is not None and self.padding != "zero":
            raise BadInput("pool", f"padding={self.padding!r} has no margin", "use padding='zero', or no margin")
        _ = self.axes

    @property
    def step(self) -> Size:
        return self.stride or self.window

    @property
    def axes(self) -> int | None:
        """How many position axes the layer is written for; None: as many as the input has."""
        return axes_of("pool", window=self.window, stride=self.stride, margin=self.margin)

    @property
    def size_word(self) -> str:
        return short_size(self.window)

    @property
    def needs_all_positions(self) -> bool:
        return True

    def frame(self, axes: int) -> Window:
        """The sliding window on inputs with so many position axes."""
        margin = None if self.margin is None else spread(self.margin, axes)
        return Window(spread(self.window, axes), spread(self.step, axes), (1,) * axes, self.padding, margin)

    def group(self) -> int:
        """How many units of a vector are pooled together."""
        if not isinstance(self.window, int):
            raise BadInput(
                self.word, f"a window of {self.size_word} has no meaning for vectors", "use one number, or pool before"
            )
        return self.window

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) == 1:
            return self._grouped_shape(shape)
        require_positions(self, shape, self.axes)
        size, frame = shape[1:], self.frame(len(shape) - 1)
        out = frame.output_size(size)
        for n, k, outputs, margins in zip(size, frame.kernel, out, frame.margins(size), strict=True):
            if outputs < 1:
                raise BadInput(
                    self.word, f"window {k} is larger than the input of size {n + sum(margins)}", "use a smaller window"
                )
            # A window that lies in the padding alone would have nothing to take the maximum or the mean of.
            if k <= max(margins):
                raise BadInput(
                    self.word, f"a margin of {max(margins)} holds whole windows of {k}", "use a smaller margin"
                )
        return shape[0], *out

    def _grouped_shape(self, shape: Shape) -> Shape:
        window = self.group()
        if self.step != window or shape[0] % window or self.padding != "valid":
            raise BadInput(
                self.word,
                f"{shape[0]} units do not split into groups of {window} (stride {self.step}, padding {self.padding})",
                "use a window that divides the width, no stride and no padding",
            )
        return (shape[0] // window,)


def window_means(frame: Window, t: Tensor) -> Tensor:
    """Means over windows of inputs (n, c, *positions); what is padded counts as zeros."""
    out: Tensor = _MEANS[frame.axes](frame.pad(t), frame.kernel, frame.stride)
    return out


def window_maxima(frame: Window, t: Tensor) -> Tensor:
    """Maxima over windows of inputs (n, c, *positions); what is padded does not count."""
    out: Tensor = _MAXIMA[frame.axes](frame.pad(t, -math.inf), frame.kernel, frame.stride)
    return out


def global_shape(layer: Layer, shape: Shape) -> Shape:
    require_positions(layer, shape)
    return (shape[0],)


def require_independent(layer: Layer, state: State) -> None:
    """Pooling over units needs units that are alike and independent."""
    if not state.independent_units or len(state.shares) > 1:
        raise NoExactForm(
            layer.word, "the units of a group are not independent and alike here", "pool over units right after dense"
        )


def grouped(state: State, window: int, reduce: Callable[[Tensor], Tensor]) -> Draw:
    """Draws of units pooled in groups of `window`: `reduce` acts on the last axis."""

    def draw(units: int, generator: Generator) -> Tensor:
        samples = draw_units(state, units * window, generator)  # (K, units·window, images)
        return reduce(samples.reshape(len(samples), units, window, -1).movedim(2, -1))

    return draw


class Pool(nn.Module):
    """The finite face of a pooling layer: `on_positions` for (n, c, *p), `on_group` for the last axis of (n, groups, window)."""

    def __init__(
        self, window: int | None, on_positions: Callable[[Tensor], Tensor], on_group: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.window, self.on_positions, self.on_group = window, on_positions, on_group

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim > 2:
            return self.on_positions(x)
        assert self.window is not None
        return self.on_group(x.reshape(len(x), -1, self.window))


def on_units(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Apply a (n, 1, *p) function to samples (K, units, images, *p), each unit being a channel of its own."""

    def apply(samples: Tensor) -> Tensor:
        out = function(samples.flatten(0, 2)[:, None])[:, 0]
        return out.reshape(*samples.shape[:3], *out.shape[1:])

    return apply


def position_axes(t: Tensor) -> Sizes:
    """The axes of (n, c, *positions) that are positions."""
    return tuple(range(2, t.ndim))
