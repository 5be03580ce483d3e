"""Channel statistics against hand-made images, a plain loop, and JL 4.1."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from initscope.errors import BadInput, UndefinedSimilarity
from initscope.geometry.channels import channel_statistics


def test_equals_a_plain_loop() -> None:
    images = torch.rand(4, 4, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got = channel_statistics(images)
    for i, image in enumerate(images.numpy()):
        flat = image.reshape(4, -1)
        norms = np.linalg.norm(flat, axis=1)
        angles, differences = [], []
        for u, v in itertools.combinations(range(4), 2):
            angles.append(math.degrees(math.acos(flat[u] @ flat[v] / (norms[u] * norms[v]))))
            differences.append(abs(norms[u] - norms[v]) / ((norms[u] + norms[v]) / 2))
        assert got.angle[i].item() == pytest.approx(np.mean(angles), rel=1e-12)
        assert got.norm_difference[i].item() == pytest.approx(np.mean(differences), rel=1e-12)
        deviations = np.abs(norms - norms.mean()) / norms.mean()
        assert got.norm_deviation[i].item() == pytest.approx(deviations.mean(), rel=1e-12)
    assert got.mean_angle == pytest.approx(got.angle.mean().item())
    assert got.mean_norm_deviation == pytest.approx(got.norm_deviation.mean().item())
    assert set(got.to_dict()) == {
        *("angle", "norm_difference", "norm_deviation"),
        *("mean_angle", "mean_norm_difference", "mean_norm_deviation"),
    }


def test_red_has_no_angle_to_the_other_channels() -> None:
    images = torch.rand(3, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    images[1, 1:] = 0
    with pytest.warns(UndefinedSimilarity) as caught:
        got = channel_statistics(images)
    assert len(caught) == 1
    assert got.angle.isnan().tolist() == [False, True, False]
    assert got.mean_angle == pytest.approx(got.angle[[0, 2]].mean().item())


@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 1, 4, 4), (0, 3, 4, 4)])
def test_bad_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="channel_statistics"):
        channel_statistics(torch.ones(shape))


def test_bad_pixels_are_refused() -> None:
    with pytest.raises(BadInput, match="finite"):
        channel_statistics(torch.full((1, 3, 2, 2), torch.inf))
    with pytest.raises(BadInput, match="finite"):
        channel_statistics(torch.ones(1, 3, 2, 2, dtype=torch.uint8))


def test_imagenet_channels_are_nearly_parallel() -> None:
    """JL 4.1: about 12.5 degrees over 10^4 images; ours are 400 others, so within four standard errors."""
    folder = os.environ.get("INITSCOPE_DATA")
    if not folder:
        pytest.skip("INITSCOPE_DATA is not set: no ImageNet sample to measure")
    pixels = np.load(Path(folder) / "imagenet224.npz")["images"]
    got = channel_statistics(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float() / 255)
    error = got.angle.std().item() / math.sqrt(len(pixels))
    assert abs(got.mean_angle - 12.5) < 4 * error
    # JL leaves the definition behind its 9.2 % open. Of several readings compared with it the deviation from the mean
    # norm came nearest and was kept: this guards our numbers, it does not confirm JL's.
    error = got.norm_deviation.std().item() / math.sqrt(len(pixels))
    assert abs(got.mean_norm_deviation - 0.092) < 4 * error
    assert got.mean_norm_difference > 0.092 + 4 * got.norm_difference.std().item() / math.sqrt(len(pixels))
