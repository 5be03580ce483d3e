"""Layer norm of units that hardly differ from their mean: what is left after centring keeps its digits."""

from __future__ import annotations

import mpmath
import pytest
import torch

from initscope.networks import kernel, parse, tangent_kernel

EPSILON = 1e-5


def _dark(scale: float) -> torch.Tensor:
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return scale * torch.cat([x, 3 * x[:1], -x[:1], x[:1] * (1 + 1e-7)])


def _exact(text: str, x: torch.Tensor, i: int, j: int) -> mpmath.mpf:
    """Covariance and variances of f(u), f(v), u and v Gaussian with twice the mean products of the inputs.

    cos: E f(u)f(v) = e^(-(a+b)/2) cosh c; exp: e^((a+b)/2 + c); the Gaussian e^(-z²) from a determinant.
    """

    def product(p: int, q: int) -> mpmath.mpf:
        pairs = zip(x[p].tolist(), x[q].tolist(), strict=True)
        return 2 * mpmath.fsum(mpmath.mpf(s) * mpmath.mpf(t) for s, t in pairs) / x.shape[1]

    a, b, c = product(i, i), product(j, j), product(i, j)

    def covariance(a: mpmath.mpf, b: mpmath.mpf, c: mpmath.mpf) -> mpmath.mpf:
        if text == "cos":
            return mpmath.exp(-(a + b) / 2) * (mpmath.cosh(c) - 1)
        return mpmath.exp((a + b) / 2) * (mpmath.exp(c) - 1)

    spread = [covariance(v, v, v) + EPSILON for v in (a, b)]
    return covariance(a, b, c) / mpmath.sqrt(spread[0] * spread[1])


@pytest.mark.parametrize("scale", [1.0, 1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("activation", ["cos", "exp"])
def test_units_close_to_their_mean_keep_their_digits(activation: str, scale: float) -> None:
    """The excess E = D - (√A - √B)² has the digits of √A - √B, of the size of the variance of u: eps over it is left."""
    x = _dark(scale)
    found = kernel(parse(f"dense {activation} ln"), x)
    tolerance = 1e-13 + torch.finfo(torch.float64).eps / float(x.square().mean(1).min())
    with mpmath.workdps(60):
        for i in range(len(x)):
            for j in range(len(x)):
                expected = _exact(activation, x, i, j)
                size = mpmath.sqrt(_exact(activation, x, i, i) * _exact(activation, x, j, j))
                assert abs(found[i, j].item() - expected) < tolerance * size


@pytest.mark.parametrize("h", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("text", ["dense gaussian ln", "dense sigmoid ln", "conv1 cos ln gap", "dense cos gn(2)"])
def test_near_inputs_have_near_kernels(text: str, h: float) -> None:
    x = _dark(1e-3)
    x = x[:, :, None, None] if "conv" in text else x
    net = parse(text, width=64)
    own = kernel(net, x).diagonal()
    assert (kernel(net, x, x * (1 + h)).diagonal() / own - 1).abs().max() < 5 * h


@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_a_mean_of_zero_is_no_signal(constant: float) -> None:
    """Filters that sum to zero average to zero over a circle: what norms and small biases behind it see is exactly that."""
    x = constant + torch.randn(5, 2, 1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    start = "conv1x3(init=zero_sum_channel) gap"
    for function in (kernel, tangent_kernel):
        assert function(parse(start), x).abs().max() == 0
    found = kernel(parse(f"{start} dense ln dense(bias=1e-6) relu"), x)
    assert torch.equal(found, torch.full_like(found, float(found[0, 0])))
    assert found[0, 0] == pytest.approx(0.5e-12)
