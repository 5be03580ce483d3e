"""The score: what it is read off, which way it points, and that its numbers are those that the benchmark gives."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from initscope.probe import check
from initscope.probe.score import INTERCEPT, WEIGHTS, Signs, decades, drifts, log_odds, score, signs, trunk
from initscope.probe.thresholds import DEFAULT
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
    assert drifts(rows) == {0: 3.0, 1: 1.0, 2: 0.1}


def test_signs_are_what_torch_gives() -> None:
    torch.manual_seed(0)
    model, x = he(mlp(6, 32, 16), gain=3.0), _batch(12, 16)
    y = torch.randint(32, (12,), generator=torch.Generator().manual_seed(1))
    found = signs(check(model, (x, y), seeds=1).layers)
    values, steps = x, []
    for module in model:
        values = module(values)
        values.retain_grad()
        steps.append(values)
    nn.functional.cross_entropy(values, y, reduction="sum").backward()
    norms = [float(s.detach().square().mean().sqrt() / x.square().mean().sqrt()) for s in steps]
    lengths = [float(s.grad.norm(dim=1).mean()) for s in steps if s.grad is not None]
    unit = nn.functional.normalize(values.detach().double(), dim=1)
    angles = (unit @ unit.T)[tuple(torch.triu_indices(12, 12, 1))].acos().rad2deg()
    assert found.angle == pytest.approx(math.log10(90 / float(angles.mean())), rel=1e-4)
    assert found.norm == pytest.approx(max(abs(math.log10(n)) for n in norms), rel=1e-4)
    assert found.gradient == pytest.approx(max(abs(math.log10(g / lengths[-1])) for g in lengths), rel=1e-4)


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf, math.nan])
def test_ratios_without_a_logarithm_are_the_worst(ratio: float) -> None:
    assert decades(ratio) == decades(1e-300) == decades(1e300)


def test_what_was_not_measured_does_not_count() -> None:
    rows = chain({"angle_deg": None, "norm_ratio": None, "grad_norm_ratio": None})
    assert signs(rows) == Signs(angle=0.0, gradient=0.0, norm=0.0)


def test_the_score_is_the_logistic_of_the_log_odds() -> None:
    rows = chain({"angle_deg": 9.0, "norm_ratio": 100.0, "grad_norm_ratio": 0.1})
    odds = log_odds(Signs(angle=1.0, gradient=1.0, norm=2.0))
    assert math.log(score(rows) / (1 - score(rows))) == pytest.approx(odds, rel=1e-9)


def test_worse_signs_lower_the_score() -> None:
    base = asdict(Signs(angle=0.3, gradient=0.5, norm=0.5))
    for name, worse in (("angle", 1.0), ("gradient", 2.0)):
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


def test_weights_and_thresholds_are_those_of_the_first_half(benchmark: dict[str, ModuleType]) -> None:
    half = benchmark["outcomes"].outcomes(benchmark["networks"].halves()[0], "adam")
    assert len(half.numbers) >= 60
    intercept, weights, _ = benchmark["fit"].fitted(half)
    assert pytest.approx(intercept, abs=0.006) == INTERCEPT
    assert weights == pytest.approx(WEIGHTS, abs=0.006)
    warn, fail = (benchmark["fit"].limits(half, share) for share in (0.25, 0.0))
    for name, limits in zip(("angle", "norm", "gradient"), zip(warn, fail, strict=True), strict=True):
        assert getattr(DEFAULT, name) == limits, name


def test_the_stored_scores_are_this_score(benchmark: dict[str, ModuleType]) -> None:
    first, second = benchmark["networks"].halves()
    assert not set(first) & set(second)
    for row in benchmark["outcomes"].outcomes(first + second, "adam").measures:
        odds = log_odds(Signs(**row["signs"]))
        assert row["score"] == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-6)


def test_the_score_beats_every_baseline_on_the_second_half(benchmark: dict[str, ModuleType]) -> None:
    half = benchmark["outcomes"].outcomes(benchmark["networks"].halves()[1], "adam")
    found = {n: benchmark["outcomes"].area(v, half.trains) for n, v in benchmark["results"].scores(half).items()}
    assert max(found, key=found.__getitem__) == "score", found


def test_the_page_shows_what_the_command_prints(benchmark: dict[str, ModuleType]) -> None:
    second = benchmark["networks"].halves()[1]
    printed = benchmark["results"].page(*(benchmark["outcomes"].outcomes(second, rule) for rule in ("adam", "sgd")))
    text = (FOLDER.parents[1] / "docs" / "trainability.md").read_text()
    for block in printed.strip().split("\n\n"):
        assert block in text, block


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
