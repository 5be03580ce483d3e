"""Binary images of one random convex body each, the model behind JL's theorem on shared boundaries (JL 3.4).

The name is `shapes`, or `shapes:KIND` with rectangles, discs, ellipses or polygons.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from initscope.data.request import Request
from initscope.errors import BadInput

# Half the extent of a body, as a share of half the shorter side: large patches, two of which mostly overlap.
_EXTENT = (0.5, 0.95)
# Sides of a polygon.
_CORNERS = (3, 9)
Mask = npt.NDArray[np.bool_]
Grid = npt.NDArray[np.float64]
Body = Callable[[np.random.Generator, Grid, Grid], Mask]


def make(kind: str, request: Request) -> Tensor:
    """(n, c, h, w) of zeros and ones; a body never touches the outermost pixels, so it does not wrap around the torus.

    Every channel shows the same body. Images need sides of at least 3 pixels.
    """
    if kind and kind not in BODIES:
        raise BadInput(f"shapes:{kind}", "unknown kind of body", f"kinds are {', '.join(BODIES)}")
    channels, height, width = request.shape(1)
    if min(height, width) < 3:
        raise BadInput("shapes", f"no room for a body in {height} x {width} pixels", "use size=3 or more")
    random = request.random()
    bodies = [BODIES[kind]] if kind else list(BODIES.values())
    masks = np.stack([_draw(random, bodies, height, width) for _ in range(request.count)])
    return torch.from_numpy(masks).float()[:, None].repeat(1, channels, 1, 1)


def _draw(random: np.random.Generator, bodies: list[Body], height: int, width: int) -> Mask:
    """One body, its centre anywhere that keeps it inside, on the inner pixels of an image."""
    body = bodies[random.integers(len(bodies))]
    half = min(height, width) / 2 - 1
    reach = random.uniform(*_EXTENT) * half
    centre_row, centre_column = (random.uniform(1 + reach, side - 1 - reach) for side in (height, width))
    rows: Grid = (np.arange(height, dtype=np.float64)[:, None] + 0.5 - centre_row) / max(reach, 0.5)
    columns: Grid = (np.arange(width, dtype=np.float64)[None] + 0.5 - centre_column) / max(reach, 0.5)
    mask = body(random, rows, columns)
    mask[[0, -1]] = False
    mask[:, [0, -1]] = False
    if not mask.any():  # a thin body can pass between the pixel centres of a tiny image
        mask[min(max(int(centre_row), 1), height - 2), min(max(int(centre_column), 1), width - 2)] = True
    return mask


def _rectangle(random: np.random.Generator, rows: Grid, columns: Grid) -> Mask:
    """Axis-aligned, sides between half and all of the extent."""
    tall, wide = random.uniform(0.5, 1.0, 2)
    return np.asarray((np.abs(rows) <= tall) & (np.abs(columns) <= wide))


def _disc(random: np.random.Generator, rows: Grid, columns: Grid) -> Mask:
    return np.asarray(rows**2 + columns**2 <= 1.0)


def _ellipse(random: np.random.Generator, rows: Grid, columns: Grid) -> Mask:
    """Any direction, the short axis between a third and all of the long one."""
    turn, short = random.uniform(0, math.pi), random.uniform(1 / 3, 1.0)
    along = math.cos(turn) * rows + math.sin(turn) * columns
    across = math.cos(turn) * columns - math.sin(turn) * rows
    return np.asarray(along**2 + (across / short) ** 2 <= 1.0)


def _polygon(random: np.random.Generator, rows: Grid, columns: Grid) -> Mask:
    """Corners on the circle, so convex; one in each of equal sectors, so not a sliver."""
    corners = int(random.integers(*_CORNERS))
    turns = 2 * math.pi * (np.arange(corners) + random.uniform(0.1, 0.9, corners)) / corners
    mask = np.ones(np.broadcast_shapes(rows.shape, columns.shape), dtype=bool)
    for here, there in zip(turns, np.roll(turns, -1), strict=True):
        step_row, step_column = math.sin(there) - math.sin(here), math.cos(there) - math.cos(here)
        # The inside lies to the left of each edge when the corners run anticlockwise.
        mask &= step_column * (rows - math.sin(here)) - step_row * (columns - math.cos(here)) >= 0
    return mask


BODIES: dict[str, Body] = {
    "rectangles": _rectangle,
    "discs": _disc,
    "ellipses": _ellipse,
    "polygons": _polygon,
}
