"""Remedies that keep the directions of the weights and change their sizes: by the data, or by the number of residual sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from initscope.probe.batches import Batch
from initscope.probe.remedies import recipes
from initscope.probe.remedies.places import Plan, Site
from initscope.probe.remedies.remedy import Candidate, Conditions
from initscope.probe.safekeeping import prepare, untouched
from initscope.probe.trace import INPUT, Call, Recorder

_SUMS = ("add", "iadd", "radd", "sub", "isub", "rsub")


def candidates(plan: Plan, model: nn.Module, conditions: Conditions) -> list[Candidate]:
    """Data-driven scaling where there are weights, residual scaling where there are residual sums with weights in a branch."""
    found = []
    if plan.sites:
        text = "Scale each weight so that its output has unit variance on this batch, first layer first, and zero the biases."
        treat = partial(scale_on_batch, sites=plan.sites, conditions=conditions)
        lines = recipes.data_scaling_code(plan, model)
        found.append(Candidate("data-scaling", "weights", text, treat=treat, note=plan.note, code=lines))
    ends = branch_ends(plan)
    if ends:
        count = len(ends)
        text = f"Multiply the last weight of each of the {count} residual branches by 1/√{count}: their sum keeps its size."
        names = tuple(dict.fromkeys(name for end in ends for name in end))
        lines = recipes.factor_code(names, 1 / math.sqrt(count))
        treat = partial(scale_branches, ends=ends)
        found.append(Candidate("residual-scaling", "weights", text, treat=treat, code=lines))
    return found


def scale_on_batch(model: nn.Module, batch: Batch, seed: int, *, sites: Sequence[Site], conditions: Conditions) -> None:
    """One forward pass in which every weight is divided by the standard deviation of its output, which goes on divided.

    A weight that is used again keeps the scale of its first use. Outputs that are constant or not finite change nothing.
    """
    waiting = {site.call.name: site for site in sites if site.last}

    def divide(call: Call, values: Tensor) -> None:
        site = waiting.pop(call.name, None)
        if site is None:
            return
        deviation = float(values.double().std(correction=0))
        if math.isfinite(deviation) and deviation > 0:
            site.scale(model, 1 / deviation)
            values.div_(deviation)  # the rest of the pass sees what the new weight gives: biases are zero

    with untouched(model, seed, weights=False), torch.no_grad():
        for site in sites:
            if site.bias is not None:
                model.get_parameter(site.bias).zero_()
        prepare(model, train=conditions.train, dropout=conditions.dropout)
        batch = batch.copy()
        inputs = (batch.arguments, batch.keywords)
        recorder: Recorder[None] = Recorder(model, inputs, divide, data=batch.data, dropout=conditions.dropout)
        with recorder.watching():
            batch.run(model)


def scale_branches(model: nn.Module, batch: Batch, seed: int, *, ends: Sequence[tuple[str, ...]]) -> None:
    """Divides the last weights of L branches by √L."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name in dict.fromkeys(name for names in ends for name in names):
            parameters[name].div_(math.sqrt(len(ends)))


def branch_ends(plan: Plan) -> list[tuple[str, ...]]:
    """For each residual sum the parameters of the last call of its branch that has any, in execution order."""
    heavy = {call.index for call in plan.calls if call.kind in ("dense", "conv", "attention") and call.parameters}
    ends: dict[int, tuple[str, ...]] = {}
    recurrent: set[tuple[str, ...]] = set()
    for call in plan.calls:
        if call.kind != "residual" or call.function not in _SUMS or len(call.inputs) != 2:
            continue
        ways = [plan.ancestors(i) for i in call.inputs]
        own = [len(way & heavy) for way in ways]
        if own[0] == own[1]:
            continue  # two equal branches: none of them is the shortcut
        branch = own.index(max(own))
        names = _last_parameters(plan, call.inputs[branch])
        if not names or any(name in plan.left_alone for name in names):
            continue
        # A loop over time: the sum before it, with the same weights, comes through the branch and not through the shortcut.
        if any(ends[i] == names for i in (ways[branch] - ways[1 - branch]) & set(ends)):
            recurrent.add(names)
        ends[call.index] = names
    return [names for names in ends.values() if names not in recurrent]


def _last_parameters(plan: Plan, index: int) -> tuple[str, ...]:
    """Of a weight or of a normalisation after it: behind one, the size of the weight before it does not matter."""
    while index != INPUT:
        call = plan.calls[index]
        if call.function == "multi_head_attention_forward":
            return tuple(name for name in call.parameters if "out_proj" in name)
        if call.parameters and call.kind in ("dense", "conv", "norm"):
            return call.parameters
        if len(call.inputs) != 1:
            return ()
        index = call.inputs[0]
    return ()
