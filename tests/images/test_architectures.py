"""Conv[k]-DeConv[k]: the layers DC describes, any size, and what the parts compute."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from initscope.errors import BadInput
from initscope.images import ARCHITECTURES, Decoder, Encoder, layout
from initscope.images.architectures import PoolPlan
from initscope.images.laws import Source, holds_width, read_law
from initscope.images.modules import Filters, Pool, Unpool
from initscope.weights import Gaussian, Orthogonal, Uniform

VGG16 = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]


def picture(seed: int, *shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def test_vgg16_as_published() -> None:
    """DC A.2.2: Conv5 involves 26 convolutions and 4 poolings."""
    plan = layout("vgg16", 5)
    assert [conv.outputs for conv in plan.convs] == VGG16
    assert all(conv.kernel == 3 and conv.stride == 1 for conv in plan.convs)
    encoder, decoder = (kind(plan, law="he") for kind in (Encoder, Decoder))
    count = sum(isinstance(m, Filters) for net in (encoder, decoder) for m in net.modules())
    assert count == 26
    assert sum(isinstance(m, Pool) for m in encoder.modules()) == 4
    assert sum(isinstance(m, Unpool) for m in decoder.modules()) == 4
    assert plan.sizes((224, 224))[-1] == (14, 14)


def test_alexnet_as_published() -> None:
    plan = layout("alexnet", 5)
    assert [(c.outputs, c.kernel, c.stride) for c in plan.convs] == [
        (96, 11, 4), (256, 5, 1), (384, 3, 1), (384, 3, 1), (256, 3, 1),
    ]  # fmt: skip
    assert plan.sizes((224, 224)) == ((224, 224), *((n, n) for n in (55, 27, 27, 13, 13, 13, 13)))
    assert [c.outputs for c in layout("alexnet2014", 5).convs] == [64, 192, 384, 256, 256]


def test_the_decoder_mirrors_the_encoder() -> None:
    decoder = Decoder("vgg16", 3, channels=(4, 6, 8), outputs=1)
    shapes = [tuple(m.weight.shape[:2]) for m in decoder.modules() if isinstance(m, Filters) and m.weight is not None]
    assert shapes == [(8, 8), (8, 8), (6, 8), (6, 6), (4, 6), (4, 4), (1, 4)]
    words = [type(step).__name__ for step in decoder.steps]
    assert words == ["Filters"] * 3 + ["Unpool"] + ["Filters"] * 2 + ["Unpool", "Filters"]
    assert isinstance(decoder.last, Filters)
    assert decoder.last.slope is None
    average = Decoder("vgg16", 3, channels=(4, 6, 8), variant="average")
    assert sum(isinstance(m, Filters) for m in average.modules()) == 6


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (17, 30), (32, 32)])
@pytest.mark.parametrize("variant", ["paper", "average"])
def test_any_size_comes_back(arch: str, depth: int, size: tuple[int, int], variant: str) -> None:
    images = picture(0, 2, 3, *size)
    encoder, decoder = Encoder(arch, depth, channels=3), Decoder(arch, depth, channels=3, variant=variant)  # type: ignore[arg-type]
    features = encoder(images)
    assert tuple(features.shape[-2:]) == encoder.layout.sizes(size)[-1]
    out = decoder(features, size)
    assert out.shape == (2, 1 if variant == "average" else 3, *size)
    assert bool(out.isfinite().all())


def test_encoder_is_the_plain_network() -> None:
    """Against functional torch: after convolution and activation, before pooling."""
    encoder = Encoder("vgg16", 2, channels=5, inputs=1, seed=3)
    weights = [m.weight for m in encoder.modules() if isinstance(m, Filters)]
    images = picture(1, 2, 1, 8, 12)
    x, found = images, []
    for number, weight in enumerate(weights):
        assert weight is not None
        x = torch.relu(F.conv2d(F.max_pool2d(x, 2) if number == 2 else x, weight, padding=1))
        if number in (1, 3):
            found.append(x)
    ours = encoder.features(images)
    for a, b in zip(ours, found, strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(encoder.stages[1](ours[0]), found[1])
    torch.testing.assert_close(encoder(images), found[1])
    assert not any(p.requires_grad for p in encoder.parameters())
    assert all(p.requires_grad for p in Decoder("vgg16", 2, channels=5).parameters())


def test_decoder_is_the_plain_network() -> None:
    decoder = Decoder("vgg16", 2, channels=4, outputs=3, slope=0.2)
    w = [m.weight for m in decoder.steps if isinstance(m, Filters)] + [decoder.last.weight]
    features = picture(2, 1, 4, 3, 5)

    def leaky(x: torch.Tensor, weight: object) -> torch.Tensor:
        assert isinstance(weight, torch.Tensor)
        return F.leaky_relu(F.conv2d(x, weight, padding=1), 0.2)

    x = leaky(leaky(features, w[0]), w[1])
    wide = torch.zeros(1, 4, 6, 10)
    wide[..., ::2, ::2] = x
    x = leaky(wide, w[2])
    assert isinstance(w[3], torch.Tensor)
    expected = F.conv2d(x, w[3], padding=1)[..., :5, :9]
    torch.testing.assert_close(decoder(features, (5, 9)), expected)


@pytest.mark.parametrize("kind", ["max", "average", "l2"])
@pytest.mark.parametrize("plan", [PoolPlan(2, 2), PoolPlan(3, 2)])
@pytest.mark.parametrize("size", [(1, 1), (4, 7), (9, 6)])
def test_pooling_by_brute_force(kind: str, plan: PoolPlan, size: tuple[int, int]) -> None:
    x = picture(4, 1, 2, *size) - 0.5
    out = Pool(plan, kind)(x)  # type: ignore[arg-type]
    for i in range(out.shape[-2]):
        for j in range(out.shape[-1]):
            top, left = i * plan.stride, j * plan.stride
            window = x[..., top : top + plan.window, left : left + plan.window].flatten(2)
            assert window.shape[-1] > 0
            expected = {"max": window.amax(2), "average": window.mean(2), "l2": window.norm(dim=2)}[kind]
            torch.testing.assert_close(out[..., i, j], expected)
    last = [(n - 1) * plan.stride + plan.window for n in out.shape[-2:]]
    assert all(reach >= n for reach, n in zip(last, size, strict=True))


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [(6, 8), (5, 7)])
def test_the_gradient_of_l2_pooling(order: torch.memory_format, size: tuple[int, int]) -> None:
    x = (picture(4, 2, 3, *size).double() - 0.5).contiguous(memory_format=order).requires_grad_()
    assert torch.autograd.gradcheck(Pool(PoolPlan(2, 2), "l2"), x)


def test_l2_pooling_has_a_gradient_where_all_is_zero() -> None:
    x = torch.zeros(1, 1, 4, 4, requires_grad=True)
    Pool(PoolPlan(2, 2), "l2")(x).sum().backward()
    assert x.grad is not None
    assert bool((x.grad == 0).all())


def test_even_kernels_keep_the_size() -> None:
    encoder = Encoder("vgg16", 1, channels=2, kernel=4)
    assert encoder(picture(5, 1, 3, 9, 6)).shape == (1, 2, 9, 6)


def test_drawn_filters_are_the_kept_ones() -> None:
    images = picture(6, 1, 3, 6, 6)
    for law in (Gaussian(2.0), Orthogonal()):
        kept, drawn = (Encoder("vgg16", 1, channels=700, law=law, keep=keep, seed=5) for keep in (True, False))
        assert not list(drawn.parameters())
        torch.testing.assert_close(kept(images), drawn(images), rtol=1e-5, atol=1e-6)
    source = Source(layout("vgg16", 1, channels=700).convs[1], Gaussian(2.0), 5, (0, 1))
    assert source.rows < 700  # several blocks


def test_seeds() -> None:
    a, b, c = (Encoder(depth=1, channels=4, seed=seed).stages[0].convs[0].weight for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    one, two = (Decoder(depth=1, channels=4, number=number).last.weight for number in (0, 1))
    assert not torch.equal(one, two)


def test_the_scale_of_the_weights_changes_no_direction() -> None:
    images = picture(7, 1, 3, 8, 8)
    small, large = (Encoder(depth=2, channels=8, law=Gaussian(v, "none"))(images) for v in (0.01, 1.0))
    torch.testing.assert_close(small / small.norm(), large / large.norm())


def test_normalise_divides_by_the_root_of_the_width() -> None:
    images = picture(8, 1, 3, 8, 8)
    plain, scaled = (
        Encoder(depth="1_1", channels=16, law=Gaussian(1.0, "none"), normalise=n)(images) for n in (False, True)
    )
    torch.testing.assert_close(scaled * 4, plain)
    same = [Encoder(depth=1, channels=16, law="he", normalise=n)(images) for n in (False, True)]
    assert torch.equal(*same)  # He's law has the width in it already


def test_laws_by_name() -> None:
    assert read_law("gaussian_fixed(0.01)") == Gaussian(0.01, "none")
    assert read_law(Uniform(1.0)) == Uniform(1.0)
    assert [holds_width(read_law(n)) for n in ("he", "dc_laplace", "orthogonal")] == [True, False, True]
    for law, said in (("he(", "expected a weight law"), ("laplace(x)", "numbers"), ("hee", "unknown weight law")):
        with pytest.raises(BadInput, match=said):
            read_law(law)
    with pytest.raises(BadInput, match="expected a weight law"):
        read_law(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"arch": "vgg61"}, "did you mean 'vgg16'"),
        ({"depth": 0}, "depth: got 0"),
        ({"depth": 6}, "stage from 1 to 5"),
        ({"depth": True}, "depth: got True"),
        ({"depth": "1_3"}, "has 2 convolutions"),
        ({"depth": "one"}, "depth: got 'one'"),
        ({"channels": 0}, "channels: got 0"),
        ({"channels": (4, 4)}, "2 widths for 1 stages"),
        ({"kernel": 0}, "kernel: got 0"),
    ],
)
def test_wrong_use_is_said(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        layout(**arguments)  # type: ignore[arg-type]


def test_wrong_kinds_are_said() -> None:
    with pytest.raises(BadInput, match="choose from max, average, l2"):
        Encoder(depth=2, channels=2, pooling="median")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="choose from zeros, nearest"):
        Decoder(depth=2, channels=2, upsampling="cubic")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="choose from paper, average"):
        Decoder(depth=1, channels=2, variant="mean")  # type: ignore[arg-type]


def test_variances_of_the_drawn_filters() -> None:
    """He's law over all filters of a layer, whatever the block they were drawn in."""
    weight = Encoder(depth=1, channels=256, seed=9).stages[0].convs[1].weight
    expected, count = 2 / (256 * 9), weight.numel()
    assert abs(float(weight.square().mean()) / expected - 1) < 4 * math.sqrt(2 / count)
