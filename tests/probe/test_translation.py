"""What the theory reads off a weight tensor does not depend on its type or on its size."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from initscope.layers import AveragePool, Conv, GlobalAveragePool, Layer, MaxPool
from initscope.probe.batches import as_batch
from initscope.probe.inspection import inspect_model
from initscope.probe.translation import MeasuredWeights, layer_for

UNEQUAL = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1.0, 1e-2])
def test_taps_of_every_type(dtype: torch.dtype, size: float) -> None:
    """65,536 filters: one over their number is not a normal float16."""
    weight = size * torch.randn(256, 256, 3, 3, generator=torch.Generator().manual_seed(0))
    assert MeasuredWeights(weight.to(dtype)).tap_variances is None
    found = MeasuredWeights((weight * UNEQUAL).to(dtype)).tap_variances
    assert found is not None
    expected = UNEQUAL.double().square().flatten() / UNEQUAL.double().square().mean()
    # A mean square of 65,536 normal weights spreads by √(2/65536) = 0.55 %.
    torch.testing.assert_close(found, expected, rtol=5 * (2 / 65536) ** 0.5, atol=0)


def test_tiny_weights_have_equal_taps_and_zeros_have_none() -> None:
    """Fourth powers of 1e-12 are zero in float32."""
    weight = 1e-12 * torch.randn(16, 16, 3, 3, generator=torch.Generator().manual_seed(0))
    assert MeasuredWeights(weight).tap_variances is None
    assert MeasuredWeights(torch.zeros(4, 4, 3, 3)).tap_variances is None


def _translated(module: nn.Module, x: torch.Tensor) -> Layer | None:
    (step,) = inspect_model(module, as_batch(x, module), backward=False).steps
    return layer_for(step.call)


POOLS = {
    "oblong": nn.AvgPool2d((3, 2), (2, 1)),
    "padded": nn.AvgPool2d(3, 2, 1),
    "edges skipped": nn.AvgPool2d(3, 2, (1, 0), count_include_pad=False),
    "max, padded": nn.MaxPool2d((3, 2), 2, (1, 0)),
    "mean of sequences": nn.AvgPool1d(3, 2, 1),
    "max of sequences": nn.MaxPool1d(3),
    "mean of volumes": nn.AvgPool3d((1, 2, 3), padding=(0, 1, 1)),
    "max of volumes": nn.MaxPool3d(2, 1),
    "global, sequences": nn.AdaptiveAvgPool1d(1),
    "global, volumes": nn.AdaptiveAvgPool3d((1, 1, 1)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_are_the_same_functions(name: str) -> None:
    module = POOLS[name]
    axes = int(type(module).__name__[-2])
    x = torch.randn(4, 3, *(7, 6, 5)[:axes], generator=torch.Generator().manual_seed(0))
    layer = _translated(module, x)
    assert isinstance(layer, AveragePool | MaxPool | GlobalAveragePool)
    found = layer.sample(tuple(x.shape[1:]), generator=torch.Generator())(x)
    torch.testing.assert_close(found, module(x).reshape(found.shape))


@pytest.mark.parametrize(
    "module",
    [
        nn.AvgPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, dilation=2),
        nn.AvgPool2d(2, divisor_override=3),
        nn.AdaptiveAvgPool2d((None, 1)),
        nn.AdaptiveAvgPool2d(2),
    ],
    ids=str,
)
def test_pools_that_no_layer_has_are_not_translated(module: nn.Module) -> None:
    assert _translated(module, torch.rand(4, 3, 7, 7)) is None


@pytest.mark.parametrize(("kind", "axes"), [(nn.Conv1d, 1), (nn.Conv2d, 2), (nn.Conv3d, 3)])
def test_convolutions_along_any_number_of_axes(kind: type[nn.Module], axes: int) -> None:
    x = torch.randn(4, 3, *(9, 8, 7)[:axes], generator=torch.Generator().manual_seed(0))
    for options in ({"stride": 2, "padding": 1, "dilation": 2}, {"padding": "same"}, {"padding": "valid", "groups": 3}):
        module = kind(3, 6, 3, **options)
        layer = _translated(module, x)
        assert isinstance(layer, Conv)
        assert layer.axes == axes
        assert layer.output_shape(tuple(x.shape[1:])) == tuple(module(x).shape[1:])
        variance = float(module.weight.detach().square().mean())
        assert layer.weights.variance(layer.fans(3)) == pytest.approx(variance, rel=1e-6)
