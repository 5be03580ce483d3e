"""Products of branches and concatenation along positions: by hand, by pairs of positions, by tangents of finite networks."""

from __future__ import annotations

import math

import pytest
import torch

from initscope.errors import BadInput, NoExactForm
from initscope.finite import simulate_tangent
from initscope.layers import Conv, Dense, GlobalAveragePool, Layer, ReLU
from initscope.networks import Concat, Product, Sequential, Sum, kernel, parse, tangent_kernel

X = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_product_multiplies_the_kernels_of_its_branches() -> None:
    x = X.flatten(1)
    one, two, three = parse("dense(9, bias=0.3) relu"), parse("dense(9) tanh"), parse("dense(9)")
    found = kernel(Product(one, two, three), x)
    torch.testing.assert_close(found, kernel(one, x) * kernel(two, x) * kernel(three, x), rtol=1e-10, atol=1e-12)
    gate = kernel(parse("dense relu prod(scale(1) | dense sigmoid) dense"), x)
    plain = kernel(parse("dense relu"), x)
    torch.testing.assert_close(gate, 2 * plain * kernel(parse("dense relu dense sigmoid"), x), rtol=1e-9, atol=1e-12)


def test_product_keeps_small_distances() -> None:
    """Nearly equal inputs: D' = A₂D₁ + A₁D₂ to first order, and no digits are lost to subtraction."""
    x = X.flatten(1)[:1]
    y = x + 1e-9 * X.flatten(1)[1:2]
    parts = parse("dense(9) relu"), parse("dense(9)")
    a, d = ([float(kernel(p, x, y, quantity=q)) for p in parts] for q in ("product", "distance"))
    found = float(kernel(Product(*parts), x, y, quantity="distance")) ** 2
    assert found == pytest.approx(a[0] * d[1] ** 2 + a[1] * d[0] ** 2, rel=1e-7)


def test_product_has_the_product_rule() -> None:
    x = X.flatten(1)
    one, two = parse("dense(9) relu dense(9)"), parse("dense(9) tanh dense(9)")
    found = tangent_kernel(Product(one, two), x)
    expected = tangent_kernel(one, x) * kernel(two, x) + kernel(one, x) * tangent_kernel(two, x)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_concatenation_along_positions_by_hand() -> None:
    """The mean over the positions of two branches of 5 and 3: products of each, and of their means between them."""
    one, two = parse("conv3(9) relu"), parse("conv3(9, padding=valid) relu")
    pooled = kernel(Sequential(Concat(one, two, axis=1), GlobalAveragePool()), X)
    a, b = (kernel(Sequential(net, GlobalAveragePool()), X) for net in (one, two))
    square = X.square().mean(1)  # E relu(u) = √(A/2π), A = 2 · mean square over the three taps
    around = (square + square.roll(1, 1) + square.roll(-1, 1)) / 3
    means = [(2 * t / (2 * math.pi)).sqrt().mean(1) for t in (around, around[:, 1:4])]
    cross = 5 / 8 * 3 / 8 * (torch.outer(*means) + torch.outer(*means).T)
    torch.testing.assert_close(pooled, (5 / 8) ** 2 * a + (3 / 8) ** 2 * b + cross, rtol=1e-10, atol=1e-12)


NETS: dict[str, list[Layer]] = {
    "product": [Product(parse("conv3(64) relu"), parse("conv1(64)")), GlobalAveragePool(), Dense(16)],
    "along a sequence": [
        Concat(parse("conv3(64) relu"), parse("conv1(64)"), axis=1),
        Conv(64),
        ReLU(),
        GlobalAveragePool(),
    ],
}


@pytest.mark.parametrize("name", NETS)
def test_finite_networks_have_the_tangent_kernel_on_average(name: str) -> None:
    net = Sequential(*NETS[name])
    exact = tangent_kernel(net, X)
    found = simulate_tangent(net, X, draws=30, seed=3)
    assert ((found.value - exact).abs() <= 4.5 * found.stderr).all()


def test_what_depends_on_each_other_is_refused() -> None:
    with pytest.raises(BadInput, match="more than one branch"):
        Product(parse("relu"), parse("tanh"))
    with pytest.raises(BadInput, match="more than one branch"):
        kernel(Sequential(Conv(8), Concat(parse("relu"), parse("tanh"), axis=1)), X)
    with pytest.raises(NoExactForm, match="depthwise"):
        kernel(Sequential(Conv(8), Product(parse("conv1(8)"), parse("conv3(8, groups=8)"))), X)
    with pytest.raises(BadInput, match="has no axis 2"):
        kernel(Concat(parse("conv1"), parse("conv3"), axis=2), X)
    with pytest.raises(BadInput, match="make them equal"):
        kernel(Product(parse("conv1(4)"), parse("conv3(8)")), X)
    raw = kernel(Sequential(Concat(parse("scale(1)"), parse("scale(2)"), axis=1), Conv(8), GlobalAveragePool()), X)
    torch.testing.assert_close(
        raw, kernel(Sequential(Conv(8), GlobalAveragePool()), torch.cat([X, 2 * X], 2)), rtol=1e-12, atol=1e-12
    )
    assert repr(Sum(Product(parse("conv1"), parse("conv3")), parse("conv1"))).startswith(
        "sum(prod(conv1(64) | conv3(64))"
    )
