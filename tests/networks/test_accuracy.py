"""The error of an activation's integrals reaches every entrance: results carry it, large ones are announced."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from initscope import scale
from initscope.activations import COS, RELU, SIN, Activation, listen
from initscope.cli import main
from initscope.errors import InexactIntegral
from initscope.layers import Activate, Conv, Dense
from initscope.networks import (
    Sequential,
    kernel,
    kernel_with_error,
    parse,
    predict,
    tangent_kernel,
    tangent_kernel_with_error,
)

WAVE = Activation.from_function(lambda z: math.sqrt(2) * torch.sin(z + math.pi / 4), name="wave")  # sin + cos
STAIRS = Activation.from_function(lambda z: torch.floor(3 * z), name="stairs")  # jumps that nobody declared


def net(activation: Activation, *more: Dense) -> Sequential:
    return Sequential(Dense(64), Activate(activation), *more)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("factor", [1, 30, 255])
def test_oscillating_functions_of_pixels(factor: int, x: torch.Tensor) -> None:
    truth = kernel(net(SIN), factor * x) + kernel(net(COS), factor * x)
    found = kernel_with_error(net(WAVE), factor * x)
    assert found.accuracy.method == "quadrature"
    assert float((found.value - truth).abs().max()) <= found.accuracy.error < 1e-8


def test_closed_forms_are_exact(x: torch.Tensor) -> None:
    for found in (kernel_with_error(net(SIN), x), tangent_kernel_with_error(net(RELU), x)):
        assert found.accuracy.to_dict() == {"method": "exact", "error": 0.0, "integral_error": 0.0}


def test_every_entrance_warns(x: torch.Tensor) -> None:
    with pytest.warns(InexactIntegral, match="kernel: the integrals"):
        kernel(net(STAIRS), x[:1])
    with pytest.warns(InexactIntegral, match="predict: the integrals"):
        prediction = predict(net(STAIRS), x[:1], x[1:2])
    assert prediction.layers[-1].error > 1e-6
    with pytest.warns(InexactIntegral, match="tangent_kernel: the integrals"):
        tangent_kernel(net(STAIRS, Dense(1)), x[:2])


def test_errors_of_layers_add(x: torch.Tensor) -> None:
    rough = Activation.from_function(torch.tanh, name="rough", method="monte carlo", samples=1000)
    once = kernel_with_error(net(rough), x)
    twice = kernel_with_error(Sequential(*net(rough).layers, *net(rough).layers), x)
    assert once.accuracy.method == twice.accuracy.method == "monte carlo"
    truth = kernel(parse("dense tanh"), x)
    assert 1e-4 < float((once.value - truth).abs().max() / truth.max()) < 5 * once.accuracy.error
    assert twice.accuracy.error > 1.5 * once.accuracy.error


def test_stores_carry_it(x: torch.Tensor, tmp_path, monkeypatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = scale.kernel_to(parse("dense tanh"), x, tmp_path / "fine.zarr")
    assert run.open().accuracy.method == "quadrature"
    assert 0 < run.open().accuracy.error < 1e-8
    monkeypatch.setattr("initscope.networks.accuracy.TOLERANCE", 1e-20)
    with pytest.warns(InexactIntegral, match="kernel_to"):
        scale.kernel_to(parse("dense tanh"), x, tmp_path / "coarse.zarr")


@pytest.mark.parametrize("name", ["K.npz", "K.zarr"])
def test_the_command_line_says_it(name: str, tmp_path, monkeypatch) -> None:
    out = tmp_path / name
    arguments = ["kernel", "dense tanh", "--count", "4", "--out", str(out)]
    accuracy = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)["accuracy"]
    assert accuracy["method"] == "quadrature"
    assert 0 < accuracy["error"] < 1e-6  # photos are float32: the series is as long as that needs
    if name == "K.npz":
        assert float(np.load(out)["error"]) == accuracy["error"]
        assert str(np.load(out)["rung"]) == "quadrature"
        monkeypatch.setattr("initscope.networks.accuracy.TOLERANCES", {torch.float32: 1e-20})
        told = CliRunner().invoke(main, arguments)
        assert "quadrature ±" in told.stdout
        assert "the integrals of an activation" in " ".join(told.stderr.split())


def test_the_theory_of_check_is_widened(x: torch.Tensor, monkeypatch) -> None:
    import initscope as iscope
    from initscope.activations.quadrature import QuadratureDual

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 64), torch.nn.Tanh())
    batch = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))

    def band() -> float:
        last = iscope.check(model, batch).layers[-1].predicted
        assert last is not None
        return last.most - last.least

    before = band()
    honest = QuadratureDual.carry

    def doubtful(self, pair, a, b):
        from initscope.activations.evidence import tell

        value = honest(self, pair, a, b)
        tell(self.rung, torch.full_like(value.product, 0.3), torch.ones_like(value.product))
        return value

    monkeypatch.setattr(QuadratureDual, "carry", doubtful)
    assert band() > before + 0.25


def test_whoever_listens_hears_it() -> None:
    with listen() as outer:
        with listen() as inner:
            WAVE.second_moment(torch.ones(3))
        RELU.second_moment(torch.ones(3))
    assert list(outer.errors) == list(inner.errors) == ["quadrature"]


@pytest.mark.parametrize("rest", ["avgpool2 relu gap", "conv3(bias=uniform(0.3)) gap"])
def test_rough_integrals_are_told_beside_simulated_and_approximate_layers(rest: str) -> None:
    images = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rough = Sequential(Conv(8, 3), Activate(STAIRS), *parse(rest).layers)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = kernel(rough, images)
        predict(rough, images[:1], images[1:])
    assert [str(w.message).split(":")[0] for w in told if w.category is InexactIntegral] == ["kernel", "predict"]
    assert bool(found.isfinite().all())


@pytest.mark.parametrize(
    ("text", "shape", "last"),
    [("dense(bias=uniform(0.3)) relu", (5,), -1), ("conv3(bias=uniform(0.3)) relu gap dense(bias=1)", (1, 4, 4), -3)],
)
def test_an_approximate_layer_is_no_rough_integral(text: str, shape: tuple[int, ...], last: int) -> None:
    """It has a note of its own; no warning."""
    net = parse(text)
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for found in (kernel_with_error(net, x), tangent_kernel_with_error(net, x)):
        assert found.accuracy.method == "approximate"
        assert found.accuracy.error == pytest.approx(predict(net, x[:1], x[1:]).layers[last].error, rel=1e-9)
        assert found.accuracy.integral_error == 0
    kernel(net, x)
