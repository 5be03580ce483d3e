"""The house style of plots: small SVG with a title and a description, colour-blind safe, the same bytes every time."""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from initscope.errors import BadInput
from initscope.files import write_atomically

# The palette of Okabe and Ito, told apart with every common colour blindness; black is kept for text.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, AMBER, GREY = "#56B4E9", "#E69F00", "#666666"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, GREY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")
SUFFIXES = (".svg", ".png")

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "svg.fonttype": "none",  # text stays text: a quarter of the size, and it can be searched and read aloud
    "svg.hashsalt": "initscope",
    "path.simplify": True,
}
# Matplotlib reads its settings from one global table; two threads drawing at once must not mix theirs.
_LOCK = threading.RLock()


@contextmanager
def house_style() -> Iterator[None]:
    """The settings of every figure, for the time of drawing it."""
    with _LOCK, mpl.rc_context(_RC):
        yield


@dataclass(frozen=True, eq=False)
class Picture:
    """A finished figure with the words a screen reader says for it."""

    figure: Figure
    title: str
    description: str

    def svg(self) -> str:
        """The figure as one <svg> element with role, <title> and <desc>; the same bytes on every call."""
        sink = io.StringIO()
        with house_style():
            FigureCanvasSVG(self.figure).print_figure(sink, format="svg", metadata={"Date": None, "Creator": None})
        return _with_words(sink.getvalue(), self.title, self.description)

    def png(self, dpi: int = 144) -> bytes:
        """The figure as a PNG file."""
        sink = io.BytesIO()
        with house_style():
            canvas = FigureCanvasAgg(self.figure)
            words = {"Software": None, "Title": self.title, "Description": self.description}
            canvas.print_figure(sink, format="png", dpi=dpi, metadata=words)
        return sink.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write an .svg or .png file; a reader never sees half of it."""
        target = Path(path)
        check_suffix(target)
        content = self.png() if target.suffix.lower() == ".png" else self.svg().encode()
        write_atomically(target, lambda file: file.write(content), f"figure {target}")
        return target


def check_suffix(path: Path) -> None:
    """Refuse a figure file of a kind that is not written."""
    if path.suffix.lower() not in SUFFIXES:
        got = f"'{path.suffix}'" if path.suffix else "no suffix"
        raise BadInput(f"figure {path}", f"got {got}, expected .svg or .png", f"name it {path.stem or 'figure'}.svg")


_COORDINATES = re.compile(r' (?:d|points|x|y|x1|y1|x2|y2|cx|cy|width|height)="[^"]*"')


def _with_words(svg: str, title: str, description: str) -> str:
    """Only the <svg> element, without metadata, with its role, title and description.

    Coordinates keep two decimals, a 36,000th of a centimetre being invisible: half the size. Texts keep all theirs.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = _COORDINATES.sub(lambda found: re.sub(r"(-?\d+\.\d\d)\d+", r"\1", found[0]), body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    key = hashlib.sha256(f"{title}\n{description}".encode()).hexdigest()[:8]
    words = f'<title id="title-{key}">{escape(title)}</title>\n <desc id="desc-{key}">{escape(description)}</desc>\n'
    labelled = f'<svg role="img" aria-labelledby="title-{key} desc-{key}"' + body[len("<svg") :]
    opening = labelled.index(">") + 1
    return f"{labelled[:opening]}\n {words}{labelled[opening:].lstrip()}"


def new_figure(width: float = 7.0, height: float = 4.0) -> tuple[Figure, Axes]:
    """An empty figure: light horizontal grid, two spines, no global state; call it within `house_style()`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    dress(axes)
    return figure, axes


def finish(figure: Figure, title: str, description: str) -> Picture:
    """Settle the layout once, so that drawing again gives the same bytes, and attach the words."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return Picture(figure, title, description)


def dress(axes: Axes) -> None:
    """Put an axes into the house style."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(color=GREY, length=3)
