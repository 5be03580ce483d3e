"""What the theory reads off a weight tensor does not depend on its type or on its size."""

from __future__ import annotations

import pytest
import torch

from initscope.probe.translation import MeasuredWeights

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
