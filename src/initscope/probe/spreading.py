"""Follows a change through a model: two passes, in which one sample differs, are written down tensor by tensor.

A projection of the values for each index of each axis tells which indices changed. As long as samples are apart, the changed
entries are a box, 1/n of all: the product of the changed shares of all axes. Views keep that share, but not always the box;
other functions keep the box unless they combine samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from initscope.probe.axes import ATTENTION, RECURRENT, sequence_axis
from initscope.probe.batches import Batch, main_output
from initscope.probe.operations import operation_of, short_name
from initscope.probe.safekeeping import prepare, untouched
from initscope.probe.trace import Recorder, tensors_in

ROUNDING = 1e-5  # changes below this share of the largest value are not counted
_SMALL = 1e-3  # nor are those below this share of the largest change
Written = tuple[list["Entry"], int | None]  # all tensors of one pass, and which of them is the output


@contextmanager
def _evaluating(model: nn.Module, seed: int) -> Iterator[None]:
    """In evaluation mode and without gradients; fused kernels that only such passes take would hide what happens inside."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with untouched(model, seed, users_code=False), torch.no_grad():
            prepare(model, train=False, dropout=False)
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def answer(model: nn.Module, batch: Batch, seed: int) -> Tensor | None:
    """What the model returns first; None if it does not run in evaluation mode, or returns no numbers there."""
    with _evaluating(model, seed):
        try:
            return main_output(batch.copy().run(model)).clone()
        except Exception:  # the user's code may raise anything
            return None


@dataclass(frozen=True, eq=False)
class Entry:
    """A tensor that was made of the data: by which function, where, from which others, and its projections."""

    function: str
    name: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    projections: list[Tensor]
    weighed: bool  # the function takes a weight too
    sequence: int | None  # the axis of its first operand that is taken for time


class _Tape(TorchFunctionMode):
    """Writes down every tensor that is made of the data; works inside of a recorder, which knows the names of steps."""

    def __init__(self, recorder: Recorder[None], inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self._recorder = recorder
        self._at: WeakIdKeyDictionary = WeakIdKeyDictionary()
        for t in inputs:
            self._add("", "", (), t, False, None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors_in((args, kwargs or {}))
        inputs = tuple(dict.fromkeys(self._at[t] for t in given if t in self._at))
        steps = len(self._recorder.steps)
        out = func(*args, **(kwargs or {}))
        function = short_name(func)
        if not inputs or operation_of(func).constant:
            return out
        name = f"{self._recorder.place}:{function}".lstrip(":")
        name = self._recorder.steps[-1].call.name if len(self._recorder.steps) > steps else name
        sequence = sequence_axis(args) if function in RECURRENT else 0 if function == ATTENTION else None
        weighed = any(isinstance(t, nn.Parameter) or t.requires_grad for t in given if t not in self._at)
        written = [args[0]] if function == "setitem" else tensors_in(out)
        for t in written:
            self._add(function, name, inputs, t, weighed, sequence)
        return out

    def at(self, t: Tensor) -> int | None:
        found: int | None = self._at.get(t)  # type: ignore[no-untyped-call]
        return found

    def _add(
        self, function: str, name: str, inputs: tuple[int, ...], t: Tensor, weighed: bool, sequence: int | None
    ) -> None:
        self._at[t] = len(self.entries)
        self.entries.append(Entry(function, name, inputs, tuple(t.shape), projections(t.detach()), weighed, sequence))


def written_down(model: nn.Module, batch: Batch, seed: int) -> Written:
    """All tensors of one pass, and which of them is the output."""
    batch = batch.copy()
    inputs = (batch.arguments, batch.keywords)
    with _evaluating(model, seed):
        recorder: Recorder[None] = Recorder(model, inputs, lambda call, values: None, data=batch.data)
        tape = _Tape(recorder, [t for t in tensors_in(inputs) if t.ndim > 0 and len(t) == batch.samples])
        with recorder.watching(), tape:
            output = main_output(batch.run(model))
        return tape.entries, tape.at(output)


def projections(values: Tensor) -> list[Tensor]:
    """For each axis a random combination of the values at each of its indices, in float64."""
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    values = torch.nan_to_num(values.double(), 0.0, 0.0, 0.0)
    found = []
    for axis in range(values.ndim):
        rows = values.movedim(axis, 0).flatten(1) if values.ndim > 1 else values[:, None]
        found.append(rows @ torch.cos(torch.arange(1.0, rows.shape[1] + 1, dtype=torch.float64, device=rows.device)))
    return found


def changed_indices(before: Sequence[Tensor], after: Sequence[Tensor]) -> list[Tensor]:
    """For each axis which indices changed beyond rounding."""
    found = []
    for a, b in zip(before, after, strict=True):
        gap = (a - b).abs()
        size, largest = (
            float(torch.maximum(a.abs(), b.abs()).max()) if len(a) else 0.0,
            float(gap.max()) if len(a) else 0.0,
        )
        found.append(gap > max(ROUNDING * size, _SMALL * largest))
    return found


def box_share(changed: Sequence[Tensor]) -> float:
    """Share of the entries in the smallest box around what changed."""
    return math.prod(float(c.double().mean()) if len(c) else 0.0 for c in changed)
