"""Wrong input gets one clear error: the place, what was got, what was expected, the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from initscope.activations import RELU
from initscope.errors import BadInput, NoExactForm, SimulatedKernel, UndefinedSimilarity
from initscope.finite import simulate
from initscope.layers import (
    Activate,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    GroupNorm,
    LayerNorm,
    MaxPool,
    Scale,
    Upsample,
)
from initscope.networks import (
    Concat,
    Residual,
    Sequential,
    Sum,
    kernel,
    kernel_estimate,
    parse,
    predict,
    tangent_kernel,
)
from initscope.weights import Gaussian, TapCovariance, ZeroSum

R = Activate(RELU)
IMAGES, VECTORS = torch.rand(2, 3, 6, 6), torch.rand(2, 5)
FOUR_CHANNELS = torch.rand(2, 4, 6, 6)
NET = Sequential(Conv(4), R)


def with_nan() -> torch.Tensor:
    images = IMAGES.clone()
    images[1, 0, 0, 0] = torch.nan
    return images


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "shapes differ": (lambda: predict(NET, IMAGES, IMAGES[:1]), "zipped"),
    "one dimension": (lambda: predict(NET, IMAGES[0, 0, 0], IMAGES[0, 0, 0]), r"\(6,\)"),
    "six dimensions": (lambda: predict(NET, IMAGES[None, None], IMAGES[None, None]), r"\(1, 1, .*, 3, 6, 6\)"),
    "empty": (lambda: predict(NET, IMAGES[:0], IMAGES[:0]), "empty"),
    "not a tensor": (lambda: predict(NET, [1.0], IMAGES), "list"),  # type: ignore[arg-type]
    "NaN pixels": (lambda: predict(NET, IMAGES, with_nan()), "y: inputs 1 hold NaN"),
    "NaN pixels in a kernel": (lambda: kernel(NET, with_nan()), "x: inputs 1 hold NaN"),
    "complex": (lambda: predict(NET, IMAGES + 0j, IMAGES + 0j), "complex"),
    "kernel too large": (lambda: predict(Sequential(Conv(4, 7)), IMAGES, IMAGES), "7x7 is larger than the 6x6"),
    "kernel too large for reflection": (
        lambda: predict(Sequential(Conv(4, 13, padding="reflect")), IMAGES, IMAGES),
        "13x13",
    ),
    "window too large": (lambda: predict(Sequential(AveragePool(7)), IMAGES, IMAGES), "window 7"),
    "conv on vectors": (lambda: predict(NET, VECTORS, VECTORS), "expected sequences"),
    "pool does not divide": (lambda: predict(Sequential(Dense(10), MaxPool(4)), VECTORS, VECTORS), "groups of 4"),
    "gap on vectors": (lambda: predict(Sequential(GlobalAveragePool()), VECTORS, VECTORS), "gap"),
    "groups do not divide": (lambda: predict(Sequential(Conv(4, groups=2)), IMAGES, IMAGES), "2 groups"),
    "group norm does not divide": (lambda: predict(Sequential(Conv(4), GroupNorm(3)), IMAGES, IMAGES), "3 groups"),
    "width zero": (lambda: Dense(0), "width"),
    "negative bias": (lambda: Dense(3, bias=-1.0), "bias"),
    "NaN bias": (lambda: Conv(3, bias=float("nan")), "bias"),
    "kernel zero": (lambda: Conv(3, 0), "kernel"),
    "unknown padding": (lambda: Conv(3, padding="full"), "circular, zero, valid, reflect, same"),  # type: ignore[arg-type]
    "probability one": (lambda: Dropout(1.0), "p is 1.0"),
    "unknown upsampling": (lambda: Upsample(2, "cubic"), "cubic"),  # type: ignore[arg-type]
    "unknown layer norm": (lambda: LayerNorm("rows"), "rows"),  # type: ignore[arg-type]
    "unknown zero sum": (lambda: ZeroSum(over="row"), "row"),
    "weight scale": (lambda: Gaussian(0.0), "scale"),
    "taps of another size": (lambda: Conv(3, 5, weights=TapCovariance(torch.eye(9))), "9 taps"),
    "no covariance": (lambda: TapCovariance(-torch.eye(9)), "no covariance"),
    "not a layer": (lambda: Sequential(torch.nn.ReLU()), "expected a layer"),  # type: ignore[arg-type]
    "dependent branches": (lambda: Residual(R), "not independent"),
    "one branch": (lambda: Sum(Conv(3)), "at least two"),
    "branches of other shapes": (lambda: predict(Sum(Conv(3), Conv(4)), IMAGES, IMAGES), "make them equal"),
    "branches of other sizes": (
        lambda: predict(Concat(Conv(3), Conv(4, stride=2)), IMAGES, IMAGES),
        "make the sizes equal",
    ),
    "dtype": (lambda: predict(NET, IMAGES, IMAGES, dtype=torch.float16), "float16"),
    "quantity": (lambda: kernel(NET, IMAGES, quantity="angle"), "product, cosine, distance, defect"),  # type: ignore[arg-type]
    "memory": (lambda: kernel(NET, IMAGES, memory=0), "memory"),
    "too little memory": (lambda: kernel(Sequential(Conv(4), R, AveragePool(2)), IMAGES, memory=1000), "KiB"),
    "too little memory to predict": (lambda: predict(NET, IMAGES, IMAGES, memory=10), "10 B"),
    "kernel of four sizes": (lambda: Conv(3, (3, 3, 3, 3)), "kernel"),
    "kernel of three sizes on images": (lambda: predict(Conv(3, (3, 3, 3)), IMAGES, IMAGES), "for 3 position axes"),
    "negative margin": (lambda: Conv(3, padding="zero", margin=-1), "margin"),
    "margin of no padding": (lambda: Conv(3, padding="valid", margin=1), "margin"),
    "weights by a word": (lambda: Dense(3, weights="he"), "by_name"),  # type: ignore[arg-type]
    "activation by a word": (lambda: Activate("relu"), "by_name"),  # type: ignore[arg-type]
    "infinite bias": (lambda: Dense(3, bias=float("inf")), "bias"),
    "negative epsilon": (lambda: BatchNorm(-1.0), "epsilon"),
    "scale of no number": (lambda: Residual(Conv(3), scale=float("nan")), "finite"),
    "seed of no number": (lambda: predict(Sequential(Conv(4), MaxPool(2)), IMAGES, IMAGES, seed=0.5), "seed"),  # type: ignore[arg-type]
    "batch norm of one value": (lambda: kernel(Sequential(BatchNorm(), Dense(3)), VECTORS[:1]), "one value"),
    "estimate of no tensor": (lambda: kernel_estimate(NET, IMAGES.numpy()), "ndarray"),  # type: ignore[arg-type]
    "memory as text": (lambda: predict(NET, IMAGES, IMAGES, memory="2GB"), "memory"),  # type: ignore[arg-type]
    "one draw": (lambda: simulate(NET, IMAGES, IMAGES, draws=1), "draws"),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_input_is_one_clear_error(name: str) -> None:
    call, text = CALLS[name]
    with pytest.raises(BadInput, match=text) as caught:
        call()
    assert caught.value.place
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


REFUSED: dict[str, tuple[Sequential, str]] = {
    "units of flattened positions": (Sequential(Conv(4), Flatten(), MaxPool(4)), "right after dense"),
    "groups across branches": (Sequential(Concat(Conv(4), Conv(2)), R, Conv(6, groups=3)), "groups"),
    "groups of dropped-out data": (Sequential(Dropout(0.5), Conv(6, groups=2)), "groups"),
    "groups after a skip of data": (Sequential(Residual(Conv(4)), Conv(6, groups=2)), "groups"),
    "branches split in other ways": (
        Sequential(Sum(Concat(Conv(2), Conv(4)), Concat(Conv(4), Conv(2)))),
        "different ways",
    ),
    "depthwise beside its own input": (Sequential(Conv(4), R, Residual(Conv(4, groups=4)), R), "tied"),
    "depthwise with filters that sum to zero": (
        Sequential(Conv(4), R, Conv(4, groups=4, weights=ZeroSum())),
        "over='channel'",
    ),
    "units that share an input": (Sequential(Conv(4), R, Conv(8, groups=4), GlobalAveragePool(), MaxPool(2)), "units"),
    "group norm across branches": (Sequential(Concat(Conv(4), Conv(8)), GroupNorm(3)), "groups"),
    "instance norm at equal positions": (Sequential(Conv(4), GroupNorm(4), R), "instance norm"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_is_refused(name: str) -> None:
    net, text = REFUSED[name]
    with pytest.raises(NoExactForm, match=text):
        predict(net, FOUR_CHANNELS, FOUR_CHANNELS.flip(0))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Residual(Residual(Conv(3), R)),
        lambda: Sum(Residual(Conv(3)), Residual(Conv(3, 1))),
        lambda: Sum(R, Residual(Conv(3), R)),
        lambda: Residual(R, Residual(Conv(3), R)),
    ],
)
def test_nested_skips_are_not_taken_for_independent(build: Callable[[], object]) -> None:
    with pytest.raises(BadInput, match="not independent"):
        build()


def test_zero_images_are_named_and_do_not_stop_the_batch() -> None:
    x = IMAGES.double()
    x[1] = 0
    with pytest.warns(UndefinedSimilarity, match=r"predict, input: .* zero in x: 1") as caught:
        p = predict(Sequential(NET, GlobalAveragePool()), x, IMAGES)
    assert len(caught) == 1
    for layer in p.layers:
        assert layer.cosine[1].isnan()
        assert layer.norm_x[1] == 0
        assert layer.cosine[0].isfinite()
    with pytest.warns(UndefinedSimilarity, match="zero in x: 1"):
        matrix = kernel(NET, x, quantity="cosine")
    assert matrix[1].isnan().all()
    assert matrix[0, 0] == 1
    assert kernel(NET, x).isfinite().all()


def test_an_image_that_becomes_zero_inside_is_named_there() -> None:
    """A constant image does not pass filters that sum to zero."""
    x = IMAGES.double()
    x[1] = 0.1
    for layer in (Conv(4, weights=ZeroSum()), Dense(4, weights=ZeroSum())):
        with pytest.warns(UndefinedSimilarity, match=r"predict, 1 (conv3|dense\(4\)): .* zero in x: 1") as caught:
            p = predict(Sequential(layer, R), x, IMAGES)
        assert len(caught) == 1
        assert p.layers[-1].cosine[1].isnan()
        assert p.layers[-1].cosine[0].isfinite()


def test_inputs_are_left_as_they_were() -> None:
    x, y = IMAGES.clone().requires_grad_(), IMAGES.flip(0).clone()
    before = x.detach().clone(), y.clone(), torch.get_rng_state()
    predict(Sequential(Conv(4), R, MaxPool(2), Scale(2.0)), x, y)
    with pytest.warns(SimulatedKernel, match="standard error"):
        kernel(Sequential(Conv(4), R, MaxPool(2)), x)
    simulate(NET, y, y, draws=2)
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
    assert torch.equal(torch.get_rng_state(), before[2])
    assert x.grad is None


def test_estimate_says_how_before_the_work() -> None:
    assert kernel_estimate(NET, IMAGES).method == "fused"
    reflected = Sequential(Conv(4, padding="reflect", stride=2), R)
    strided = kernel_estimate(reflected, IMAGES)
    assert strided.method == "tiles"
    assert strided.pairs == 3
    assert kernel_estimate(Sequential(Conv(4, stride=2), R), IMAGES).method == "steps"
    assert kernel_estimate(Sequential(Conv(4), MaxPool(2)), IMAGES).method == "joint"
    small, large = (kernel_estimate(reflected, IMAGES.repeat(50, 1, 1, 1), memory=m) for m in (2**21, 2**30))
    assert small.tile < large.tile
    assert small.peak_bytes <= 2**21


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: None, "NoneType, expected a tensor"),
        (lambda x: x.to("meta"), "meta device"),
        (lambda x: x.to_sparse(), "sparse_coo, expected a dense"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), "quantized"),
        (lambda x: x.to(torch.float8_e4m3fn), "float8"),
        (lambda x: torch.nested.nested_tensor(list(x)), "nested"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_of_other_kinds_are_refused_in_one_line(make: Callable[[torch.Tensor], Any], words: str) -> None:
    net, x = parse("conv3(8) relu gap"), torch.randn(2, 3, 4, 4)
    bad = make(x)
    for function in (kernel, tangent_kernel, kernel_estimate):
        with pytest.raises(BadInput, match=words):
            function(net, bad)
    with pytest.raises(BadInput, match=words):
        predict(net, bad, bad)


@pytest.mark.parametrize(
    "text",
    [
        "conv3 sigmoid avgpool2 conv3 sigmoid gap",
        "conv3(stride=2, padding=same) elu conv3(padding=valid) elu flatten dense",
    ],
)
def test_an_estimate_refuses_what_the_kernel_refuses(text: str) -> None:
    x = torch.randn(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    for ask in (kernel, kernel_estimate):
        with pytest.raises(BadInput):
            ask(parse(text), x)
