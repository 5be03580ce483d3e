"""Results as plain text and as small pieces of HTML, for `print` and for notebooks."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Sequence

from markupsafe import Markup, escape
from rich.console import RenderableType

from initscope.report.console import Console
from initscope.report.drawings import Drawing, own_names

WIDTH = 100  # columns of a printed result

# Everything takes the notebook's own text color, so that light and dark themes both work; badges bring their own paper.
_STYLE = """
.initscope { --paper: transparent; --grid: color-mix(in srgb, currentColor 18%, transparent);
  --axis: color-mix(in srgb, currentColor 60%, transparent); --blue: #2f8fd0; --orange: #e06a10; --green: #0f9d75;
  font: 14px/1.45 system-ui, "Segoe UI", Roboto, sans-serif; max-width: 75rem; color: inherit; }
.initscope p { margin: .3em 0; overflow-wrap: anywhere; }
.initscope ul { margin: .3em 0; padding-left: 1.4em; }
.initscope .soft { opacity: .75; font-size: .92em; }
.initscope .title { font-weight: 600; }
.initscope .badge { display: inline-block; padding: 0 .5em; margin-right: .5em; border-radius: .5em; font-weight: 600;
  color: #ffffff; background: #5a6069; }
.initscope .badge.healthy { background: #0a6b4b; } .initscope .badge.warn { background: #8a5200; }
.initscope .badge.fail { background: #b3261e; }
.initscope .scroll { overflow: auto; max-height: 48em; width: fit-content; max-width: 100%; margin: .4em 0; }
.initscope table { border-collapse: collapse; margin: 0; font-size: .95em; color: inherit; background: transparent; }
.initscope tr, .initscope tbody tr:nth-child(odd), .initscope tbody tr:nth-child(even) { background: transparent; }
.initscope th, .initscope td { padding: .15em .9em .15em 0; text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; border: 0; border-bottom: 1px solid var(--grid); color: inherit; background: transparent; }
.initscope th { font-weight: 600; vertical-align: bottom; }
.initscope tbody th, .initscope td { vertical-align: top; }
.initscope tbody th { font-weight: 400; } .initscope .left { text-align: left !important; }
.initscope .wrap { text-align: left !important; white-space: normal; }
.initscope .figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.initscope figure { margin: .4em 0; min-width: 0; } .initscope figcaption { font-weight: 600; }
.initscope svg { width: 100%; height: auto; display: block; }
.initscope svg text { font-family: inherit !important; fill: currentColor; }
"""


def terminal_text(renderable: RenderableType, width: int = WIDTH) -> str:
    """What a console of this width shows, without color codes and without spaces at the end of lines.

    >>> terminal_text("[bold]0.5[/bold]   ")
    '0.5'
    """
    out = io.StringIO()
    # Inside Jupyter, rich would otherwise display the result as a cell's output.
    console = Console(file=out, width=width, color_system=None, highlight=False, force_jupyter=False)
    console.print(renderable)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip("\n")


def html_fragment(*parts: str | Markup) -> str:
    """One <div> that needs nothing else and reads well on light and dark pages.

    Plain strings become paragraphs and are escaped; `Markup` (from the functions below) is kept as it is.

    >>> "<p>1 &lt; 2</p>" in html_fragment("1 < 2")
    True
    """
    body = Markup("\n").join(p if isinstance(p, Markup) else Markup("<p>{}</p>").format(p) for p in parts if p)
    return str(Markup('<div class="initscope"><style>{}</style>\n{}</div>').format(Markup(_STYLE), body))


def html_title(text: str) -> Markup:
    """A line in bold."""
    return Markup('<p class="title">{}</p>').format(text)


def html_soft(text: str) -> Markup:
    """A line in smaller, paler letters."""
    return Markup('<p class="soft">{}</p>').format(text)


def html_list(lines: Sequence[str]) -> Markup:
    """A line each behind a dot."""
    return Markup("<ul>{}</ul>").format(Markup("").join(Markup("<li>{}</li>").format(line) for line in lines))


def html_verdict(status: str, text: str) -> Markup:
    """A sentence behind a colored badge; status: healthy, warn or fail."""
    return Markup('<p><span class="badge {0}">{0}</span>{1}</p>').format(status, text)


def html_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Collection[str] = ("layer",),
    wrap: Collection[str] = (),
) -> Markup:
    """A table that scrolls where it is long; columns are numbers unless their heading is in `left` or `wrap`."""
    kinds = ["wrap" if h in wrap else "left" if h in left else "" for h in headings]

    def cell(tag: str, scope: str, kind: str, text: str) -> Markup:
        attributes = Markup("").join(
            Markup(' {}="{}"').format(name, value) for name, value in (("scope", scope), ("class", kind)) if value
        )
        content = Markup("<br>").join(escape(line) for line in text.split("\n"))
        return Markup("<{0}{1}>{2}</{0}>").format(tag, attributes, content)

    head = Markup("").join(cell("th", "col", kind, text) for kind, text in zip(kinds, headings, strict=True))
    lines = []
    for row in rows:
        cells = [cell("th", "row", kinds[0], row[0])]
        cells += [cell("td", "", kind, text) for kind, text in zip(kinds[1:], row[1:], strict=True)]
        lines.append(Markup("<tr>{}</tr>").format(Markup("").join(cells)))
    return Markup('<div class="scroll"><table><thead><tr>{}</tr></thead><tbody>\n{}\n</tbody></table></div>').format(
        head, Markup("\n").join(lines)
    )


def html_figures(drawings: Sequence[Drawing]) -> Markup:
    """Figures side by side where there is room."""
    figure = Markup("<figure><figcaption>{}</figcaption>{}</figure>")
    inside = Markup("\n").join(figure.format(drawing.title, _alone(drawing.svg)) for drawing in drawings)
    return Markup('<div class="figures">{}</div>').format(inside)


def _alone(svg: Markup) -> Markup:
    """The element with identifiers of its own: other cells of a notebook may show a figure with the same ones."""
    return Markup(own_names(str(svg), f"i{hashlib.sha256(svg.encode()).hexdigest()[:8]}"))
