"""`simulate`: sampled networks by hand, against exact laws, and what it must leave alone."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy.special import gammaln, hyp2f1
from torch import Tensor

from initscope.activations import RELU
from initscope.errors import BadInput, UndefinedSimilarity
from initscope.finite import simulate
from initscope.finite.simulation import activations
from initscope.geometry import generator
from initscope.layers import Activate, BatchNorm, Conv, Dense, Dropout, GlobalAveragePool, Layer
from initscope.networks import Sequential, predict
from initscope.weights import Orthogonal, Uniform

QUANTITIES = ("norm_x", "norm_y", "distance", "defect", "cosine", "angle")


def pairs(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=g, dtype=torch.float64)
    return x, 0.7 * x + 0.5 * torch.randn(shape, generator=g, dtype=torch.float64)


def small() -> Sequential:
    return Sequential(Conv(6, bias=0.2), Activate(RELU), GlobalAveragePool(), Dense(5))


def by_hand(net: Sequential, x: Tensor, y: Tensor, draws: int, seed: int) -> dict[str, np.ndarray]:
    """Squared norms, squared distances and products at the end of sampled networks, (draws, n)."""
    rows = []
    for draw in range(draws):
        module = net.sample(tuple(x.shape[1:]), generator=generator(seed, draw), dtype=torch.float64)
        u, v = (module(t).detach().numpy() for t in (x, y))
        rows.append([(u * u).sum(1), (v * v).sum(1), ((u - v) ** 2).sum(1), (u * v).sum(1)])
    return dict(zip("ABDP", np.array(rows).swapaxes(0, 1), strict=True))


def test_moments_are_ratios_of_means_over_sampled_networks() -> None:
    x, y = pairs(3, 2, 5, 5)
    net, draws, seed = small(), 6, 17
    last = simulate(net, x, y, draws=draws, seed=seed, materialise=True).layers[-1]
    rows = by_hand(net, x, y, draws, seed)
    a, b, d, p = (rows[k].mean(0) for k in "ABDP")
    cosine = p / np.sqrt(a * b)
    for name, truth in (("norm_x", a**0.5), ("norm_y", b**0.5), ("distance", d**0.5), ("cosine", cosine)):
        np.testing.assert_allclose(getattr(last, name).value, truth, rtol=1e-12)
    np.testing.assert_allclose(last.defect.value, 1 - cosine, rtol=1e-9)
    np.testing.assert_allclose(last.angle.value, np.arccos(cosine), rtol=1e-9)
    # Linearised by hand: ratio estimates vary like the means of these residuals.
    residual = rows["P"] / np.sqrt(a * b) - cosine / 2 * (rows["A"] / a + rows["B"] / b)
    root = math.sqrt(draws)
    np.testing.assert_allclose(last.cosine.stderr, residual.std(0, ddof=1) / root, rtol=1e-9)
    np.testing.assert_allclose(last.angle.stderr, residual.std(0, ddof=1) / root / np.sqrt(1 - cosine**2), rtol=1e-9)
    np.testing.assert_allclose(last.distance.stderr, rows["D"].std(0, ddof=1) / root / 2 / d**0.5, rtol=1e-9)
    np.testing.assert_allclose(last.norm_x.stderr, rows["A"].std(0, ddof=1) / root / 2 / a**0.5, rtol=1e-9)


def test_networks_are_means_over_sampled_networks() -> None:
    x, y = pairs(3, 2, 5, 5)
    net, draws, seed = small(), 4, 17
    found = simulate(net, x, y, draws=draws, seed=seed, average="networks", materialise=True)
    assert (found.seed, found.draws, found.average) == (seed, draws, "networks")
    rows = by_hand(net, x, y, draws, seed)
    cosines = rows["P"] / np.sqrt(rows["A"] * rows["B"])
    last = found.layers[-1]
    for estimate, each in (
        (last.norm_x, rows["A"] ** 0.5),
        (last.distance, rows["D"] ** 0.5),
        (last.cosine, cosines),
        (last.angle, np.arccos(cosines)),
    ):
        np.testing.assert_allclose(estimate.value, each.mean(0), rtol=1e-9)
        np.testing.assert_allclose(estimate.stderr, each.std(0, ddof=1) / math.sqrt(draws), rtol=1e-9)
        assert estimate.draws == draws
    np.testing.assert_allclose(last.defect.value, 1 - cosines.mean(0), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-90, 1.0, 1e90])
def test_standard_errors_survive_networks_that_vanish_or_explode(scale: float) -> None:
    """Variances of squared norms of 1e±180 do not fit float64."""
    x, y = pairs(2, 6)
    plain, scaled = (simulate(Dense(8), c * x, c * y, draws=5).layers[-1] for c in (1.0, scale))
    np.testing.assert_allclose(scaled.cosine.stderr, plain.cosine.stderr, rtol=1e-9)
    np.testing.assert_allclose(scaled.norm_x.stderr, scale * plain.norm_x.stderr, rtol=1e-9)


@pytest.mark.parametrize("gap", [1e-3, 1e-6])
def test_errors_of_nearly_parallel_pairs_are_accurate(gap: float) -> None:
    """The defect of a pair that close is gap² times a number whose law does not depend on the gap."""
    x, other = pairs(3, 12)
    far, near = (simulate(Dense(8), x, x + g * other, draws=20).layers[-1] for g in (1e-2 * gap, gap))
    for quantity, power in (("defect", 2), ("distance", 1)):
        one, two = (getattr(layer, quantity) for layer in (far, near))
        np.testing.assert_allclose(two.value, 1e2**power * one.value, rtol=1e-2)
        np.testing.assert_allclose(two.stderr, 1e2**power * one.stderr, rtol=1e-2)


def test_the_seed_decides_everything() -> None:
    x, y = pairs(2, 2, 5, 5)
    first = simulate(small(), x, y, draws=3, seed=5)
    assert first.to_dict() == simulate(small(), x, y, draws=3, seed=5).to_dict()
    other = simulate(small(), x, y, draws=3, seed=1005)
    for one, two in zip(first.layers[1:], other.layers[1:], strict=True):
        for quantity in QUANTITIES:
            assert bool((getattr(one, quantity).value != getattr(two, quantity).value).all())
            assert bool((getattr(one, quantity).stderr > 0).all())  # the networks of one run differ, too


def test_no_two_draws_of_neighbouring_seeds_share_a_network() -> None:
    x, _ = pairs(2, 2, 5, 5)
    norms = []
    for seed, draw in itertools.product((-2, -1, 0, 1, 2), range(5)):
        *_, last = activations(small(), x, seed, draw)
        norms.append(last.norm().item())
    assert len(set(norms)) == 25


def test_the_input_is_reported_without_error() -> None:
    x, y = pairs(3, 2, 4, 4)
    first = simulate(small(), x, y, draws=3).layers[0]
    assert first.name == "input"
    np.testing.assert_allclose(first.norm_y.value, np.linalg.norm(y.flatten(1).numpy(), axis=1), rtol=1e-13)
    for quantity in QUANTITIES:
        assert getattr(first, quantity).stderr.abs().max() < 1e-15 * getattr(first, quantity).value.abs().max()


def mean_length(units: int) -> float:
    """E|z| / √(E|z|²) for z ~ N(0, I) with that many entries (chi law)."""
    return math.exp(gammaln((units + 1) / 2) - gammaln(units / 2)) * math.sqrt(2 / units)


@pytest.mark.parametrize("width", [3, 40])
def test_one_dense_layer_has_the_lengths_and_cosines_of_gaussian_units(width: int) -> None:
    """Units are exactly Gaussian: lengths follow the chi law around `predict`, cosines the law of a correlation.

    E r = (2/n) (Γ((n+1)/2) / Γ(n/2))² ρ F(1/2, 1/2; (n+2)/2; ρ²) for n units (Hotelling 1953).
    """
    x, y = pairs(4, 9)
    net = Sequential(Dense(width))
    found = simulate(net, x, y, draws=1500, seed=100, average="networks").layers[-1]
    exact = predict(net, x, y).layers[-1]
    shrink = mean_length(width)
    for quantity in ("norm_x", "norm_y", "distance"):
        estimate = getattr(found, quantity)
        assert bool(((estimate.value - shrink * getattr(exact, quantity)).abs() <= 4 * estimate.stderr).all())
    rho = exact.cosine.numpy()
    expected = torch.from_numpy(shrink**2 * rho * hyp2f1(0.5, 0.5, width / 2 + 1, rho**2))
    assert bool(((found.cosine.value - expected).abs() <= 4 * found.cosine.stderr).all())


@pytest.mark.parametrize(
    "layer",
    [Conv(8), Conv(8, padding="zero", bias=0.5), Conv(8, 3, 2, weights=Uniform()), Dense(7, weights=Orthogonal())],
    ids=["circular", "zero bias", "stride uniform", "orthogonal"],
)
def test_one_layer_has_the_mean_squares_of_predict(layer: Layer) -> None:
    x, y = pairs(3, 2, 5, 5)
    found = simulate(layer, x, y, draws=600, seed=30).layers[-1]
    exact = predict(layer, x, y).layers[-1]
    for quantity in ("norm_x", "norm_y", "distance", "cosine"):
        estimate = getattr(found, quantity)
        assert bool(((estimate.value - getattr(exact, quantity)).abs() <= 4 * estimate.stderr).all())


def test_names_and_shapes_are_those_of_predict() -> None:
    x, y = pairs(2, 2, 5, 5)
    found, exact = simulate(small(), x, y, draws=2), predict(small(), x, y)
    assert [(f.name, f.shape) for f in found.layers] == [(e.name, e.shape) for e in exact.layers]


@pytest.mark.parametrize("shape", [(3, 2, 4, 4), (5, 6)], ids=str)
def test_batch_norm_sees_both_sides_as_one_batch(shape: tuple[int, ...]) -> None:
    x, y = pairs(*shape)
    y = y + 2  # sides of different mean: norms over each side alone would hide it
    found = simulate(BatchNorm(1e-5), x, y, draws=2).layers[-1]
    both = np.concatenate([x.numpy(), y.numpy()])
    axes = (0, *range(2, both.ndim))
    out = (both - both.mean(axes, keepdims=True)) / np.sqrt(both.var(axes, keepdims=True) + 1e-5)
    u, v = np.split(out.reshape(len(out), -1), 2)
    np.testing.assert_allclose(found.norm_x.value, np.linalg.norm(u, axis=1), rtol=1e-12)
    np.testing.assert_allclose(found.norm_y.value, np.linalg.norm(v, axis=1), rtol=1e-12)
    np.testing.assert_allclose(found.distance.value, np.linalg.norm(u - v, axis=1), rtol=1e-12)


def test_to_dict_survives_json() -> None:
    x, y = pairs(2, 2, 5, 5)
    found = simulate(small(), x, y, draws=3, seed=9)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document == found.to_dict()
    assert (document["seed"], document["draws"], document["average"]) == (9, 3, "moments")
    assert (document["until"], document["reached"], document["level"]) == (None, None, 0.95)
    last = document["layers"][-1]
    assert set(last) == {"name", "shape", *QUANTITIES}
    assert last["shape"] == [5]
    assert last["cosine"] == found.layers[-1].cosine.to_dict()


def test_inputs_and_the_global_random_source_are_left_alone() -> None:
    x, y = pairs(2, 2, 5, 5)
    kept_x, kept_y = x.clone(), y.clone()
    x.requires_grad_()
    before = torch.get_rng_state()
    found = simulate(Sequential(BatchNorm(), Conv(4), Activate(RELU), Dropout(0.4)), x, y, draws=3)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(x, kept_x)
    assert torch.equal(y, kept_y)
    assert x.grad is None
    assert not found.layers[-1].norm_x.value.requires_grad


def test_progress_goes_from_nothing_to_all() -> None:
    x, y = pairs(2, 3)
    calls: list[tuple[int, int]] = []
    simulate(Dense(2), x, y, draws=5, progress=lambda done, total: calls.append((done, total)))
    assert {total for _, total in calls} == {5}
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert calls[-1] == (5, 5)
    assert len(calls) > 2


def test_whole_numbers_are_taken_as_float32() -> None:
    pixels = torch.randint(256, (4, 1, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    one = simulate(Conv(3), pixels[:2], pixels[2:], draws=2)
    two = simulate(Conv(3), pixels[:2].float(), pixels[2:].float(), draws=2)
    assert one.to_dict() == two.to_dict()


def test_a_pair_of_equals_stays_one() -> None:
    x, _ = pairs(2, 2, 5, 5)
    last = simulate(small(), x, x.clone(), draws=3).layers[-1]
    assert last.distance.value.tolist() == [0, 0]
    assert last.cosine.value.tolist() == [1, 1]


def test_a_zero_input_has_no_angle_and_says_so() -> None:
    x, y = pairs(3, 4)
    x[1] = 0
    with pytest.warns(UndefinedSimilarity, match="zero in x: 1$"):
        last = simulate(Dense(3), x, y, draws=3).layers[-1]
    assert last.norm_x.value[1] == 0
    for quantity in ("defect", "cosine", "angle"):
        assert getattr(last, quantity).value.isnan().tolist() == [False, True, False]


WRONG = {
    "draws": ([1, 0, -3, 2.5, True, "9"], r"draws is .*, expected a whole number of at least 2"),
    "until": ([0, -0.1, math.nan, math.inf, "0.1", True], r"until is .*, expected a width greater than 0"),
    "level": ([0, 1, 1.5, -0.5, math.nan, "0.95", True], r"level: got .*, expected a number between 0 and 1"),
    "average": (["mean", None], r"average is .*; use 'moments' or 'networks'"),
    "memory": ([0, -5, 1.5, "1GB"], r"memory: got .*, expected a positive whole number of bytes"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (values, _) in WRONG.items() for value in values])
def test_wrong_arguments_are_refused_by_name_and_range(name: str, value: object) -> None:
    x, y = pairs(2, 3)
    with pytest.raises(BadInput, match=WRONG[name][1]):
        simulate(Dense(2), x, y, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [0.5, "0", None, True])
def test_a_seed_is_a_whole_number(seed: int) -> None:
    x, y = pairs(2, 3)
    with pytest.raises(BadInput, match="expected a whole number"):
        simulate(Dense(2), x, y, seed=seed)


def test_inputs_that_do_not_fit_are_refused() -> None:
    x, y = pairs(2, 3)
    with pytest.raises(BadInput, match="zipped"):
        simulate(Dense(2), x, y[:1])
    with pytest.raises(BadInput, match="images"):
        simulate(Conv(2), x, y)
    with pytest.raises(BadInput, match="NaN"):
        simulate(Dense(2), x, y * math.nan)
    with pytest.raises(BadInput, match="empty shape"):
        simulate(Dense(2), x[:0], y[:0])
    with pytest.raises(BadInput, match="expected a tensor"):
        simulate(Dense(2), x.numpy(), y)  # type: ignore[arg-type]


def test_too_little_memory_is_refused_before_the_work() -> None:
    x, y = pairs(2, 3, 8, 8)
    with pytest.raises(BadInput, match=r"simulate: needs about .* are allowed"):
        simulate(Conv(64), x, y, memory=1000)


def test_pairs_in_tiles_are_the_same_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large batches are cut: each draw is still one network for all pairs, whatever the memory."""
    x, y = pairs(7, 2, 5, 5)
    whole = simulate(small(), x, y, draws=3, materialise=True)
    monkeypatch.setattr("initscope.finite.planning.TILE_BYTES", 5000)
    for memory in (1 << 16, 1 << 30):
        cut = simulate(small(), x, y, draws=3, memory=memory)
        for one, two in zip(whole.layers, cut.layers, strict=True):
            for quantity in QUANTITIES:
                np.testing.assert_allclose(getattr(one, quantity).value, getattr(two, quantity).value, rtol=1e-10)


def test_batch_norm_is_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = pairs(6, 2, 4, 4)
    net = Sequential(Conv(3), BatchNorm())
    whole = simulate(net, x, y, draws=2)
    monkeypatch.setattr("initscope.finite.planning.TILE_BYTES", 500)
    assert simulate(net, x, y, draws=2).to_dict() == whole.to_dict()


def test_a_dead_network_leaves_the_moments_alone_and_has_no_angle_of_its_own() -> None:
    """With two ReLU units a quarter of all networks map a given input to zero."""
    x, y = pairs(2, 4)
    net = Sequential(Dense(2), Activate(RELU))
    assert not simulate(net, x, y, draws=40).layers[-1].cosine.value.isnan().any()
    with pytest.warns(UndefinedSimilarity, match="some of the networks make an input zero"):
        last = simulate(net, x, y, draws=40, average="networks").layers[-1]
    assert last.cosine.value.isnan().all()
    assert not last.norm_x.value.isnan().any()
