"""Binary images: shared boundaries (figure 2, Example 1), Theorem 5, and what higher resolution does."""

from __future__ import annotations

import math

import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from initscope.activations import RELU
from initscope.bounds import shared_boundary_bounds
from initscope.data import Pairs
from initscope.figures import Picture
from initscope.figures.style import BLUE, GREEN, ORANGE, finish, house_style
from initscope.geometry import generator, rectangle_boundary_size, shared_boundary, shared_boundary_size
from initscope.papers.item import Check, Desk, Item, Outcome, claim
from initscope.papers.nachum2022.drawing import Line, Points, Words, curves
from initscope.papers.nachum2022.sampling import exact_sums, plain, title_of

ROUNDING = 1e-9
Box = tuple[int, int, int, int]  # first row, first column, height, width


def _body(side: int, box: Box) -> Tensor:
    """A rectangle on the torus; what leaves at one side enters at the other."""
    top, left, height, width = box
    rows, columns = torch.zeros(2, side, dtype=torch.bool)
    rows[(top + torch.arange(height)) % side] = True
    columns[(left + torch.arange(width)) % side] = True
    return torch.logical_and(rows[:, None], columns[None])


def _overlap(a: int, height: int, c: int, other: int) -> int:
    return max(0, min(a + height, c + other) - max(a, c))


def figure2(desk: Desk) -> Outcome:
    """Two rectangles and their shared boundary, drawn and counted."""
    side, first, second = 48, (8, 6, 22, 24), (16, 16, 24, 24)
    a, b = _body(side, first), _body(side, second)
    e, f = _overlap(8, 22, 16, 24), _overlap(6, 24, 16, 24)
    counts = {r: int(shared_boundary_size(a, b, r)) for r in (1, 2, 3)}
    checks = tuple(
        claim(
            f"r = {r}: the boundary of a {e} x {f} intersection has 4r(e + f) = {4 * r * (e + f)} pixels",
            n == 4 * r * (e + f),
            exact=float(n),
        )
        for r, n in counts.items()
    )
    return Outcome(
        checks,
        {"boundary": {str(r): n for r, n in counts.items()}, "e": e, "f": f},
        _draw(
            [("A and B, r = 1", a, b, 1), ("the same, r = 3", a, b, 3)],
            "Figure 2: the shared boundary follows the edge of the intersection",
        ),
    )


def _draw(cases: list[tuple[str, Tensor, Tensor, int]], title: str) -> Picture:
    """Bodies in two colours, their intersection darker, the shared boundary in green."""
    colours = ["white", "#a9cde4", "#f3c19d", "#8f8f8f", GREEN]
    with house_style():
        figure = Figure(figsize=(3.4 * len(cases) + 0.2, 4.2), layout="constrained")
        for axes, (name, a, b, r) in zip(figure.subplots(1, len(cases), squeeze=False)[0], cases, strict=True):
            kinds = a.int() + 2 * b.int()
            kinds[shared_boundary(a, b, r)] = 4
            axes.imshow(kinds.numpy(), cmap=ListedColormap(colours), vmin=0, vmax=4, interpolation="nearest")
            for body, colour, style in ((a, BLUE, "-"), (b, ORANGE, "--")):
                axes.contour(body.float().numpy(), levels=[0.5], colors=colour, linewidths=1.4, linestyles=style)
            e, f = _meeting(a, b)
            counted = f"{int(shared_boundary_size(a, b, r))} pixels, 4r(e + f) = {4 * r * (e + f)}"
            axes.set_title(f"{name}\n{counted}", fontsize=9)
            axes.set_xlabel("column (pixels)")
            axes.set_ylabel("row (pixels)")
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        names = ("A", "B", "A and B", "shared boundary")
        handles = [Patch(facecolor=c, edgecolor="#555555", label=n) for n, c in zip(names, colours[1:], strict=True)]
        figure.legend(handles=handles, frameon=False, fontsize=8.5, loc="outside lower center", ncols=4)
        description = "; ".join(
            f"{name}: {int(shared_boundary_size(a, b, r))} boundary pixels at r = {r}" for name, a, b, r in cases
        )
        return finish(figure, title, f"Two rectangles A and B with their shared boundary marked. {description}.")


def example1(desk: Desk) -> Outcome:
    """4r(e + f) for many rectangles with room on the torus, and rectangles without that room."""
    source = generator(desk.seed)
    draws, side = desk.pick(300, 3000), 40
    right = roomy = wrong = tight = 0
    worst: tuple[int, Box, Box, int] | None = None
    for _ in range(draws):
        r = int(torch.randint(1, 4, (1,), generator=source))
        boxes = torch.cat(
            [
                torch.randint(0, side, (2, 2), generator=source),
                torch.randint(2 * r, side - 2, (2, 2), generator=source),
            ],
            1,
        )
        first, second = (tuple(int(v) for v in row) for row in boxes)
        a, b = _body(side, first), _body(side, second)  # type: ignore[arg-type]
        e, f = _meeting(a, b)
        if min(e, f) < 2 * r or not _one_piece(a & b):
            continue  # the intersection is no rectangle, or too small: outside Example 1
        difference = int(shared_boundary_size(a, b, r)) - rectangle_boundary_size(e, f, r)
        if all(
            _room(body_a, body_b) + 2 * r <= side for body_a, body_b in ((a.any(1), b.any(1)), (a.any(0), b.any(0)))
        ):
            roomy, right = roomy + 1, right + (difference == 0)
        else:
            tight, wrong = tight + 1, wrong + (difference != 0)
            if worst is None or abs(difference) > abs(worst[0]):
                worst = (difference, first, second, r)  # type: ignore[assignment]
    assert worst is not None
    checks = (
        claim(
            f"|∂_r| = 4r(e + f) for e, f ≥ 2r where both rectangles and 2r more fit on the torus: {right} of {roomy}",
            right == roomy,
            exact=float(right),
        ),
        claim(
            f"|∂_r| = 4r(e + f) for all rectangles with e, f ≥ 2r, as printed: the {tight} without that room, "
            f"{wrong} of them otherwise (largest difference)",
            wrong == 0,
            exact=float(worst[0]),
            why="the plane has room, the torus may not: widened by r, two rectangles can meet again behind, and one "
            "that runs all around has no edges there",
        ),
    )
    around = (_body(side, (10, 0, 12, side)), _body(side, (14, 0, 14, side)), 2)
    cases = [
        ("room on all sides", _body(side, (8, 6, 18, 20)), _body(side, (14, 14, 18, 18)), 2),
        ("both run all around", *around),
        ("they meet again behind", _body(side, worst[1]), _body(side, worst[2]), worst[3]),
    ]
    data = {
        "with_room": roomy,
        "right": right,
        "without_room": tight,
        "wrong": wrong,
        "worst": [worst[0], list(worst[1]), list(worst[2]), worst[3]],
    }
    return Outcome(checks, data, _draw(cases, "Example 1 counts 4r(e + f) where the torus has room, not elsewhere"))


def _meeting(a: Tensor, b: Tensor) -> tuple[int, int]:
    both = a & b
    return int(both.any(1).sum()), int(both.any(0).sum())


def _one_piece(body: Tensor) -> bool:
    """Whether a product of two sets is a rectangle: one arc along each axis."""
    sides = (body.any(1), body.any(0))
    return all(int((side & ~side.roll(1)).sum()) <= 1 for side in sides)


def _room(first: Tensor, second: Tensor) -> int:
    """Pixels of the shortest arc of the circle that holds both intervals."""
    used = (first | second).nonzero().flatten()
    if len(used) == len(first):
        return len(first)
    gaps = torch.diff(torch.cat([used, used[:1] + len(first)])) - 1
    return int(len(first) - gaps.max())


def _bodies(desk: Desk, count: int) -> list[tuple[str, Pairs]]:
    found = [("convex bodies", desk.pairs("shapes", pairs=count, size=48))]
    noise = desk.pairs("gaussian:0.3", pairs=count, size=24, channels=1)
    found.append(
        ("random pixels", Pairs((noise.x > 0).float(), (noise.y > 0).float(), noise.source, noise.description))
    )
    images = desk.pairs("fashion_mnist", pairs=count)
    binary = Pairs((images.x > 0.25).float(), (images.y > 0.25).float(), images.source, images.description)
    found.append((f"{title_of('fashion_mnist', 'Fashion-MNIST', images)}, thresholded", binary))
    return found


def theorem5(desk: Desk) -> Outcome:
    """Both inequalities for convex bodies, thresholded images and noise, and for grey images."""
    margins: dict[str, float] = {
        "inner product (16)": math.inf,
        "squared distance (17)": math.inf,
        "grey images": math.inf,
    }
    lines, data, used = [], {}, []
    for name, pairs in _bodies(desk, desk.pick(12, 40)):
        moved, sizes = [], []
        for r in desk.pick((1,), (1, 2, 3)):
            inner, norm_x, norm_y = exact_sums(pairs.x, pairs.y, 2 * r + 1)
            bounds = shared_boundary_bounds(pairs.x[:, 0], pairs.y[:, 0], r)
            margins["inner product (16)"] = min(
                margins["inner product (16)"], _margin(bounds.inner_product.value, inner)
            )
            distance = norm_x + norm_y - 2 * inner
            margins["squared distance (17)"] = min(
                margins["squared distance (17)"], _margin(bounds.squared_distance.value, distance)
            )
            before = (pairs.x * pairs.y).double().sum((1, 2, 3))
            moved += [(inner - before).abs()]
            sizes += [bounds.boundary]
        size, move = torch.cat(sizes), torch.cat(moved)
        used.append(float((move / size).max()))
        lines.append(Line(name, points=Points(plain(size), plain(move.clamp_min(1e-3)))))
        data[name] = {"boundary": plain(size), "moved": plain(move)}
    grey = desk.pairs("cifar10", pairs=desk.pick(12, 60), channels=1)
    inner = exact_sums(grey.x, grey.y, 3)[0]
    margins["grey images"] = _margin(shared_boundary_bounds(grey.x[:, 0], grey.y[:, 0], 1).inner_product.value, inner)
    checks = [
        claim(f"{name}: within the shared boundary (smallest margin, pixels)", value >= -ROUNDING, exact=value)
        for name, value in margins.items()
    ]
    checks.append(_proof_slip())
    top = max(max(line.points.x) for line in lines if line.points)
    ends = [float(min(min(line.points.x) for line in lines if line.points)), float(top)]
    words = Words(
        f"Theorem 5: inner products move by at most {100 * max(used):.0f} % of the shared boundary",
        "size of the shared boundary (pixels)",
        "change of the mean inner product (pixels)",
        "Change of the inner product against the size of the shared boundary: all below the diagonal, at most "
        f"{max(used):.2f} of it.",
    )
    return Outcome(tuple(checks), data, curves([Line("bound (16)", ends, ends), *lines], words, log="xy"))


def _margin(interval: object, value: Tensor) -> float:
    low, high = interval.low, interval.high  # type: ignore[attr-defined]
    return float((value - low).minimum(high - value).min())


def _proof_slip() -> Check:
    """σ̂(1, 1, ν) of a constant patch, which the proof takes as 1: E relu(ν u)² with u of variance (2r+1)²."""
    side = 3
    found = float(RELU.second_moment(torch.tensor((2 / side) ** 2 * side**2, dtype=torch.float64)))
    return claim(
        "eq. 29: σ̂ at ν = 2/(2r+1) is 1 where both patches are full: its value",
        abs(found - 1) < ROUNDING,
        exact=found,
        why="ν is the standard deviation: ν² = 2/(2r+1)² as in the theorem, so ν = √2/(2r+1), with which it is 1",
    )


ITEMS = (
    Item(
        "nachum2022/fig2",
        "Figure 2: the shared boundary of two rectangles",
        "Two rectangles that meet in e x f pixels share a boundary of 4r(e + f) pixels.",
        figure2,
    ),
    Item(
        "nachum2022/example1",
        "Example 1: the size of a shared boundary",
        "|∂_r(A, B)| = 4r(e + f) for rectangles that meet in e x f pixels, e, f ≥ 2r.",
        example1,
    ),
    Item(
        "nachum2022/thm5",
        "Theorem 5: images with small shared boundary",
        "A ReLU convolution moves the inner product of two binary images by at most their shared boundary.",
        theorem5,
        sets=("fashion_mnist", "cifar10"),
    ),
)
