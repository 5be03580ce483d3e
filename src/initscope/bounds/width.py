"""How wide is wide enough: the exact width that keeps norms within 1 ± ε, next to what OP guarantees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from initscope.bounds.printed_width import HE, PAPER, per_layer, theorem_failure, theorem_width
from initscope.bounds.result import Bound
from initscope.bounds.targets import share, whole
from initscope.bounds.width_search import log_normal_width, smallest_width
from initscope.errors import BadInput
from initscope.finite.depths import log_outside_sum
from initscope.finite.mellin import WIDEST, Factor
from initscope.finite.norm_law import NormLaw, relu_norm_law
from initscope.weights.law import Fan

_LEAST = 1e-280  # failure probabilities below it come near the smallest double
_UNIFORM = "all layers are equally wide"
_INDEPENDENT = "∂ℓ/∂a_L does not depend on the weights below it"


@dataclass(frozen=True)
class WidthAnswer:
    """The smallest uniform width for a target, by each way of knowing it; `failure` is the chance to fail at `exact`.

    `exact`: the law itself. `gradients`: activations and weight gradients of all layers together, exact tails. `theorem1`
    and `theorem3`: OP's bounds for the same two targets (None for another gain than He's). `asymptotic`: log-normal limit.
    """

    depth: int
    epsilon: float
    delta: float
    samples: int
    exact: Bound[int]
    gradients: Bound[int]
    theorem1: Bound[int] | None
    theorem3: Bound[int] | None
    asymptotic: Bound[int]
    failure: float

    @property
    def lemma2(self) -> Bound[int] | None:
        """OP Lemma 2, which is Theorem 1 for one layer."""
        return self.theorem1 if self.depth == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        bounds = {name: getattr(self, name) for name in ("exact", "gradients", "theorem1", "theorem3", "asymptotic")}
        return {
            "depth": self.depth,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "samples": self.samples,
            "failure": self.failure,
            **{name: None if bound is None else bound.to_dict() for name, bound in bounds.items()},
        }


@dataclass(frozen=True)
class FailureAnswer:
    """The chance that |h_L|²/|x|² leaves 1 ± ε for some sample: by the law, and as OP's theorems bound it."""

    widths: tuple[int, ...]
    epsilon: float
    samples: int
    exact: Bound[float]
    theorem1: Bound[float] | None
    theorem3: Bound[float] | None
    law: NormLaw

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        bounds = {name: getattr(self, name) for name in ("exact", "theorem1", "theorem3")}
        return {
            "widths": list(self.widths),
            "epsilon": self.epsilon,
            "samples": self.samples,
            **{name: None if bound is None else bound.to_dict() for name, bound in bounds.items()},
            "law": self.law.to_dict(),
        }


def width_for(
    depth: int, epsilon: float, delta: float, samples: int = 1, *, gain: float = 2.0, every_layer: bool = False
) -> WidthAnswer:
    """The smallest width m of a uniform network for which N · P(|h_L|²/|x|² outside 1 ± ε) <= δ.

    ε is the total distortion of the squared norm after `depth` layers; N = `samples` inputs by the union bound (exact
    for one). With `every_layer` the norms of all layers have to stay inside. Weights are N(0, gain/fan-out), and at m - 1
    units the target is missed. For fan-in read mean squares per unit instead of squared norms.

    >>> answer = width_for(depth=1, epsilon=0.5, delta=0.05)
    >>> answer.exact.value, answer.theorem1.value, answer.exact.kind
    (75, 200, 'exact')
    """
    place = "width_for"
    depth, samples = whole(place, "depth", depth), whole(place, "samples", samples)
    epsilon, delta = share(place, "epsilon", epsilon), share(place, "delta", delta)
    target = delta / samples
    if target < _LEAST:
        raise BadInput(place, f"delta/samples is {target:g}, expected at least {_LEAST:g}", "ask for a larger delta")
    _check_gain(place, gain, depth, epsilon)
    low, high = 1 - epsilon, 1 + epsilon
    last: dict[int, float] = {depth: 1.0}
    all_layers = {layer: 1.0 for layer in range(1, depth + 1)}
    asked = all_layers if every_layer else last
    both = dict(all_layers)
    if depth > 1:
        both[depth - 1] += depth  # each of the L weight gradients has the law of L - 1 layers

    def failure(weights: dict[int, float]) -> Callable[[int], float]:
        return lambda width: log_outside_sum(Factor(width, gain / width), weights, low, high)

    guess = log_normal_width(depth, epsilon, target, gain)
    exact, log_chance = smallest_width(place, failure(asked), math.log(target), guess)
    with_gradients, _ = smallest_width(place, failure(both), math.log(target), exact)
    he = gain == 2
    return WidthAnswer(
        depth,
        epsilon,
        delta,
        samples,
        _exact_bound(exact, delta, samples, gain, depth if every_layer else 1),
        _gradient_bound(with_gradients, delta, samples, gain),
        _paper_bound(depth, epsilon, delta, samples, 1) if he else None,
        _paper_bound(depth, epsilon, delta, samples, 3) if he else None,
        _asymptotic_bound(guess, delta, samples, gain),
        samples * math.exp(log_chance),
    )


def failure_probability(
    width: int | Sequence[int],
    depth: int | None,
    epsilon: float,
    samples: int = 1,
    *,
    inputs: int | None = None,
    gain: float = 2.0,
    fan: Fan = "out",
) -> FailureAnswer:
    """The chance that |h_L|²/|x|² is outside 1 ± ε for one of N samples, in a network of one width or of many.

    `width` is a number, repeated `depth` times, or the widths of the layers in order (then `depth` may be None).

    >>> answer = failure_probability(760, depth=10, epsilon=0.5)
    >>> round(answer.exact.value, 6), answer.theorem1.value
    (0.048691, 1.0)
    """
    place = "failure_probability"
    epsilon, samples = share(place, "epsilon", epsilon), whole(place, "samples", samples)
    if depth is not None:
        depth = whole(place, "depth", depth)
    many = isinstance(width, Sequence)
    if not many and depth is None:
        raise BadInput(place, "got one width and no depth", "pass depth=, or a list with the width of each layer")
    given = tuple(width) if isinstance(width, Sequence) else (width,) * (depth or 1)
    widths = tuple(whole(place, "a width" if many else "width", one, WIDEST) for one in given)
    if depth not in (None, len(widths)):
        raise BadInput(place, f"got {len(widths)} widths and depth {depth}", "pass depth=None with a list of widths")
    law = relu_norm_law(widths, inputs=inputs, gain=gain, fan=fan)
    chance = law.outside(1 - epsilon, 1 + epsilon)
    uniform = len({*widths, *(() if inputs is None else (inputs,))}) == 1  # then all fans are equal
    he = gain == 2 and (fan == "out" or uniform)
    one = samples == 1
    weights = f"weights independent N(0, {gain:g}/fan-{fan})"
    return FailureAnswer(
        law=law,
        widths=widths,
        epsilon=epsilon,
        samples=samples,
        exact=Bound(
            min(1.0, samples * chance),
            kind="exact" if one else "bound",
            assumes=("ReLU layers, biases zero", weights, "inputs fixed before the weights are drawn"),
            source="the law of Π v χ²_K, inverted numerically",
            note="" if one else f"union bound over {samples} samples; {chance:.6g} for each, exactly",
        ),
        theorem1=_paper_failure(widths, epsilon, 2 * samples, 1) if he else None,
        theorem3=_paper_failure(widths, epsilon, 4 * samples, 3) if he and len(set(widths)) == 1 else None,
    )


def _check_gain(place: str, gain: float, depth: int, epsilon: float) -> None:
    if not (math.isfinite(gain) and gain > 0):
        raise BadInput(place, f"gain is {gain}, expected a positive number", "He's gain is 2, Glorot's 1")
    limit = depth * math.log(gain / 2)
    if not math.log1p(-epsilon) < limit < math.log1p(epsilon):
        problem = f"with gain {gain:g} the squared norm tends to {math.exp(limit):.3g} of the input's, outside 1 ± {epsilon:g}"
        raise BadInput(place, problem, "no width is enough; use gain 2, fewer layers or a larger epsilon")


def _setting(gain: float) -> tuple[str, ...]:
    return (HE[0], f"weights independent N(0, {gain:g}/fan-out)", HE[2])


def _exact_bound(width: int, delta: float, samples: int, gain: float, layers: int) -> Bound[int]:
    unions = [f"{n} {what}" for n, what in ((samples, "samples"), (layers, "layers")) if n > 1]
    return Bound(
        width,
        delta,
        "bound" if unions else "exact",
        (*_setting(gain), _UNIFORM),
        "the law of Π v χ²_K, inverted numerically",
        f"exact tails, union bound over {' and '.join(unions)}" if unions else "one unit fewer misses the target",
    )


def _gradient_bound(width: int, delta: float, samples: int, gain: float) -> Bound[int]:
    return Bound(
        width,
        delta,
        "bound",
        (*_setting(gain), _UNIFORM, _INDEPENDENT),
        "the law of Π v χ²_K, forwards and backwards",
        "exact tails, union bound over the activations and weight gradients of all layers"
        + (f" and {samples} samples" if samples > 1 else ""),
    )


def _paper_bound(depth: int, epsilon: float, delta: float, samples: int, theorem: int) -> Bound[int]:
    union = (2 if theorem == 1 else 4) * samples * depth
    width = theorem_width(depth, epsilon, delta, union)
    return Bound(
        max(1, math.ceil(width)),
        delta,
        "bound",
        (*HE, *((_UNIFORM, _INDEPENDENT) if theorem == 3 else ())),
        _source(theorem, depth),
        f"asks for {width:.2f}" + _per_layer_note(depth, epsilon),
    )


def _paper_failure(widths: Sequence[int], epsilon: float, factor: float, theorem: int) -> Bound[float]:
    depth = len(widths)
    return Bound(
        theorem_failure(widths, epsilon, factor),
        assumes=(*HE, *((_UNIFORM, _INDEPENDENT) if theorem == 3 else ())),
        source=_source(theorem, depth),
        note=_per_layer_note(depth, epsilon).strip(),
    )


def _source(theorem: int, depth: int) -> str:
    equations = (
        "Lemma 2, eq. 7" if depth == 1 and theorem == 1 else {1: "Theorem 1, eq. 8", 3: "Theorem 3, eq. 22"}[theorem]
    )
    return f"{PAPER}, {equations}"


def _per_layer_note(depth: int, epsilon: float) -> str:
    if depth == 1:
        return ""
    return f" for ε' = {per_layer(epsilon, depth):.6g} in each layer, so that (1 ± ε')^{depth} stays within 1 ± {epsilon:g}"


def _asymptotic_bound(width: int, delta: float, samples: int, gain: float) -> Bound[int]:
    return Bound(
        width,
        delta,
        "asymptotic",
        (*_setting(gain), _UNIFORM, "log |h|²/|x|² is normal with variance 5L/m, as for many units"),
        "the central limit of log Π v χ²_K",
        f"not a guarantee; for small ε it is 5L z²/ε², z the normal quantile of 1 - δ/{2 * samples}",
    )
