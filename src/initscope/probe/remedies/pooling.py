"""The remedy for average pooling, which makes samples alike: let the next layer see all positions."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import nn

from initscope.probe.batches import Batch
from initscope.probe.remedies.modules import replace_modules
from initscope.probe.remedies.places import Plan
from initscope.probe.remedies.remedy import Candidate, NotPossible
from initscope.probe.report import Report
from initscope.probe.trace import INPUT, Call, Seen
from initscope.weights import Fans, He

_WINDOW = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def candidates(plan: Plan, report: Report) -> list[Candidate]:
    """One for all average pools of the model; its note says what is lost in the worst of them."""
    pools = [call for call in plan.calls if _averages(call)]
    if not pools:
        return []
    text = (
        "Replace average pooling: flatten in front of the next linear layer instead of averaging over all positions, "
        "and take every s-th value instead of the mean of a window."
    )
    treat = partial(without_averages, plan=plan, pools=tuple(pools))
    return [Candidate("no-average-pool", "architecture", text, treat=treat, note=_loss(pools, report))]


def without_averages(model: nn.Module, batch: Batch, seed: int, *, plan: Plan, pools: tuple[Call, ...]) -> None:
    """Adaptive pools become the identity and the linear layer behind them reads all positions; windows become strides."""
    new: dict[str, nn.Module] = {}
    reasons = ["the average is taken by a function, not by a module; change it in the model's code"]
    for call in pools:
        pool = model.get_submodule(call.module)
        try:
            if isinstance(pool, _ADAPTIVE):
                place, reader = _reader(model, plan, call, seed)
                new |= {call.module: nn.Identity(), place: reader}
            elif isinstance(pool, _WINDOW):
                new[call.module] = _selection(pool, call)
        except NotPossible as reason:
            reasons.append(str(reason))
    if not new:
        raise NotPossible(reasons[-1])
    replace_modules(model, lambda name, module: new.get(name))


def _averages(call: Call) -> bool:
    if call.function.startswith(("avg_pool", "adaptive_avg_pool")):
        return True
    shape = call.arguments[0].shape if call.arguments and isinstance(call.arguments[0], Seen) else ()
    return call.function == "mean" and len(shape) == 4


def _reader(model: nn.Module, plan: Plan, call: Call, seed: int) -> tuple[str, nn.Linear]:
    """The linear layer behind a pool, with inputs for all positions, drawn so that its output keeps its size."""
    takers = plan.consumers.get(call.index, [])
    old = model.get_submodule(takers[0].module) if len(takers) == 1 and takers[0].function == "linear" else None
    if type(old) is not nn.Linear or old.in_features != math.prod(call.shape[1:]):
        raise NotPossible("no linear layer follows the pool directly, so the layer behind it cannot take its place")
    size = math.prod(call.arguments[0].shape[1:])
    with torch.random.fork_rng():
        new = nn.Linear(size, old.out_features, bias=old.bias is not None).to(old.weight)
    generator = torch.Generator().manual_seed(seed)
    gain = next((site.gain for site in plan.sites if site.call.module == takers[0].module), 1.0)
    with torch.no_grad():
        shape = (old.out_features, size)
        new.weight.copy_(He("in", gain).sample(shape, Fans(size, old.out_features), generator, torch.float64))
        if old.bias is not None:
            new.bias.copy_(old.bias)
    return takers[0].module, new.train(old.training)


def _selection(pool: nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d, call: Call) -> nn.Module:
    """A window of one value with the pool's stride; its outputs must be as many."""
    strides = pool.stride if isinstance(pool.stride, tuple) else (pool.stride,) * (len(call.shape) - 2)
    sizes = call.arguments[0].shape[2:]
    if tuple((n - 1) // s + 1 for n, s in zip(sizes, strides, strict=True)) != call.shape[2:]:
        raise NotPossible(f"{call.name}: every {strides[0]}th value gives another size than the pool")
    return type(pool)(1, stride=pool.stride)  # type: ignore[arg-type]


def _loss(pools: list[Call], report: Report) -> str:
    """The angles in front of the worst pool and behind it: what can be won by leaving it out."""
    rows = {row.name: row for row in report.layers}
    known = [rows[call.name] for call in pools if call.name in rows]
    worst = max(known, key=lambda row: row.contraction, default=None)
    if worst is None or not worst.inputs:
        return ""
    index = worst.inputs[0]
    before = report.data.get("angle_deg") if index == INPUT else report.layers[index].angle_deg
    if before is None or worst.angle_deg is None:
        return ""
    return f"samples are {before:.3g} degrees apart in front of {worst.name} and {worst.angle_deg:.3g} behind it"
