"""Names, user functions and messages."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from initscope import activations as act
from initscope.activations import Activation, by_name, hermite, leaky_relu, names
from initscope.errors import BadInput

ONE = torch.ones((), dtype=torch.float64)


def test_every_name_is_found() -> None:
    parameters = {"hermite": (2,), "poly": (0.0, 1.0, 0.5), "relupower": (2,)}
    for name in names():
        activation = by_name(name, *parameters.get(name, ()))
        assert isinstance(activation, Activation)
        assert activation(torch.zeros(3)).shape == (3,)
    assert by_name("linear") is act.IDENTITY
    assert by_name("swish") is act.SILU
    assert by_name("leaky").name == by_name("leaky_relu", 0.01).name == "leaky_relu(0.01)"
    assert by_name("relupower", 1).rung == "closed form"


def test_torch_agrees_on_the_functions() -> None:
    z = torch.linspace(-5, 9, 200, dtype=torch.float64)
    modules = {
        "relu": torch.nn.ReLU(),
        "gelu": torch.nn.GELU(),
        "tanh": torch.nn.Tanh(),
        "sigmoid": torch.nn.Sigmoid(),
        "silu": torch.nn.SiLU(),
        "softplus": torch.nn.Softplus(threshold=50),
        "elu": torch.nn.ELU(),
        "selu": torch.nn.SELU(),
        "hardswish": torch.nn.Hardswish(),
        "mish": torch.nn.Mish(),
        "relu6": torch.nn.ReLU6(),
        "hardtanh": torch.nn.Hardtanh(),
        "leaky_relu": torch.nn.LeakyReLU(),
    }
    for name, module in modules.items():
        torch.testing.assert_close(by_name(name)(z), module(z), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: by_name("gellu"), r"no activation is called 'gellu'; did you mean gelu"),
        (lambda: by_name("qqqq"), r"choose one of abs, "),
        (lambda: by_name("relu", 0.2), r"relu takes no numbers, got \[0.2\]"),
        (lambda: by_name("hermite"), r"hermite was given 0 numbers; write hermite\(k\)"),
        (lambda: by_name("hermite", 1.5), r"the order is 1.5"),
        (lambda: act.polynomial([]), r"at least one finite number"),
        (lambda: act.TANH.correlation(ONE), r"tanh: is not homogeneous"),
        (lambda: act.RELU.distance(ONE, ONE, torch.tensor(1)), r"relu: D has dtype int64"),
        (lambda: act.RELU.distance(torch.ones(2), torch.ones(3), torch.ones(())), r"shapes \(2,\), \(3,\), \(\)"),
        (lambda: Activation.from_function(lambda z: z.sum()), r"shape \(\)"),
        (lambda: Activation.from_function(lambda z: z - z.mean()), r"differs from f of its elements"),
        (lambda: Activation.from_function(torch.tanh, method="guess"), r"method is 'guess'"),
        (lambda: Activation.from_function(torch.relu, kinks=(0.0,), pieces=[[0]]), r"1 pieces for the kinks \(0.0,\)"),
        (
            lambda: Activation.from_function(torch.relu, kinks=(0.0,), pieces=[[0], [0, 2]]),
            r"f differs from the pieces",
        ),
        (
            lambda: Activation.from_function(lambda z: 1.0 * (z > 0), kinks=(0.0,), pieces=[[0], [1]]),
            r"pieces do not meet",
        ),
        (lambda: act.RELU.by_monte_carlo(samples=1), r"1 samples give no standard error"),
    ],
)
def test_bad_input_says_what_and_how(call, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        call()


def test_the_ladder_says_which_rung_answers() -> None:
    own = Activation.from_function(torch.relu, name="mine", kinks=(0.0,), degree=1, dual=act.RELU.distance)
    plain = Activation.from_function(torch.relu, kinks=(0.0,), degree=1)
    drawn = Activation.from_function(torch.relu, method="monte carlo", samples=2000, seed=1)
    assert [a.rung for a in (act.RELU, own, plain, drawn)] == ["closed form", "own dual", "quadrature", "monte carlo"]
    for activation in (own, plain):
        torch.testing.assert_close(
            activation.product(ONE, ONE, ONE), act.RELU.product(ONE, ONE, ONE), rtol=1e-11, atol=0
        )
        torch.testing.assert_close(activation.defect(ONE / 3), act.RELU.defect(ONE / 3), rtol=1e-11, atol=0)
        torch.testing.assert_close(
            activation.derivative_product(ONE, ONE, ONE), act.RELU.derivative_product(ONE, ONE, ONE), rtol=1e-11, atol=0
        )
    again = Activation.from_function(torch.relu, method="monte carlo", samples=2000, seed=1)
    assert float(drawn.distance(ONE, ONE, ONE)) == float(again.distance(ONE, ONE, ONE))
    other = Activation.from_function(torch.relu, method="monte carlo", samples=2000, seed=2)
    assert float(drawn.distance(ONE, ONE, ONE)) != float(other.distance(ONE, ONE, ONE))


def test_monte_carlo_error_shrinks_with_the_root_of_the_samples() -> None:
    few, many = (act.TANH.by_monte_carlo(n, seed=0).evaluate(ONE, ONE, ONE).error for n in (4_000, 64_000))
    assert math.isclose(float(few / many), 4.0, rel_tol=0.15)


def test_activations_are_values() -> None:
    assert len({act.RELU, act.ABS, act.RELU}) == 2
    assert act.leaky_relu(0.2) == act.leaky_relu(slope=0.2) == by_name("leaky", 0.2)
    assert act.leaky_relu(0.2) != act.leaky_relu(0.2000001)
    assert by_name("elu") == act.elu(1) == act.ELU
    assert act.polynomial([0, 1.5]) == act.polynomial((0.0, 1.5)) == by_name("poly", 0, 1.5)
    assert act.hermite(3) == by_name("hermite", 3.0) != act.hermite(4)
    assert act.rectified_power(2) == by_name("relupower", 2)
    with pytest.raises(AttributeError):
        act.RELU.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Activation.from_function(3), "expected a function"),  # type: ignore[arg-type]
        (lambda: Activation.from_function(lambda z: z / [1]), "raised TypeError"),  # type: ignore[operator]
        (lambda: Activation.from_function(torch.relu, kinks=0.0), "tuple of numbers"),  # type: ignore[arg-type]
        (lambda: leaky_relu("a"), "finite numbers"),  # type: ignore[arg-type]
        (lambda: leaky_relu(math.nan), "finite numbers"),
        (lambda: hermite(math.inf), "finite numbers"),  # type: ignore[arg-type]
    ],
)
def test_wrong_arguments_are_one_clear_error(call: Callable[[], object], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        call()
