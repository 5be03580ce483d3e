"""OP's items: their helpers against independent routes, and what agrees with the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chi2
from torch import nn

from initscope.finite import relu_norm_law
from initscope.papers import Plan, Record, Source, find, run_item
from initscope.papers.overparam import figure1, figure2, figure3, forward, inner, networks, subspace

FAST = ("lemma1", "lemma2", "thm1", "prop1", "lemma4", "lemma5", "lemma6", "lemma7", "fig2")
# What does not hold as printed, by the beginning of the statement.
REFUTED = {"lemma5": ("eq. 120", "eq. 121"), "lemma3": ("Proof: a grid",), "thm2": ("Proof, eq. 16",)}


def run(name: str) -> Record:
    found = run_item(find(f"overparam/{name}")[0], Plan(Source(), size="quick"))
    assert not found.failed, found.problem
    return found


@pytest.mark.parametrize("name", FAST)
def test_quick_runs_decide_what_they_should(name: str) -> None:
    found = run(name)
    for check in found.checks:
        refuted = check.says.startswith(REFUTED.get(name, ("nothing",)))
        by_chance = check.agrees is False and "One " in check.why  # an interval of 95 % that misses
        assert by_chance or check.agrees is None or check.agrees is not refuted, check


def test_runs_are_reproducible() -> None:
    one, two = run("lemma5"), run("lemma5")
    assert one.checks == two.checks
    assert one.data == two.data


def test_ratios_are_those_of_autograd() -> None:
    """One network by hand: forward, softmax, and the gradient of each weight matrix for each sample."""
    x = networks.inputs(5, seed=3, dimension=7)
    net = networks.deep_net([9, 8, 6], networks.LAWS["He"], classes=4)
    found = networks.measure(net, x, networks.cross_entropy(5, 1, classes=4), seed=2, read_out=True)
    module = net.sample((7,), generator=torch.Generator().manual_seed(2))
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    labels = torch.randint(4, (5,), generator=torch.Generator().manual_seed(1))
    for i in range(5):
        h, hidden, before = x[i], [], []
        for layer in linear[:-1]:
            a = layer.weight @ h
            a.retain_grad()
            before.append(a)
            h = torch.relu(a)
            hidden.append(h)
        module.zero_grad()
        loss = F.cross_entropy((linear[-1].weight @ h).unsqueeze(0), labels[i : i + 1])
        loss.backward()  # type: ignore[no-untyped-call]
        delta = before[-1].grad
        assert delta is not None
        for row, (layer, h) in enumerate(zip(linear[:-1], hidden, strict=True)):
            assert layer.weight.grad is not None
            assert found.activation[row, i] == pytest.approx(float(h.detach().norm() / x[i].norm()), rel=1e-5)
            ratio = layer.weight.grad.norm() / (delta.norm() * x[i].norm())
            assert found.gradient[row, i] == pytest.approx(float(ratio), rel=1e-4)


def test_the_given_error_is_the_gradient_at_the_last_layer() -> None:
    outputs = torch.zeros(3, 4, requires_grad=True)
    networks.given_error(3, 4, seed=5)(outputs).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(outputs.grad, torch.randn(3, 4, generator=torch.Generator().manual_seed(5)))  # type: ignore[arg-type]


class TestFigure1:
    def test_glorot_is_he_scaled_layer_by_layer(self) -> None:
        """Var = 2/(n_in + n_out): 2/600 in the first layer of 100 units, half of He's in the others."""
        he, glorot = (figure1.exact_law(name, "activation", 100, 4) for name in ("He", "Glorot"))
        assert glorot.mean / he.mean == pytest.approx((2 / 600) / (2 / 100) * 0.5**3, rel=1e-12)

    def test_first_and_last_gradients_see_nine_layers(self) -> None:
        laws = [figure1.exact_law("He", "gradient", 50, layer) for layer in (1, 10)]
        assert [sum(f.count for f in law.factors) for law in laws] == [9, 9]


class TestFigure2:
    @pytest.mark.parametrize("width", [200, 500])
    def test_mean_distortion(self, width: int) -> None:
        random = np.random.default_rng(width)
        counts = random.binomial(width, 0.5, 400_000)
        ratio = np.sqrt(2 / width * random.chisquare(counts))
        sampled = np.abs(1 - ratio)
        error = sampled.std() / math.sqrt(len(sampled))
        assert abs(figure2.distortion(relu_norm_law(width)) - sampled.mean()) < 4 * error

    def test_points_solve_their_equations(self) -> None:
        law = relu_norm_law(500)
        e = figure2.exact_point(law)
        assert law.cdf(1 - e) + law.sf(1 + e) == pytest.approx(0.05, rel=1e-9)
        e = figure2.lemma_point(500)
        bound = 2 * math.exp(-500 * (e / 4 + math.log(2 / (1 + math.sqrt(1 + e)))))
        assert bound == pytest.approx(0.05, rel=1e-6)


class TestFigure3:
    def test_the_mean_square_follows_the_width_of_the_layer(self) -> None:
        from initscope.finite import relu_gradient_law

        widths = [30, 55, 20, 41, 33]
        for layer in range(1, 6):
            assert relu_gradient_law(widths, layer).mean == pytest.approx(widths[layer - 1] / widths[-1], rel=1e-12)

    def test_sampled_networks_meet_the_law(self) -> None:
        widths, count = (40, 70, 25, 50), 4
        x = networks.inputs(count, 1, dimension=10)
        net = networks.deep_net(widths, networks.LAWS["He"], classes=None)
        loss = networks.given_error(count, widths[-1], 3)
        rows = [networks.measure(net, x, loss, seed, read_out=False).gradient.square() for seed in range(1500)]
        found = torch.stack(rows).mean(2)  # (networks, layers)
        error = found.std(0) / math.sqrt(len(found))
        exact = torch.tensor([width / widths[-1] for width in widths], dtype=torch.float64)
        assert bool(((found.mean(0) - exact).abs() < 4 * error + 1e-9).all())

    def test_widths_stay_within_the_variation(self) -> None:
        assert figure3.VARIATIONS == (1, 200, 500)


class TestBounds:
    def test_printed_failure_is_the_formula(self) -> None:
        e = 0.3
        expected = 2 * sum(math.exp(-n * (e / 4 + math.log(2 / (1 + math.sqrt(1 + e))))) for n in (10, 20))
        assert forward.printed_failure([10, 20], e) == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize(("a", "b", "freedom"), [(0.5, 0.2, 1), (0.3, 0.3, 7), (0.05, 0.01, 60), (0.0, 0.4, 5)])
    def test_differences_of_chi_squares(self, a: float, b: float, freedom: int) -> None:
        random = np.random.default_rng(freedom)
        values = a * random.chisquare(freedom, 400_000) - b * random.chisquare(freedom, 400_000)
        low, high = np.quantile(values, [0.04, 0.9])
        rate = inner.difference_outside(a, b, freedom, float(low), float(high))
        assert abs(rate - 0.14) < 4 * math.sqrt(0.14 * 0.86 / 400_000) * 2  # the quantiles are sampled as well

    def test_far_tails_of_differences(self) -> None:
        """Two degrees of freedom: aX - bY is a two-sided exponential, P(> t) = a/(a + b) exp(-t/2a)."""
        a, b, t = 0.3, 0.7, 9.0
        exact = a / (a + b) * math.exp(-t / (2 * a)) + b / (a + b) * math.exp(-t / (2 * b))
        assert inner.difference_outside(a, b, 2, -t, t) == pytest.approx(exact, rel=1e-8)

    def test_equal_vectors_are_one_norm(self) -> None:
        chance = inner.projected(40, 1.0, 0.3)
        assert chance == pytest.approx(chi2.cdf(40 * 0.7, 40) + chi2.sf(40 * 1.3, 40), rel=1e-12)
        law = relu_norm_law(40)
        assert inner.masked(40, 1.0, 0.3) == pytest.approx(law.outside(0.7, 1.3), rel=1e-9)


class TestSubspace:
    def test_extremes_of_a_circle(self) -> None:
        """One unit: |relu(Ru)|² is 2 r² cos² on one side of the circle and 0 on the other."""
        points = subspace.sphere(2, 720, 0)
        ((low, high),) = subspace.extremes(points, [1], seed=4)
        weights = torch.randn(1, 2, generator=torch.Generator().manual_seed(4))
        assert low == 0
        assert high == pytest.approx(float(2 * weights.square().sum()), rel=1e-4)

    def test_upper_limits(self) -> None:
        assert subspace.upper(0, 60) == pytest.approx(1 - 0.05 ** (1 / 60), rel=1e-9)

    def test_random_points_are_on_the_sphere(self) -> None:
        assert torch.allclose(subspace.sphere(3, 50, 1).square().sum(0), torch.ones(50, dtype=torch.float64))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig1", "fig3", "lemma3", "thm2", "thm3"])
def test_the_longer_ones_decide_what_they_should(name: str) -> None:
    found = run(name)
    wrong = [check.says for check in found.checks if check.agrees is False]
    if name == "thm3":
        assert any("sum of the last activations" in says for says in wrong)
    else:
        assert all(says.startswith(REFUTED.get(name, ("nothing",))) for says in wrong), wrong
