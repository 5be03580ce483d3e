"""What compiled steps know of every input: coefficients cell by cell, where they lie, and blocks of any shape."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from initscope.activations import ELU, SELU, SILU, TANH, Activation, series_table
from initscope.networks import kernel, parse

pytest.importorskip("numba")

from initscope.networks.machine import running
from initscope.networks.machine.bending import Bending, Precision, bending
from initscope.networks.machine.cells import Cells, Laid, cells_of
from initscope.networks.machine.formulas import Formulas, norms
from initscope.networks.machine.frames import WIDTH
from initscope.networks.machine.rows import Rows
from initscope.networks.machine.tape import Reach

SPAN = (0.31, 1.1)


def variances(shape: tuple[int, ...]) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    low, high = (math.log(end) for end in SPAN)
    a = torch.exp(2 * (low + (high - low) * torch.rand(shape, generator=g, dtype=torch.float64)))
    a.flatten()[0], a.flatten()[-1] = SPAN[0] ** 2, SPAN[1] ** 2
    return a


def bent(activation: Activation, dtype: torch.dtype, slopes: bool = False) -> Bending:
    found = bending(activation, Reach(SPAN[0] ** 2, SPAN[1] ** 2), Precision.of(dtype), slopes)
    assert found is not None
    return found


@pytest.mark.parametrize("activation", [TANH, SILU, ELU], ids=lambda a: a.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cells_are_the_table_to_a_hundredth_of_the_tolerance(activation: Activation, dtype: torch.dtype) -> None:
    tolerance = 3e-7 if dtype == torch.float32 else 1e-11
    table = series_table(activation, *SPAN, tolerance, 256, powers=5)
    assert table is not None
    rows = torch.arange(len(table.orders))
    cells = cells_of(table, rows, len(rows), SPAN, tolerance, dtype)
    assert cells is not None
    assert cells.error <= max(0.01 * tolerance, 1e-15)
    a = variances((7, 301))
    true = table.coefficients(a)
    got = cells(a)[..., 1:].movedim(-1, 0)
    missed = (got - true).square().sum(0).sqrt() / true.square().sum(0).sqrt()
    assert float(missed.max()) <= max(0.01 * tolerance, 3e-15)
    squares, mean = cells.moments(a)
    assert torch.allclose(squares, true.square().sum(0), rtol=max(0.02 * tolerance, 1e-14))
    expected = true[table.orders.index(0)] if 0 in table.orders else torch.zeros_like(a)
    assert torch.allclose(mean, expected, atol=max(tolerance, 1e-14))


def selu_cells() -> Cells:
    table = series_table(SELU, *SPAN, 1e-6, 96, slope_tolerance=math.inf, powers=4)
    assert table is not None
    found = cells_of(table, torch.arange(len(table.orders)), len(table.orders), SPAN, 1e-6, torch.float64)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("fields", "kind"),
    [(selu_cells(), Cells), (bent(SELU, torch.float32).fields, Rows), (Formulas(2, norms), Formulas)],
    ids=["cells", "rows", "formulas"],
)
def test_blocks_hold_what_single_inputs_have(fields: Laid, kind: type) -> None:
    assert isinstance(fields, kind)
    a = variances((13, 6))
    a[2, 3] = 0
    whole = fields(a)
    for width in (4, 8, 16):
        blocks = -(-len(a) // width)
        out = np.zeros(blocks * 6 * fields.fields * width)
        fields.fill(a, out, width)
        laid = torch.from_numpy(out).view(blocks, 6, fields.fields, width).permute(0, 3, 1, 2).flatten(0, 1)
        assert torch.equal(laid[: len(a)], whole)
        assert not laid[len(a) :].any()
    assert not whole[2, 3].any()  # f(0) = 0


@pytest.mark.parametrize("activation", [ELU, SELU], ids=lambda a: a.name)
def test_the_own_moment_is_that_of_the_step(activation: Activation) -> None:
    a = variances((500,))
    for dtype, rounding in ((torch.float32, 0.0), (torch.float64, 1e-14)):
        found = bent(activation, dtype)
        own, mean = found.moments(a)
        off = (own / activation.second_moment(a) - 1).abs().max()
        assert float(off) <= found.error + rounding
        assert torch.allclose(mean, activation.mean(a), atol=1e-7)


@pytest.mark.parametrize(
    "text",
    [
        "2x(conv3 silu) gap",
        "conv3(padding=zero) elu conv3(padding=zero) selu flatten dense",
        "conv3 tanh avgpool2 conv3 tanh gap",
    ],
)
@pytest.mark.parametrize("tiles", [(1, 1), (3, 1), (2, 2), (5, 2)])
def test_blocks_of_any_shape_give_the_same_matrix(
    monkeypatch: pytest.MonkeyPatch, text: str, tiles: tuple[int, int]
) -> None:
    sides = tiles[0] * WIDTH, tiles[1] * WIDTH
    g = torch.Generator().manual_seed(1)
    x, y = (torch.rand(n, 3, 6, 8, generator=g) for n in (5 * WIDTH + 3, 2 * WIDTH + 5))
    net = parse(text, width=8)
    whole, across = kernel(net, x), kernel(net, x, y)
    monkeypatch.setattr(running.Machine, "sides", lambda self, count: sides)
    assert torch.equal(kernel(net, x), whole)
    assert torch.equal(kernel(net, x, y), across)
