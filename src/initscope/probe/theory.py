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
from typing import Literal

import torch
from torch import Tensor

from initscope.errors import InitscopeError, NoExactForm
from initscope.geometry import Inputs, State
from initscope.geometry.state import Law
from initscope.layers import Layer, Trace
from initscope.networks.merging import add, concatenate
from initscope.networks.prediction import geometry, totals
from initscope.probe.capture import Capture, Noise
from initscope.probe.findings import Note
from initscope.probe.trace import INPUT, Call, Seen
from initscope.probe.translation import drops_units, layer_for

Gap = Literal["no-theory", "too-long", "layout"]
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
        return self.least <= self.measured <= self.most or max(self.defect, self.measured) < ROUNDING


class Theory:
    """Runs along the calls of one trace, in order. `drawn` is how many values may be drawn where closed forms end."""

    def __init__(self, data: Tensor, pairs: tuple[Tensor, Tensor], drawn: float = DRAWN) -> None:
        self._left = drawn
        self._states: dict[int, State | Inputs] = {}
        self._given: dict[int, str] = {}
        self._mixed: dict[int, frozenset[int]] = {INPUT: frozenset()}  # the weight layers whose channels the units are
        self._own: dict[int, Noise] = {INPUT: Noise()}  # from the channels of the last weight layers
        self._carried: dict[int, Noise] = {INPUT: Noise()}  # from all that was drawn before them
        self._errors: dict[int, float] = {}  # of the cosine, from activations whose integrals are not precise
        self._parts: dict[int, int] = {INPUT: 1}  # Gaussian parts that a unit is made of: the work of drawing one
        self._gaps: dict[tuple[Gap, str], list[str]] = {}  # why, function -> steps without a prediction
        if 2 <= data.ndim <= 5 and data.is_floating_point():
            x, y = (data.detach()[i.to(data.device)].double() for i in pairs)
            self._states[INPUT] = Inputs(x, y)
            self._given[INPUT] = ""

    def follows(self, call: Call) -> bool:
        """Whether the second axis of what the call makes holds channels.

        So it is for vectors, for what a convolution makes, and for what keeps the layout of such values; tokens (n, t, d)
        and images with the channels last are none of these.
        """
        if len(call.shape) == 2 or call.kind == "conv":
            return True
        made = [seen for seen in _operands(call) if seen.maker in self._states]
        return any(self._channels_first(seen, call) for seen in made)

    def _channels_first(self, seen: Seen, call: Call) -> bool:
        """The operand lies as the state of its maker does: views in between moved no axes.

        Data with one or three axes of positions may as well be tokens; it takes a convolution to tell.
        """
        state = self._states[seen.maker]  # type: ignore[index]
        if seen.maker == INPUT and len(seen.shape) in (3, 5) and call.kind != "conv" and call.function != "batch_norm":
            return False
        return len(seen.shape) == 2 or seen.shape[1:] == state.shape

    def step(self, call: Call, seen: Capture | None) -> Predicted | None:
        """The prediction for one call; without one, the measured values become the start of what follows."""
        weights = layer_for(call) if call.kind in ("dense", "conv") else None
        before = frozenset().union(*(self._mixed.get(i, frozenset()) for i in call.inputs))
        gaussian = call.kind in ("dense", "conv")
        self._parts[call.index] = 1 if gaussian else max(1, sum(self._parts.get(i, 1) for i in call.inputs))
        self._mixed[call.index] = frozenset({call.index}) if gaussian else before
        trace = Trace(units=self._affordable(call))
        gap: Gap = "no-theory"
        try:
            advance = self._advance(call, weights, trace)
            state = None if advance is None else advance(1.0)
        except (InitscopeError, RuntimeError) as error:
            gap = "too-long" if isinstance(error, NoExactForm) else "layout"
            state = advance = None
        if state is None or advance is None or seen is None or not _matches(state, seen.shape):
            self._gaps.setdefault((gap, call.function), []).append(call.name)
            self._restart(call, seen)
            return None
        doubt = self._errors[call.index] = trace.integral_error + max(
            (self._errors.get(i, 0.0) for i in call.inputs), default=0.0
        )
        if trace.simulated:
            self._left -= trace.units * self._values(call)
        self._states[call.index] = state
        self._given[call.index] = next((self._given[i] for i in call.inputs if self._given.get(i)), "")
        defect = _mean_defect(state)
        self._own[call.index] = seen.noise if self._mixed[call.index] else Noise()
        self._carried[call.index] = self._carry(call, None if trace.simulated else advance, defect)
        reach = (self._own[call.index] + self._carried[call.index]).reach
        measured = float(seen.defect.nanmean())
        least, most = (_defect_at(_odds(defect) * factor) for factor in (1 / reach, reach))
        least, most = max(least - doubt, 0.0), min(most + doubt, 2.0)  # in this order NaN stays
        return Predicted(defect, most, least, measured, _rms(state), self._given[call.index])

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

    def _advance(self, call: Call, weights: Layer | None, trace: Trace) -> Callable[[float], State | Inputs] | None:
        """The step as a function of a factor on the distances that go in; None if there is no theory for it."""
        if any(i not in self._states for i in call.inputs):
            return None
        if not all(self._channels_first(seen, call) for seen in _operands(call) if seen.maker in self._states):
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
        layer = weights if weights is not None else layer_for(call)
        if layer is None or (layer.needs_all_positions and len(states[0].shape[1:]) > 0):
            return None
        return lambda c: layer.propagate(_nudged(states[0], c), trace)

    def _carry(self, call: Call, advance: Callable[[float], State | Inputs] | None, defect: float) -> Noise:
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
        states = [self._states[i] for i in call.inputs]
        change = max((_change(_mean_defect(_nudged(s, 1 + NUDGE)), _mean_defect(s)) for s in states), key=abs)
        slope = _change(_mean_defect(advance(1 + NUDGE)), defect) / change if change else 0.0
        return before.stretched(slope)

    def _restart(self, call: Call, seen: Capture | None) -> None:
        self._own[call.index] = self._carried[call.index] = Noise()
        if seen is None:
            return
        law: Law = "gaussian" if call.kind in ("dense", "conv", "norm", "residual", "shift", "scale") else "other"
        self._states[call.index] = replace(seen.state(), law=law, draw=None, independent_units=True, alike=True)
        self._given[call.index] = call.name


def _nudged(state: State | Inputs, factor: float) -> State | Inputs:
    if factor == 1.0:
        return state
    state = state.state() if isinstance(state, Inputs) else state
    block = state.cross()
    more = (factor - 1) * block.distance
    excess = torch.minimum((block.excess + more).clamp_min(0), 4 * block.root_a * block.root_b)
    return replace(state, excess=excess, product=block.product - more / 2, before=None, tilts=())


def _mean_defect(state: State | Inputs) -> float:
    found = totals(state)
    return float(geometry(found.a, found.b, found.excess)["defect"].nanmean())


def _odds(defect: float) -> float:
    """exp z; infinite for opposite vectors."""
    return defect / (2 - defect) if defect != 2 else math.inf


def _defect_at(odds: float) -> float:
    return 2 / (1 + 1 / odds) if odds != 0 else 0.0


def _change(a: float, b: float) -> float:
    """z of one defect less that of another; 0 where it has no value."""
    return math.log(_odds(a) / _odds(b)) if 0 < a < 2 and 0 < b < 2 else 0.0


def _rms(state: State | Inputs) -> float:
    found = totals(state)
    return math.sqrt(float(found.a.mean() + found.b.mean()) / 2)


def _operands(call: Call) -> list[Seen]:
    """The tensors among the arguments that come from the data."""
    given = [*call.arguments, *call.keywords.values()]
    flat = [part for each in given for part in (each if isinstance(each, (list, tuple)) else (each,))]
    return [part for part in flat if isinstance(part, Seen) and part.maker is not None]


def _matches(state: State | Inputs, flat: tuple[int, ...]) -> bool:
    """The theory's shape is the measured one; a view in between may have moved channels to positions."""
    shape = state.shape
    return math.prod(shape) == math.prod(flat) and (shape == flat or len(shape) == 1 or flat[1:] == (1, 1))
