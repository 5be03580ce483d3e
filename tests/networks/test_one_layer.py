"""The loops for one layer and a mean: images longer than a strip, every padding, patches of zeros and of tiny numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import initscope as iscope
from initscope.networks import tangent_kernel
from initscope.networks.fused import ConvStack, pooled_kernel, same_position_kernel

pytest.importorskip("numba")
TALL = (37, 6)  # two whole strips of 16 rows and a part


def images(seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(3, 2, *TALL, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("padding", ["zero", "circular", "valid"])
@pytest.mark.parametrize("function", [same_position_kernel, pooled_kernel])
def test_strips_of_tall_images(function: object, padding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = ConvStack((3,), (2.0,), (0.3,), (0.0,), padding)
    x, y = images(0), images(1)
    found = [function(stack, x), function(stack, x, y)]  # type: ignore[operator]
    single = function(stack, x.float(), y.float())  # type: ignore[operator]
    monkeypatch.setenv("INITSCOPE_NO_NUMBA", "1")
    plain = [function(stack, x), function(stack, x, y)]  # type: ignore[operator]
    for one, other in zip(found, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)
    torch.testing.assert_close(single.double(), plain[1], rtol=2e-6, atol=0)


@pytest.mark.parametrize("padding", ["zero", "circular", "valid"])
def test_tangent_kernel_of_tall_images(padding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = iscope.parse(f"conv3(padding={padding}) relu gap")
    x, y = images(2), images(3)
    found = tangent_kernel(net, x, y)
    monkeypatch.setenv("INITSCOPE_NO_NUMBA", "1")
    torch.testing.assert_close(found, tangent_kernel(net, x, y), rtol=1e-11, atol=0)


@pytest.mark.parametrize("scale", [1e-15, 1e12])
def test_the_kernel_is_homogeneous_far_from_one(scale: float) -> None:
    """|a||b| and its inverse stay in the range of float32."""
    stack = ConvStack((3,), (2.0,), (0.0,), (0.0,), "circular")
    x = images(4, torch.float32)
    x[0, :, :20] = 0  # patches of zeros
    ratio = pooled_kernel(stack, scale * x).double() / scale**2 / pooled_kernel(stack, x).double()
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=1e-5, atol=0)


def test_patches_too_small_for_their_products_count_as_zeros() -> None:
    stack = ConvStack((3,), (2.0,), (0.0,), (0.0,), "circular")
    x = 1e-25 * images(5, torch.float32)
    x[1] *= 1e25
    found = pooled_kernel(stack, x)
    assert bool(found.isfinite().all())
    assert float(found[0, 0]) == 0
    assert float(found[1, 1]) > 0.1


_DIGITS = """
import torch, initscope as iscope
x = torch.randn(5, 2, 6, 7, generator=torch.Generator().manual_seed(0))
for text in ("2x(dense relu) dense(1)", "2x(conv3 relu) gap", "conv3 relu gap"):
    net = iscope.parse(text)
    print(iscope.kernel(net, x).tolist(), iscope.tangent_kernel(net, x).tolist())
"""


@pytest.mark.slow
def test_loops_read_from_the_disk_give_the_digits_of_those_just_compiled(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _DIGITS]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert any(tmp_path.rglob("*.nbc"))
    assert first == second
