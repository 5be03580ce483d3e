"""Norms and angles of a batch against direct computation in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from initscope.probe.measure import PIECE, batch_geometry, dead_fraction, saturated_fraction


def _direct(rows: Tensor) -> Tensor:
    """1 - cosine of all pairs from differences of unit vectors."""
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    i, j = torch.triu_indices(len(rows), len(rows), offset=1)
    return (unit[i] - unit[j]).square().sum(1) / 2


@pytest.mark.parametrize("spread", [1.0, 0.1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_close_samples_keep_their_angles(spread: float, dtype: torch.dtype) -> None:
    source = torch.Generator().manual_seed(1)
    base = torch.randn(1, 5000, generator=source, dtype=torch.float64)
    rows = (base + spread * torch.randn(7, 5000, generator=source, dtype=torch.float64)).to(dtype)
    expected = _direct(rows)
    # One rounding of the inputs' differences per value, averaged over 5000 of them.
    tolerance = 1e-10 if dtype == torch.float64 else max(1e-5, 20 * torch.finfo(dtype).eps / spread / math.sqrt(5000))
    assert torch.allclose(batch_geometry(rows).defect, expected, rtol=tolerance, atol=0)


def test_images_are_measured_as_vectors() -> None:
    images = torch.randn(5, 3, 6, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole, flat = batch_geometry(images), batch_geometry(images.flatten(1))
    assert torch.allclose(whole.defect, flat.defect, rtol=1e-13, atol=0)
    assert torch.allclose(whole.defect, _direct(images.flatten(1)), rtol=1e-12, atol=0)
    assert torch.allclose(whole.norm, images.flatten(1).double().norm(dim=1))


@pytest.mark.parametrize("length", [PIECE - 1, 2 * PIECE, 3 * PIECE + 5])
def test_long_rows_are_measured_in_pieces(length: int) -> None:
    rows = torch.randn(4, length, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert torch.allclose(batch_geometry(rows).gram, rows @ rows.T, rtol=1e-12, atol=1e-10)


def test_unequal_norms_do_not_change_angles() -> None:
    rows = torch.randn(6, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scaled = rows * torch.tensor([1.0, 10.0, 1e-3, 5.0, 1e4, 1.0])[:, None]
    assert torch.allclose(batch_geometry(rows).defect, batch_geometry(scaled).defect, rtol=1e-9)


def test_centred_cosine_is_that_of_centred_rows() -> None:
    rows = 5 + torch.randn(8, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = 1 - _direct(rows - rows.mean(0))
    assert torch.allclose(batch_geometry(rows).centred_cosine, expected, atol=1e-9)


def test_effective_rank_at_both_ends() -> None:
    assert batch_geometry(torch.eye(6)).effective_rank == pytest.approx(6)
    assert batch_geometry(torch.ones(6, 4)).effective_rank == pytest.approx(1)
    assert math.isnan(batch_geometry(torch.zeros(3, 4)).effective_rank)


def test_zero_samples_have_no_angle() -> None:
    rows = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert batch_geometry(rows).defect.isnan().tolist() == [True, True, False]


def test_dead_and_saturated_units_are_counted() -> None:
    values = torch.zeros(4, 10, 3, 3)
    values[1, :4, 0, 0] = 1.0
    assert dead_fraction(values) == pytest.approx(0.6)
    assert dead_fraction(values[..., 0, 0]) == pytest.approx(0.6)
    assert saturated_fraction(torch.tensor([-1.0, 0.0, 0.995, 0.5]), -1.0, 1.0) == pytest.approx(0.5)


def test_the_rank_of_more_samples_than_values_is_that_of_their_gram_matrix() -> None:
    values = torch.randn(90, 7, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 8.0)
    share = torch.linalg.eigvalsh((values @ values.T).double()).clamp_min(0)
    share = share / share.sum()
    expected = float(torch.exp(torch.special.entr(share).sum()))
    found = batch_geometry(values)
    assert found.moments is not None
    assert math.isclose(found.effective_rank, expected, rel_tol=1e-5)
    assert math.isclose(found.scaled(3.0).effective_rank, expected, rel_tol=1e-5)
