"""What the pooling layers share: windows over positions, or groups of units where there are no positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Generator, Tensor, nn

from initscope.errors import BadInput, NoExactForm
from initscope.geometry import Draw, State, draw_units
from initscope.layers.layer import Layer, Shape, SingleLayer, require_image, require_positive, window_count


@dataclass(frozen=True, repr=False)
class WindowPool(SingleLayer):
    """A pooling layer over windows of positions, or over groups of `window` units of a vector."""

    window: int
    stride: int | None = None  # the window unless given

    def __post_init__(self) -> None:
        require_positive("pool", window=self.window, stride=self.stride)

    @property
    def step(self) -> int:
        return self.stride or self.window

    @property
    def needs_all_positions(self) -> bool:
        return True

    def output_shape(self, shape: Shape) -> Shape:
        return pooled_shape(self, shape, self.window, self.step)


def pooled_shape(layer: Layer, shape: Shape, window: int, stride: int) -> Shape:
    """(c, h, w) -> (c, h', w'), or (d,) -> (d/window,): vectors are pooled over groups of units."""
    if len(shape) == 3:
        return shape[0], *(window_count(layer, n, window, stride) for n in shape[1:])
    if stride != window or shape[0] % window:
        raise BadInput(
            layer.word,
            f"{shape[0]} units do not split into groups of {window} (stride {stride})",
            "use a window that divides the width, and no stride",
        )
    return (shape[0] // window,)


def global_shape(layer: Layer, shape: Shape) -> Shape:
    require_image(layer, shape)
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
    """The finite face of a pooling layer: `on_image` for (n, c, h, w), `on_group` for the last axis of (n, groups, window)."""

    def __init__(
        self, window: int | None, on_image: Callable[[Tensor], Tensor], on_group: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.window, self.on_image, self.on_group = window, on_image, on_group

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 4:
            return self.on_image(x)
        assert self.window is not None
        return self.on_group(x.reshape(len(x), -1, self.window))


def on_units(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Apply a (n, 1, h, w) function to samples (K, units, images, h, w), each unit being a channel of its own."""

    def apply(samples: Tensor) -> Tensor:
        out = function(samples.flatten(0, 2)[:, None])[:, 0]
        return out.reshape(*samples.shape[:3], *out.shape[1:])

    return apply
