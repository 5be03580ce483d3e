"""Numbers of filters: the constants of the proofs, the papers' slips, and that every count does what it says."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from bounds.dense import dense_triples, planar, value
from finite.triples import sample_triples
from initscope.activations import RELU, SIGMOID, by_name, leaky_relu
from initscope.bounds import bernstein, filters_for
from initscope.data import load_pairs
from initscope.errors import BadInput
from initscope.finite import similarity_variance
from initscope.finite.one_layer import LayerSpec, layer_tiles

COUNTS = (
    "similarity", "refined", "corollary_1", "bernstein", "bernstein_with_variance", "theorem_2", "lemma_2",
    "bernstein_inner_product",
)  # fmt: skip


# --- the sharper bounds ----------------------------------------------------------------------------------------------


def test_count_is_the_smallest_that_does() -> None:
    rates = [torch.tensor([0.3, 0.01], dtype=torch.float64), torch.tensor([0.2, math.inf], dtype=torch.float64)]
    count = bernstein.count_for(rates, 0.05)
    table = torch.stack(rates)
    assert bool(((-count * table).exp().sum(0) <= 0.05).all())
    assert bool(((-(count - 1) * table).exp().sum(0) > 0.05).all())


@pytest.mark.parametrize("rho", [-0.7, 0.1, 0.95])
def test_log_moments_stay_above_the_exact_ones(rho: float) -> None:
    """Linear units: W is a quadratic form of two normal variables, whose logarithmic moment function is known."""
    layer = next(layer_tiles(LayerSpec(activation="identity"), *planar(rho)))
    moments = similarity_variance(*planar(rho), activation="identity").moments
    mean = rho
    x, y = (t[0] for t in planar(rho))
    for tail in bernstein._tails(layer, 0.05, 0.005, moments):
        beta, gamma, mu = (float(torch.as_tensor(c)) for c in (tail.form.beta, tail.form.gamma, tail.form.mu))
        gap = x - y
        matrix = (beta * torch.outer(x, x) + gamma * torch.outer(y, y) - mu * torch.outer(gap, gap)) / 2
        values = torch.linalg.eigvalsh(matrix)
        assert float(values.sum()) == pytest.approx(-float(tail.gap), rel=1e-9)
        reach = 1 / (2 * float(values.max()))
        theta = torch.linspace(0, reach * (1 - 1e-9), 20_001, dtype=torch.float64)
        exact = float((0.5 * torch.log1p(-2 * theta[:, None] * values).sum(1)).max())  # Chernoff at threshold 0
        for rate in bernstein._rates(layer.unit_pair(), tail):
            assert 0 < float(rate) <= exact * (1 + 1e-9)
    assert mean == pytest.approx(float(layer.similarity), abs=1e-12)


def images(kind: str) -> tuple[Tensor, Tensor]:
    if kind == "photos":
        pairs = load_pairs("photos", pairs=1, size=12, seed=3)
        return pairs.x.double(), pairs.y.double()
    generator = torch.Generator().manual_seed(11)
    x, noise = (torch.randn(1, 2, 6, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    y = 0.6 * x + 0.8 * noise
    if kind == "sparse":
        keep = torch.rand(x.shape, generator=generator) < 0.15
        return x * keep, y * keep.flip(-1)
    return x, y


@pytest.mark.parametrize("kind", ["photos", "noise", "sparse"])
@pytest.mark.parametrize("name", ["relu", "identity", "abs", "leaky_relu"])
def test_every_tail_is_below_its_bound(kind: str, name: str) -> None:
    x, y = images(kind)
    activation = leaky_relu(-0.5) if name == "leaky_relu" else by_name(name)
    layer = next(layer_tiles(LayerSpec(activation=activation), x, y))
    moments = similarity_variance(x, y, activation=activation, draws=1024).moments
    t = sample_triples(x[0], y[0], 40_000, 8, activation=activation)  # type: ignore[arg-type]
    P, Q, S = t.P / (layer.mean_x * layer.mean_y).sqrt(), t.Q / layer.mean_x, t.S / layer.mean_y
    for tail in bernstein._tails(layer, 0.3, 0.03, moments):
        assert tail.possible is not None
        if not bool(tail.possible):
            continue
        beta, gamma, mu = (float(torch.as_tensor(c)) for c in (tail.form.beta, tail.form.gamma, tail.form.mu))
        W = (beta * Q + gamma * S - mu * (Q + S - 2 * P)) / 2
        assert abs(float(W.mean()) + float(tail.gap)) < 5 * float(W.std()) / math.sqrt(len(W))
        rates = bernstein._rates(layer.unit_pair(), tail)
        assert float(rates[1]) >= float(rates[0]) * (1 - 1e-9)
        for filters in (1, 4, 16, 64):
            happened = (W[: len(W) // filters * filters].view(-1, filters).mean(1) >= 0).double()
            allowance = 4 * float(happened.std()) / math.sqrt(len(happened))
            for rate in rates:
                assert float(happened.mean()) <= math.exp(-filters * float(rate)) + allowance


@pytest.mark.parametrize("name", ["relu", "identity", "abs"])
@pytest.mark.parametrize("rho", [-0.6, 0.0, 0.7, 0.97])
def test_dense_bounds_cover_and_are_ordered(name: str, rho: float) -> None:
    x, y = planar(rho)
    count = filters_for(x, y, 0.1, 0.05, activation=name)
    order = [value(count, n) for n in ("similarity", "bernstein_with_variance", "bernstein", "corollary_1")]
    assert order == sorted(order)
    mean, filters = float(count.mean_similarity.value), int(order[1])
    failed, sets = dense_triples(by_name(name), rho, 500 * filters, 6).failures(filters, mean, 0.1)
    assert failed <= 2, (failed, sets)  # far below the 25 that δ would allow
    inner = int(value(count, "bernstein_inner_product"))
    sample = dense_triples(by_name(name), rho, 200 * inner, 7)
    q, s = (by_name(name).second_moment(torch.ones(1, dtype=torch.float64)),) * 2
    off = (sample.P.view(200, inner).mean(1) / (q * s).sqrt() - mean).abs() >= 0.1
    assert int(off.sum()) <= 2


def test_bound_approaches_the_limit_law_for_small_epsilon() -> None:
    count = filters_for(*planar(0.5), 0.002, 0.05)
    ratio = value(count, "bernstein_with_variance") / value(count, "similarity")
    z = 1.959964
    assert 2 * math.log(2 / 0.05) / z**2 < ratio < 1.1 * 2 * math.log(2 / 0.05) / z**2  # Gaussian tails, one δ/2 each


# --- the limit law --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.7, 0.95])
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_dense_limit_counts_cover(rho: float, delta: float) -> None:
    x, y = planar(rho)
    epsilon = 2 * math.sqrt(float(similarity_variance(x, y).value) / 80)
    count = filters_for(x, y, epsilon, delta)
    mean = float(count.mean_similarity.value)
    for name, slack in (("similarity", 0.02), ("refined", 0.006)):
        filters = int(value(count, name))
        failed, sets = dense_triples(RELU, rho, 20_000 * filters, 9).failures(filters, mean, epsilon)
        stderr = math.sqrt(delta * (1 - delta) / sets)
        assert abs(failed / sets - delta) < slack + 3 * stderr, name


def test_similar_inputs_need_one_filter_and_opposite_signs_none() -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    count = filters_for(x, torch.stack([3 * x[0], -x[1]]), 0.1, 0.05)
    assert count.similarity.value.tolist() == count.refined.value.tolist() == [1.0, 1.0]
    assert count.mean_similarity.value.tolist() == pytest.approx([1.0, 0.0], abs=1e-12)


def test_counts_grow_with_precision_and_confidence() -> None:
    x, y = planar(0.3)
    by_epsilon = [filters_for(x, y, epsilon, 0.05) for epsilon in (0.3, 0.1, 0.03)]
    by_delta = [filters_for(x, y, 0.1, delta) for delta in (0.3, 0.05, 1e-6)]
    for name in ("similarity", "refined", "corollary_1", "bernstein", "theorem_2", "bernstein_inner_product"):
        for counts in (by_epsilon, by_delta):
            found = [value(count, name) for count in counts]
            assert found == sorted(found), name


# --- the answer ------------------------------------------------------------------------------------------------------


def test_every_count_says_what_it_is() -> None:
    pairs = load_pairs("photos", pairs=2, size=10, seed=1)
    count = filters_for(pairs.x, pairs.y, 0.2, 0.05, draws=64)
    for name in COUNTS:
        bound = getattr(count, name)
        if name == "lemma_2":
            assert bound is None
            continue
        assert bound.value.shape == (2,)
        assert torch.equal(bound.value, bound.value.round())
        assert bound.delta == 0.05
        assert bound.source
        assert bound.assumes
        assert bound.kind == ("asymptotic" if name in ("similarity", "refined") else "bound")
    assert count.mean_similarity.kind == "exact"
    assert any("simulated" in words for words in count.bernstein_with_variance.assumes)  # type: ignore[union-attr]
    assert "holds up to 3" in count.corollary_1.note  # type: ignore[union-attr]
    data = json.loads(json.dumps(count.to_dict()))
    assert data["similarity"]["kind"] == "asymptotic"
    assert data["lemma_2"] is None


def test_what_does_not_apply_is_left_out_and_said() -> None:
    x, y = planar(0.3)
    smooth = filters_for(x, y, 0.2, 0.05, activation=SIGMOID)
    assert smooth.corollary_1 is smooth.bernstein is smooth.bernstein_with_variance is smooth.lemma_2 is None
    assert smooth.theorem_2 is not None
    assert "not of degree one" in smooth.note
    step = filters_for(x, y, 0.2, 0.05, activation="step")
    assert step.theorem_2 is step.bernstein_inner_product is None
    assert "Lipschitz" in step.note
    assert filters_for(x, y, 0.2, 0.05).note == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(({name: bad}, name) for name in ("epsilon", "delta") for bad in (0, 1, -0.1, 2.0, math.nan, "x", None, True)),
        ({"x": torch.zeros(2, 3, 8, 8)}, "x: inputs 0, 1 are zero"),
        ({"x": torch.zeros(0, 3, 8, 8), "y": torch.zeros(0, 3, 8, 8)}, "empty"),
        ({"y": torch.ones(2, 3, 8, 7)}, "equal shapes"),
        ({"x": torch.ones(8, 8), "y": torch.ones(8, 9)}, "equal shapes"),
        ({"x": torch.ones(3, 8, 8)}, "expected"),
        ({"x": "photo"}, "expected a tensor"),
        ({"kernel": 9}, "larger than the 8x8 input"),
        ({"draws": 1}, "draws"),
        ({"activation": "rellu"}, "did you mean relu"),
        ({"lipschitz": 0.5}, "at least 1"),
        ({"lipschitz": "steep"}, "lipschitz"),
        ({"lipschitz": math.inf}, "lipschitz"),
    ],
)
def test_bad_input(change: dict[str, object], words: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(2, 3, 8, 8, generator=generator) for _ in range(2))
    arguments: dict[str, object] = {"x": x, "y": y, "epsilon": 0.1, "delta": 0.05, "draws": 64, **change}
    with pytest.raises(BadInput, match=words):
        filters_for(**arguments)  # type: ignore[arg-type]
