"""Where the channels lie: which measured values theory can follow, known while a model runs."""

from __future__ import annotations

from torch import Tensor

from initscope.layers import Activate, Conv, Dense, Layer
from initscope.probe.trace import INPUT, Call, Seen
from initscope.probe.translation import layer_for

_GAUSSIAN = ("dense", "conv", "norm")  # kinds of steps behind which a closed form needs no draws


class Layouts:
    """Shapes (c, ...) of the values whose second axis holds channels, by the step that made them."""

    def __init__(self, data: Tensor) -> None:
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._kinds: dict[int, str] = {}
        if 2 <= data.ndim <= 5 and data.is_floating_point():
            self._shapes[INPUT] = tuple(data.shape[1:])

    def follows(self, call: Call) -> bool:
        """Whether the second axis of what the call makes holds channels.

        So it is for vectors, for what a convolution makes, and for what keeps the layout of such values; tokens (n, t, d)
        and images with the channels last are none of these.
        """
        if len(call.shape) == 2 or call.kind == "conv":
            return True
        return any(self.fits(seen, call) for seen in operands(call) if seen.maker in self._shapes)

    def fits(self, seen: Seen, call: Call) -> bool:
        """The operand lies as its maker's values did: views in between moved no axes.

        Data with one or three axes of positions may as well be tokens; it takes a convolution to tell.
        """
        shape = None if seen.maker is None else self._shapes.get(seen.maker)
        if seen.maker == INPUT and len(seen.shape) in (3, 5) and call.kind != "conv" and call.function != "batch_norm":
            return False
        return len(seen.shape) == 2 or seen.shape[1:] == shape

    def exact(self, call: Call) -> bool:
        """Whether theory is sure to take this step, at a small cost: nothing will have to start from its measured values."""
        if not call.inputs or any(i not in self._shapes for i in call.inputs):
            return False
        if not all(self.fits(seen, call) for seen in operands(call)):
            return False
        layer = layer_for(call)
        if isinstance(layer, Conv):
            return layer.groups == 1
        behind = all(self._kinds.get(i) in _GAUSSIAN for i in call.inputs)
        return isinstance(layer, Dense) or (behind and not integrates(layer) and isinstance(layer, Activate))

    def made(self, call: Call, shape: tuple[int, ...] | None) -> None:
        """What a call made lies in this shape; None: it is not followed."""
        self._kinds[call.index] = call.kind
        if shape is None:
            self._shapes.pop(call.index, None)
        else:
            self._shapes[call.index] = shape


def integrates(layer: Layer | None) -> bool:
    """Whether the layer is an activation without a closed form."""
    return isinstance(layer, Activate) and layer.activation.rung != "closed form"


def operands(call: Call) -> list[Seen]:
    """The tensors among the arguments that come from the data."""
    given = [*call.arguments, *call.keywords.values()]
    flat = [part for each in given for part in (each if isinstance(each, (list, tuple)) else (each,))]
    return [part for part in flat if isinstance(part, Seen) and part.maker is not None]
