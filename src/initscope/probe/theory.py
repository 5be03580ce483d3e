"""What an infinitely wide network would do beside what this one does, step by step.

The states of `geometry` travel along the traced calls. Where a call has no theory, or none at a bearable cost, the values
measured there become the new start, and what follows is exact given those. Around each prediction lies the interval that the
finite width explains: given the input of the last weight layer the channels are independent, so the channels themselves tell
by how much the mean defect (1 - cosine) of N of them varies; what varied before that layer is stretched by the slope of the
map since. Both are in z = log(defect / (2 - defect)), Fisher's -2 artanh(cosine), whose spread hardly depends on its mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from initscope.activations import series_reaches
from initscope.errors import InitscopeError, NoExactForm
from initscope.geometry import Inputs, State, then
from initscope.geometry.state import Law
from initscope.layers import Activate, Conv, Dense, Layer, Trace
from initscope.networks.merging import add, concatenate
from initscope.networks.prediction import Totals, totals
from initscope.probe.bent_biases import BiasShape
from initscope.probe.budget import SMALL, TWICE, Budget
from initscope.probe.capture import Capture, Noise, defects
from initscope.probe.findings import Note
from initscope.probe.layouts import Layouts, integrates, operands
from initscope.probe.thinning import activated, at_points, doubled, fewer_pairs, moments_of, some_points
from initscope.probe.trace import INPUT, Call
from initscope.probe.translation import drops_units, layer_for

Advance = Callable[[float], State | Inputs]  # of a factor on the distances that go in
Gap = Literal["no-theory", "too-long", "layout", "left-out", "thinned"]
NUDGE = 1e-3  # relative change of the distances by which the slope of a step is found
DRAWN = 1 << 22  # values that a check draws at most where a step has no closed form: about an eighth of a second
MOST_UNITS = 4096  # drawn of each state
FEWEST_UNITS = 256  # with fewer, their noise would bend the steps that follow
ROUNDING = 64 * torch.finfo(torch.float32).eps ** 2  # defects below this are rounding, not geometry


@dataclass(frozen=True, eq=False)
class Predicted:
    """The mean defect, 1 - cosine, over the pairs that theory gives, its interval for this width, what it starts from."""

    defect: float
    most: float  # the interval of the defect for this width, 95 %, symmetric in Fisher's z
    least: float
    measured: float  # the mean defect of the same pairs in this network
    rms: float  # root mean square of the units
    given: str  # "" for the data, else the step whose measured values are the start

    @property
    def cosine(self) -> float:
        return 1 - self.defect

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean cosine."""
        return 1 - self.most, 1 - self.least

    @property
    def explained(self) -> bool:
        """Whether the finite width explains how far the measured value is from the infinitely wide network's."""
        reaches_one = self.interval[1] == 1.0  # of one or two units
        inside = (reaches_one or self.least <= self.measured) and self.measured <= self.most
        return inside or max(self.defect, self.measured) < ROUNDING


class _LeftOut(Exception):
    """There is no time for the step."""


class Theory:
    """Runs along the calls of one trace, in order.

    `drawn` is how many values may be drawn where closed forms end, `budget` how long all may take; None: as long as it takes.
    """

    def __init__(
        self,
        start: Inputs | None,
        layouts: Layouts,
        drawn: float = DRAWN,
        budget: Budget | None = None,
    ) -> None:
        self._left, self._layouts, self._budget = drawn, layouts, budget
        self._states: dict[int, State | Inputs] = {}
        self._given: dict[int, str] = {}
        self._mixed: dict[int, frozenset[int]] = {INPUT: frozenset()}  # the weight layers whose channels the units are
        self._own: dict[int, Noise] = {INPUT: Noise()}  # from the channels of the last weight layers
        self._carried: dict[int, Noise] = {INPUT: Noise()}  # from all that was drawn before them
        self._errors: dict[int, float] = {}  # of the cosine, from activations whose integrals are not precise
        self._parts: dict[int, int] = {INPUT: 1}  # Gaussian parts that a unit is made of: the work of drawing one
        self._gaps: dict[tuple[Gap, str], list[str]] = {}  # why, function -> steps without a prediction
        self._followed: Tensor | None = None  # which of the pairs, None for all
        self._defects: dict[int, float] = {}  # the mean one behind each step
        self._shapes: dict[int, BiasShape | None] = {}  # of biases that are not Gaussian
        self._bends: dict[int, float] = {}  # logarithms of what they may have made of the defect
        self._bend = 0.0  # of the step that is being taken
        self._thin = Noise()  # of the step that is being taken, from integrals at a part of the points
        if start is not None:
            self._states[INPUT] = start
            self._defects[INPUT] = _mean_defect(start)
            self._given[INPUT] = ""

    def step(self, call: Call, seen: Capture | None) -> Predicted | None:
        """The prediction for one call; without one, the measured values become the start of what follows."""
        before = frozenset().union(*(self._mixed.get(i, frozenset()) for i in call.inputs))
        gaussian = call.kind in ("dense", "conv")
        self._parts[call.index] = 1 if gaussian else max(1, sum(self._parts.get(i, 1) for i in call.inputs))
        self._mixed[call.index] = frozenset({call.index}) if gaussian else before
        if self._budget is not None and self._budget.left <= 0:
            self._note("left-out", call)
            return None
        trace = Trace(units=self._affordable(call))
        gap: Gap = "no-theory"
        try:
            advance = self._advance(call, trace)
            state = None if advance is None else advance(1.0)
        except _LeftOut:
            gap, state, advance = "left-out", None, None
        except (InitscopeError, RuntimeError) as error:
            gap = "too-long" if isinstance(error, NoExactForm) else "layout"
            state = advance = None
        seen = seen if seen is None or self._followed is None else seen.of(self._followed)
        if state is None or advance is None or seen is None or not _matches(state, seen.shape):
            self._note(gap, call)
            self._restart(call, seen)
            return None
        if trace.simulated:
            self._left -= trace.units * self._values(call)
        return self._predicted(call, seen, state, None if trace.simulated else advance, trace.integral_error)

    def _predicted(
        self, call: Call, seen: Capture, state: State | Inputs, advance: Advance | None, error: float
    ) -> Predicted:
        """The state becomes that of the call; its mean defect beside the measured one, with the interval."""
        doubt = self._errors[call.index] = error + max((self._errors.get(i, 0.0) for i in call.inputs), default=0.0)
        self._states[call.index] = state
        self._given[call.index] = next((self._given[i] for i in call.inputs if self._given.get(i)), "")
        moments = totals(state)
        if call.kind in ("dense", "conv"):
            self._shapes[call.index] = BiasShape.of(call, float(moments.a.mean()))
        bend = self._bends[call.index] = self._bend + max((self._bends.get(i, 0.0) for i in call.inputs), default=0.0)
        defect = self._defects[call.index] = _mean(moments)
        thin = self._thin
        self._own[call.index] = seen.noise if self._mixed[call.index] else Noise()
        self._carried[call.index] = self._carry(call, advance, defect) + thin
        reach = (self._own[call.index] + self._carried[call.index]).reach * math.exp(bend)
        measured = float(seen.defect.nanmean())
        least, most = (_defect_at(_odds(defect) * factor) for factor in (1 / reach, reach))
        least, most = max(least - doubt, 0.0), min(most + doubt, 2.0)  # in this order NaN stays
        return Predicted(defect, most, least, measured, _rms(moments), self._given[call.index])

    def forget(self, index: int) -> None:
        """The state behind a step is not needed any more."""
        self._states.pop(index, None)

    def _note(self, gap: Gap, call: Call) -> None:
        self._gaps.setdefault((gap, call.function), []).append(call.name)

    @property
    def notes(self) -> list[Note]:
        """The steps without a prediction, by reason and function."""
        return [Note(gap, function, tuple(steps)) for (gap, function), steps in self._gaps.items()]

    def _values(self, call: Call) -> int:
        """How many values are drawn for one unit of what goes in."""
        state = next((self._states[i] for i in call.inputs if i in self._states), None)
        if state is None:
            return 0
        pairs = state.excess.shape[1] if isinstance(state, State) else len(state.x)
        return 2 * pairs * math.prod(state.shape[1:]) * sum(self._parts.get(i, 1) for i in call.inputs)

    def _affordable(self, call: Call) -> int:
        """Units that may be drawn in this step; 0 if they would be too few to be of use."""
        units = int(min(MOST_UNITS, self._left // max(self._values(call), 1)))
        return units if units >= FEWEST_UNITS else 0

    def _advance(self, call: Call, trace: Trace) -> Advance | None:
        """The step as a function of a factor on the distances that go in; None if there is no theory for it."""
        self._thin, self._bend = Noise(), 0.0
        if any(i not in self._states for i in call.inputs):
            return None
        if not all(self._layouts.fits(seen, call) for seen in operands(call) if seen.maker in self._states):
            return None
        states = [self._states[i] for i in call.inputs]
        if call.kind == "residual" and call.function in ("add", "iadd", "radd") and len(states) == 2:
            sets = [self._mixed[i] for i in call.inputs]
            if sets[0] & sets[1] or not (sets[0] or sets[1]):
                return None  # units that share weights are not independent
            return lambda c: add(*(_nudged(s, c) for s in states))
        if call.kind == "concat" and len({s.shape[1:] for s in states}) == 1:
            whole = [s.state() if isinstance(s, Inputs) else s for s in states]
            return lambda c: concatenate([_nudged(s, c) for s in whole])  # type: ignore[misc]
        if call.kind == "dropout" and not drops_units(call):
            return lambda c: _nudged(states[0], c)
        layer = layer_for(call)
        if layer is None or (layer.needs_all_positions and len(states[0].shape[1:]) > 0):
            return None
        shape = self._shapes.get(call.inputs[0]) if isinstance(layer, Activate) else None
        if isinstance(layer, Activate) and isinstance(states[0], State) and shape is not None:
            self._bend = shape.moves(layer.activation, float(states[0].x.norm.mean()))
        if isinstance(layer, Activate) and integrates(layer):
            return self._integral(call, layer, trace)
        return _moved(layer, states[0], trace)

    def _integral(self, call: Call, layer: Activate, trace: Trace) -> Advance:
        """An activation without a closed form, with as many pairs and at as many points as there is time for."""
        state, budget = self._states[call.inputs[0]], self._budget
        if budget is None or isinstance(state, Inputs) or state.law != "gaussian" or state.tilts:
            return _moved(layer, state, trace)
        served = all(series_reaches(layer.activation, side.norm) for side in (state.x, state.y))
        way = call.function if served else f"{call.function}, integrated"
        budget.by(call.index, call.function, way)
        if not budget.knows(way):
            budget.price(way, state.excess.numel(), partial(_try, layer, state))
        pairs = state.excess.shape[1]
        choice = budget.choose(call.index, pairs)
        if choice is None:
            raise _LeftOut
        if choice.pairs < pairs:
            self._follow_fewer(choice.pairs)
            self._note("thinned", call)
        given = self._states[call.inputs[0]]
        assert isinstance(given, State)
        points = min(choice.points or given.excess.numel(), given.excess.numel())
        whole = points >= given.excess.numel()
        moved = _moved(layer, given, trace) if whole else self._thinned(call, layer, given, trace, points)
        together = points <= SMALL

        def timed(c: float) -> State | Inputs:
            started = budget.now()
            made = moved(c)
            if not together or c == 1.0:  # the twin comes with it
                budget.learn(way, TWICE * points if together else points, budget.now() - started)
            return made

        return timed

    def _thinned(self, call: Call, layer: Activate, state: State, trace: Trace, count: int) -> Advance:
        """The integral at a random part of the points."""
        points = some_points(state, count, call.index)
        self._note("thinned", call)

        found: dict[float, State] = {}

        def run(c: float) -> State:
            if not found:
                nudged = _nudged(state, 1 + NUDGE)
                assert isinstance(nudged, State)
                found[1.0], self._thin, found[1 + NUDGE] = activated(layer, state, trace, points, nudged)
            return found[c]

        return run

    def _follow_fewer(self, count: int) -> None:
        """From here on a random part of the pairs; what is already known of them stays."""
        some = next(iter(self._states.values()))
        every, at = (len(some.x), some.x) if isinstance(some, Inputs) else (some.excess.shape[1], some.excess)
        chosen = torch.randperm(every, generator=torch.Generator().manual_seed(0))[:count].sort().values.to(at.device)
        self._followed = chosen if self._followed is None else self._followed[chosen]
        self._states = {i: fewer_pairs(state, chosen) for i, state in self._states.items()}
        self._defects = {i: _mean_defect(state) for i, state in self._states.items()}

    def _carry(self, call: Call, advance: Advance | None, defect: float) -> Noise:
        """The variance that comes in, times the square of the step's slope d z_out / d z_in.

        Drawn units cannot be nudged: their slope is taken as 1, its value for small defects.
        """
        drawn_here = call.kind in ("dense", "conv")
        come = [self._carried[i] + self._own[i] if drawn_here else self._carried[i] for i in call.inputs]
        before = max(come, key=lambda noise: noise.variance)
        if before.variance == 0:
            return Noise()
        if advance is None:
            return before
        known = [(self._states[i], self._defects[i]) for i in call.inputs]
        change = max((_change(_mean_defect(_nudged(s, 1 + NUDGE)), defect) for s, defect in known), key=abs)
        slope = _change(_mean_defect(advance(1 + NUDGE)), defect) / change if change else 0.0
        return before.stretched(slope)

    def _restart(self, call: Call, seen: Capture | None) -> None:
        self._own[call.index] = self._carried[call.index] = Noise()
        start = None if seen is None else seen.state()
        if start is None:
            return
        law: Law = "gaussian" if call.kind in ("dense", "conv", "norm", "residual", "shift", "scale") else "other"
        self._states[call.index] = replace(start, law=law, draw=None, independent_units=True, alike=True)
        self._given[call.index] = call.name
        self._defects[call.index] = _mean_defect(start)


def _try(layer: Activate, state: State, count: int) -> None:
    """Takes an integral at a few points."""
    layer.propagate(at_points(state, some_points(state, count, 0)))


def _moved(layer: Layer, state: State | Inputs, trace: Trace) -> Advance:
    """A layer as a step; small states go through it together with their nudged twins, which costs next to nothing."""
    plain = isinstance(layer, Dense) or (isinstance(layer, Conv) and layer.groups == 1)
    activates = isinstance(layer, Activate) and isinstance(state, State) and state.law == "gaussian" and not state.tilts
    if isinstance(state, Inputs) or not (plain or activates) or state.excess.numel() > SMALL:
        return lambda c: layer.propagate(_nudged(state, c), trace)
    given, pairs = state, state.excess.shape[1]
    found: dict[float, State] = {}

    def run(c: float) -> State:
        if not found:
            nudged = _nudged(given, 1 + NUDGE)
            assert isinstance(nudged, State)
            made = layer.propagate(doubled(given, nudged), trace)
            assert isinstance(made, State)
            first = moments_of(made, slice(0, pairs))
            if isinstance(layer, Activate):
                first = replace(first, draw=then(given, layer.activation), before=given)
            found[1.0] = first
            found[1 + NUDGE] = moments_of(made, slice(pairs, None))
        return found[c]

    return run


def _nudged(state: State | Inputs, factor: float) -> State | Inputs:
    if factor == 1.0:
        return state
    state = state.state() if isinstance(state, Inputs) else state
    block = state.cross()
    more = (factor - 1) * block.distance
    excess = torch.minimum((block.excess + more).clamp_min(0), 4 * block.root_a * block.root_b)
    return replace(state, excess=excess, product=block.product - more / 2, before=None, tilts=())


def _mean_defect(state: State | Inputs) -> float:
    return _mean(totals(state))


def _mean(moments: Totals) -> float:
    return float(defects(moments.a, moments.b, moments.excess).nanmean())


def _odds(defect: float) -> float:
    """exp z; infinite for opposite vectors."""
    return defect / (2 - defect) if defect != 2 else math.inf


def _defect_at(odds: float) -> float:
    return 2 / (1 + 1 / odds) if odds != 0 else 0.0


def _change(a: float, b: float) -> float:
    """z of one defect less that of another; 0 where it has no value."""
    return math.log(_odds(a) / _odds(b)) if 0 < a < 2 and 0 < b < 2 else 0.0


def _rms(moments: Totals) -> float:
    return math.sqrt(float(moments.a.mean() + moments.b.mean()) / 2)


def _matches(state: State | Inputs, flat: tuple[int, ...]) -> bool:
    """The theory's shape is the measured one; a view in between may have moved channels to positions."""
    shape = state.shape
    return math.prod(shape) == math.prod(flat) and (shape == flat or len(shape) == 1 or flat[1:] == (1, 1))
