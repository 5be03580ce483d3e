"""DC Theorems 3 and 9: the angle between the limit image and the input; and the angle of finite networks, measured."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bounds.random_nets import R, cnn_dcn, picture
from initscope.bounds import angle_to_input, angle_to_limit, convergence_image, measure_angle
from initscope.bounds.random_cnn import read_random_cnn
from initscope.data import load
from initscope.errors import BadInput, NoExactForm
from initscope.geometry import angle
from initscope.layers import AveragePool, Conv, L2Pool, Upsample
from initscope.networks import Sequential
from initscope.weights import Orthogonal

# Theorems 3 and 9


def brute_theorem_3(image: Tensor, kernel: int) -> tuple[float, float]:
    """cos Φ and DC's bound for one convolution with zero padding, pixel by pixel; windows of r = kernel² pixels."""
    h, w = image.shape
    reach = kernel // 2
    z, means = torch.zeros_like(image), torch.zeros_like(image)
    for i, j in itertools.product(range(h), range(w)):
        patch = image[max(0, i - reach) : i + reach + 1, max(0, j - reach) : j + reach + 1]
        z[i, j], means[i, j] = patch.square().sum().sqrt(), patch.sum() / kernel**2
    cosine = (z * image).sum() / (z.norm() * image.norm())
    return float(cosine), float(1 - ((image - means) * image).sum() / image.square().sum())


@pytest.mark.parametrize("kernel", [3, 5])
def test_theorem_3_pixel_by_pixel(kernel: int) -> None:
    images = torch.cat([load("photos", count=2, size=10, channels=1).images.double(), picture(11, 1, 1, 10, 10)])
    found = angle_to_input(Sequential(Conv(4, kernel, padding="zero"), R), images)
    assert found.cosine.kind == "exact"
    assert found.theorem is not None
    for i, image in enumerate(images):
        cosine, bound = brute_theorem_3(image[0], kernel)
        assert float(found.cosine.value[i]) == pytest.approx(cosine, rel=1e-12)
        assert float(found.theorem.value[i]) == pytest.approx(bound, rel=1e-12)


NETS = {
    "zero": Sequential(Conv(4, 3, padding="zero"), R),
    "circular": Sequential(Conv(4, 5), R),
    "reflect": Sequential(Conv(4, 5, padding="reflect"), R),
    "deep": Sequential(Conv(4, 3, padding="zero"), R, Conv(4, 5, padding="zero"), R, Conv(4, 3), R),
    "cnn-dcn": cnn_dcn(4),
    "nearest": Sequential(Conv(4), R, L2Pool(2), Conv(4), R, Upsample(2), Conv(4, padding="zero"), R),
    "strided": Sequential(Conv(4, 3, 2, padding="zero"), R, Upsample(2), Conv(4, padding="reflect"), R),
}


@given(st.integers(0, 10**6), st.sampled_from(sorted(NETS)), st.sampled_from([1, 3]), st.sampled_from([0.2, 1.0, 6.0]))
@settings(max_examples=80, deadline=None)
def test_theorem_9_holds_for_any_routes(seed: int, name: str, channels: int, power: float) -> None:
    images = picture(seed, 2, channels, 8, 8) ** power
    found = angle_to_input(NETS[name], images)
    assert found.theorem is not None
    assert bool((found.theorem.value <= found.cosine.value + 1e-12).all())
    limit, grey = convergence_image(NETS[name], images).image, images.norm(dim=1)
    torch.testing.assert_close(found.cosine.value, torch.cos(angle(limit, grey)))


def test_theorem_9_is_dcs_weighted_mean_where_every_output_sees_alike() -> None:
    """Three cyclic convolutions: n_(l,t) is the number of ways to write t - l as a sum of three steps, 9³ in all."""
    image = picture(12, 1, 1, 9, 9)
    found = angle_to_input(Sequential(Conv(4), R, Conv(4), R, Conv(4), R), image)
    mean = torch.zeros(9, 9, dtype=torch.float64)
    steps = list(itertools.product((-1, 0, 1), repeat=2))
    for walk in itertools.product(steps, repeat=3):
        mean += image[0, 0].roll((sum(s[0] for s in walk), sum(s[1] for s in walk)), (0, 1)) / 9**3
    expected = 1 - ((image[0, 0] - mean) * image[0, 0]).sum() / image.square().sum()
    assert found.theorem is not None
    assert float(found.theorem.value) == pytest.approx(float(expected), rel=1e-12)


def test_constant_images_come_back_exactly_from_cyclic_filters() -> None:
    found = angle_to_input(Sequential(Conv(4), R, Conv(4), R), torch.full((1, 3, 6, 6), 0.5))
    assert found.theorem is not None
    torch.testing.assert_close(found.theorem.value, torch.ones(1, dtype=torch.float64))
    torch.testing.assert_close(found.cosine.value, torch.ones(1, dtype=torch.float64))


def test_zero_padding_must_count_in_the_mean_of_theorem_3() -> None:
    """With the mean over the pixels inside the image every ε of a constant image is 0, and cos Φ >= 1 would be false."""
    found = angle_to_input(Sequential(Conv(4, padding="zero"), R), torch.ones(1, 1, 6, 6))
    assert float(found.cosine.value) < 0.999
    assert found.theorem is not None
    assert float(found.theorem.value) < 0.9
    assert "zeros" in found.theorem.note


def test_average_pooling_has_the_exact_angle_only() -> None:
    net = Sequential(Conv(4), R, AveragePool(2), Conv(4), R, Upsample(2), Conv(4), R)
    images = load("photos", count=2, size=8).images
    found = angle_to_input(net, images)
    assert found.theorem is None
    torch.testing.assert_close(
        found.cosine.value, torch.cos(angle(convergence_image(net, images).image, images.double().norm(dim=1)))
    )
    assert found.to_dict()["theorem"] is None
    with pytest.raises(NoExactForm, match="averages features"):
        angle_to_limit(net, images)


# Measured


def test_measured_angles_shrink_with_the_root_of_the_width() -> None:
    images = load("photos", count=2, size=8).images
    narrow, wide = (measure_angle(Sequential(Conv(n), R), images, draws=60) for n in (50, 800))
    ratio = narrow.value / wide.value
    error = ratio * ((narrow.stderr / narrow.value) ** 2 + (wide.stderr / wide.value) ** 2).sqrt()
    assert bool(((ratio - 4).abs() < 4 * error + 0.1).all())
    again = measure_angle(Sequential(Conv(50), R), images, draws=60)
    assert torch.equal(again.value, narrow.value)
    assert again.draws == 60


def test_measured_angles_serve_average_pooling_and_orthogonal_filters() -> None:
    net = Sequential(Conv(40, weights=Orthogonal()), R, AveragePool(2), Conv(40, 2), R)
    found = measure_angle(net, picture(13, 2, 3, 4, 4), draws=5)
    assert bool((found.value < 0.5).all())


def test_dead_networks_count_as_right_angles() -> None:
    found = measure_angle(Sequential(Conv(1, 1), R), torch.ones(1, 1, 2, 2), draws=200)
    alive = 1 - float(found.value) / (
        math.pi / 2
    )  # one filter with one weight: dead with probability 1/2, else parallel
    assert abs(alive - 0.5) < 4 * 0.5 / math.sqrt(200)


# What is refused


@pytest.mark.parametrize("function", [angle_to_limit, angle_to_input, measure_angle])
def test_zero_images_are_refused(function: object) -> None:
    images = torch.ones(3, 1, 4, 4)
    images[1] = 0
    assert callable(function)
    with pytest.raises(BadInput, match="images 1 give nothing but zeros"):
        function(Sequential(Conv(4), R), images)


def test_images_that_strides_skip_are_refused() -> None:
    spot = torch.zeros(1, 1, 4, 4)
    spot[..., 1, 1] = 1
    for function in (angle_to_limit, measure_angle):
        with pytest.raises(BadInput, match="nothing but zeros"):
            function(Sequential(Conv(4, 1, 2), R, Conv(4, 1), R), spot)


def test_theorem_3_refuses_negative_pixels_and_other_sizes() -> None:
    with pytest.raises(BadInput, match="go down to -1"):
        angle_to_input(Sequential(Conv(4), R), -torch.ones(1, 1, 4, 4))
    with pytest.raises(BadInput, match="input is 4x4 and the output 2x2"):
        angle_to_input(Sequential(Conv(4, padding="valid"), R), torch.ones(1, 1, 4, 4))


@pytest.mark.parametrize("draws", [1, 0, 2.5, True])
def test_draws_are_at_least_two(draws: object) -> None:
    with pytest.raises(BadInput, match="draws"):
        measure_angle(Sequential(Conv(4), R), torch.ones(1, 1, 4, 4), draws=draws)  # type: ignore[arg-type]


def test_results_become_plain_data() -> None:
    images = picture(14, 2, 1, 8, 8)
    plain = angle_to_limit(cnn_dcn(4), images).to_dict()
    assert set(plain) == {"theorem", "sharper", "mean_square", "first_order", "factors"}
    assert plain["first_order"] is None
    assert len(plain["factors"][0]) == read_random_cnn("test", cnn_dcn(4), (1, 8, 8)).depth - 1
    assert angle_to_limit(Sequential(Conv(4), R), images).to_dict()["first_order"]["kind"] == "asymptotic"
    plain = angle_to_input(cnn_dcn(4), images).to_dict()
    assert plain["cosine"]["kind"] == "exact"
    assert len(plain["theorem"]["value"]) == 2
