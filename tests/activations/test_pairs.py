"""Closed forms of pairs that are given by their excess and their product, against mpmath: what layers pass on.

Excesses and products are right beside √(E f(u)² E f(v)²), however unequal the norms are and whatever the angle is, which
no form of the distance can be: it is nearly that of the norms where they differ by orders of magnitude.
"""

from __future__ import annotations

import mpmath as mp
import pytest
import torch

from activations.test_hostile import CASES, Case
from activations.test_hostile import Pair as Form
from initscope.activations import Pair
from initscope.networks import kernel, parse, tangent_kernel

mpf = mp.mpf
EXPONENTS = (-12, -6, -2, 0, 1, 2.85, 5, 10)
QUARTERS = ("0", "1e-24", "1e-14", "1e-8", "0.01", "0.5", "0.99", "0.99999999", "1")  # sin²(t/2)


def known(form: Form, A: mp.mpf, B: mp.mpf, q: mp.mpf) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
    """E f(u) f(v) at sin²(t/2) = q, √(E f(u)² E f(v)²), and how much rounding the excess changes the former."""
    root = mp.sqrt(A * B)
    truth, size = form(A, B, root * (1 - 2 * q)), mp.sqrt(form(A, A, A) * form(B, B, B))
    moved = [form(A, B, root * (1 - 2 * q * (1 + r))) for r in (-4e-16, 4e-16)] if q < 1 else [truth]
    return truth, size, max(abs(m - truth) for m in moved)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.activation.name)
def test_pairs_of_any_norms_and_angle(case: Case) -> None:
    f = case.activation
    with mp.workdps(60):
        norms = [(mpf(10.0**x), mpf(10.0**y * 1.0000001)) for x in EXPONENTS for y in EXPONENTS if abs(x - y) <= 12]
        table = [(A, B, mpf(q)) for A, B in norms for q in QUARTERS]
        given = [(A, B, 4 * mp.sqrt(A * B) * q, mp.sqrt(A * B) * (1 - 2 * q)) for A, B, q in table]
        pair = Pair(*torch.tensor([[float(v) for v in row] for row in given], dtype=torch.float64).T)
        found = f.carry(pair, f.second_moment(pair.A).sqrt(), f.second_moment(pair.B).sqrt())
        answers = zip(table, found.product.tolist(), found.excess.tolist(), f.slopes(pair).tolist(), strict=True)
        for state, product, excess, slope in answers:
            truth, size, rounding = known(case.product, *state)
            if size < 1e290:  # exp leaves the range of float64
                assert abs(product - truth) <= 1e-14 * size + rounding, state
                assert abs(excess - 2 * (size - truth)) <= 2e-14 * size + 2 * rounding, state
                if f.degree == 0:
                    assert slope == 0
                else:
                    truth, size, rounding = known(case.slopes, *state)
                    assert abs(slope - truth) <= 1e-14 * size + rounding, state


@pytest.mark.parametrize("factor", [-1.0, -3.0, -0.1])
@pytest.mark.parametrize(
    ("text", "cosine"),
    [
        ("dense sign", -1.0),
        ("dense step", 0.0),
        ("dense sign dense relu dense", 0.0),
        ("conv3 ln relu conv3 flatten dense", 0.0),
        ("dense abs dense", 1.0),
    ],
)
def test_opposite_inputs(text: str, cosine: float, factor: float) -> None:
    """Half of the digits were lost: 2e-8 of steps, 3e-5 of tangent kernels behind a sign."""
    shape = (2, 4, 4) if "conv" in text else (7,)
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = parse(text)
    tangents = (tangent_kernel,) if text.endswith("dense") else ()
    for function in (kernel, *tangents):
        scale = (function(net, x).diagonal() * function(net, factor * x).diagonal()).sqrt()
        assert torch.allclose(
            function(net, x, factor * x).diagonal() / scale, torch.full_like(scale, cosine), atol=1e-14
        )
