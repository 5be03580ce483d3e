"""Does each output depend on its own sample alone? One sample is replaced, and what changes is looked at.

Both passes are forward only, in evaluation mode (batch norm uses its running statistics) and with the same random numbers.
Only where outputs of other samples change too are two more passes made, in which every tensor is followed to see where it
begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from initscope.probe.axes import ATTENTION, ORDERS, RESHAPES
from initscope.probe.batches import Batch
from initscope.probe.operations import operation_of
from initscope.probe.spreading import ROUNDING, Written, answer, box_share, changed_indices, projections, written_down

_COMBINES = ("linear", "conv", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "bilinear")
AGGREGATES = (  # along a graph, or by an index
    "matmul", "mm", "bmm", "addmm", "einsum", "index_add", "scatter", "scatter_add", "scatter_reduce", "index_select",
    "gather", "getitem", "setitem", "index_put", "index_copy", "index_reduce",
)  # fmt: skip

Cause = Literal["view", "sequence", "order", "other"]


@dataclass(frozen=True)
class MixingFacts:
    """Outputs that depend on other samples.

    cause: "view" (a view laid samples across axes that a later function combines), "sequence" (a recurrent module or
    attention took the samples for time), "order" (rows come out in another order), or "other". step: where; taker: the step
    that then combines samples, where that is another one. op: the function. share: of the other samples whose output changes.
    own: the output of the replaced sample changes. sure: of a sequence, the axis of the samples cannot be meant as time.
    alone: of a sequence, there is no other axis that could be time.
    """

    cause: Cause
    step: str | None
    op: str
    share: float
    own: bool = True
    sure: bool = True
    alone: bool = False
    taker: str | None = None


def mixing_of(model: nn.Module, batch: Batch, seed: int) -> MixingFacts | None:
    """None where outputs belong to their own samples alone, or where that cannot be told."""
    tried = (_sample(batch.samples), _other_sample(batch.samples))
    for sample in dict.fromkeys(tried):  # a shuffle may leave one sample where it was
        other = _replaced(batch, sample)
        if other is None:
            return None
        found = _compared(model, batch, other, sample, seed)
        if found is not None:
            return found
    return None


def _sample(count: int) -> int:
    """Neither first nor last, which have no samples before or behind them, nor in the middle, which a flip keeps."""
    return count // 3 if count > 3 else 0


def _other_sample(count: int) -> int:
    return (2 * count) // 3 if count > 4 else count - 1


def _replaced(batch: Batch, sample: int) -> Batch | None:
    """The batch with another sample's row in all inputs that have one for each sample; None if all are the same."""
    rows = batch.data.detach().reshape(batch.samples, -1)
    differs = (rows != rows[sample]).any(1).nonzero().flatten().tolist()
    if not differs:
        return None
    source = differs[len(differs) // 2]

    def swap(t: Tensor) -> Tensor:
        if t.ndim == 0 or len(t) != batch.samples:
            return t
        t = t.detach().clone()
        t[sample] = t[source]
        return t

    arguments, keywords = tree_map_only(Tensor, swap, (batch.arguments, batch.keywords))
    return replace(batch, arguments=arguments, keywords=keywords)


def _compared(model: nn.Module, batch: Batch, other: Batch, sample: int, seed: int) -> MixingFacts | None:
    count = batch.samples
    before, after = (answer(model, b, seed) for b in (batch, other))
    if before is None or after is None or before.shape != after.shape or _sequence_first(batch, before):
        return None
    pair = tuple(before.shape[:2]) == (count, count)  # each sample against each
    changed = changed_indices(projections(before), projections(after))
    where = changed[0].nonzero().flatten().tolist() if len(before) == count else []
    if box_share(changed) <= 1 / count + ROUNDING:
        if len(where) != 1 or where == [sample]:
            return None
        facts = MixingFacts("order", None, "", 1 / (count - 1), own=False)
    elif len(before) % count and not _one_target_each(batch):
        return None
    else:
        others = len(set(where) - {sample}) / (count - 1) if where else 1.0
        facts = MixingFacts("other", None, "", others, own=not where or sample in where)
    story = _Story(written_down(model, batch, seed), written_down(model, other, seed), count)
    told = story.told(facts, before, batch) if story.comparable else facts
    return None if pair and told is not None and told.cause == "other" else told


def _sequence_first(batch: Batch, output: Tensor) -> bool:
    """Inputs (time, samples, ...): the output has a row for each entry of their second axis, and so have the targets."""
    shape = batch.data.shape
    rows = len(output) != shape[0] and len(shape) > 1 and len(output) == shape[1]
    return rows and not _one_target_each(batch)


def _one_target_each(batch: Batch) -> bool:
    return isinstance(batch.target, Tensor) and batch.target.ndim > 0 and len(batch.target) == batch.samples


class _Story:
    """Two tapes side by side: where one sample spreads over the others."""

    def __init__(
        self,
        first: Written,
        second: Written,
        count: int,
    ) -> None:
        (self.entries, self.output), (others, end) = first, second
        self.count = count
        same = [(e.function, e.shape) for e in self.entries] == [(e.function, e.shape) for e in others]
        self.comparable = same and self.output is not None and self.output == end
        pairs = zip(self.entries, others, strict=True) if self.comparable else ()
        self.changed = [changed_indices(a.projections, b.projections) for a, b in pairs]

    def told(self, facts: MixingFacts, output: Tensor, batch: Batch) -> MixingFacts | None:
        """The facts with their cause; None for batch norms, which mix samples by their nature."""
        if facts.cause == "order":
            at = self._reordered()
            return facts if at is None else replace(facts, step=self.entries[at].name, op=self.entries[at].function)
        origins = [at for at in self._origins() if self.entries[at].function != "batch_norm"]
        if not origins:
            return None
        told = [self._cause(facts, at, output, batch) for at in origins]
        return next((f for f in told if f.cause != "other"), told[0])

    def _spread(self, at: int) -> bool:
        return box_share(self.changed[at]) > 1 / self.count + ROUNDING

    def _ancestors(self) -> list[int]:
        waiting, seen = [self.output], set()
        while waiting:
            at = waiting.pop()
            if at is not None and at not in seen:
                seen.add(at)
                waiting += self.entries[at].inputs
        return sorted(seen)

    def _origins(self) -> list[int]:
        """The tensors behind the output in which the sample has spread, though not in what they are made of."""
        spread = [at for at in self._ancestors() if self._spread(at)]
        return [at for at in spread if not any(self._spread(i) for i in self.entries[at].inputs)]

    def _reordered(self) -> int | None:
        """The last call that moved the sample's row."""

        def row(at: int) -> list[int]:
            rows = self.changed[at][0] if self.changed[at] else torch.zeros(0)
            found: list[int] = rows.nonzero().flatten().tolist()
            return found if len(rows) == self.count else []

        moved = [at for at in self._ancestors() if any(row(at) != row(i) for i in self.entries[at].inputs if row(i))]
        return next((at for at in reversed(moved) if len(row(at)) == 1), None)

    def _axes(self, at: int) -> list[int]:
        """Along which the samples lie: the fewest whose changed shares make 1/n; units that stay zero have no say."""
        shares = [float(c.double().mean()) if len(c) else 1.0 for c in self.changed[at]]
        found: list[int] = []
        for axis in sorted(range(len(shares)), key=shares.__getitem__):
            if math.prod(shares[a] for a in found) <= 1 / self.count + ROUNDING:
                break
            found.append(axis)
        return sorted(found)

    def _cause(self, facts: MixingFacts, at: int, output: Tensor, batch: Batch) -> MixingFacts:
        entry = self.entries[at]
        facts = replace(facts, step=entry.name, op=entry.function)
        if entry.function in RESHAPES:
            return replace(facts, cause="view", taker=self._taker(at))
        if entry.sequence is not None:
            shape = self.entries[entry.inputs[0]].shape
            sure = len(shape) == 3 and not _kept(shape[1 - entry.sequence], output, batch)
            alone = len(shape) < 3 or shape[1 - entry.sequence] == 1
            if alone and entry.function == ATTENTION:
                return facts  # a set, on purpose
            return replace(facts, cause="sequence", sure=sure and not alone, alone=alone)
        culprit = self._culprit(at)
        if culprit is None:
            return replace(facts, cause="view") if entry.function.startswith("conv") else facts
        guilty, lost = culprit
        if lost or (entry.weighed and self._combines(at) and not self._turned_back(at)):
            view = self.entries[guilty]
            return replace(facts, cause="view", step=view.name, op=view.function, taker=entry.name)
        return facts

    def _combines(self, at: int) -> bool:
        return self.entries[at].function.startswith(_COMBINES)

    def _culprit(self, at: int) -> tuple[int, bool] | None:
        """The view behind a call that took the samples off the first axis, and whether they can be found on no axis now.

        Other views and functions of one operand are passed. Samples are lost where a reshape brought them and features
        together on one axis, or where weights multiply what it made.
        """
        for start in self.entries[at].inputs:
            folded = math.prod(self.entries[start].shape[a] for a in self._axes(start)) != self.count
            here, reshaped = start, False
            while len(self.entries[here].inputs) == 1:
                before, function = self.entries[here].inputs[0], self.entries[here].function
                reshaped |= function in RESHAPES
                if function in RESHAPES + ORDERS and self._axes(before) == [0] and self._axes(here) != [0]:
                    return here, reshaped and (folded or self.entries[at].weighed)
                here = before
        return None

    def _users(self, at: int) -> list[int]:
        return [i for i in range(at + 1, len(self.entries)) if at in self.entries[i].inputs]

    def _taker(self, at: int) -> str | None:
        """The next step that makes new values."""
        user = next((i for i in self._users(at)), None)
        while user is not None and operation_of(self.entries[user].function).same_values:
            user = next((i for i in self._users(user)), None)
        return None if user is None else self.entries[user].name

    def _turned_back(self, at: int) -> bool:
        """Whether axes are exchanged again before other weights follow, as in a mixer over nodes."""
        waiting = self._users(at)
        while waiting:
            here = waiting.pop()
            if self.entries[here].function in ORDERS:
                return True
            if not self._combines(here):
                waiting += self._users(here)
        return False


def _kept(length: int, output: Tensor, batch: Batch) -> bool:
    """Whether the output still has the axis that could be the samples' as well: (time, samples, ...) as it came in."""
    shape = tuple(output.shape)
    if shape[0] == batch.samples * length or (len(shape) > 2 and length in shape[1:]):
        return True
    target = batch.target
    same = not isinstance(target, Tensor) or tuple(target.shape[:2]) == shape[:2]
    return len(shape) == 2 and shape[1] == length and same
