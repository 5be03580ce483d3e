"""How many random filters keep the output similarity within ε of its mean: the limit law, JL's bounds, and sharper ones."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from initscope.activations import RELU, Activation
from initscope.bounds.bernstein import count_for, inner_product_count, similarity_counts
from initscope.bounds.lipschitz import lipschitz_constant
from initscope.bounds.printed import corollary_1_count, orlicz_rate, orlicz_total, theorem_2_count
from initscope.bounds.result import Bound
from initscope.errors import BadInput
from initscope.finite.one_filter import REPLICATES
from initscope.finite.one_layer import LayerSpec, OneLayer, check_draws, homogeneous_slopes, layer_tiles
from initscope.finite.similarity_variance import (
    DRAWS,
    SimilarityVariance,
    first_order_count,
    second_order_shift,
    variance_of,
)
from initscope.layers.shifts import Padding
from initscope.weights import WeightLaw

_GAUSSIAN = "filter entries independent, Gaussian, mean 0; filters independent"
_DEGREE = "activation of degree one: f(cz) = c f(z) for c >= 0"
_INNER = "statement: the mean inner product is off by epsilon times the root of the mean squared output norms, or more"
_SIMILARITY = "statement: the similarity is off its mean by epsilon or more"
_JL = "Nachum et al. 2022"


@dataclass(frozen=True, eq=False)
class FilterCount:
    """Numbers of filters (dense: units) for each pair, whole numbers in float64 of shape (n,), each with its evidence.

    Similarity: `similarity` (CLT), `refined` (to second order), `corollary_1`, `bernstein`, `bernstein_with_variance`.
    Inner product: `theorem_2`, `lemma_2` (linear layers), `bernstein_inner_product`. None where a statement does not apply;
    `note` says why.
    """

    mean_similarity: Bound[Tensor]
    variance: SimilarityVariance
    similarity: Bound[Tensor]
    refined: Bound[Tensor]
    corollary_1: Bound[Tensor] | None
    bernstein: Bound[Tensor] | None
    bernstein_with_variance: Bound[Tensor] | None
    theorem_2: Bound[Tensor] | None
    lemma_2: Bound[Tensor] | None
    bernstein_inner_product: Bound[Tensor] | None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v.to_dict() if hasattr(v, "to_dict") else v for k, v in values.items()}


def filters_for(
    x: Tensor,
    y: Tensor,
    epsilon: float,
    delta: float,
    *,
    kernel: int | tuple[int, int] = 3,
    stride: int | tuple[int, int] = 1,
    padding: Padding = "circular",
    activation: str | Activation = RELU,
    weights: WeightLaw | None = None,
    lipschitz: float | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> FilterCount:
    """Filters after which one random layer moves the similarity of each zipped pair by ε or more with probability at most δ.

    The limit law needs `z²V/ε²` (V: `similarity_variance`), JL Corollary 1 more than `max(K, K²) log(6n²/δ)`, whose constant
    D = 16/3 is explicit here. x, y: (n, c, h, w), or (n, d) for dense units. Only one layer is treated; in a deep network the
    counts hold for its last layer given those before it.

    >>> x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> count = filters_for(x, y, 0.05, 0.05)
    >>> float(count.similarity.value), float(count.refined.value), float(count.bernstein_with_variance.value)
    (836.0, 835.0, 2034.0)
    """
    _check_share("epsilon", epsilon)
    _check_share("delta", delta)
    check_draws("filters_for", draws, 2 * REPLICATES)
    spec = LayerSpec(kernel, stride, padding, activation, weights)
    f = spec.function()
    L = lipschitz_constant(f, lipschitz)
    tiles = []
    for layer in layer_tiles(spec, x, y):
        variance = variance_of(layer, draws, seed)
        tiles.append((variance, _counts(layer, variance, L, epsilon, delta)))
    variance = SimilarityVariance.join([tile for tile, _ in tiles])
    counts = {name: torch.cat([tile[name] for _, tile in tiles]) for name in tiles[0][1]}
    return FilterCount(
        mean_similarity=_mean(variance, f),
        variance=variance,
        similarity=_limit(variance, epsilon, delta, refined=False),
        refined=_limit(variance, epsilon, delta, refined=True),
        **_bounds(counts, variance, f, L, epsilon, delta),
        note=_why(f, L),
    )


def _counts(
    layer: OneLayer, variance: SimilarityVariance, L: float | None, epsilon: float, delta: float
) -> dict[str, Tensor]:
    """Every proved count that applies to a tile of pairs, by the name of its field."""
    found = {}
    if layer.slopes is not None:
        plain, informed = similarity_counts(layer, epsilon, delta, variance.moments)
        found["bernstein"], found["bernstein_with_variance"] = plain, informed
        found["bernstein_inner_product"] = inner_product_count(layer, epsilon, delta)
    elif L is not None:
        rate = orlicz_rate(orlicz_total(layer, L), epsilon)
        found["bernstein_inner_product"] = count_for([rate, rate], delta)
    if L is not None:
        found["theorem_2"] = theorem_2_count(layer, L, epsilon, delta)
        if layer.slopes is not None:
            found["corollary_1"] = corollary_1_count(layer, L, epsilon, delta)
            if layer.slopes[0] == layer.slopes[1]:
                found["lemma_2"] = found["theorem_2"]
    return found


def _bounds(
    counts: dict[str, Tensor],
    variance: SimilarityVariance,
    f: Activation,
    L: float | None,
    epsilon: float,
    delta: float,
) -> dict[str, Bound[Tensor] | None]:
    """The counts with their evidence; None for those that do not apply."""
    steep = f"Lipschitz constant {L:g}" if L is not None else ""
    exact = "Bernstein's inequality with exact moments at each position, summed by Minkowski's (docs/filters.md)"
    orlicz = "Theorem 2's argument with Orlicz norms summed over positions, no union bound (docs/filters.md)"
    degree_one = homogeneous_slopes(f) is not None
    simulated = variance.method == "monte carlo"
    upto = "; printed for epsilon <= 1/10, holds up to 3" if epsilon > 0.1 else ""
    sure = ("one-filter variance no more than simulated plus 5 standard errors",) if simulated else ()
    at_zero = "eq. 20 needs f(0) = 0; otherwise |f(0)| is added here"
    leading = "the variance of one filter itself in the leading term"
    inner = (_DEGREE, _INNER) if degree_one else (steep, _INNER)
    evidence: dict[str, tuple[tuple[str, ...], str, str]] = {
        "corollary_1": (
            (_DEGREE, steep, _SIMILARITY),
            f"{_JL}, Corollary 1, with D = 16/3 and its factor 5",
            f"K has nu_sigma² where the paper prints nu²{upto}",
        ),
        "bernstein": ((_DEGREE, _SIMILARITY), exact, ""),
        "bernstein_with_variance": ((_DEGREE, _SIMILARITY, *sure), exact, leading),
        "theorem_2": ((steep, _INNER), f"{_JL}, Theorem 2, with D = 16/3", at_zero),
        "lemma_2": (("linear activation", steep, _INNER), f"{_JL}, Lemma 2, with D = 16/3", ""),
        "bernstein_inner_product": (inner, exact if degree_one else orlicz, ""),
    }
    return {
        name: Bound(counts[name], delta=delta, assumes=(_GAUSSIAN, *assumes), source=source, note=note)
        if name in counts
        else None
        for name, (assumes, source, note) in evidence.items()
    }


def _check_share(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise BadInput(name, f"got {value!r}, expected a number between 0 and 1", f"pass for example {name}=0.05")


def _why(activation: Activation, L: float | None) -> str:
    missing = []
    if homogeneous_slopes(activation) is None:
        missing.append(f"{activation.name} is not of degree one: Corollary 1 and the Bernstein counts do not apply")
    if L is None:
        missing.append(
            f"no Lipschitz constant of {activation.name} is known: pass lipschitz= for Theorem 2, if it has one"
        )
    return "; ".join(missing)


def _mean(variance: SimilarityVariance, activation: Activation) -> Bound[Tensor]:
    by = "" if activation.rung == "closed form" else f"the dual of {activation.name} by {activation.rung}"
    return Bound(variance.similarity, kind="exact", assumes=(_GAUSSIAN,), source=f"{_JL}, Theorem 1", note=by)


def _limit(variance: SimilarityVariance, epsilon: float, delta: float, *, refined: bool) -> Bound[Tensor]:
    count = first_order_count(variance, epsilon, delta)
    source = "delta method: z² V / epsilon²"
    if refined:
        count = count + second_order_shift(variance, delta)
        source += ", and Edgeworth's next term, which does not depend on epsilon"
    how = (
        f"{variance.draws} random filters, see variance.stderr" if variance.method == "monte carlo" else variance.method
    )
    return Bound(
        count.ceil().clamp_min(1),
        delta=delta,
        kind="asymptotic",
        assumes=(_GAUSSIAN, _SIMILARITY, "many filters: the failure probability tends to delta as epsilon tends to 0"),
        source=source,
        note=f"V: {how}" + ("" if refined else "; below about 100 filters prefer the refined count"),
    )
