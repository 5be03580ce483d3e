"""Where a model's weights are: which parameter is the matrix or filter of which call, in which layout, between which activations.

Found in the trace, not in the classes of modules: a weight is what a dense or convolution call multiplies the data by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from initscope.probe.batches import Batch
from initscope.probe.remedies.gains import ONE, UnitMoments, unit_moments
from initscope.probe.remedies.remedy import Conditions
from initscope.probe.report import Report
from initscope.probe.safekeeping import prepare, untouched
from initscope.probe.trace import INPUT, Call, Recorder
from initscope.probe.uses import Layout, Use, weights_of
from initscope.weights import Fans

_PASSES_ON = ("norm", "dropout", "pooling", "shift", "scale", "select")  # between a weight and its activation


@dataclass(frozen=True, eq=False)
class Site:
    """One weight: its name, how it lies in memory, and what comes before and after it.

    `shape` is (out, in/groups, *kernel) whatever the layout; `stride` is the product of the strides of a transposed
    convolution, whose outputs see only one in `stride` of the taps, and 1 otherwise.
    """

    name: str
    call: Call
    layout: Layout
    shape: tuple[int, ...]
    groups: int
    stride: int
    bias: str | None
    before: UnitMoments  # of the activation that feeds it
    after: UnitMoments  # of the activation that it feeds
    rows: tuple[int, int] | None = None  # the block of the parameter that it is; None for all of it
    last: bool = True  # the call returns what this weight makes

    def part(self, parameter: Tensor) -> Tensor:
        """The block of the parameter, as a view."""
        return parameter if self.rows is None else parameter[self.rows[0] : self.rows[1]]

    @property
    def fans(self) -> Fans:
        return Fans(inputs=self.shape[1], outputs=self.shape[0] // self.groups, taps=math.prod(self.shape[2:]))

    @property
    def gain(self) -> float:
        """fan_in · Var(w) that keeps the second moment of units: 1 / E f(z)², z standard normal, f the activation after it."""
        return 1 / self.after.square

    def to_layout(self, weight: Tensor) -> Tensor:
        """From (out, in/groups, *kernel) to how the parameter lies."""
        if self.layout == "in-out":
            return weight.T
        if self.layout == "transposed":
            blocks = weight.reshape(self.groups, -1, *weight.shape[1:]).transpose(1, 2)
            return blocks.flatten(0, 1)
        return weight


@dataclass(frozen=True, eq=False)
class Plan:
    """The calls of a model on a batch, its weight sites in execution order, and the weights that are left alone, with reasons.

    `stays` has the layers with weights that no site belongs to, and why.
    """

    calls: tuple[Call, ...]
    sites: tuple[Site, ...]
    left_alone: dict[str, str]
    stays: dict[str, str]

    @property
    def note(self) -> str:
        """How many layers a change of all sites leaves as they are; empty if none.

        "10 of 11 weight layers stay as they are: 0, 2 and 8 more (computed from other parameters)"
        """
        if not self.stays:
            return ""
        reasons: dict[str, list[str]] = {}
        for layer, why in self.stays.items():
            reasons.setdefault(why, []).append(layer)
        parts = [
            f"{', '.join(names[:2])}{f' and {len(names) - 2} more' if len(names) > 2 else ''} ({why})"
            for why, names in reasons.items()
        ]
        total = len(self.stays) + len({site.call.module for site in self.sites} - set(self.stays))
        return f"{len(self.stays)} of {total} weight layers stay as they are: {', '.join(parts)}"

    @cached_property
    def consumers(self) -> dict[int, list[Call]]:
        return consumers_of(self.calls)

    def ancestors(self, index: int) -> set[int]:
        """All calls that a call's result depends on, itself included."""
        found: set[int] = set()
        waiting = [index]
        while waiting:
            i = waiting.pop()
            if i != INPUT and i not in found:
                found.add(i)
                waiting += self.calls[i].inputs
        return found


def plan_of(model: nn.Module, batch: Batch, conditions: Conditions, report: Report | None = None) -> Plan:
    """Runs the model once and reads its weights off the calls; the model is left as it was.

    Weights that are zero stay, unless `report` finds that nothing passes them.
    """
    broken = _broken(report)
    calls = traced(model, batch, conditions)
    names = {id(p): name for name, p in model.named_parameters(remove_duplicate=False)}
    embedded = {name for call in calls if call.kind == "embedding" for name in call.parameters}
    consumers = consumers_of(calls)
    sites: dict[tuple[str, int], Site] = {}
    left: dict[str, str] = {}
    for call in calls:
        uses = weights_of(call)
        if not uses and call.kind in ("dense", "conv"):
            left.update(dict.fromkeys(call.parameters, f"{call.function} uses it in a way that is not known"))
        for used in uses:
            name = names[id(used.weight)]
            key = (name, 0 if used.rows is None else used.rows[0])
            reason = _reason(used, name in embedded, name in broken)
            if key in sites and sites[key].layout != used.layout:
                reason = "two calls use it in different layouts"
            if reason:
                left[name] = reason
            elif key not in sites:
                sites[key] = _site(call, calls, consumers, used, names, model)
    moved = tuple(s for s in sites.values() if s.name not in left)
    return Plan(tuple(calls), moved, left, _stays(model, calls, {s.name for s in moved}, left))


def _site(
    call: Call,
    calls: Sequence[Call],
    consumers: dict[int, list[Call]],
    used: Use,
    names: dict[int, str],
    model: nn.Module,
) -> Site:
    before, after = preceding(call, calls), following(call, consumers) if used.last else None
    return Site(
        name=names[id(used.weight)],
        call=call,
        layout=used.layout,
        shape=used.shape,
        groups=used.groups,
        stride=used.stride,
        bias=None if used.bias is None else names.get(id(used.bias)),
        before=ONE if before is None else unit_moments(before, model),
        after=ONE if after is None else unit_moments(after, model),
        rows=used.rows,
        last=used.last,
    )


def _broken(report: Report | None) -> set[str]:
    """Parameters that are zero by mistake: nothing passes them."""
    found = () if report is None else report.findings
    return {
        name
        for f in found
        if f.kind in ("zero-weights", "zero-gradient") and f.status != "note"
        for name in f.evidence.get("parameters", ())
    }


def _stays(model: nn.Module, calls: Sequence[Call], moved: set[str], left: dict[str, str]) -> dict[str, str]:
    """Layers that hold a matrix or a filter which is no site, by the module that uses it; embeddings and norms are none."""
    users = {name: call for call in calls for name in call.parameters if call.kind not in ("embedding", "norm")}
    skipped = {name for call in calls if call.kind in ("embedding", "norm") for name in call.parameters} - set(users)
    heavy = {call.module for call in calls if call.kind in ("dense", "conv")}
    found: dict[str, str] = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2 or name in moved or name in skipped:
            continue
        owner = name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
        if name in left:
            found.setdefault(users[name].module if name in users else owner, left[name])
        elif name in users:
            found.setdefault(users[name].module, f"no law is known for {users[name].function}")
        elif owner in heavy:
            found.setdefault(owner, "computed from other parameters")
    return found


def traced(model: nn.Module, batch: Batch, conditions: Conditions) -> list[Call]:
    """The calls of one forward pass."""
    batch = batch.copy()
    inputs = (batch.arguments, batch.keywords)
    recorder: Recorder[None] = Recorder(
        model, inputs, lambda call, values: None, data=batch.data, dropout=conditions.dropout
    )
    with untouched(model, conditions.seed), torch.no_grad():
        prepare(model, train=conditions.train, dropout=conditions.dropout)
        with recorder.watching():
            batch.run(model)
    return [step.call for step in recorder.steps]


def consumers_of(calls: Iterable[Call]) -> dict[int, list[Call]]:
    """Which calls take the result of each."""
    found: dict[int, list[Call]] = {}
    for call in calls:
        for i in dict.fromkeys(call.inputs):
            found.setdefault(i, []).append(call)
    return found


def following(call: Call, consumers: dict[int, list[Call]]) -> Call | None:
    """The activation that a weight's output goes into, past normalisation, dropout and pooling; None where it meets a sum."""
    while True:
        takers = consumers.get(call.index, [])
        activation = next((c for c in takers if c.kind == "activation"), None)
        if activation is not None or len(takers) != 1 or takers[0].kind not in _PASSES_ON:
            return activation
        call = takers[0]


def preceding(call: Call, calls: Sequence[Call]) -> Call | None:
    """The activation whose values a weight multiplies, past dropout."""
    while len(call.inputs) == 1 and call.inputs[0] != INPUT:
        call = calls[call.inputs[0]]
        if call.kind == "activation":
            return call
        if call.kind != "dropout":
            return None
    return None


def _reason(used: Use, embedded: bool, broken: bool) -> str:
    """Why a weight is left alone; "" if it is not."""
    if embedded:
        return "it is also an embedding"
    if not used.weight.requires_grad or (used.bias is not None and not used.bias.requires_grad):
        return "it is frozen"
    weight = used.weight.detach() if used.rows is None else used.weight.detach()[used.rows[0] : used.rows[1]]
    if not broken and not bool(weight.any()):
        return "initialized to zero on purpose"
    return ""
