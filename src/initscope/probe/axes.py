"""Where the samples lie: the axis that they have after a call, and calls that may carry them into each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

RESHAPES = ("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel")
ORDERS = ("transpose", "swapaxes", "permute", "movedim", "t", "T", "mT", "adjoint")  # axes, in another order
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
ATTENTION = "multi_head_attention_forward"
_BATCH_FIRST, _PADDED = 8, 9  # the place of that argument, and how many there are unless sequences are packed
# Functions that put entries of an axis into another order, or combine them: the place of the argument that names the axis.
_ALONG = {
    **dict.fromkeys(("sort", "argsort", "index_select", "gather", "take_along_dim", "cumsum", "cumprod"), 1),
    **dict.fromkeys(("softmax", "log_softmax", "mean", "sum", "std", "var", "amax", "amin", "max", "min", "median"), 1),
    **dict.fromkeys(("logsumexp", "prod", "flip"), 1),
    **dict.fromkeys(("roll", "norm", "normalize"), 2),
}


def moved_axis(function: str, args: Any, shape: tuple[int, ...], axis: int | None) -> int | None:
    """The axis of the samples after a call that orders axes anew; None where that is not known."""
    if axis is None:
        return None
    size = len(shape)
    numbers = [a for a in args[1:] if isinstance(a, int)]
    if function in ("transpose", "swapaxes", "swapdims"):
        one, other = (n % size for n in numbers) if len(numbers) == 2 else (axis, axis)
        return {one: other, other: one}.get(axis, axis)
    if function == "permute":
        order = numbers or next((list(a) for a in args[1:] if isinstance(a, list | tuple)), [])
        return [n % size for n in order].index(axis) if len(order) == size else None
    if function == "unsqueeze":
        return axis + (numbers[0] % (size + 1) <= axis) if len(numbers) == 1 else None
    if function in ("t", "T", "mT", "adjoint"):
        return 2 * size - 3 - axis if axis >= size - 2 >= 0 and (size == 2 or function != "T") else None
    if function == "squeeze":
        named = numbers or next((list(a) for a in args[1:] if isinstance(a, list | tuple)), list(range(size)))
        gone = {d % size for d in named if shape[d] == 1}
        return None if axis in gone else axis - sum(d < axis for d in gone)
    return None if function in ("movedim", "stack") else axis


def axis_after(
    function: str, before: tuple[int, ...], axis: int | None, moved: int | None, after: tuple[int, ...]
) -> int | None:
    """That axis, if the result's shape bears it out: a step keeps its length, a view also what lies before it.

    The first axis may have taken in others behind it, as windows and tokens of a sample.
    """
    if axis is None or moved is None or moved >= len(after):
        return None
    if function in RESHAPES:
        same = math.prod(before[:axis]) == math.prod(after[:moved])
        return moved if same and (after[moved] == before[axis] or moved == 0) else None
    return moved if after[moved] == before[axis] else None


def doubtful(
    function: str, args: Any, keywords: dict[str, Any], shape: tuple[int, ...], axis: int | None, after: int | None
) -> bool:
    """Whether a call may carry samples into each other: it is worth a look, not yet a mistake.

    >>> doubtful("mean", (None, 0), {}, (8, 3), 0, None), doubtful("mean", (None, 1), {}, (8, 3), 0, 0)
    (True, False)
    """
    size = len(shape)
    if axis is None:
        return False
    if function in RESHAPES:
        return after is None
    if function == "linear":
        return axis == size - 1
    if function.startswith("conv"):
        return axis != 0 or size == int(function[-2]) + 1  # channels of one image
    if function in RECURRENT:
        return sequence_axis(args) == axis
    if function == ATTENTION:
        return axis == 0
    if function == "getitem":
        return _reordered(args[1] if len(args) > 1 else None, axis)
    return function in _ALONG and _names(_dimension(function, args, keywords), axis, size)


def sequence_axis(args: Any) -> int | None:
    """The axis that a recurrent function takes for time; None for packed sequences."""
    if len(args) < _PADDED or not isinstance(args[2], list | tuple):
        return None
    return 1 if args[_BATCH_FIRST] else 0


def _dimension(function: str, args: Any, keywords: dict[str, Any]) -> Any:
    place = _ALONG[function]
    named = next((keywords[name] for name in ("dim", "dims", "axis") if name in keywords), None)
    return args[place] if named is None and len(args) > place else named


def _names(dimension: Any, axis: int, size: int) -> bool:
    """Whether an argument `dim` means the axis; without one it means all."""
    if dimension is None:
        return True
    found = [dimension] if isinstance(dimension, int) else dimension
    return isinstance(found, Iterable) and any(isinstance(d, int) and d % max(size, 1) == axis for d in found)


def _reordered(index: Any, axis: int) -> bool:
    """Whether an index takes entries of the axis by their numbers; slices keep their order."""
    parts = index if isinstance(index, tuple) else (index,)
    plain = (int, slice, type(None), type(...))
    return any(not isinstance(part, plain) for part in parts[: axis + 1])
