"""The asymptotic variance of the output similarity against closed forms, mpmath, sampled filters and sampled networks."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
from torch import Tensor, nn

from finite.triples import sample_triples
from initscope import layers, networks
from initscope.activations import RELU, TANH, by_name
from initscope.data import load_pairs
from initscope.errors import BadInput
from initscope.finite import one_filter, one_layer, similarity_variance
from initscope.finite.one_layer import LayerSpec, layer_tiles
from initscope.finite.similarity_variance import _cumulants, second_order_shift
from initscope.weights import Gaussian, Orthogonal, ZeroSum

RHOS = [-0.95, -0.5, 0.0, 0.3, 0.7, 0.99]


def planar(*rhos: float) -> tuple[Tensor, Tensor]:
    rho = torch.tensor(rhos, dtype=torch.float64)
    x = torch.stack([torch.ones_like(rho), torch.zeros_like(rho)], 1)
    return x, torch.stack([rho, (1 - rho * rho).sqrt()], 1)


def photos(count: int = 3, size: int = 16, seed: int = 2) -> tuple[Tensor, Tensor]:
    found = load_pairs("photos", pairs=count, size=size, seed=seed)
    return found.x, found.y


def relu_variance(rho: float) -> float:
    """4 E P² - 4ρ̄ (E PQ + E PS) + ρ̄² (E Q² + E S² + 2 E QS), E QS = E P², each moment a closed form in the angle."""
    t = math.acos(rho)
    mean = (math.sin(t) + (math.pi - t) * rho) / math.pi
    pp = (3 * math.sin(t) * math.cos(t) + (math.pi - t) * (1 + 2 * rho * rho)) / (2 * math.pi)
    fourth = 3 * (math.pi - t) / 8 + math.sin(2 * t) / 4 - math.sin(4 * t) / 32  # ∫ sin⁴ from 0 to π - t
    pq = 4 / math.pi * (rho * fourth + math.sin(t) ** 5 / 4)
    return 4 * pp - 8 * mean * pq + mean**2 * (3 / 2 + 3 / 2 + 2 * pp)


def test_dense_relu_has_the_closed_form() -> None:
    found = similarity_variance(*planar(*RHOS))
    assert found.method == "exact"
    assert found.value.tolist() == pytest.approx([relu_variance(rho) for rho in RHOS], rel=1e-12)


def test_closed_form_equals_a_plane_integral() -> None:
    rho = mp.mpf("0.3")
    mean = (mp.sqrt(1 - rho**2) + (mp.pi - mp.acos(rho)) * rho) / mp.pi

    def integrand(angle: mp.mpf) -> mp.mpf:
        u, v = (max(z, mp.mpf(0)) for z in (mp.cos(angle), mp.cos(angle - mp.acos(rho))))
        return (2 * u * v - mean * (u * u + v * v)) ** 2

    half, t = mp.pi / 2, mp.acos(rho)
    angular = mp.quad(integrand, [-half, t - half, half, t + half, 3 * half])
    radial = mp.quad(lambda r: r**5 * mp.exp(-(r**2) / 2), [0, mp.inf])  # E R⁴ = 8
    assert float(angular * radial / (2 * mp.pi)) == pytest.approx(relu_variance(0.3), rel=1e-12)


@pytest.mark.parametrize("angle", ["1e-3", "1e-5", "1e-7"])
def test_nearly_parallel_pairs_keep_their_digits(angle: str) -> None:
    mp.mp.dps = 60
    try:
        t = mp.mpf(float(angle))
        mean = (mp.sin(t) + (mp.pi - t) * mp.cos(t)) / mp.pi
        pp = (3 * mp.sin(t) * mp.cos(t) + (mp.pi - t) * (1 + 2 * mp.cos(t) ** 2)) / (2 * mp.pi)
        fourth = 3 * (mp.pi - t) / 8 + mp.sin(2 * t) / 4 - mp.sin(4 * t) / 32
        pq = 4 / mp.pi * (mp.cos(t) * fourth + mp.sin(t) ** 5 / 4)
        truth = float(4 * pp - 8 * mean * pq + mean**2 * (3 + 2 * pp))
    finally:
        mp.mp.dps = 15
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[1.0, math.tan(float(angle))]], dtype=torch.float64)
    # The angle comes from norms that differ by t²/2, so it carries a rounding error of about 1e-16/t².
    assert float(similarity_variance(x, y).value) == pytest.approx(truth, rel=1e-8 + 4e-16 / float(angle) ** 2)


def test_linear_units_have_the_cumulants_of_the_correlation_coefficient() -> None:
    """Var = (1-ρ²)²/N (1 + 11ρ²/2N), bias -ρ(1-ρ²)/2N, skewness -6ρ/√N, excess 6(12ρ²-1)/N (Hotelling 1953)."""
    found = similarity_variance(*planar(*RHOS), activation="identity")
    rho = torch.tensor(RHOS, dtype=torch.float64)
    assert torch.allclose(found.value, (1 - rho**2) ** 2, rtol=1e-12)
    b1, b2, b3, b4 = _cumulants(found, found.value)
    for got, truth in ((b1, -rho / 2), (b2, 11 * rho**2 / 2), (b3, -6 * rho), (b4, 6 * (12 * rho**2 - 1))):
        assert torch.allclose(got, truth, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["relu", "abs", "tanh"])
def test_cumulants_of_sampled_similarities(name: str) -> None:
    """Mean and variance to order 1/N against many sampled layers of a few units."""
    (x, y), units, sets, rho = planar(0.6), 100, 100_000, 0.6
    found = similarity_variance(x, y, activation=name)
    b1, b2, _, _ = (float(b) for b in _cumulants(found, found.value))
    f = by_name(name)
    z = torch.randn(sets, units, 2, generator=torch.Generator().manual_seed(4))
    a, b = f(z[..., 0]), f(rho * z[..., 0] + math.sqrt(1 - rho * rho) * z[..., 1])  # He: variance 2/fan_in = 1
    sample = ((a * b).sum(1) / (a.square().sum(1) * b.square().sum(1)).sqrt()).double()
    spread = math.sqrt(float(found.value) / units)
    bias = b1 * spread / math.sqrt(units)
    assert abs(float(sample.mean()) - float(found.similarity) - bias) < 4 * spread / math.sqrt(sets)
    ratio = float(sample.var()) / spread**2
    stderr = math.sqrt((float(((sample - sample.mean()) ** 4).mean() / sample.var() ** 2) - 1) / sets)
    assert abs(ratio - (1 + b2 / units)) < 4 * stderr


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_limit_of_sampled_networks(activation: str) -> None:
    """N Var(ρ_out) of dense networks of the layers' own finite face tends to V."""
    generator = torch.Generator().manual_seed(7)
    x, noise = (torch.randn(1, 20, generator=generator) for _ in range(2))
    y, width, sets = x + noise, 500, 2000
    variance = similarity_variance(x, y, activation=activation)
    net = networks.Sequential(layers.Dense(width), layers.Activate(by_name(activation)))
    both = torch.cat([x, y])
    found = []
    with torch.no_grad():
        for _ in range(sets):
            a, b = net.sample((20,), generator=generator)(both)
            found.append(float(a @ b / (a.norm() * b.norm())))
    ratio = width * float(torch.tensor(found, dtype=torch.float64).var()) / float(variance.value)
    b2 = float(_cumulants(variance, variance.value)[1])
    assert abs(ratio - (1 + b2 / width)) < 4 * math.sqrt(2 / sets)


def test_quadrature_agrees_with_angles() -> None:
    generator = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(4, 7, generator=generator) for _ in range(2))
    y = x + noise * torch.tensor([[2.0], [0.5], [1e-2], [1e-4]])
    layer = next(layer_tiles(LayerSpec(), x, y))
    exact, integrals = one_filter.unit_moments(layer), one_filter.quadrature_moments(layer)
    t, u, z = exact.tt.sqrt(), exact.uu.sqrt(), exact.zz.sqrt()
    sizes = {  # of the integrands, by which rounding is measured: odd moments may vanish
        "tt": t**2, "ttt": t**3, "tttt": exact.tttt, "tu": t * u, "uu": u**2, "ttu": t**2 * u, "zz": z**2, "tz": t * z,
        "uz": u * z, "tzz": t * z**2, "ttz": t**2 * z,
    }  # fmt: skip
    for name, size in sizes.items():
        gap = (getattr(exact, name) - getattr(integrals, name)).abs()
        assert float((gap / size).max()) < 1e-8, name


def test_one_position_is_a_dense_unit() -> None:
    x, y = photos(size=4)
    options = {"kernel": 4, "padding": "valid"}
    for name in ("relu", "tanh"):
        conv = similarity_variance(x, y, activation=name, **options)  # type: ignore[arg-type]
        dense = similarity_variance(x.flatten(1), y.flatten(1), activation=name)
        assert conv.method == dense.method != "monte carlo"
        assert torch.allclose(conv.value, dense.value, rtol=1e-9)


@pytest.mark.parametrize("padding", ["circular", "zero", "valid"])
def test_linear_filters_by_isserlis_and_by_sampling(padding: str) -> None:
    x, y = photos(1)
    exact = similarity_variance(x, y, activation="identity", padding=padding)  # type: ignore[arg-type]
    assert exact.method == "exact"
    t = sample_triples(x[0], y[0], 60_000, 5, padding=padding, activation=nn.Identity())
    q, s = t.Q.mean(), t.S.mean()
    term = (t.P / (q * s).sqrt() - exact.similarity / 2 * (t.Q / q + t.S / s)).square()
    stderr = float(term.std()) / math.sqrt(len(term))
    assert abs(float(exact.value) - float(term.mean())) < 4 * stderr


def test_simulated_moments_of_linear_filters_meet_the_exact_ones() -> None:
    x, y = photos(3)
    layer = next(layer_tiles(LayerSpec(activation="identity"), x, y))
    exact, drawn = one_filter.linear_moments(layer), one_filter.simulated_moments(layer, 8192, 3)
    assert bool(((drawn.tt - exact.tt).abs() < 5 * drawn.stderr).all())
    assert float((drawn.stderr / exact.tt).max()) < 0.03
    for name in ("ttt", "tttt", "tu", "uu", "ttu", "zz", "uz", "tz", "tzz", "ttz"):
        first, second = getattr(exact, name), getattr(drawn, name)
        assert torch.allclose(first, second, rtol=0.25, atol=0.02 * float(exact.uu.max())), name


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "activation"),
    [(3, 1, "circular", "relu"), (5, 2, "zero", "relu"), (2, 1, "valid", "leaky_relu"), (3, 1, "circular", "tanh")],
)
def test_filters_by_sampling(kernel: int, stride: int, padding: str, activation: str) -> None:
    x, y = photos(1)
    modules = {"relu": nn.ReLU(), "leaky_relu": nn.LeakyReLU(), "tanh": nn.Tanh()}
    found = similarity_variance(
        x, y, kernel=kernel, stride=stride, padding=padding, activation=activation  # type: ignore[arg-type]
    )  # fmt: skip
    assert found.method == "monte carlo"
    t = sample_triples(
        x[0], y[0], 100_000, 6, kernel=kernel, stride=stride, padding=padding, activation=modules[activation]
    )
    q, s = t.Q.mean(), t.S.mean()
    term = (t.P / (q * s).sqrt() - found.similarity / 2 * (t.Q / q + t.S / s)).square()
    stderr = math.hypot(float(term.std()) / math.sqrt(len(term)), float(found.stderr))
    assert abs(float(found.value) - float(term.mean())) < 4 * stderr


def test_scales_and_order_do_not_matter() -> None:
    x, y = photos()
    plain = similarity_variance(x, y, draws=512)
    scaled = similarity_variance(3 * x, y / 7, draws=512, weights=Gaussian(5.0, "out"))
    assert torch.allclose(plain.value, scaled.value, rtol=1e-4)
    turned = similarity_variance(*planar(*RHOS)).value - similarity_variance(*reversed(planar(*RHOS))).value
    assert float(turned.abs().max()) < 1e-14


def test_parallel_inputs_do_not_vary() -> None:
    x = torch.tensor([[1.0, 2.0, -1.0]])
    found = similarity_variance(x, 2 * x)
    assert float(found.value) < 1e-28
    assert float(second_order_shift(found, 0.05)) == 0


def test_tiles_and_bands_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = photos()
    whole = similarity_variance(x, y, draws=512, seed=3)
    monkeypatch.setattr(one_layer, "_TILE", 1)
    monkeypatch.setattr(one_layer, "_BAND", 2000)
    monkeypatch.setattr(one_filter, "_VALUES", 5000)
    parts = similarity_variance(x, y, draws=512, seed=3)
    assert torch.allclose(whole.value, parts.value, rtol=1e-4)
    assert not torch.equal(whole.value, similarity_variance(x, y, draws=512, seed=4).value)
    assert whole.to_dict()["draws"] == 512


def test_huge_filters_fall_back_on_plain_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = photos(1)
    sobol = similarity_variance(x, y)
    monkeypatch.setattr(one_filter.SobolEngine, "MAXDIM", 3)
    plain = similarity_variance(x, y)
    assert abs(float(sobol.value - plain.value)) < 4 * math.hypot(float(sobol.stderr), float(plain.stderr))


def test_stderr_covers_the_truth() -> None:
    """16 replicates: the interval of Student's t is honest over repeated seeds."""
    x, y = photos(1)
    layer = next(layer_tiles(LayerSpec(activation="identity"), x, y))
    truth = one_filter.linear_moments(layer).tt
    scores = []
    for seed in range(40):
        drawn = one_filter.simulated_moments(layer, 512, seed)
        scores.append(float((drawn.tt - truth) / drawn.stderr))
    assert sum(abs(score) > 2.131 for score in scores) <= 7  # 5 % of 40 are expected; P(more than 7) is 0.001


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": 17}, "larger than the 16x16 input"),
        ({"kernel": 0}, "kernel is 0"),
        ({"padding": "mirror"}, "padding is 'mirror'"),
        ({"activation": "rellu"}, "did you mean relu"),
        ({"activation": 3}, "expected a name or an Activation"),
        ({"draws": 8}, "draws is 8"),
        ({"draws": 1.5}, "draws is 1.5"),
        ({"seed": "a"}, "seed"),
        ({"weights": ZeroSum()}, "independent Gaussian"),
        ({"weights": Orthogonal()}, "independent Gaussian"),
        ({"weights": Gaussian(2.0, "out"), "activation": TANH}, "number of filters"),
        ({"x": torch.zeros(2, 3, 16, 16)}, "x: inputs 0, 1 are zero"),
        ({"y": torch.ones(2, 3, 8, 8)}, "equal shapes"),
        ({"x": torch.zeros(0, 3, 16, 16)}, "empty"),
        ({"x": torch.full((2, 3, 16, 16), torch.nan)}, "NaN"),
    ],
)
def test_bad_input(change: dict[str, object], words: str) -> None:
    x, y = photos(2)
    arguments: dict[str, object] = {"x": x, "y": y, "draws": 64, **change}
    with pytest.raises(BadInput, match=words):
        similarity_variance(**arguments)  # type: ignore[arg-type]


def test_weights_matter_only_without_homogeneity() -> None:
    x, y = planar(0.5)
    wide, narrow = (similarity_variance(x, y, activation=TANH, weights=Gaussian(g)).value for g in (8.0, 0.1))
    assert float((wide - narrow).abs()) > 0.05
    assert torch.allclose(
        similarity_variance(x, y, activation=RELU, weights=Gaussian(8.0)).value, similarity_variance(x, y).value
    )
