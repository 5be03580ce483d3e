"""Theory keeps to its time: what is thinned, what is left out, and that nothing else depends on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from initscope.activations import Making, by_name
from initscope.errors import BadInput
from initscope.geometry import Inputs, State
from initscope.layers import Activate, Conv, Trace
from initscope.probe import check, inspection, predicting
from initscope.probe.batches import as_batch
from initscope.probe.budget import LEAST_POINTS, TABLES, Budget, Choice, Price, Work, default_seconds
from initscope.probe.capture import capture, pairs_of
from initscope.probe.inspection import inspect_model
from initscope.probe.theory import _mean_defect
from initscope.probe.thinning import activated, fewer_pairs, some_points
from probe.models import cnn, he, mlp


class Clock:
    """Goes on only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def budget(seconds: float, each: float, fixed: float = 0.0, steps: int = 10, positions: int = 100) -> Budget:
    """For steps that are all one integral."""
    made = Budget(seconds, [Work(i, "f", positions) for i in range(steps)], {}, Clock())
    priced(made, "f", fixed, each)
    return made


def priced(made: Budget, function: str, fixed: float, each: float = 0.0) -> None:
    """The budget knows what the function costs, and has taken no time to learn it."""
    made._prices[function] = Price(fixed, each)


def test_an_unknown_integral_is_tried_at_few_points() -> None:
    tried = (
        (10.0, 0.01, 0.001, (0.01, 0.001), 4),
        (1.0, 0.01, 0.001, (0.01, 0.001), 2),  # 256 points would take a quarter of what is left
        (1e-3, 0.01, 0.001, (0.0, 0.018 / 8), 1),
    )
    for seconds, fixed, each, found, times in tried:
        clock = Clock()
        made = Budget(seconds, [], {}, clock)

        def run(points: int, clock: Clock = clock, fixed: float = fixed, each: float = each) -> None:
            clock.now += fixed + each * points

        made.price("f", 1000, run)
        points = (8, 32, 256, 256)[:times]
        assert clock.now == pytest.approx(times * fixed + sum(points) * each)
        assert (made._prices["f"].fixed, made._prices["f"].each) == pytest.approx(found)


def test_what_is_made_once_does_not_count_for_every_point() -> None:
    """Few points are integrated one by one; a table that serves many of them is made first."""
    clock = Clock()
    made = Budget(1.0, [], {}, clock)
    calls = []

    def run(points: int) -> None:
        calls.append(points)
        clock.now += 0.01 + 1e-4 * points if points < 200 else 0.005 + 0.05 * (calls.count(points) == 1)

    made.price("f", 1000, run)
    assert calls == [8, 32, 256, 256]
    assert made._prices["f"].of(1000) == pytest.approx(0.005)


def test_what_fits_is_taken_whole() -> None:
    assert budget(seconds=20 * 800 * 1e-3, each=1e-3).choose(0, 8) == Choice(8)


def test_pairs_go_before_positions_and_positions_before_steps() -> None:
    whole = 20 * 800 * 1e-3  # value and slope of ten steps, eight pairs and a hundred positions
    assert budget(0.6 * whole, 1e-3).choose(0, 8) == Choice(4)
    assert budget(0.26 * whole, 1e-3).choose(0, 8) == Choice(2)
    assert budget(0.17 * whole, 1e-3).choose(0, 8) == Choice(2, LEAST_POINTS)
    assert budget(0.001 * whole, 1e-3).choose(0, 8) is None


def test_the_steps_that_cost_most_are_left_out() -> None:
    work = [Work(0, "dear", 50), Work(1, "cheap", 50), Work(2, "dear", 50), Work(3, "cheap", 50)]
    clock = Clock()
    made = Budget(1.0, work, {}, clock)
    for function, seconds in (("dear", 1.0), ("cheap", 0.1)):
        priced(made, function, seconds)
    assert [made.choose(i, 8) is not None for i in range(4)] == [False, True, False, True]


def test_what_leaves_the_tables_has_a_price_of_its_own() -> None:
    """A step whose norms no series reaches says nothing of those before it, and is held to cost the same from there on."""
    made = budget(1.0, 1e-6)
    priced(made, "f, integrated", 1.0, 1e-2)
    assert made.choose(0, 8) == Choice(8)
    made.by(4, "f", "f, integrated")
    assert made.choose(4, 8) is None
    made.by(5, "f", "f")
    assert made.choose(5, 8) == Choice(8)


def test_making_tables_costs_nothing_up_to_a_tenth_of_a_second_for_each_function() -> None:
    clock, work = Clock(), [Work(0, "f", 50), Work(1, "g", 50)]
    made = Making(clock)
    left = Budget(1.0, work, {}, clock, made)
    clock.now, made.seconds = 0.15, 0.15
    assert left.left == pytest.approx(1.0)
    clock.now, made.seconds = 0.5, 0.4
    assert left.left == pytest.approx(1.0 - 0.1 - (0.4 - 2 * TABLES))


def test_time_is_kept_for_the_steps_without_integrals() -> None:
    made = Budget(1.0, [Work(1, "f", 50)], {i: 50 for i in range(11) if i != 1}, Clock())
    priced(made, "f", 0.4)
    assert made.choose(1, 8) == Choice(8)
    made.took(0, 0.07)  # nine more of these leave 0.37 s for value and slope
    assert made.choose(1, 8) is None


def test_the_default_is_the_measured_pass_within_limits() -> None:
    assert [default_seconds(s) for s in (0.0, 0.3, 100.0)] == [0.2, 0.3, 30.0]


def _slowed(monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: Callable[[int], float]) -> None:
    """Every integral over so many points moves the clock by so much, and nothing else does."""
    plain = Activate.propagate

    def propagate(self: Activate, state: State | Inputs, trace: Trace | None = None) -> State | Inputs:
        if isinstance(state, State) and self.activation.rung != "closed form":
            clock.now += seconds(state.excess.numel())
        return plain(self, state, trace)

    monkeypatch.setattr(Activate, "propagate", propagate)
    monkeypatch.setattr(predicting, "clock_for", lambda device: clock)
    monkeypatch.setattr(inspection, "clock_for", lambda device: clock)


def stack(activation: Callable[[], nn.Module], depth: int = 6, channels: int = 12) -> nn.Module:
    layers = [
        m for i in range(depth) for m in (nn.Conv2d(3 if i == 0 else channels, channels, 3, padding=1), activation())
    ]
    return he(nn.Sequential(*layers))


@pytest.mark.parametrize("each", [1e-5, 1e-4, 1e-3, 1e-2])
def test_the_budget_is_not_overrun_by_much(each: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long an integral takes, by no more than trying it at a few points."""
    clock = Clock()
    _slowed(monkeypatch, clock, lambda points: 1e-3 + each * points)
    torch.manual_seed(0)
    batch = as_batch(torch.randn(6, 3, 7, 7), nn.Identity())
    found = inspect_model(stack(nn.SiLU), batch, backward=False, theory_seconds=1.0)
    most = 1.0 + 8 * each + 1e-3
    assert clock.now <= most
    kinds = {note.kind: note.steps for note in found.notes}
    named = [s.call.name for s in found.steps if s.observed.predicted is None]
    assert list(kinds.get("left-out", ())) == named  # every step without a prediction is named
    assert ("left-out" in kinds) == (each > 1e-4)
    assert ("thinned" in kinds) == (each == 1e-3)


def test_steps_that_are_left_out_are_the_integrals_and_what_follows_starts_from_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    _slowed(monkeypatch, clock, lambda points: 1.0)
    torch.manual_seed(0)
    model = he(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 16)))
    report = check(model, torch.randn(8, 8), seeds=1, theory_seconds=0.5)
    assert [layer.predicted is not None for layer in report.layers] == [True, True, True, False, False]
    assert next(note for note in report.notes if note.kind == "left-out").steps == ("3",)
    report = check(model, torch.randn(8, 8), seeds=1, theory_seconds=1.5)
    assert [layer.predicted is not None for layer in report.layers] == [True, True, True, False, True]
    head = report.layers[-1].predicted
    assert head is not None
    assert head.given == "3"
    assert any("no time" in text and "tanh (3)" in text for text in report.to_dict()["notes"])


def test_nothing_is_left_out_of_a_small_relu_network() -> None:
    torch.manual_seed(0)
    for model, x in ((he(mlp(16, 64, 20)), torch.randn(8, 20)), (he(cnn(4, 16)), torch.rand(8, 3, 8, 8))):
        report = check(model, x, seeds=1)
        assert not {note.kind for note in report.notes} & {"left-out", "thinned"}


@pytest.mark.parametrize("options", [{"theory": False}, {"theory_seconds": 0.0}, {"theory_seconds": math.inf}])
def test_verdict_findings_and_score_do_not_depend_on_theory(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    models = [
        (stack(nn.SiLU, 4), torch.randn(6, 3, 7, 7)),
        (nn.Sequential(*(m for _ in range(30) for m in (nn.Linear(32, 32), nn.Tanh()))), torch.randn(8, 32)),
    ]
    for model, x in models:
        one, two = check(model, x, seeds=1), check(model, x, seeds=1, **options)
        assert (one.verdict, one.findings, one.score) == (two.verdict, two.findings, two.score)
        assert [layer.marks for layer in one.layers] == [layer.marks for layer in two.layers]


def test_without_time_nothing_is_predicted_and_random_numbers_stay() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    report = check(stack(nn.SiLU, 2), torch.ones(4, 3, 5, 5).cumsum(0), seeds=1, theory_seconds=0.0)
    assert all(layer.predicted is None for layer in report.layers)
    torch.manual_seed(3)
    assert torch.equal(state, torch.get_rng_state())


def test_seconds_have_to_be_a_number() -> None:
    for wrong in (-1.0, math.nan):
        with pytest.raises(BadInput, match="theory_seconds"):
            check(nn.Linear(2, 2), torch.randn(4, 2), theory_seconds=wrong)


def behind_a_convolution(images: torch.Tensor) -> State:
    i, j = pairs_of(len(images))
    state = Conv(16, padding="zero").propagate(Inputs(images[i].double(), images[j].double()))
    assert isinstance(state, State)
    return state


@pytest.mark.parametrize("name", ["gelu", "erf"])
@pytest.mark.parametrize("uneven", [False, True])
def test_a_random_part_of_the_points_gives_the_mean_within_its_error(name: str, uneven: bool) -> None:
    """Over 40 random parts the distance to the full integral is what the stated error says, in Fisher's z.

    The functions have closed forms, which serve as the integral here: they are fast.
    """
    images = torch.rand(6, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    images = images.cumsum(0) * torch.linspace(0.2, 1.5, 24) if uneven else images
    layer, state = Activate(by_name(name)), behind_a_convolution(images)
    whole = _mean_defect(layer.propagate(state))
    scores = []
    for seed in range(40):
        made, noise, _ = activated(layer, state, Trace(), some_points(state, LEAST_POINTS, seed))
        off = math.log(_mean_defect(made) / whole)
        assert abs(off) < 0.05
        scores.append(off / math.sqrt(noise.variance))
    rms = math.sqrt(sum(s * s for s in scores) / len(scores))
    assert rms < 1.4  # a chi of 40 degrees of freedom, over their root, is above that once in ten thousand


def test_all_points_are_the_integral_itself() -> None:
    state = behind_a_convolution(torch.rand(4, 3, 4, 4, generator=torch.Generator().manual_seed(0)))
    layer = Activate(by_name("tanh"))
    whole = layer.propagate(state)
    made, noise, _ = activated(layer, state, Trace(), some_points(state, 10_000, 0))
    assert isinstance(whole, State)
    torch.testing.assert_close(made.excess, whole.excess, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(made.x.mean, whole.x.mean, rtol=1e-12, atol=1e-15)
    assert noise.variance == 0


def test_positions_of_zero_need_no_fit() -> None:
    """Black parts of an image: f(0) is known, and so is its product with the mean of the other side."""
    images = torch.rand(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    images[:2, :, :, :5] = 0
    images[2:, :, :4] = 0
    layer, state = Activate(by_name("softplus")), behind_a_convolution(images)
    whole = layer.propagate(state)
    made, _, _ = activated(layer, state, Trace(), some_points(state, 80, 0))
    assert isinstance(whole, State)
    zero = state.x.norm * state.y.norm == 0
    assert bool(zero.any())
    # The mean of the other side is read off a cubic in log A.
    torch.testing.assert_close(made.product[zero], whole.product[zero], rtol=2e-2, atol=1e-6)
    assert _mean_defect(made) == pytest.approx(_mean_defect(whole), rel=0.05)


def test_fewer_pairs_are_the_same_pairs() -> None:
    state = behind_a_convolution(torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0)))
    made = Activate(by_name("relu")).propagate(state)
    assert isinstance(made, State)
    chosen = torch.tensor([1, 4, 6])
    few = fewer_pairs(made, chosen)
    assert isinstance(few, State)
    assert few.before is not None
    again = Activate(by_name("relu")).propagate(few.before)
    assert isinstance(again, State)
    assert torch.equal(few.excess, made.excess[:, chosen])
    torch.testing.assert_close(again.excess, few.excess)
    assert few.draw is not None
    drawn = few.draw(50, torch.Generator().manual_seed(0))
    assert drawn.shape == (1, 50, 6, 5, 5)
    values = torch.rand(6, 7, 5, 5, generator=torch.Generator().manual_seed(1))
    seen = capture(values, pairs_of(6))
    assert seen is not None
    assert torch.equal(seen.of(chosen).defect, seen.defect[chosen])
    start, part = seen.state(), seen.of(chosen).state()
    assert start is not None
    assert part is not None
    assert torch.equal(part.excess, start.excess[:, chosen])


@pytest.mark.slow
@pytest.mark.parametrize("points", [64, 256])
def test_intervals_hold_at_their_rate_with_thinned_integrals(points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh networks, every integral with two pairs at a part of the positions: 95 % within four standard errors."""
    monkeypatch.setattr(Budget, "choose", lambda self, index, pairs: Choice(min(pairs, 2), points))
    data = torch.rand(8, 3, 10, 10, generator=torch.Generator().manual_seed(11))
    inside = []
    for seed in range(100):
        torch.manual_seed(seed)
        model = stack(nn.SiLU, 3, 48)
        steps = inspect_model(model, as_batch(data, nn.Identity()), backward=False, theory_seconds=60.0).steps
        last = steps[-1].observed.predicted
        assert last is not None
        inside.append(last.explained)
    assert abs(sum(inside) / len(inside) - 0.95) < 4 * math.sqrt(0.95 * 0.05 / len(inside))


def test_values_without_elements_have_no_theory() -> None:
    class Empty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return self.second(torch.cat([torch.relu(h), torch.relu(h[:, :0])], 1))

    assert check(Empty(), torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), seeds=1).verdict
