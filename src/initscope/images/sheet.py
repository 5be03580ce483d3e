"""Contact sheets: the same picture through networks of growing depth, width or kernel (DC Figures 5, 6 and 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, get_args

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from initscope.data.pixels import resize
from initscope.errors import BadInput
from initscope.figures import Picture
from initscope.figures.style import finish, house_style
from initscope.images.architectures import Depth, find
from initscope.images.files import read_picture
from initscope.images.reconstruction import Reconstruction, reconstruct

Over = Literal["depth", "channels", "kernel"]
VALUES: dict[str, tuple[int, ...]] = {"channels": (4, 16, 64, 256), "kernel": (1, 3, 5, 7, 11)}
_MOST = 64  # pictures on one sheet
_SIDE = 1.75  # inches of one picture
_LINE, _GAP, _TITLE = 0.135, 0.07, 0.3  # inches of a line of its caption, of the space around it, and of the title
_PIXELS = 252  # a picture on a sheet has no more of them along its longer side: what is printed, without moiré


@dataclass(frozen=True)
class Cell:
    """A picture (c, h, w) in [0, 1] and the words above it."""

    picture: Tensor
    caption: str


@dataclass(frozen=True, eq=False)
class Sheet:
    """Reconstructions of one picture, in the order of `values`, and the sheet that shows them beside the original."""

    over: str
    values: tuple[Depth, ...]
    results: tuple[Reconstruction, ...]
    picture: Picture

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        rows = [result.to_dict() for result in self.results]
        return {"over": self.over, "values": list(self.values), "results": rows}

    def save(self, path: str | Path) -> Path:
        """Write the sheet as .svg or .png."""
        return self.picture.save(path)


def contact_sheet(
    image: str | Path | Tensor,
    over: Over = "depth",
    values: Sequence[Depth] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Sheet:
    """`reconstruct` with each of the values of one setting; `options` are the others.

    >>> sheet = contact_sheet(Tensor([[[0.2, 0.8] * 8] * 16]), "kernel", [1, 3], depth="1_1", channels=8)
    >>> [result.settings["kernel"] for result in sheet.results]
    [1, 3]
    """
    if over not in get_args(Over):
        raise BadInput("sheet", f"got {over!r}", f"choose from {', '.join(get_args(Over))}")
    if over in options:
        raise BadInput("sheet", f"{over} is what the sheet goes over", f"leave {over}= out")
    if values is None:
        stages = len(find(options.get("arch", "vgg16")).blocks)
        values = tuple(range(1, stages + 1)) if over == "depth" else VALUES[over]
    if not 1 <= len(values) <= _MOST:
        raise BadInput("sheet", f"{len(values)} pictures", f"give 1 to {_MOST} values")
    picture = read_picture(image)
    results = []
    for number, value in enumerate(values):
        if progress is not None:
            progress(number, len(values))
        results.append(reconstruct(picture, **{**options, over: value}))
    cells = [Cell(picture[0], "original")]
    cells += [Cell(r.image, f"{_named(over, v)}: {_similarity(r)}") for v, r in zip(values, results, strict=True)]
    first = results[0].settings
    what = {"depth": "depth", "channels": "number of channels", "kernel": "size of the kernel"}[over]
    title = f"{first['arch']}, {first['decoder']} decoder, by {what}"
    if progress is not None:
        progress(len(values), len(values))
    columns = min(len(cells), 6)
    rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    return Sheet(over, tuple(values), tuple(results), picture_grid(rows, title))


def picture_grid(rows: Sequence[Sequence[Cell]], title: str, labels: Sequence[str] | None = None) -> Picture:
    """Pictures in rows with their captions; `labels` stand at the left of the rows."""
    columns = max(len(row) for row in rows)
    shapes = [cell.picture.shape[-2:] for row in rows for cell in row]
    tall = max(h / w for h, w in shapes)
    lines = max(cell.caption.count("\n") + 1 for row in rows for cell in row)
    width = _SIDE * columns + (0.35 if labels else 0.1)
    heading = wrap(title, max(12, int(12 * width))) or [""]
    height = (_SIDE * tall + _LINE * lines + _GAP) * len(rows) + _TITLE + 0.17 * (len(heading) - 1)
    with house_style():
        engine = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)
        figure = Figure(figsize=(width, height), layout=engine)
        for r, row in enumerate(rows):
            for c, cell in enumerate(row):
                axes = figure.add_subplot(len(rows), columns, r * columns + c + 1)
                axes.imshow(_levels(cell.picture), cmap="gray", vmin=0, vmax=255, interpolation="antialiased")
                axes.set_title(cell.caption, fontsize=8, pad=3)
                axes.set_xticks([])
                axes.set_yticks([])
                axes.spines[:].set_visible(False)
                if labels and c == 0:
                    axes.set_ylabel(labels[r], fontsize=8)
        figure.suptitle("\n".join(heading), fontsize=10)
        captions = "; ".join(cell.caption for row in rows for cell in row)
        return finish(figure, title, f"{title}. Pictures, from left to right and from top to bottom: {captions}.")


def _levels(picture: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """8 bits, (h, w) or (h, w, 3), made smaller where it is larger than a sheet can show."""
    height, width = picture.shape[-2:]
    ratio = min(1.0, _PIXELS / max(height, width))
    shown = resize(picture[None].detach().cpu(), (max(1, round(height * ratio)), max(1, round(width * ratio))))[0]
    levels = (shown.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return np.ascontiguousarray(levels[..., 0] if levels.shape[2] == 1 else levels)


def _named(over: str, value: Depth) -> str:
    return {"depth": f"CD{value}", "channels": f"{value} channels", "kernel": f"{value}x{value}"}[over]


def _similarity(result: Reconstruction) -> str:
    return "SSIM undefined" if result.ssim is None else f"SSIM {result.ssim:.3f}"
