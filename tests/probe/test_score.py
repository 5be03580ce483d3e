"""The score: what it is read off, which way it points, and that its numbers are those that the benchmark gives."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from initscope.probe import check
from initscope.probe.findings import Verdict
from initscope.probe.score import BANDS, INTERCEPT, WEIGHTS, Signs, decades, log_odds, score, signs, widened
from initscope.probe.thresholds import DEFAULT
from initscope.probe.trunk import Trunk, trunk
from probe.models import Stops, he, mlp
from probe.rows import chain

FOLDER = Path(__file__).parents[2] / "benchmarks" / "trainability"


def _batch(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_the_trunk_takes_the_larger_operand() -> None:
    rows = chain({}, {"inputs": (0,)}, {"norm_ratio": 0.5, "inputs": (1,)}, {"inputs": (0, 2)}, {"inputs": (3,)})
    assert trunk(rows) == [0, 3, 4]
    rows[2] = replace(rows[2], norm_ratio=0.5, shape=(41,))  # the norm is 0.5 √41 > √10
    assert trunk(rows) == [0, 1, 2, 3, 4]
    assert trunk([]) == []


def test_the_trunk_takes_the_operand_that_the_loss_depends_on() -> None:
    """A large operand that the loss hardly depends on is not the way."""
    rows = chain({}, {"inputs": (0,), "norm_ratio": 9.0, "sensitivity_ratio": 0.1}, {"inputs": (0, 1)})
    rows[0] = replace(rows[0], sensitivity_ratio=1.0)
    assert trunk(rows) == [0, 2]
    rows[1] = replace(rows[1], sensitivity_ratio=2.0)
    assert trunk(rows) == [0, 1, 2]


def test_the_trunk_goes_only_over_what_carries_samples_and_ends_before_probabilities() -> None:
    rows = chain({}, {"inputs": (0,), "norm_ratio": 9.0}, {"inputs": (0, 1), "carriers": (0,)}, {"op": "softmax"})
    assert trunk(rows) == [0, 2]
    assert trunk([*rows[:3], replace(rows[3], op="relu")]) == [0, 2, 3]
    rows[2] = replace(rows[2], output=True)
    assert trunk(rows) == [0, 2]  # what comes after the output is another matter


class _LayerScale(nn.Module):
    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.stem, self.branch = nn.Linear(16, 16), nn.Linear(16, 16)
        self.gamma = nn.Parameter(torch.full((16,), gamma))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return x + self.gamma * self.branch(x)


@pytest.mark.parametrize(("gamma", "way"), [(1e-6, ["stem", "add"]), (100.0, ["stem", "branch", "mul", "add"])])
def test_the_trunk_of_a_model(gamma: float, way: list[str]) -> None:
    torch.manual_seed(0)
    rows = check(_LayerScale(gamma), _batch(8, 16), seeds=1).layers
    assert [rows[i].name for i in trunk(rows)] == way


def test_norms_drift_from_the_last_normalization() -> None:
    rows = chain({"norm_ratio": 3.0}, {"kind": "norm", "norm_ratio": 5.0}, {"norm_ratio": 0.5}, {"norm_ratio": None})
    assert Trunk.of(rows).drifts == {0: 3.0, 1: 1.0, 2: 0.1}


def test_the_milder_reading_of_a_gradient_counts() -> None:
    pairs = [(0.01, 0.1), (100.0, 20.0), (100.0, 0.5), (0.0, 1.0), (0.2, None)]
    rows = chain(*({"grad_norm_ratio": g, "sensitivity_ratio": s} for g, s in pairs))
    assert list(Trunk.of(rows).gradients.values()) == [0.1, 20.0, 1.0, 0.0, 0.2]


def test_the_last_weights_and_averages_in_front_of_them_take_no_angle_away() -> None:
    weights = {"parameters": ("w",)}
    pool = {"kind": "pooling", "angle_deg": 5.0}
    rows = chain(weights, {"angle_deg": 50.0}, pool, {**weights, "angle_deg": 4.0})
    assert list(Trunk.of(rows).angles.values()) == pytest.approx([60.0, 50.0, 50.0, 50.0])
    more = chain(weights, {"angle_deg": 50.0}, pool, {**weights, "angle_deg": 4.0}, {**weights, "angle_deg": 4.0})
    assert list(Trunk.of(more).angles.values()) == pytest.approx([60.0, 50.0, 5.0, 4.0, 4.0])


def test_signs_are_what_torch_gives() -> None:
    torch.manual_seed(0)
    model, x = he(mlp(6, 32, 16), gain=3.0), _batch(12, 16)
    y = torch.randint(32, (12,), generator=torch.Generator().manual_seed(1))
    found = signs(Trunk.of(check(model, (x, y), seeds=1).layers))
    assert found is not None
    values, steps = x, []
    for module in model:
        values = module(values)
        values.retain_grad()
        steps.append(values)
    nn.functional.cross_entropy(values, y, reduction="sum").backward()
    norms = [float(s.detach().square().mean().sqrt() / x.square().mean().sqrt()) for s in steps]
    grads = [(s.detach(), s.grad) for s in steps if s.grad is not None]
    lengths = [float(g.norm(dim=1).mean()) for _, g in grads]
    products = [float((g.norm(dim=1) * s.norm(dim=1)).mean()) for s, g in grads]

    def angle(rows: Tensor) -> float:
        unit = nn.functional.normalize(rows.detach().double(), dim=1)
        return float((unit @ unit.T)[tuple(torch.triu_indices(12, 12, 1))].acos().rad2deg().mean())

    before, last, out = (angle(s) for s in steps[-3:])  # the last weights take nothing away
    assert found.angle == pytest.approx(math.log10(90 / (out * max(1.0, before / last))), rel=1e-4)
    assert found.norm == pytest.approx(max(abs(math.log10(n)) for n in norms), rel=1e-4)
    both = [(math.log10(g / lengths[-1]), math.log10(p / products[-1])) for g, p in zip(lengths, products, strict=True)]
    milder = [min(abs(a), abs(b)) if a * b > 0 else 0.0 for a, b in both]
    assert found.gradient == pytest.approx(max(milder), rel=1e-4)
    assert found.depth == pytest.approx(math.log10(6))


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf, math.nan])
def test_ratios_without_a_logarithm_are_the_worst(ratio: float) -> None:
    assert decades(ratio) == decades(1e-300) == decades(1e300)


def test_what_was_not_measured_does_not_count() -> None:
    rows = chain({"angle_deg": None, "norm_ratio": None, "grad_norm_ratio": None})
    assert signs(Trunk.of(rows), 60.0) == Signs(angle=decades(60 / 90), gradient=0.0, norm=0.0)
    assert signs(Trunk.of(rows)) is None
    assert signs(Trunk.of([replace(rows[0], followed=False)]), 60.0) is None
    assert math.isnan(score(None).value)
    assert score(None, "fail").value == 0.0


def test_close_data_are_not_the_networks_fault() -> None:
    way = Trunk.of(chain({"angle_deg": 10.0}))
    near, far = signs(way, 20.0), signs(way, 70.0)
    assert near is not None
    assert far is not None
    assert near.angle == pytest.approx(math.log10(90 / 30))
    assert far.angle == pytest.approx(math.log10(90 / 10))
    assert widened(10.0, 0.0) == 10.0


def test_signs_end_where_zero_weights_are() -> None:
    way = Trunk.of(chain({"angle_deg": 45.0}, {"angle_deg": math.nan, "norm_ratio": 0.0}))
    assert signs(way, 90.0, 1) == signs(
        Trunk.of(chain({"angle_deg": 45.0}, {"angle_deg": None, "norm_ratio": None})), 90.0
    )


def test_the_score_is_the_logistic_of_the_log_odds() -> None:
    found = signs(Trunk.of(chain({"angle_deg": 9.0, "norm_ratio": 100.0, "grad_norm_ratio": 0.1})))
    assert found is not None
    odds = log_odds(Signs(angle=1.0, gradient=1.0, norm=2.0, depth=0.0))
    chance = score(found)
    assert math.log(chance.geometry / (1 - chance.geometry)) == pytest.approx(odds, rel=1e-9)
    assert sum(chance.terms.values()) == pytest.approx(odds, rel=1e-9)
    assert chance.terms["norm"] == pytest.approx(2 * WEIGHTS["norm"])


@pytest.mark.parametrize("verdict", BANDS)
@pytest.mark.parametrize("angle", [0.0, 1.0, 2.0, 3.0, 4.0])
def test_the_score_stays_in_the_band_of_the_verdict(verdict: Verdict, angle: float) -> None:
    free = score(Signs(angle=angle, gradient=0.0, norm=0.0))
    held = score(Signs(angle=angle, gradient=0.0, norm=0.0), verdict, "frozen")
    low, high = BANDS[verdict]
    assert held.value == min(max(free.geometry, low), high)
    assert held.geometry == free.geometry
    assert held.held_by == ("frozen" if held.value != free.geometry else "")


def test_bands_do_not_overlap() -> None:
    assert BANDS == {"fail": (0.0, 0.2), "warn": (0.21, 0.59), "healthy": (0.6, 1.0)}


def test_worse_signs_lower_the_score() -> None:
    base = asdict(Signs(angle=0.3, gradient=0.5, norm=0.5))
    for name, worse in (("angle", 1.0), ("gradient", 2.0), ("norm", 2.0), ("depth", 1.0)):
        assert log_odds(Signs(**{**base, name: worse})) < log_odds(Signs(**base)), name


def test_known_networks_get_the_score_they_deserve() -> None:
    """Shallow He networks train; 50 layers of PyTorch's own initialization, or of a gain of 3, do not."""
    torch.manual_seed(0)
    x = _batch(16, 64)
    assert check(he(mlp(2, 128, 64)), x, seeds=1).score > 0.8
    assert check(mlp(50, 128, 64), x, seeds=1).score < 0.2
    assert check(he(mlp(50, 128, 64), gain=9.0), x, seeds=1).score < 0.2


def test_a_model_that_stops_has_no_chance() -> None:
    report = check(Stops(), _batch(4, 8))
    assert report.score == 0.0
    assert report.to_dict()["score"] == 0.0


@pytest.fixture(scope="module")
def benchmark() -> Iterator[dict[str, ModuleType]]:
    """The scripts of the benchmark, imported as they import each other."""
    names = ("networks", "training", "outcomes", "fit", "results")
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(FOLDER))
        for name in (*names, "baselines"):
            sys.modules.pop(name, None)


def _every(benchmark: dict[str, ModuleType], rule: str = "adam") -> Any:
    return benchmark["outcomes"].outcomes(list(range(benchmark["networks"].NETWORKS)), rule)


def test_weights_and_thresholds_are_those_of_all_networks(benchmark: dict[str, ModuleType]) -> None:
    every = _every(benchmark)
    assert len(every.numbers) == benchmark["networks"].NETWORKS == 128
    intercept, weights, _ = benchmark["fit"].fitted(every)
    assert pytest.approx(intercept, abs=0.006) == INTERCEPT
    assert weights == pytest.approx(WEIGHTS, abs=0.006)
    shares = benchmark["fit"].WARN, benchmark["fit"].FAIL
    assert shares == (0.125, 0.0)
    warn, fail = (benchmark["fit"].limits(every, share) for share in shares)
    for name, limits in zip(("angle", "norm", "gradient"), zip(warn, fail, strict=True), strict=True):
        assert getattr(DEFAULT, name) == limits, name


def test_the_stored_scores_are_this_score_and_agree_with_the_verdict(benchmark: dict[str, ModuleType]) -> None:
    for row in _every(benchmark).measures:
        low, high = BANDS[row["verdict"]]
        assert low <= row["score"] <= high
        assert row["score"] == pytest.approx(score(Signs(**row["signs"]), row["verdict"]).value, rel=1e-6)


def test_a_network_that_fails_does_not_train(benchmark: dict[str, ModuleType]) -> None:
    every = _every(benchmark)
    failed = [trains for m, trains in zip(every.measures, every.trains, strict=True) if m["verdict"] == "fail"]
    assert len(failed) >= 20
    assert not any(failed)


def test_the_score_of_networks_left_out_beats_every_baseline(benchmark: dict[str, ModuleType]) -> None:
    for rule in ("adam", "sgd"):
        half = _every(benchmark, rule)
        found = {n: benchmark["outcomes"].area(v, half.trains) for n, v in benchmark["results"].scores(half).items()}
        assert max(found, key=found.__getitem__) == "score", found


def test_scores_left_out_are_by_weights_without_the_network(benchmark: dict[str, ModuleType]) -> None:
    """Turning the outcome of one network changes the chances of others, not by much its own fold's."""
    fit, every = benchmark["fit"], _every(benchmark)
    turned = every.trains.copy()
    turned[0] = not turned[0]
    one, other = fit.left_out(every, 1.0), fit.left_out(replace(every, trains=turned), 1.0)
    assert other[0] == one[0]
    assert (other[1:] != one[1:]).any()


def test_the_page_shows_what_the_command_prints(benchmark: dict[str, ModuleType]) -> None:
    printed = benchmark["results"].page(*(_every(benchmark, rule) for rule in ("adam", "sgd")))
    text = (FOLDER.parents[1] / "docs" / "trainability.md").read_text()
    for block in printed.strip().split("\n\n"):
        assert block in text, block


def test_the_page_shows_the_score_and_the_limits() -> None:
    text = (FOLDER.parents[1] / "docs" / "trainability.md").read_text()
    a, g, n, d = (-WEIGHTS[name] for name in ("angle", "gradient", "norm", "depth"))
    assert f"z = {INTERCEPT:.2f} - {a:.2f} a - {g:.2f} g - {n:.2f} n - {d:.2f} d" in text
    for limits in (DEFAULT.norm, DEFAULT.gradient, DEFAULT.exploding):
        assert f"| > {limits[0]:g} times | > {limits[1]:g} times |" in text
    assert f"| < {DEFAULT.angle[0]:g}° | < {DEFAULT.angle[1]:g}° |" in text
    for limits in (DEFAULT.dead, DEFAULT.saturated):
        assert f"| > {limits[0]:.0%} | > {limits[1]:.0%} |".replace("%", " %") in text


def test_a_network_of_the_design_is_always_the_same(benchmark: dict[str, ModuleType]) -> None:
    networks = benchmark["networks"]
    assert {f.name for f in fields(networks.Design)} >= {"kind", "depth", "width", "activation", "gain", "norm"}
    designs = [networks.design(n) for n in range(networks.NETWORKS)]
    assert min(d.depth for d in designs) == 2
    assert max(d.depth for d in designs) == 60
    for d in designs[:6]:
        a, b = networks.build(d).state_dict(), networks.build(d).state_dict()
        assert all(torch.equal(a[k], b[k]) for k in a)


def test_the_area_counts_pairs(benchmark: dict[str, ModuleType]) -> None:
    """Against the definition, and against the area below the drawn curve."""
    np = benchmark["outcomes"].np
    dice = np.random.default_rng(0)
    values, trains = dice.integers(6, size=40).astype(float), dice.random(40) < 0.6
    pairs = [(a > b) + 0.5 * (a == b) for a in values[trains] for b in values[~trains]]
    assert benchmark["outcomes"].area(values, trains) == pytest.approx(sum(pairs) / len(pairs))
    wrong, right = benchmark["outcomes"].curve(values, trains)
    assert np.trapezoid(right, wrong) == pytest.approx(sum(pairs) / len(pairs))
