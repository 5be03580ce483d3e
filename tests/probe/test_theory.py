"""Predictions beside measured values: exact where they should be, and intervals that hold at their rate."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from initscope.activations import RELU
from initscope.layers import Activate, Conv, Dense
from initscope.networks import Sequential, predict
from initscope.probe import check, inspection
from initscope.probe.batches import as_batch
from initscope.probe.capture import LEVEL, Noise, capture, pairs_of
from initscope.probe.findings import Note
from initscope.probe.inspection import inspect_model
from initscope.weights import Gaussian
from probe.models import Functional, Residual, cnn, he, mlp
from probe.stacks import STACKS


def _covered(name: str, draws: int) -> list[bool]:
    """For fresh networks: does the interval at the last step hold the measured value?"""
    make, data = STACKS[name]
    batch = as_batch(data, nn.Identity())
    inside = []
    for seed in range(draws):
        with torch.random.fork_rng():
            torch.manual_seed(1000 * (1 + list(STACKS).index(name)) + seed)  # no two stacks share their draws
            model = make()
        found = inspect_model(model, batch, backward=False, theory_seconds=math.inf).steps[-1].observed.predicted
        assert found is not None, name
        inside.append(found.explained)
    return inside


@pytest.mark.slow
def test_intervals_cover_at_their_rate() -> None:
    """Over all stacks, within three standard errors of the stated 95 %; no single stack far off."""
    draws = 40
    rates = {name: sum(_covered(name, draws)) / draws for name in STACKS}
    total = len(STACKS) * draws
    error = math.sqrt(LEVEL * (1 - LEVEL) / total)
    mean = sum(rates.values()) / len(rates)
    assert abs(mean - LEVEL) < 3 * error, rates
    assert min(rates.values()) > LEVEL - 4 * math.sqrt(LEVEL * (1 - LEVEL) / draws), rates


@pytest.mark.parametrize("name", STACKS)
def test_every_layer_is_predicted(name: str) -> None:
    make, data = STACKS[name]
    torch.manual_seed(0)
    steps = inspect_model(make(), as_batch(data, nn.Identity()), backward=False, theory_seconds=math.inf).steps
    unknown = [s.call.kind for s in steps if s.observed.predicted is None]
    assert all(kind in ("pooling", "norm") for kind in unknown)


class _Moved(nn.Module):
    """Dense layers on the last axis, where theory would take the second one for the channels."""

    def __init__(self, first: nn.Module, order: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.first, self.order = first, order
        self.one, self.two, self.head = nn.Linear(width, 24), nn.Linear(24, width), nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).permute(self.order)
        x = x + self.two(torch.relu(self.one(x)))
        return self.head(x.flatten(1, -2).mean(1))


@pytest.mark.parametrize(
    ("first", "order", "shape"),
    [
        (nn.Identity(), (0, 1, 2), (6, 9, 16)),  # tokens
        (nn.Conv1d(3, 16, 3), (0, 2, 1), (6, 3, 11)),  # tokens from a convolution
        (nn.Conv2d(3, 16, 3), (0, 2, 3, 1), (6, 3, 7, 8)),  # images with the channels last
    ],
)
def test_values_whose_channels_lie_elsewhere_are_measured_only(
    first: nn.Module, order: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    model = _Moved(first, order, 16)
    steps = inspect_model(model, as_batch(torch.randn(shape), model)).steps
    predicted = {s.call.function for s in steps if s.observed.predicted is not None and s.call.name != "head"}
    assert predicted <= {"conv1d", "conv2d"}
    assert {"linear", "relu", "add"} <= {s.call.function for s in steps}


def test_the_prediction_is_that_of_predict() -> None:
    """The same network written in layers, with the weights' measured variance."""
    torch.manual_seed(0)
    model = he(mlp(3, 128, 20))
    x = torch.randn(6, 20)
    i, j = pairs_of(6)
    gains = [float(m.weight.detach().square().mean()) * m.weight.shape[1] for m in model if isinstance(m, nn.Linear)]
    net = Sequential(*(layer for g in gains for layer in (Dense(128, weights=Gaussian(g)), Activate(RELU))))
    expected = predict(net, x[i], x[j]).layers
    found = [s.observed.predicted for s in inspect_model(model, as_batch(x, model)).steps]
    for one, two in zip(found, expected[1:], strict=True):
        assert one is not None
        assert one.defect == pytest.approx(float(two.defect.mean()), rel=1e-9)
        assert one.given == ""


def test_convolutions_are_predicted_with_their_stride_and_padding() -> None:
    torch.manual_seed(0)
    model = he(nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2), nn.ReLU()))
    x = torch.rand(4, 3, 9, 9)
    i, j = pairs_of(4)
    first, second = (
        float(m.weight.detach().square().mean()) * m.weight[0].numel() for m in model if isinstance(m, nn.Conv2d)
    )
    net = Sequential(
        Conv(16, padding="zero", weights=Gaussian(first)),
        Activate(RELU),
        Conv(8, stride=2, padding="valid", weights=Gaussian(second)),
        Activate(RELU),
    )
    expected = predict(net, x[i], x[j]).layers[-1]
    found = inspect_model(model, as_batch(x, model)).steps[-1].observed.predicted
    assert found is not None
    assert found.defect == pytest.approx(float(expected.defect.mean()), rel=1e-6)


def test_units_that_share_weights_are_not_added_as_if_independent() -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.layer(x)
            return torch.relu(h) + h

    steps = inspect_model(Doubled(), as_batch(torch.randn(4, 8), nn.Identity())).steps
    assert [s.observed.predicted is None for s in steps] == [False, False, True]


def test_unknown_steps_are_a_new_start_and_named() -> None:
    torch.manual_seed(0)
    report = check(he(cnn(3, 16)), torch.rand(4, 3, 8, 8), seeds=1)
    head = report.layers[-1]
    assert head.kind == "dense"
    assert head.predicted is not None
    assert head.predicted.given == report.layers[-2].name
    assert report.layers[-2].cosine_predicted is None


def test_zero_layers_and_integer_data_do_not_stop_it() -> None:
    model = mlp(3, 16, 8)
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.zero_()
    check(model, torch.randn(4, 8), seeds=1)
    check(nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 4)), torch.randint(10, (5, 3)), seeds=1)
    check(Functional(), torch.randn(2, 8), seeds=1)
    check(Residual(), torch.randn(3, 32), seeds=1)


def test_noise_of_sums_has_the_degrees_of_freedom_of_welch() -> None:
    one, two = Noise(4.0, 16.0 / 10), Noise(9.0, 81.0 / 20)
    both = one + two
    assert both.variance**2 / both.wobble == pytest.approx((4 + 9) ** 2 / (4**2 / 10 + 9**2 / 20))
    assert Noise().reach == 1.0
    assert one.stretched(0.5).variance == 1.0


def test_pairs_are_distinct_and_none_is_with_itself() -> None:
    for samples in (2, 3, 4, 5, 8, 16):
        i, j = pairs_of(samples)
        pairs = {frozenset(p) for p in zip(i.tolist(), j.tolist(), strict=True)}
        assert len(pairs) == len(i) == min(8, samples * (samples - 1) // 2)
        assert all(len(p) == 2 for p in pairs)


def _defect(x: torch.Tensor, y: torch.Tensor) -> float:
    """1 - cosine by the distance of the unit vectors."""
    return float((x / x.norm() - y / y.norm()).square().sum() / 2)


@pytest.mark.parametrize("shape", [(10, 6, 5, 7), (10, 16, 40, 40), (10, 30)])
@pytest.mark.parametrize("apart", [1.0, 1e-3])
def test_a_capture_is_the_one_that_loops_find(shape: tuple[int, ...], apart: float) -> None:
    """Defect, second moments and the jackknife over channels, pair by pair and channel by channel in float64."""
    g = torch.Generator().manual_seed(3)
    common = torch.randn(shape[1:], generator=g)
    values = common + apart * torch.randn(shape, generator=g)
    pairs = pairs_of(len(values))
    found = capture(values, pairs)
    assert found is not None
    defects, without = [], torch.zeros(len(pairs[0]), shape[1], dtype=torch.float64)
    for number, (i, j) in enumerate(zip(*pairs, strict=True)):
        x, y = values[i].double().reshape(shape[1], -1), values[j].double().reshape(shape[1], -1)
        defects.append(_defect(x, y))
        for c in range(shape[1]):
            others = [k for k in range(shape[1]) if k != c]
            without[number, c] = _defect(x[others], y[others])
    # The loop in float64 against sums in float32: rounding of the inputs' squares over the distance.
    torch.testing.assert_close(found.defect, torch.tensor(defects, dtype=torch.float64), rtol=1e-4, atol=0)
    z = -2 * torch.atanh(1 - without.mean(0))
    expected = (shape[1] - 1) * float(z.var(correction=0))
    assert found.noise.variance == pytest.approx(expected, rel=1e-3)
    x, y = (values[i].double() for i in pairs)
    torch.testing.assert_close(found.state().distance[0], (x - y).square().mean(1), rtol=1e-5, atol=1e-12)
    torch.testing.assert_close(found.state().x.norm[0], x.square().mean(1), rtol=1e-5, atol=1e-12)


class _Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.branch(x)


@pytest.mark.parametrize(("units", "known"), [(255, False), (256, True), (4096, True)])
def test_steps_without_a_closed_form_are_drawn_within_the_budget_and_named_beyond_it(
    units: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ReLU behind a skip sum of a ReLU'd and a linear branch has no closed form."""
    torch.manual_seed(0)
    model = he(nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), _Skip(), nn.ReLU()))
    batch = as_batch(torch.randn(8, 3, 12, 12), nn.Identity())
    a_unit = 2 * 8 * 10 * 10 * 2  # both sides of 8 pairs, 10 x 10 positions, two Gaussian parts
    monkeypatch.setattr(inspection, "DRAWN", units * a_unit)
    found = inspect_model(model, batch, backward=False)
    assert [step.call.kind for step in found.steps] == ["conv", "activation", "conv", "residual", "activation"]
    last = found.steps[-1].observed.predicted
    assert (last is not None and last.explained and last.given == "") == known
    assert found.notes == ([] if known else [Note("too-long", "relu", ("3",))])
    full = inspect_model(model, batch, backward=False, theory="full").steps[-1].observed.predicted
    assert full is not None
    if last is not None:
        # Moments of 256 or more units, averaged over 100 positions and 8 pairs.
        assert last.defect == pytest.approx(full.defect, rel=4 * math.sqrt(2 / (units * 100)))


def test_an_interval_that_reaches_a_cosine_of_one_holds_it() -> None:
    torch.manual_seed(0)
    layer = check(nn.Linear(2, 1), torch.randn(2, 2), seeds=1).layers[0]
    assert layer.predicted is not None
    assert layer.predicted.interval[1] == 1.0
    assert layer.predicted.measured < 1e-15
    assert layer.predicted.explained
