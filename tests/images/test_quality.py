"""SSIM and PSNR against another implementation, DC's convention, tones."""

from __future__ import annotations

import math

import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from initscope.errors import BadInput
from initscope.images import compare_pictures, quality, to_pictures


def pair(seed: int, height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    one = torch.rand(1, 1, height, width, generator=random)
    return one, (one + 0.2 * torch.randn(one.shape, generator=random)).clamp(0, 1)


@pytest.mark.parametrize("size", [(11, 11), (40, 57), (64, 64)])
def test_ssim_and_psnr_agree_with_scikit_image(size: tuple[int, int]) -> None:
    one, two = pair(0, *size)
    found = compare_pictures(one, two)
    a, b = one[0, 0].double().numpy(), two[0, 0].double().numpy()
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    _, values = structural_similarity(a, b, full=True, **options)
    inside = values[5 : size[0] - 5, 5 : size[1] - 5].mean()  # where the whole window lies in the picture
    assert float(found.ssim[0]) == pytest.approx(inside, abs=2e-5)
    assert float(found.psnr[0]) == pytest.approx(peak_signal_noise_ratio(a, b, data_range=1.0), abs=1e-4)


def test_strips_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = pair(1, 61, 20)
    whole = quality.structural_similarity(one, two)
    monkeypatch.setattr(quality, "_STRIP", 20 * 7)
    torch.testing.assert_close(quality.structural_similarity(one, two), whole, rtol=1e-6, atol=0)


def test_negative_similarity_inverts_the_luminosity() -> None:
    one, two = pair(2, 32, 32)
    plain, turned = compare_pictures(one, two), compare_pictures(1 - one, two)
    assert not bool(plain.inverted[0])
    assert bool(turned.inverted[0])
    assert float(turned.ssim[0]) == pytest.approx(float(plain.ssim[0]), abs=1e-5)
    assert float(turned.psnr[0]) == pytest.approx(float(plain.psnr[0]), abs=1e-3)


def test_colour_is_compared_as_grey() -> None:
    colour = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    grey = (colour * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    found = compare_pictures(grey, colour)
    assert bool((found.ssim > 1 - 1e-6).all())
    assert found.ssim.shape == (2,)


def test_small_and_equal_pictures() -> None:
    small = torch.rand(1, 3, 10, 30)
    found = compare_pictures(small, small)
    assert math.isnan(float(found.ssim[0]))
    assert math.isinf(float(found.psnr[0]))
    with pytest.raises(BadInput, match="of one size"):
        compare_pictures(small, torch.rand(1, 3, 10, 31))


def test_tones() -> None:
    output = torch.randn(2, 3, 20, 20, generator=torch.Generator().manual_seed(4)) * 50 + 9
    ranged = to_pictures(output, "range")
    assert bool((ranged.amin((1, 2, 3)) == 0).all())
    torch.testing.assert_close(ranged.amax((1, 2, 3)), torch.ones(2))
    original = 0.5 + 0.05 * torch.randn(2, 3, 20, 20, generator=torch.Generator().manual_seed(5))
    matched = to_pictures(output, "match", original)
    torch.testing.assert_close(matched.mean((1, 2, 3)), original.mean((1, 2, 3)))
    torch.testing.assert_close(matched.std((1, 2, 3)), original.std((1, 2, 3)))
    assert bool((to_pictures(torch.full((1, 1, 3, 3), 7.0), "range") == 0).all())
    assert to_pictures(torch.tensor([-1.0, 0.5, 2.0]).view(1, 1, 1, 3), "clamp").flatten().tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(BadInput, match="choose from range, match, clamp"):
        to_pictures(output, "gamma")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="needs the originals"):
        to_pictures(output, "match")
