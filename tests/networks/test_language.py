"""The architecture language: words, options, repeats, nesting, errors that point, and the way back to text."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from initscope import weights
from initscope.activations import RELU, Activation
from initscope.errors import BadInput
from initscope.layers import (
    Activate,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    GlobalMaxPool,
    GroupNorm,
    L2Pool,
    Layer,
    LayerNorm,
    MaxPool,
    Scale,
    Upsample,
)
from initscope.networks import Concat, Product, Residual, Sequential, Sum
from initscope.networks.language import MOST_LAYERS, parse, unparse
from initscope.networks.language.words import ACTIVATIONS, FIXED, default_words


def only(text: str) -> Layer:
    (layer,) = parse(text).layers
    return layer


def frozen(layer: Layer) -> object:
    """A network with its activations, which compare by identity, replaced by their name and values."""
    grid = torch.linspace(-3, 3, 31)
    if isinstance(layer, Activate):
        return layer.activation.name, tuple(layer.activation(grid).tolist())
    if isinstance(layer, Sequential):
        return tuple(frozen(part) for part in layer.layers)
    if isinstance(layer, Residual):
        return "res", layer.scale, tuple(frozen(part) for part in layer.layers)
    if isinstance(layer, Sum | Product | Concat):
        return type(layer), getattr(layer, "axis", 0), tuple(frozen(part) for part in layer.branches)
    return layer


WORDS = {
    "conv3": Conv(64, kernel=3),
    "conv5x3": Conv(64, kernel=(5, 3)),
    "conv3(32)": Conv(32, kernel=3),
    "conv3/2": Conv(64, kernel=3, stride=2),
    "conv3/2(16)": Conv(16, kernel=3, stride=2),
    "conv3(64, stride=2, padding=zero, dilation=2, groups=4, init=zero_sum, bias=0.1)": Conv(
        64, kernel=3, stride=2, padding="zero", dilation=2, groups=4, weights=weights.by_name("zero_sum"), bias=0.1
    ),
    "conv1(width=8)": Conv(8, kernel=1),
    "conv3x1x5": Conv(64, kernel=(3, 1, 5)),
    "conv3/2(padding=same)": Conv(64, kernel=3, stride=2, padding="same"),
    "conv3(8, padding=zero, margin=2)": Conv(8, padding="zero", margin=2),
    "dense(512)": Dense(512),
    "dense": Dense(64),
    "dense(10, init=lecun, bias=1e-1)": Dense(10, weights=weights.by_name("lecun"), bias=0.1),
    "avgpool2": AveragePool(2),
    "avgpool(3, stride=2)": AveragePool(3, stride=2),
    "avgpool3/2": AveragePool(3, stride=2),
    "avgpool3x2(stride=1)": AveragePool((3, 2), stride=1),
    "avgpool3/2(padding=same, edges=skip)": AveragePool(3, 2, "same", edges="skip"),
    "maxpool3/2(padding=zero, margin=1)": MaxPool(3, 2, "zero", 1),
    "l2pool2x1x2(padding=same)": L2Pool((2, 1, 2), padding="same"),
    "maxpool2": MaxPool(2),
    "l2pool2": L2Pool(2),
    "l2pool(2)": L2Pool(2),
    "gap": GlobalAveragePool(),
    "gmp": GlobalMaxPool(),
    "bn": BatchNorm(),
    "ln": LayerNorm(),
    "ln(all)": LayerNorm(),
    "ln(channels)": LayerNorm(over="channels"),
    "ln(0, 2)": LayerNorm(over=(0, 2)),
    "gn(8)": GroupNorm(8),
    "up2": Upsample(2, mode="nearest"),
    "zeroup3": Upsample(3, mode="zeros"),
    "flatten": Flatten(),
    "dropout(0.5)": Dropout(0.5),
    "scale(-0.5)": Scale(-0.5),
    "GAP": GlobalAveragePool(),
}


@pytest.mark.parametrize("text", WORDS)
def test_word(text: str) -> None:
    assert only(text) == WORDS[text]


def test_default_width() -> None:
    assert parse("conv3 dense", width=7).layers == (Conv(7, kernel=3), Dense(7))


def test_activations_are_the_named_ones() -> None:
    relu, leaky = only("relu"), only("leaky(0.2)")
    assert isinstance(relu, Activate)
    assert isinstance(leaky, Activate)
    z = torch.linspace(-2, 2, 9)
    assert torch.equal(relu.activation(z), z.relu())
    assert torch.allclose(leaky.activation(z), torch.nn.functional.leaky_relu(z, 0.2))
    assert only("LeakY( 0.2 )") == leaky


PARAMETERS = {"hermite": "(2)", "poly": "(0, 1, 0.5)", "relupower": "(2)"}


@pytest.mark.parametrize("word", sorted(ACTIVATIONS))
def test_every_activation_word_is_in_the_registry(word: str) -> None:
    layer = only(word + PARAMETERS.get(word, ""))
    assert isinstance(layer, Activate)


def test_sequence_and_spacing() -> None:
    net = parse("  conv3\n\trelu # the first block\n conv3 relu  gap\r\n")
    assert [layer.word for layer in net.layers] == ["conv3", "relu", "conv3", "relu", "gap"]


def test_repeats() -> None:
    plain = parse("conv3 relu conv3 relu conv3 relu gap")
    assert parse("3x(conv3 relu) gap") == plain
    assert parse("(conv3 relu)*3 gap") == plain
    assert parse("3 x ( conv3 relu ) gap") == plain
    assert parse("(conv3 relu) 2X(conv3 relu) gap") == plain
    assert len(parse("2x(3x(conv3 relu) gap)").layers) == 14


def test_compositions() -> None:
    bn_relu_conv = parse("bn relu conv3").layers
    assert only("res(bn relu conv3)") == Residual(*bn_relu_conv)
    assert only("res(bn relu conv3, scale=0.1)") == Residual(*bn_relu_conv, scale=0.1)
    assert only("cat(conv3 | conv5 relu)") == Concat(parse("conv3"), parse("conv5 relu"))
    assert only("sum(conv3 | conv1)") == Sum(parse("conv3"), parse("conv1"))
    assert only("prod(conv3 | conv1 relu)") == Product(parse("conv3"), parse("conv1 relu"))
    assert only("cat(conv3 | conv1, axis=2)") == Concat(parse("conv3"), parse("conv1"), axis=2)
    deep = only("res(conv1 2x(sum(conv3 | res(conv1 cat(conv1 | conv3)))) relu)")
    assert isinstance(deep, Residual)
    assert len(deep.layers) == 4
    assert deep.layers[1] == deep.layers[2]


BROKEN = {
    "relu cnov3 gap": (1, 6, "unknown layer word 'cnov3'", "did you mean conv3"),
    "conv3 rleu": (1, 7, "unknown layer word 'rleu'", "relu"),
    "conv3\n  zzzz": (2, 3, "unknown layer word 'zzzz'", "the words are"),
    "": (1, 1, "the end of the text, expected a layer", "conv3 relu gap"),
    "  # nothing": (1, 12, "the end of the text, expected a layer", "conv3 relu gap"),
    "conv3 $ relu": (1, 7, "found the character '$'", "layer words"),
    "conv3 )": (1, 7, "found ')', expected a layer or the end", "open a parenthesis"),
    "(conv3 relu": (1, 12, "expected )", "close the parenthesis of '('"),
    "res(conv3": (1, 10, "expected )", "close the parenthesis of 'res'"),
    "res conv3": (1, 5, "expected ( after 'res'", "put ("),
    "res()": (1, 5, "found ')', expected a layer", "conv3 relu gap"),
    "cat(conv3 |)": (1, 12, "found ')', expected a layer", "conv3 relu gap"),
    "cat(conv3)": (1, 1, "got 1 branches", "at least two"),
    "res(conv3 | conv1)": (1, 1, "'res' has 2 branches", "res(sum("),
    "res(conv3, skale=2)": (1, 12, "no option 'skale'", "did you mean scale?"),
    "sum(conv3 | conv1, scale=2)": (1, 20, "no option 'scale'", "no arguments"),
    "prod(relu | tanh)": (1, 1, "more than one branch has a path without", "as one activation"),
    "cat(conv3 | conv1, axis=4)": (1, 1, "axis is 4, expected 0 to 3", "0 are channels"),
    "10(conv3)": (1, 3, "found '(', expected x(", "10x(conv3 relu)"),
    "10x conv3": (1, 5, "expected ( after the count", "put ("),
    "1000000000x(conv3)": (1, 1, "the count is '1000000000'", "in that range"),
    "0x(conv3)": (1, 1, "the count is '0'", "in that range"),
    "2.5x(conv3)": (1, 1, "expected a whole number", "from 1"),
    "(conv3)*": (1, 9, "found the end of the text, expected a whole number", "from 1"),
    "1000x(1000x(conv3))": (1, 1, "1000000 layers", "repeat less often"),
    "1000x(res(1000x(conv3)))": (1, 1, "1000000 layers", "repeat less often"),
    "conv3(64, 32)": (1, 11, "'conv3' has no place for '32'", "it takes width, stride"),
    "conv3(strid=2)": (1, 7, "no option 'strid'", "did you mean stride?"),
    "conv3(stride=2, stride=3)": (1, 17, "given twice", "give it once"),
    "conv3/2(stride=3)": (1, 7, "given twice", "give it once"),
    "conv3(64, width=3)": (1, 17, "given twice", "give it once"),
    "conv3(stride=2, 64)": (1, 17, "after a name=value", "first"),
    "conv3(padding=full)": (1, 15, "padding is 'full', expected one of circular", "write padding=circular"),
    "conv3(padding=same, margin=1)": (1, 1, "padding='same' has no margin", "no margin"),
    "avgpool2(margin=1)": (1, 1, "padding='valid' has no margin", "padding='zero'"),
    "maxpool2(edges=skip)": (1, 10, "'maxpool2' has no option 'edges'", "stride"),
    "ln(1, 2)": (1, 1, "lack the channels", "list 0"),
    "ln(0, 9)": (1, 1, "over is (0, 9)", "axes such as"),
    "conv3(padding=zeros)": (1, 15, "padding is 'zeros'", "did you mean zero?"),
    "conv3(init=hee)": (1, 12, "unknown weight law 'hee'", "he"),
    "conv3(init=3)": (1, 12, "expected a weight law", "init=he"),
    "conv3(0)": (1, 7, "width is '0', expected 1 to", "range"),
    "conv3(-4)": (1, 7, "expected a whole number", "from 1"),
    "conv3(x)": (1, 7, "found 'x', expected a whole number", "from 1"),
    "conv3(64": (1, 9, "expected )", "close the parenthesis of 'conv3'"),
    "conv3(,)": (1, 7, "found ',', expected a number or a word", "stride=2"),
    "conv3(stride=)": (1, 14, "found ')', expected a number or a word", "stride=2"),
    "conv0": (1, 5, "the size is '0'", "range"),
    "conv3x0": (1, 7, "the size is '0'", "range"),
    "conv3(6, groups=4)": (1, 1, "6 channels do not split into 4 groups", "divisor"),
    "conv3(bias=-1)": (1, 1, "bias is -1.0", "bias >= 0"),
    "conv3(bias=1e999)": (1, 12, "not a finite number", "0.5"),
    "conv": (1, 1, "unknown layer word 'conv'", "conv3"),
    "gn": (1, 1, "'gn' needs a whole number (groups)", "gn(...)"),
    "dropout": (1, 1, "'dropout' needs a number (p)", "dropout(...)"),
    "dropout(1.5)": (1, 1, "p is 1.5", "probability"),
    "gap(3)": (1, 5, "'gap' has no place for '3'", "no arguments"),
    "gap/2": (1, 5, "no option 'stride'", "no arguments"),
    "ln(rows)": (1, 4, "over is 'rows', expected one of all, channels", "over=all"),
    "leaky(x)": (1, 7, "expected a number", "0.5"),
    "relu(slope=2)": (1, 6, "no option 'slope'", "no arguments"),
    "relu relu(0.2)": (1, 6, "relu", ""),
    "hermite(1000000000)": (1, 9, "at most 50", "lower"),
    "sum(relu | tanh)": (1, 1, "without a dense or conv layer", ""),
    "conv" + "9" * 5000: (1, 5, "the size is", "range"),
    "conv3(" + "9" * 5000 + ")": (1, 7, "width is", "range"),
    "(" * 60 + "relu" + ")" * 60: (1, 52, "more than 50 parentheses", "nest less"),
}


@pytest.mark.parametrize("text", BROKEN, ids=[text[:30] for text in BROKEN])
def test_errors_point_at_the_character(text: str) -> None:
    line, column, problem, remedy = BROKEN[text]
    with pytest.raises(BadInput) as caught:
        parse(text)
    error = caught.value
    assert error.place == f"architecture, line {line}, column {column}"
    assert problem in error.problem
    assert remedy in error.remedy
    shown, carets = error.problem.split("\n")[1:3]
    at = carets.index("^")
    whole_line = text.split("\n")[line - 1]
    pointed = shown[at : at + 1]
    assert pointed == (whole_line[column - 1] if column <= len(whole_line) else "")


def test_error_reads_well() -> None:
    with pytest.raises(BadInput) as caught:
        parse("10x(conv3 rellu) gap")
    assert str(caught.value) == (
        "architecture, line 1, column 11: \n"
        "    10x(conv3 rellu) gap\n"
        "              ^^^^^\n"
        "unknown layer word 'rellu', expected a layer such as conv3, relu or gap; did you mean relu or relu6 or elu?"
    )


def test_long_lines_are_cut_around_the_caret() -> None:
    text = "conv3 " * 100 + "rellu " + "relu " * 100
    with pytest.raises(BadInput) as caught:
        parse(text)
    shown, carets = caught.value.problem.split("\n")[1:3]
    assert len(shown) < 90
    assert shown[carets.index("^") : carets.rindex("^") + 1] == "rellu"


def test_length_is_bounded() -> None:
    with pytest.raises(BadInput, match="at most 20000 are read"):
        parse("relu " * 10_000)
    assert len(parse(f"{MOST_LAYERS}x(relu)").layers) == MOST_LAYERS
    with pytest.raises(BadInput, match="at most 10000"):
        parse(f"{MOST_LAYERS}x(relu) relu")


def test_not_text() -> None:
    with pytest.raises(BadInput, match="got int, expected text"):
        parse(3)  # type: ignore[arg-type]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    _parse_or_refuse(text)


PIECES = [
    *default_words(), "res(", "cat(", "sum(", "(", ")", "10x(", ")*2", "*", "x", "/2", "/", "|", ",", "=", "3", "-1",
    "0.5", "1e999", "stride=", "scale=0.1", "init=he", "padding=zero", "(64)", "conv3(", "#", "\n", "é", "漢",
]  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14), st.sampled_from(["", " "]))
def test_almost_right_texts_parse_or_are_refused(pieces: list[str], between: str) -> None:
    _parse_or_refuse(between.join(pieces))


def _parse_or_refuse(text: str) -> None:
    problem = None
    try:
        net = parse(text)
    except BadInput as error:
        problem = error
    if problem is None:
        assert frozen(parse(unparse(net))) == frozen(net)
    else:
        assert re.match(r"architecture, line \d+, column \d+", problem.place)
        assert "^" in problem.problem


SIZES = st.one_of(st.integers(1, 9), st.lists(st.integers(1, 9), min_size=2, max_size=3).map(tuple))
LEAVES = st.one_of(
    st.builds(
        lambda k, w, s, p, d, law, b: Conv(
            w, kernel=k, stride=s, padding=p, dilation=d, weights=weights.by_name(law), bias=b
        ),
        SIZES,
        st.integers(1, 512),
        st.integers(1, 3),
        st.sampled_from(["circular", "zero", "valid", "reflect", "same"]),
        st.integers(1, 3),
        st.sampled_from(["he", "lecun", "glorot", "orthogonal", "zero_sum", "pytorch", "delta_orthogonal"]),
        st.floats(0, 10),
    ),
    st.builds(Dense, st.integers(1, 4096), bias=st.floats(0, 1)),
    st.builds(
        AveragePool,
        SIZES,
        st.one_of(st.none(), st.integers(1, 5)),
        st.sampled_from(["valid", "same"]),
        edges=st.sampled_from(["count", "skip"]),
    ),
    st.builds(MaxPool, SIZES, st.integers(1, 5), st.just("zero"), st.one_of(st.none(), st.integers(0, 5))),
    st.builds(L2Pool, SIZES),
    st.sampled_from([GlobalAveragePool(), GlobalMaxPool(), BatchNorm(), LayerNorm(), LayerNorm("channels"), Flatten()]),
    st.builds(GroupNorm, st.integers(1, 32)),
    st.builds(Upsample, st.integers(1, 4), st.sampled_from(["nearest", "zeros"])),
    st.builds(Dropout, st.floats(0, 0.99)),
    st.builds(Scale, st.floats(-1e6, 1e6)),
    st.sampled_from(["relu", "abs", "leaky(0.2)", "tanh", "gelu", "poly(0,1,0.5)", "hermite(3)", "elu(0.7)"]).map(only),
)


def _compose(inner: st.SearchStrategy[Layer]) -> st.SearchStrategy[Layer]:
    body = st.lists(inner, min_size=1, max_size=4)
    # A conv in front makes the branches independent, which sums ask for.
    branch = body.map(lambda layers: Sequential(Conv(8), *layers))
    return st.one_of(
        st.builds(lambda layers, scale: Residual(Conv(8), *layers, scale=scale), body, st.floats(-2, 2)),
        st.lists(branch, min_size=2, max_size=3).map(lambda branches: Sum(*branches)),
        st.lists(branch, min_size=2, max_size=3).map(lambda branches: Product(*branches)),
        st.builds(
            lambda parts, axis: Concat(*parts, axis=axis), st.lists(branch, min_size=2, max_size=3), st.integers(0, 3)
        ),
    )


NETWORKS = st.lists(st.recursive(LEAVES, _compose, max_leaves=8), min_size=1, max_size=12).map(
    lambda layers: Sequential(*layers)
)


@settings(max_examples=100, deadline=None)
@given(NETWORKS)
def test_round_trip(net: Sequential) -> None:
    assert frozen(parse(unparse(net))) == frozen(net)


@settings(max_examples=30, deadline=None)
@given(NETWORKS, st.integers(2, 40))
def test_round_trip_of_repeats(net: Sequential, times: int) -> None:
    text = unparse(Sequential(*net.layers * times))
    assert frozen(parse(text)) == frozen(Sequential(*net.layers * times))
    assert len(text) <= len(unparse(net)) + 10 + len(unparse(net))


@settings(max_examples=50, deadline=None)
@given(NETWORKS)
def test_repr_is_the_text(net: Sequential) -> None:
    assert repr(net) == str(net) == unparse(net)
    assert frozen(parse(repr(net))) == frozen(net)


@pytest.mark.parametrize("layer", WORDS.values(), ids=WORDS)
def test_repr_of_one_layer_reads_back(layer: Layer) -> None:
    assert only(repr(layer)) == layer


def test_repeats_are_gathered() -> None:
    assert unparse(parse("conv3 relu conv3 relu conv3 relu gap")) == "3x(conv3(64) relu) gap"
    assert unparse(parse("10x(conv3 relu relu) gap")) == "10x(conv3(64) 2x(relu)) gap"
    assert unparse(parse("4x(3x(conv3 relu) maxpool2)")) == "4x(3x(conv3(64) relu) maxpool2)"


@pytest.mark.parametrize(
    "layer",
    [
        Conv(8, margin=(2, 1)),
        Conv(8, stride=(1, 2)),
        BatchNorm(epsilon=0.1),
        Conv(8, weights=weights.Sparse.of_parent(0.5)),
        Activate(Activation.from_function(torch.tanh, name="relu")),
        Activate(Activation.from_function(torch.tanh, name="my own")),
        Sequential(),
    ],
    ids=["margin", "pair stride", "epsilon", "law", "false name", "own name", "empty"],
)
def test_what_has_no_word_is_refused(layer: Layer) -> None:
    with pytest.raises(BadInput, match="unparse"):
        unparse(layer)
    assert repr(layer).startswith(f"{type(layer).__name__}(")


def test_repr_without_words_is_the_call() -> None:
    cube = Activate(Activation.from_function(lambda z: z**3, name="cube"))
    assert repr(Sequential(Dense(4), cube)) == "Sequential(Dense(4), Activate(cube))"
    net = Residual(Conv(8, margin=(1, 2), bias=0.5), Sum(Dense(2), Dense(3)), scale=0.25)
    assert repr(net) == "Residual(Conv(8, bias=0.5, margin=(1, 2)), Sum(Dense(2), Dense(3)), scale=0.25)"
    whole = Sequential(Conv(8, padding="zero", margin=(0, 0)))
    assert repr(whole) == "Sequential(Conv(8, padding='zero', margin=(0, 0)))"


def test_relu_object_needs_no_registry() -> None:
    assert unparse(Activate(RELU)) == "relu"


def test_every_fixed_word_is_suggested() -> None:
    assert set(FIXED) <= set(default_words())
