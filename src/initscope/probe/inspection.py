"""One forward and one backward pass of a model, measured at every step."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from initscope.errors import InitscopeError
from initscope.probe.arguments import Arguments
from initscope.probe.batches import Batch, Loss, main_output, total_loss
from initscope.probe.capture import Capture, capture, pairs_of
from initscope.probe.chance import InitialLoss, initial_loss
from initscope.probe.findings import Note
from initscope.probe.layouts import Layouts
from initscope.probe.measure import (
    BatchGeometry,
    batch_geometry,
    dead_fraction,
    gram_by_channel,
    normalized_rms,
    saturated_fraction,
)
from initscope.probe.predicting import Allowance, clock_for, predict_steps, starting_pairs
from initscope.probe.safekeeping import prepare, untouched
from initscope.probe.targets import Pairing, TargetFacts, target_facts
from initscope.probe.theory import DRAWN, Predicted
from initscope.probe.trace import Call, Recorder, Step, tensors_in
from initscope.probe.turns import in_turn
from initscope.probe.weights import Stranger, WeightFacts, graph_nodes, unregistered, weight_facts

SHIFT = 7919  # between the random numbers of the model and those of the loss


Broken = Literal["", "infinite", "NaN"]


@dataclass(eq=False)
class Look:
    """What was measured at one step; `values` is None where no axis of samples is left."""

    values: BatchGeometry | None
    units: int  # values per sample
    broken: Broken = ""
    followed: bool = True  # the rows are the samples of the batch; otherwise what they were grouped into
    dead: float | None = None
    saturated: float | None = None
    fit: float | None = None  # of running statistics: root mean square of what they normalize, 1 where they fit
    gradient: BatchGeometry | None = None
    sensitivity: float | None = None  # Σ |g||x| over positions, mean over samples
    gradient_broken: bool = False
    has_gradient: bool = False  # autograd follows it
    predicted: Predicted | None = None
    capture: Capture | None = None  # what theory needs, until it has taken the step

    @property
    def finite(self) -> bool:
        return not self.broken

    @property
    def rms(self) -> float:
        """Root mean square over units and samples."""
        if self.values is None:
            return math.nan
        return self.values.summary.rms / math.sqrt(max(self.units, 1))


@dataclass(eq=False)
class Inspection:
    """All steps of one pass, in execution order; `failure` says where a forward pass stopped."""

    steps: list[Step[Look]]
    data: Look
    weights: list[WeightFacts] = field(default_factory=list)
    loss: str = ""
    initial: InitialLoss | None = None
    failure: str | None = None
    notes: list[Note] = field(default_factory=list)
    numbers: bool = True  # the data are numbers, not indices
    output: int | None = None  # the step that made what the model returns
    cuts: list[int] = field(default_factory=list)  # steps whose result was detached
    broken_loss: bool = False  # the loss itself is not finite
    targets: TargetFacts | None = None
    loss_functions: tuple[str, ...] = ()  # what the loss calls on the output itself
    unnormalized: bool = False  # and `nll_loss` is among them, but the output is no logarithm of probabilities
    doubts: bool = False  # samples may have been carried into each other
    routings: list[tuple[str, int]] = field(default_factory=list)  # where the data choose, and the step that comes next
    strangers: list[Stranger] = field(default_factory=list)  # weights that no optimizer sees

    @property
    def last_gradient(self) -> BatchGeometry | None:
        """The gradient nearest to the loss."""
        return next((s.observed.gradient for s in reversed(self.steps) if s.observed.gradient is not None), None)

    @property
    def last_sensitivity(self) -> float | None:
        """The sensitivity nearest to the loss."""
        return next((s.observed.sensitivity for s in reversed(self.steps) if s.observed.sensitivity is not None), None)

    @property
    def reference(self) -> Look:
        """What later steps are compared with: the data, or, where it is indices, the first values made of it."""
        return self.data if self.numbers or not self.steps else self.steps[0].observed


@in_turn
def inspect_model(
    model: nn.Module,
    batch: Batch,
    *,
    seed: int = 0,
    loss: Loss | None = None,
    train: bool = True,
    dropout: bool = False,
    backward: bool = True,
    theory: bool | Literal["full"] = True,
    theory_seconds: float | None = None,
) -> Inspection:
    """Runs the model once on the batch, forwards and backwards, and leaves it as it was."""
    batch = batch.copy()
    watch = _Watch(model, batch, backward, bool(theory))
    inputs = (batch.arguments, batch.keywords)
    recorder: Recorder[Look] = Recorder(model, inputs, watch.see, watch.merge, data=batch.data, dropout=dropout)
    result = Inspection(recorder.steps, _look(batch.data, batch.samples))
    result.numbers = batch.data.is_floating_point()
    clock = clock_for(batch.data.device)
    with untouched(model, seed, users_code=callable(loss)) as kept:
        prepare(model, train=train, dropout=dropout)
        started = clock()
        output = _forward(model, batch, recorder, result)
        ran = result.failure is None
        if ran and backward:
            _judge_loss(model, batch, recorder, result, output, loss, seed + SHIFT)
        if theory:
            allowed = Allowance.of(theory, theory_seconds, DRAWN, clock)
            notes = watch.predict(result.steps, allowed, clock() - started)
            result.notes = notes if ran else []
    if kept.written:
        result.notes.append(Note("written", steps=tuple(kept.written)))
    if kept.stay:
        result.notes.append(Note("written", "stay", tuple(kept.stay)))
    return result


def _forward(model: nn.Module, batch: Batch, recorder: Recorder[Look], result: Inspection) -> Any:
    """What the model returns; where it raises, the result says so."""
    try:
        with recorder.watching():
            output = batch.run(model)
    except Exception as error:
        if recorder.observing:
            raise
        result.failure = f"{recorder.place or 'the model'}: {type(error).__name__}: {error}"
        return None
    with suppress(InitscopeError):  # an output without numbers is the loss's business
        result.output = recorder.maker_of(main_output(output))
        result.doubts = recorder.doubts or recorder.axis_of(main_output(output)) is None
    result.cuts, result.routings = recorder.cuts, recorder.routings
    result.strangers = unregistered(model, recorder.strangers, tensors_in(output))
    return output


def _judge_loss(
    model: nn.Module,
    batch: Batch,
    recorder: Recorder[Look],
    result: Inspection,
    output: Any,
    loss: Loss | None,
    seed: int,
) -> None:
    """The loss, its targets, and the gradients of all weights, into the result."""
    with Pairing(output, batch.target) as pairing:
        value, result.loss = total_loss(output, batch, loss, seed)
    made_by = None if result.output is None else recorder.steps[result.output].call.function
    result.targets = target_facts(output, batch.target, made_by, pairing.outer)
    result.loss_functions, result.unnormalized = tuple(pairing.functions), pairing.unnormalized
    result.initial = initial_loss(output, batch, value, result.loss)
    result.broken_loss = not bool(torch.isfinite(value.detach()).all())
    calls = [step.call for step in recorder.steps]
    facts = weight_facts(model, calls, recorder.entered, tensors_in(output))
    try:
        result.weights = _backward(model, value, facts)
    except Exception as error:  # a function of the user's may raise anything on the way back
        kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
        result.failure = f"backward pass: {kind}{error}"


class _Watch:
    """Looks at each result while it is there, and keeps what theory needs of it."""

    def __init__(self, model: nn.Module, batch: Batch, backward: bool, theory: bool) -> None:
        self.model, self.samples, self.backward = model, batch.samples, backward
        self.pairs = pairs_of(batch.samples)
        self.layouts = Layouts(batch.data) if theory else None
        self.start = starting_pairs(batch.data, self.pairs) if theory else None

    def see(self, call: Call, values: Tensor) -> Look:
        plain = len(values) == self.samples and call.axis in (0, None)
        grams = gram_by_channel(values) if plain else None
        look = _look(values, self.samples, call, self.backward, grams)
        look.fit = _fit(call, values, self.model)
        if self.layouts is not None:
            usable = plain and look.finite and self.layouts.follows(call)
            if usable and (grams is None or bool(grams.isfinite().all())):
                look.capture = capture(values, self.pairs, grams, start=not self.layouts.exact(call))
            self.layouts.made(call, None if look.capture is None else look.capture.shape)
        return look

    def merge(self, call: Call, look: Look) -> Look:
        """Several pointwise calls turned out to be one step, which ends in the values seen last."""
        if self.layouts is not None:
            self.layouts.made(call, None if look.capture is None else look.capture.shape)
        return look

    def predict(self, steps: list[Step[Look]], allowed: Allowance, measured: float) -> list[Note]:
        """Lets theory take the steps that were measured, and notes what it could not."""
        if self.layouts is None:
            return []
        given = [(step.call, step.observed.capture) for step in steps]
        found, notes = predict_steps(self.start, given, self.layouts, allowed, measured)
        for step, predicted in zip(steps, found, strict=True):
            step.observed.predicted, step.observed.capture = predicted, None
        return notes


def _look(
    values: Tensor, samples: int, call: Call | None = None, backward: bool = False, grams: Tensor | None = None
) -> Look:
    axis = 0 if call is None else call.axis
    rows = rows_of(values, samples, axis)
    followed = rows is not None
    if rows is None and values.ndim > 1 and len(values) > 1 and values.is_floating_point():
        rows = values  # groups of samples, as the graphs of a batch of nodes
    geometry = None if rows is None else batch_geometry(rows, grams)
    units = values.numel() // (samples if followed or rows is None else len(rows))
    look = Look(geometry, units, _broken(values, geometry), followed)
    if call is not None and call.kind in ("activation", "recurrent"):
        look.dead = dead_fraction(values) if call.kind == "activation" else None
        if call.operation.limits is not None:
            look.saturated = saturated_fraction(values, *call.operation.limits)
    if call is not None and call.sharpness is not None:
        look.saturated = call.sharpness
    look.has_gradient = values.requires_grad
    if backward and rows is not None and values.requires_grad:
        count = samples if followed else len(rows)
        sizes = _position_norms(values, geometry)

        def hook(gradient: Tensor | None) -> None:
            if gradient is None:  # another result of the same call is used instead
                return
            rows = rows_of(gradient, count, axis if followed else 0)
            look.gradient = None if rows is None else batch_geometry(rows)
            look.gradient_broken = bool(_broken(gradient, look.gradient))
            look.sensitivity = (
                float((_position_norms(gradient, look.gradient) * sizes).sum(dtype=torch.float64)) / count
            )

        values.register_hook(hook)  # type: ignore[no-untyped-call]
    return look


def _position_norms(values: Tensor, geometry: BatchGeometry | None) -> Tensor:
    """Norms of the units at each position where the values are tokens, which can differ much; else those of each sample."""
    if values.ndim != 3 and geometry is not None:
        return geometry.norm
    values = values.detach()
    values = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1)  # real, of complex values too
    return norms


def _broken(values: Tensor, geometry: BatchGeometry | None) -> Broken:
    if geometry is not None and bool(torch.isfinite(geometry.norm).all()):
        return ""
    if bool(torch.isnan(values).any()):
        return "NaN"
    return "infinite" if bool(torch.isinf(values).any()) else ""


def _fit(call: Call, values: Tensor, model: nn.Module) -> float | None:
    """How well the running statistics of a batch norm fit, where it uses them."""
    if call.function != "batch_norm" or bool(Arguments(call).get(5, "training", False)):
        return None
    module: Any = model.get_submodule(call.module)
    return normalized_rms(values, getattr(module, "weight", None), getattr(module, "bias", None))


def rows_of(values: Tensor, samples: int, axis: int | None = None) -> Tensor | None:
    """(samples, ...) along the axis that was followed; without one, the first or second that is as long as the batch.

    A first axis may also be a multiple of it, where windows or tokens of a sample were folded into it.
    """
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if not values.is_floating_point():
        values = values.detach().double()
    sizes = values.shape
    if axis is None:
        axis = next((d for d in (0, 1) if d < values.ndim and sizes[d] == samples), 0 if values.ndim > 1 else None)
    if axis is None or axis >= values.ndim:
        return None
    if sizes[axis] == samples:
        return values if axis == 0 else values.detach().transpose(0, axis)
    if axis == 0 and sizes[0] > 0 and sizes[0] % samples == 0:
        return values.detach().reshape(samples, -1)
    return None


def _backward(model: nn.Module, value: Tensor, facts: list[WeightFacts]) -> list[WeightFacts]:
    """The facts with the norms of the gradients."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not named or not value.requires_grad:
        return facts
    gradients = _gradient_norms(value, named)
    return [replace(f, gradient=gradients[f.name]) if f.name in gradients else f for f in facts]


def _gradient_norms(value: Tensor, named: dict[str, nn.Parameter]) -> dict[str, float | None]:
    """By `torch.autograd.grad`; reentrant checkpoints only know `backward`, which leaves them in `.grad`.

    Each is measured while it is in cache and then let go: an empty one takes its place.
    """
    weights = list(named.values())
    if any(node.name() == "CheckpointFunctionBackward" for node in graph_nodes([value])):
        for weight in weights:
            weight.grad = None  # put back by `untouched`
        value.backward()  # type: ignore[no-untyped-call]
        return {name: None if w.grad is None else float(w.grad.norm()) for name, w in named.items()}
    norms: dict[int, Tensor] = {}

    def measured(weight: nn.Parameter) -> Callable[[Tensor], Tensor | None]:
        def hook(gradient: Tensor) -> Tensor | None:
            norms[id(weight)] = gradient.norm()
            return gradient.new_zeros(()).expand(gradient.shape) if gradient.layout == torch.strided else None

        return hook

    with ExitStack() as stack:
        for weight in weights:
            stack.callback(weight.register_hook(measured(weight)).remove)  # type: ignore[no-untyped-call]
        torch.autograd.grad(value, weights, allow_unused=True)
    return {name: float(norms[id(w)]) if id(w) in norms else None for name, w in named.items()}
