"""Raw inputs as a state, against loops over pairs, positions and channels."""

from __future__ import annotations

import itertools
import math
import re

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.geometry import Inputs, State, check_inputs, draw_units

POSITIONS = (2, 3)
layouts = pytest.mark.parametrize(("zipped", "all_positions"), list(itertools.product([True, False], repeat=2)))
groupings = pytest.mark.parametrize("groups", [1, 2, 3, 6])


def images(n: int, seed: int, channels: int = 6, dtype: torch.dtype = torch.float64) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, channels, *POSITIONS, generator=g, dtype=dtype) + 0.3


def channel_values(t: Tensor, kind: int, groups: int, image: int, position: tuple[int, ...]) -> list[float]:
    """The channels of one group at one position."""
    size = t.shape[1] // groups
    return [float(t[(image, c, *position)]) for c in range(kind * size, (kind + 1) * size)]


def mean_square(u: list[float], v: list[float]) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(u, v, strict=True)) / len(u)


def places(t: Tensor) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(k) for k in t.shape[2:])))


def by_loops(x: Tensor, y: Tensor, groups: int, zipped: bool, all_positions: bool) -> np.ndarray:
    """Squared distances in the order of the state's axes."""
    pairs = [(i, i) for i in range(len(x))] if zipped else list(itertools.product(range(len(x)), range(len(y))))
    spots = list(itertools.product(places(x), places(x))) if all_positions else [(p, p) for p in places(x)]
    values = [
        mean_square(channel_values(x, k, groups, i, p), channel_values(y, k, groups, j, q))
        for k in range(groups)
        for i, j in pairs
        for p, q in spots
    ]
    lead = (len(x),) if zipped else (len(x), len(y))
    size = tuple(x.shape[2:])
    return np.array(values).reshape(groups, *lead, *size, *(size if all_positions else ()))


def assert_side_by_loops(state: State, t: Tensor, side: str, groups: int) -> None:
    found = getattr(state, side)
    spots = list(itertools.product(range(groups), range(len(t)), places(t)))
    cells = [channel_values(t, k, groups, i, p) for k, i, p in spots]
    norm = np.array([math.fsum(v * v for v in cell) / len(cell) for cell in cells])
    mean = np.array([math.fsum(cell) / len(cell) for cell in cells])
    shape = (groups, len(t), *t.shape[2:])
    np.testing.assert_allclose(found.norm, norm.reshape(shape), rtol=1e-12)
    np.testing.assert_allclose(found.mean, mean.reshape(shape), rtol=1e-12, atol=1e-13)
    block = state.blocks()[1 if side == "x" else 2]
    if state.all_positions:
        assert block is not None
        np.testing.assert_allclose(block.distance, by_loops(t, t, groups, True, True), rtol=1e-12, atol=1e-13)
    else:
        assert block is None


@layouts
@groupings
def test_state_of_images_is_what_loops_say(zipped: bool, all_positions: bool, groups: int) -> None:
    x, y = images(2, 1), images(2 if zipped else 3, 2)
    state = Inputs(x, y, zipped=zipped, all_positions=all_positions).state(groups)
    expected = by_loops(x, y, groups, zipped, all_positions)
    assert tuple(state.distance.shape) == expected.shape
    np.testing.assert_allclose(state.distance, expected, rtol=1e-12, atol=1e-13)
    assert_side_by_loops(state, x, "x", groups)
    assert_side_by_loops(state, y, "y", groups)
    assert (state.channels, state.positions, state.units) == (6, POSITIONS, 36)
    assert state.shares.tolist() == pytest.approx([1 / groups] * groups)
    assert (state.zipped, state.all_positions, state.law) == (zipped, all_positions, "data")


@layouts
def test_state_of_vectors_has_no_positions(zipped: bool, all_positions: bool) -> None:
    g = torch.Generator().manual_seed(3)
    x, y = (torch.randn(n, 7, generator=g, dtype=torch.float64) for n in (3, 3 if zipped else 2))
    state = Inputs(x, y, zipped=zipped, all_positions=all_positions).state()
    np.testing.assert_allclose(state.distance, by_loops(x, y, 1, zipped, False), rtol=1e-12)
    assert_side_by_loops(state, x, "x", 1)
    assert_side_by_loops(state, y, "y", 1)
    assert state.positions == ()
    assert not state.all_positions


@pytest.mark.parametrize("all_positions", [False, True])
@groupings
def test_a_joint_batch_is_every_pair_with_itself(all_positions: bool, groups: int) -> None:
    x = images(3, 4)
    state = Inputs(x, x, zipped=False, all_positions=all_positions, joint=True).state(groups)
    np.testing.assert_allclose(state.distance, by_loops(x, x, groups, False, all_positions), rtol=1e-12, atol=1e-13)
    assert state.x is state.y
    same = state.same_position().distance
    assert torch.equal(same.diagonal(dim1=1, dim2=2), torch.zeros(groups, *POSITIONS, 3, dtype=torch.float64))


def exact_excess(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """2(√(AB) - E uv) of zipped images at equal positions, in 50 digits."""
    cells = zip(x.movedim(1, -1).flatten(0, -2).tolist(), y.movedim(1, -1).flatten(0, -2).tolist(), strict=True)
    found = []
    with mpmath.workdps(50):
        for u, v in cells:
            a, b = (mpmath.fsum(mpmath.mpf(t) ** 2 for t in w) for w in (u, v))
            dot = mpmath.fsum(mpmath.mpf(s) * t for s, t in zip(u, v, strict=True))
            found.append(float(2 * (mpmath.sqrt(a * b) - dot) / len(u)))
    return np.array(found).reshape(1, len(x), *x.shape[2:])


@layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("factor", [1, 1.5, 1000])
def test_near_directions_keep_their_digits(
    zipped: bool, all_positions: bool, dtype: torch.dtype, factor: float
) -> None:
    """A Gram product would leave nothing of them; copies that are only brighter have no excess but the square of rounding."""
    eps = torch.finfo(dtype).eps
    x = images(2, 5, dtype=dtype)
    g = torch.Generator().manual_seed(8)
    size = eps**0.75  # of the noise
    for noise in (0.0, size):
        y = factor * (x + noise * torch.randn(x.shape, generator=g, dtype=dtype))
        state = Inputs(x, y, zipped=zipped, all_positions=all_positions).state().same_position()
        near = state.excess if zipped else state.excess.diagonal(dim1=1, dim2=2).movedim(-1, 1)
        expected = exact_excess(x, y)
        assert expected.max() < 100 * factor * max(noise, eps) ** 2
        relative = 8 * eps if factor == 1 else 8 * eps / size  # of unequal norms: the rounding of y itself
        np.testing.assert_allclose(near, expected, rtol=relative, atol=100 * factor * eps**2)
        assert state.excess.dtype == dtype


@layouts
def test_blocks_line_norms_up_with_distances(zipped: bool, all_positions: bool) -> None:
    """(A + B - D)/2 is the inner product, which a plain einsum gives."""
    x, y = images(2, 6), images(2 if zipped else 3, 7)
    state = Inputs(x, y, zipped=zipped, all_positions=all_positions).state()
    block = state.cross()
    product = ((block.norm_a + block.norm_b - block.distance) / 2)[0]
    np.testing.assert_allclose(state.product[0], product, rtol=1e-11, atol=1e-12)
    letters = {
        (True, False): "nchw,nchw->nhw",
        (True, True): "nchw,ncij->nhwij",
        (False, False): "nchw,mchw->nmhw",
        (False, True): "nchw,mcij->nmhwij",
    }
    np.testing.assert_allclose(product, np.einsum(letters[zipped, all_positions], x, y) / 6, rtol=1e-11, atol=1e-12)
    first, second = torch.broadcast_tensors(block.mean_a, block.mean_b)
    assert first.shape == second.shape == state.distance.shape


@groupings
def test_a_drawn_unit_is_a_channel(groups: int) -> None:
    x, y = images(2, 8), images(2, 9)
    drawn = draw_units(Inputs(x, y).state(groups), 50, torch.Generator().manual_seed(0))
    assert drawn.shape == (groups, 50, 4, *POSITIONS)
    both = torch.cat([x, y])
    size = 6 // groups
    seen = set()
    for kind, unit in itertools.product(range(groups), range(50)):
        same = [c for c in range(kind * size, (kind + 1) * size) if torch.equal(drawn[kind, unit], both[:, c])]
        assert len(same) == 1
        seen.add(same[0])
    assert seen == set(range(6))


def test_apply_sends_both_sides_as_one_batch() -> None:
    x, y = images(2, 1), images(3, 2)

    def centre(t: Tensor) -> Tensor:
        return t - t.mean(0)

    out = Inputs(x, y, zipped=False).apply(centre)
    middle = torch.cat([x, y]).mean(0)
    torch.testing.assert_close(out.x, x - middle)
    torch.testing.assert_close(out.y, y - middle)
    joint = Inputs(x, x, zipped=False, joint=True).apply(centre)
    torch.testing.assert_close(joint.x, x - x.mean(0))
    assert joint.y is joint.x
    assert joint.joint


@pytest.mark.parametrize(
    ("x", "problem"),
    [
        ([[1.0]], "got a list, expected a tensor"),
        (np.ones((2, 3)), "got a ndarray, expected a tensor"),
        (torch.ones(3), "got shape (3,), expected (n, d), (n, c, l), (n, c, h, w) or (n, c, d, h, w)"),
        (torch.ones(1, 2, 3, 4, 5, 6), "got shape (1, 2, 3, 4, 5, 6), expected"),
        (torch.ones(0, 3), "got the empty shape (0, 3)"),
        (torch.ones(2, 3, 0, 4), "got the empty shape (2, 3, 0, 4)"),
        (torch.ones(2, 3, dtype=torch.complex64), "got complex numbers"),
        (torch.tensor([[1.0], [math.nan], [2.0], [-math.inf]]), "inputs 1, 3 hold NaN or infinite values"),
        (torch.full((12, 2), math.inf), "inputs 0, 1, 2, 3, 4, 5, 6, 7, ... (12 in all) hold NaN"),
    ],
)
def test_a_bad_input_is_named(x: object, problem: str) -> None:
    good = torch.ones(2, 3)
    with pytest.raises(BadInput, match=re.escape(problem)) as caught:
        check_inputs(x, None, zipped=False)  # type: ignore[arg-type]
    assert caught.value.place == "x"
    with pytest.raises(BadInput, match=re.escape(problem)) as caught:
        check_inputs(good, x, zipped=True)  # type: ignore[arg-type]
    assert caught.value.place == "y"


def test_shapes_must_match() -> None:
    x = torch.ones(2, 3, 4, 4)
    with pytest.raises(BadInput, match=re.escape("(2, 3, 4, 4) and (1, 3, 4, 4), expected equal shapes, since pairs")):
        check_inputs(x, x[:1], zipped=True)
    check_inputs(x, x[:1], zipped=False)
    for other in (x[:, :2], torch.ones(2, 3)):
        with pytest.raises(BadInput, match="expected inputs of equal shape"):
            check_inputs(x, other, zipped=False)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.float16, torch.float64], ids=str)
def test_any_real_numbers_are_welcome(dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, dtype=dtype)
    check_inputs(x, x, zipped=True)
    check_inputs(x, None, zipped=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("channels", [16, 300])
def test_near_and_far_vectors_keep_their_digits(channels: int, dtype: torch.dtype) -> None:
    """Far pairs come from a product of matrices, near ones from differences; both are right beside themselves."""
    g = torch.Generator().manual_seed(9)
    x = torch.randn(8, channels, generator=g, dtype=dtype)
    noise = 10.0 ** -torch.arange(8.0).unsqueeze(1).to(dtype) / 2
    close = x + noise * torch.randn(x.shape, generator=g, dtype=dtype)
    y = torch.cat([close, x[:1], 0 * x[:1], torch.randn(90, channels, generator=g, dtype=dtype)])
    excess = Inputs(x, y, zipped=False).state().excess[0]
    expected = np.stack([exact_excess(row.expand(len(y), -1), y)[0] for row in x])
    relative = 1e-12 if dtype == torch.float64 else 1e-5
    np.testing.assert_allclose(excess, expected, rtol=relative, atol=torch.finfo(dtype).eps ** 2)
    assert excess[0, 8] == 0
    assert excess.dtype == dtype


def test_excesses_of_vectors_have_slopes() -> None:
    x = torch.randn(4, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.cat(
        [x.detach()[:1] + 1e-3, torch.randn(9, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))]
    )
    assert torch.autograd.gradcheck(lambda t: Inputs(t, y, zipped=False).state().excess, x)
