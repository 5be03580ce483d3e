"""Laws by name, names of laws, and both inside the architecture language."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from initscope.errors import BadInput
from initscope.layers import Conv, Dense
from initscope.networks import Sequential, parse, unparse
from initscope.weights import (
    DeltaOrthogonal,
    Fan,
    Gaussian,
    Glorot,
    He,
    Independent,
    Laplace,
    Logistic,
    Orthogonal,
    PyTorchDefault,
    Sparse,
    TapCovariance,
    TruncatedNormal,
    Uniform,
    WeightLaw,
    ZeroSum,
    by_name,
    name_of,
    names,
)
from weights.shapes import Shape, assert_mean, draws

PLAIN = {
    "he": Gaussian(2.0),
    "he_fan_out": Gaussian(2.0, "out"),
    "he_geometric": Gaussian(2.0, "geometric"),
    "he_uniform": Uniform(2.0),
    "glorot": Gaussian(1.0, "mean"),
    "glorot_uniform": Uniform(1.0, "mean"),
    "lecun": Gaussian(1.0),
    "pytorch": Uniform(1 / 3),
    "dc_gaussian": Gaussian.of_deviation(0.015),
    "dc_uniform": Uniform.of_bound(0.04),
    "dc_logistic": Logistic.of_width(0.015),
    "dc_laplace": Laplace.of_width(0.015),
    "orthogonal": Orthogonal(2.0),
    "delta_orthogonal": DeltaOrthogonal(2.0),
    "zero_sum": ZeroSum(2.0),
    "zero_sum_channel": ZeroSum(2.0, "channel"),
    "gaussian": Gaussian(2.0),
    "uniform": Uniform(2.0),
    "logistic": Logistic(2.0),
    "laplace": Laplace(2.0),
    "truncated": TruncatedNormal(2.0),
}
FANS: dict[str, Fan] = {
    "": "in", "_fan_out": "out", "_fan_mean": "mean", "_fan_geometric": "geometric", "_fixed": "none",
}  # fmt: skip
KINDS: dict[str, type[Independent]] = {
    "gaussian": Gaussian, "uniform": Uniform, "logistic": Logistic, "laplace": Laplace, "truncated": TruncatedNormal,
}  # fmt: skip


def test_names_are_these() -> None:
    families = {kind + suffix for kind in (*KINDS, "sparse") for suffix in FANS}
    assert set(names()) == set(PLAIN) | families
    assert list(names()) == sorted(names())


@pytest.mark.parametrize("name", PLAIN)
def test_a_name_is_a_law(name: str) -> None:
    law = by_name(name)
    assert law == PLAIN[name]
    shape = Shape(6, 4, (3, 3))
    assert_mean(draws(law, shape).flatten(1).square().mean(1), law.variance(shape.fans))


@pytest.mark.parametrize("suffix", FANS)
def test_numbers_are_the_parameters(suffix: str) -> None:
    fan = FANS[suffix]
    for kind, shape in KINDS.items():
        assert by_name(kind + suffix, 0.7) == shape(0.7, fan)
    assert by_name("truncated" + suffix, 0.7, 3.0) == TruncatedNormal(0.7, fan, 3.0)
    assert by_name("sparse" + suffix, 0.8, 0.7) == Sparse(0.8, 0.7, fan)
    assert by_name("orthogonal", 1.0) == Orthogonal(1.0)
    assert by_name("zero_sum_channel", 1.0) == ZeroSum(1.0, "channel")


def test_helpers_are_the_laws_of_their_authors() -> None:
    assert He() == by_name("he")
    assert He(uniform=True) == by_name("he_uniform")
    assert He("out", 2 / (1 + 0.2**2)) == Gaussian(2 / 1.04, "out")
    assert Glorot() == by_name("glorot")
    assert Glorot(uniform=True) == by_name("glorot_uniform")
    assert PyTorchDefault() == by_name("pytorch")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("delta_ortogonal", "delta_orthogonal"),
        ("Glorot", "glorot"),
        ("zerosum", "zero_sum"),
        ("he_fanout", "he_fan_out"),
        ("laplacian", "laplace"),
    ],
)
def test_an_unknown_name_gets_a_near_suggestion(name: str, near: str) -> None:
    with pytest.raises(BadInput) as caught:
        by_name(name)
    assert repr(name) in caught.value.problem
    assert caught.value.remedy.startswith("did you mean")
    assert near in caught.value.remedy.removesuffix("?").removeprefix("did you mean ").split(", ")


def test_a_name_like_no_other_gets_the_list() -> None:
    with pytest.raises(BadInput) as caught:
        by_name("qqqqqq")
    offered, _, endings = caught.value.remedy.removeprefix("choose from ").partition("; ")
    assert offered.split(", ") == sorted([*PLAIN, "sparse"])
    assert endings == "those with a fan also end in _fan_out, _fan_mean, _fan_geometric, _fixed"


@pytest.mark.parametrize(
    ("name", "numbers", "remedy"),
    [
        ("he", (2.0,), "write he"),
        ("laplace", (2.0, 1.0), "write laplace(scale)"),
        ("gaussian_fixed", (), "write gaussian_fixed(variance)"),
        ("truncated_fan_out", (1.0, 2.0, 3.0), "write truncated_fan_out(scale, cut)"),
        ("sparse", (), "write sparse(sparsity, scale)"),
        ("sparse_fixed", (0.5,), "write sparse_fixed(sparsity, variance)"),
    ],
)
def test_a_wrong_count_of_numbers_is_refused(name: str, numbers: tuple[float, ...], remedy: str) -> None:
    with pytest.raises(BadInput) as caught:
        by_name(name, *numbers)
    assert caught.value.remedy == remedy


positive = st.floats(min_value=1e-12, max_value=1e6)
fans = st.sampled_from(list(FANS.values()))
independent = st.one_of(
    *(st.builds(kind, positive, fans) for kind in KINDS.values()),
    st.builds(TruncatedNormal, positive, fans, st.floats(min_value=0.001, max_value=50)),
)
laws = st.one_of(
    independent,
    st.builds(Sparse, st.floats(min_value=0, max_value=0.99), positive, fans),
    st.builds(Orthogonal, positive),
    st.builds(DeltaOrthogonal, positive),
    st.builds(ZeroSum, positive, st.sampled_from(["filter", "channel"])),
)


@given(law=laws, bias=st.one_of(st.floats(min_value=0, max_value=10), independent))
@settings(max_examples=150, deadline=None)
def test_every_law_survives_the_language(law: WeightLaw, bias: float | Independent) -> None:
    net = Sequential(Conv(12, weights=law, bias=bias))
    assert parse(unparse(net)) == net


@given(law=laws)
@settings(max_examples=100, deadline=None)
def test_the_name_of_a_law_reads_as_the_law(law: WeightLaw) -> None:
    name = name_of(law)
    assert name is not None
    word, _, rest = name.partition("(")
    assert by_name(word, *(float(number) for number in rest.removesuffix(")").split(",") if number)) == law


@pytest.mark.parametrize("name", PLAIN)
def test_plain_names_are_kept_plain(name: str) -> None:
    again = name_of(PLAIN[name])
    assert again is not None
    assert "(" not in again
    assert by_name(again) == PLAIN[name]


def test_what_the_language_cannot_say_is_refused() -> None:
    for law in (TapCovariance(torch.eye(9)), Sparse.of_parent(0.5)):
        assert name_of(law) is None
        with pytest.raises(BadInput, match="the language has no name for the weights"):
            unparse(Conv(8, weights=law))


TEXTS = {
    "dense(8, init=laplace(1), bias=0.1)": Dense(8, Laplace(1.0), 0.1),
    "dense(8, init=pytorch, bias=pytorch)": Dense(8, PyTorchDefault(), PyTorchDefault()),
    "conv3(8, bias=uniform_fixed(0.01))": Conv(8, bias=Uniform(0.01, "none")),
    "conv3(8, init=truncated_fixed(0.0004, 100), bias=gaussian(0.5))": Conv(
        8, weights=TruncatedNormal(0.0004, "none", 100), bias=Gaussian(0.5)
    ),
    "conv3(8, init=sparse(0.8))": Conv(8, weights=Sparse(0.8)),
}


@pytest.mark.parametrize("text", TEXTS)
def test_laws_in_the_language(text: str) -> None:
    (layer,) = parse(text).layers
    assert layer == TEXTS[text]
    assert parse(unparse(layer)).layers == (layer,)


@pytest.mark.parametrize(
    ("text", "column", "problem", "remedy"),
    [
        ("conv3(init=laplace(-1))", 12, "scale is -1.0, expected a positive number", "scale > 0"),
        ("conv3(init=laplace(1, 2))", 12, "laplace was given 2 numbers", "write laplace(scale)"),
        ("conv3(init=sparse(2))", 12, "sparsity is 2.0", "0.9"),
        ("conv3(init=he(2))", 12, "he takes no numbers", "write he"),
        ("conv3(bias=orthogonal)", 12, "bias is 'orthogonal', expected a number or a law of independent", "bias=0.1"),
        ("conv3(bias=pytorh)", 12, "unknown weight law 'pytorh'", "pytorch"),
        ("dense(bias=sparse(0.5))", 12, "bias is 'sparse'", "bias=pytorch"),
    ],
)
def test_errors_point_at_the_law(text: str, column: int, problem: str, remedy: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text)
    assert caught.value.place == f"architecture, line 1, column {column}"
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
