"""Where a model's weights are: which parameter is the matrix or filter of which call, in which layout, between which activations.

Found in the trace, not in the classes of modules: a weight is what a dense or convolution call multiplies the data by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from initscope.probe.batches import Batch
from initscope.probe.remedies.assignment import View, assign, is_computed, view_of
from initscope.probe.remedies.gains import ONE, UnitMoments, unit_moments
from initscope.probe.remedies.remedy import Conditions
from initscope.probe.report import Report
from initscope.probe.safekeeping import prepare, untouched
from initscope.probe.trace import INPUT, Call, Recorder
from initscope.probe.uses import Layout, Use, weight_of, weights_of
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
    view: View | None = None  # the part of the parameter that it is, and in which order; None for all of it, as it lies
    last: bool = True  # the call returns what this weight makes

    def part(self, parameter: Tensor) -> Tensor:
        """The weight in the parameter, as a view."""
        return parameter if self.view is None else self.view.of(parameter)

    def write(self, model: nn.Module, weight: Tensor) -> None:
        """Puts (out, in/groups, *kernel) into the model."""
        value = self.to_layout(weight)
        if is_computed(model, self.name):
            assign(model, self.name, value)
        else:
            part = self.part(model.get_parameter(self.name))
            part.copy_(value.reshape(part.shape))

    def scale(self, model: nn.Module, factor: float) -> None:
        if is_computed(model, self.name):
            owner, _, key = self.name.rpartition(".")
            assign(model, self.name, getattr(model.get_submodule(owner), key).detach() * factor)
        else:
            self.part(model.get_parameter(self.name)).mul_(factor)

    @property
    def fans(self) -> Fans:
        return Fans(inputs=self.shape[1], outputs=self.shape[0] // self.groups, taps=math.prod(self.shape[2:]))

    @property
    def gain(self) -> float:
        """fan_in · Var(w) that keeps the second moment of units: 1 / E f(z)², z standard normal, f the activation after it."""
        return 1 / self.after.square

    def to_layout(self, weight: Tensor) -> Tensor:
        """From (out, in/groups, *kernel) to how the call takes it."""
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
        computed = None if uses else _computed(call, model)
        if computed is not None:
            name, used = computed
            sites.setdefault((name, 0), _site(call, calls, consumers, used, {**names, id(used.weight): name}, model))
        elif not uses and call.kind in ("dense", "conv"):
            left.update(dict.fromkeys(call.parameters, f"{call.function} uses it in a way that is not known"))
        for used in uses:
            name = names[id(used.parameter)]
            view = view_of(used)
            key = (name, 0 if view is None else view.offset)
            reason = _reason(used, name in embedded, name in broken)
            if key in sites and (sites[key].layout, sites[key].view) != (used.layout, view):
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
    bias = _shift(call, consumers, used, model) if used.bias is None else names.get(id(used.bias))
    return Site(
        name=names[id(used.parameter)],
        call=call,
        layout=used.layout,
        shape=used.shape,
        groups=used.groups,
        stride=used.stride,
        bias=bias,
        before=ONE if before is None else unit_moments(before, model),
        after=ONE if after is None else unit_moments(after, model),
        view=view_of(used),
        last=used.last,
    )


def _shift(call: Call, consumers: dict[int, list[Call]], used: Use, model: nn.Module) -> str | None:
    """The bias of a product that is written out: a vector, one entry for each unit, that is added to it."""
    takers = consumers.get(call.index, []) if used.last else []
    if len(takers) != 1 or takers[0].kind != "shift" or len(takers[0].parameters) != 1:
        return None
    name = takers[0].parameters[0]
    vector = model.get_parameter(name)
    return name if vector.requires_grad and vector.numel() == used.shape[0] else None


def _computed(call: Call, model: nn.Module) -> tuple[str, Use] | None:
    """The weight of a module that computes it from other parameters, as weight norm does, if it can be assigned to."""
    name = f"{call.module}.weight".lstrip(".")
    if call.kind not in ("dense", "conv") or not is_computed(model, name):
        return None
    module = model.get_submodule(call.module)
    if not all(p.requires_grad for p in module.parameters()):
        return None
    weight: Any = module.weight
    stand_in = weight.detach().clone()
    used = weight_of(replace(call, arguments=_put(call.arguments, stand_in), keywords={}))
    return None if used is None else (name, used)


def _put(arguments: tuple[Any, ...], weight: Tensor) -> tuple[Any, ...]:
    return (arguments[0], weight, *arguments[2:])


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
        elif owner in heavy and f"{owner}.weight".lstrip(".") not in moved:
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
    if not broken and not bool(used.weight.detach().any()):
        return "initialized to zero on purpose"
    return ""
