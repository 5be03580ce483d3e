"""`initscope width`: how wide a network has to be, or how likely it fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from initscope.cli.common import Settings, common_options
from initscope.cli.options import numbers
from initscope.errors import BadInput

if TYPE_CHECKING:
    from initscope.bounds import Bound, FailureAnswer, SubspaceAnswer, WidthAnswer

FANS = ("out", "in", "mean", "geometric")


def _widths(ctx: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    return numbers(text, "--width", example="400, or 784,400,100")


@click.command("width", short_help="How wide is wide enough, exactly and by the theorems.")
@common_options
@click.option("--depth", type=int, default=None, help="Layers [default: 1, or as many as --width names].")
@click.option(
    "--epsilon", type=float, default=0.5, show_default=True, help="Distortion of the squared norm: 1 ± EPSILON."
)
@click.option("--delta", type=float, default=0.05, show_default=True, help="Accepted chance to fail.")
@click.option("--samples", type=int, default=1, show_default=True, help="Inputs that have to be preserved together.")
@click.option("--every-layer", is_flag=True, help="Preserve the norm of every layer, not only of the last.")
@click.option("--subspace", type=int, default=None, metavar="D", help="Also: all inputs of a D-dimensional subspace.")
@click.option(
    "--width", "widths", default=None, metavar="M[,M...]", callback=_widths,
    help="The other way round: the chance to fail at this width, or these.",
)  # fmt: skip
@click.option("--gain", type=float, default=2.0, show_default=True, help="Weight variance times the fan; He has 2.")
@click.option("--fan", type=click.Choice(FANS), default="out", show_default=True, help="Which fan, with --width.")
@click.option("--inputs", type=int, default=None, help="Size of the input, with --width and another fan than out.")
@click.option(
    "--figure", type=click.Path(path_type=Path), default=None, help="Also draw failure against width (.svg, .png)."
)
def command(settings: Settings, **options: Any) -> None:
    """The smallest width for which |h|²/|x|² stays within 1 ± EPSILON after DEPTH ReLU layers.

    Exact, beside the published bounds. With --width: the probability that such a network fails.
    """
    figure: Path | None = options["figure"]
    if figure is not None:
        from initscope.figures import check_suffix
        from initscope.files import check_writable

        check_suffix(figure)
        check_writable(figure, "--figure")
    if options["widths"] is not None:
        _fail(settings, options)
        return
    if options["fan"] != "out" or options["inputs"] is not None:
        raise BadInput(
            "--fan", "the search is for equal layers, where all fans are the same", "leave it out, or add --width"
        )
    _search(settings, options)


def _search(settings: Settings, options: dict[str, Any]) -> None:
    from initscope.bounds import width_for, width_for_subspace

    depth, epsilon, delta = _given(options["depth"], 1), options["epsilon"], options["delta"]
    answer = width_for(
        depth, epsilon, delta, options["samples"], gain=options["gain"], every_layer=options["every_layer"]
    )
    space: SubspaceAnswer | None = None
    if options["subspace"] is not None:
        if options["gain"] != 2:
            raise BadInput("--subspace", f"is for He's gain 2, not {options['gain']:g}", "leave --gain out")
        space = width_for_subspace(options["subspace"], depth, epsilon, delta)
    if options["figure"] is not None:
        _draw(answer, options)
        settings.say(f"wrote {options['figure']}")
    if settings.json:
        document = {**answer.to_dict(), "gain": options["gain"], "every_layer": options["every_layer"]}
        settings.print_json("width", {**document, "subspace": None if space is None else space.to_dict()})
    else:
        _print_widths(settings, answer, space)


def _given(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _fail(settings: Settings, options: dict[str, Any]) -> None:
    from initscope.bounds import failure_probability

    for name, flag in (
        ("figure", options["figure"]),
        ("subspace", options["subspace"]),
        ("every-layer", options["every_layer"]),
    ):
        if flag:
            raise BadInput(f"--{name}", "does not go with --width", "leave one of the two out")
    widths: tuple[int, ...] = options["widths"]
    one = len(widths) == 1
    depth = _given(options["depth"], 1) if one else options["depth"]
    answer = failure_probability(
        widths[0] if one else widths,
        depth,
        options["epsilon"],
        options["samples"],
        inputs=options["inputs"],
        gain=options["gain"],
        fan=options["fan"],
    )
    if settings.json:
        document = {**answer.to_dict(), "gain": options["gain"], "fan": options["fan"], "inputs": options["inputs"]}
        settings.print_json("width", document)
    else:
        _print_failure(settings, answer)


def _print_widths(settings: Settings, answer: WidthAnswer, space: SubspaceAnswer | None) -> None:
    samples = "" if answer.samples == 1 else f" for {answer.samples:,} samples"
    title = f"{_layers(answer.depth)}, squared norm within 1 ± {answer.epsilon:g}, failing with at most {answer.delta:g}{samples}"
    theorem1 = "Lemma 2" if answer.depth == 1 else "Theorem 1"
    columns = {
        "exact": answer.exact,
        theorem1: answer.theorem1,
        "with gradients": answer.gradients,
        "Theorem 3": answer.theorem3,
        "asymptotic": answer.asymptotic,
    }
    _print_columns(settings, title, columns)
    settings.stdout().print(f"At {answer.exact.value:,} units the chance to fail is {answer.failure:.6g}.")
    if space is not None:
        title = f"All inputs of a {space.dimension}-dimensional subspace, all layers (Theorem 2)"
        pieces = {"printed": space.printed, "repaired": space.repaired, "chained": space.chained}
        settings.stdout().print()
        _print_columns(settings, title, pieces)


def _print_columns(settings: Settings, title: str, columns: Mapping[str, Bound[int] | None]) -> None:
    """Widths side by side under the names of where they come from; below, what they rest on."""
    from rich import box
    from rich.table import Table

    from initscope.bounds.printed_width import PAPER
    from initscope.report import facts_table

    known = {name: bound for name, bound in columns.items() if bound is not None}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in known:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(*(f"{bound.value:,}" for bound in known.values()))
    table.add_row(*(bound.kind for bound in known.values()))
    shared = [
        one for one in next(iter(known.values())).assumes if all(one in bound.assumes for bound in known.values())
    ]
    facts = {"all assume": "; ".join(shared)}
    for name, bound in known.items():
        own = [one for one in bound.assumes if one not in shared]
        facts[name] = "; ".join(
            [bound.source.removeprefix(f"{PAPER}, "), *(f"if {one}" for one in own), bound.note]
        ).strip("; ")
    out = settings.stdout()
    out.print(title, style="bold", markup=False)
    out.print(table)
    out.print(facts_table(facts))


def _layers(depth: int) -> str:
    return "1 layer" if depth == 1 else f"{depth} layers"


def _print_failure(settings: Settings, answer: FailureAnswer) -> None:
    from initscope.report import facts_table

    law = answer.law
    low, high = law.interval(0.95)
    facts = {"exact" if answer.samples == 1 else "union of exact": f"{answer.exact.value:.6g}"}
    theorem1 = "Lemma 2" if len(answer.widths) == 1 else "Theorem 1"
    for name, bound in ((theorem1, answer.theorem1), ("Theorem 3", answer.theorem3)):
        if bound is not None:
            facts[f"{name}, at most"] = f"{bound.value:.6g}"
    facts[law.quantity] = f"mean {law.mean:.6g}, 95 % between {low:.4g} and {high:.4g}, dead with {law.dead:.3g}"
    facts["assumes"] = "; ".join(answer.exact.assumes)
    out = settings.stdout()
    shown = ", ".join(str(width) for width in answer.widths[:8]) + (", ..." if len(answer.widths) > 8 else "")
    out.print(f"Chance to leave 1 ± {answer.epsilon:g} in a network with layers of {shown} units", style="bold")
    out.print(facts_table(facts))


def _draw(answer: WidthAnswer, options: dict[str, Any]) -> None:
    from initscope.bounds.curves import failure_by_width
    from initscope.figures import FailureCurve, failure_curves

    curves = failure_by_width(answer, gain=options["gain"], every_layer=options["every_layer"])
    drawn = [FailureCurve("exact", curves.exact_widths, curves.exact, answer.exact.value)]
    if answer.theorem1 is not None:
        name = "Lemma 2" if answer.depth == 1 else "Theorem 1"
        drawn.append(FailureCurve(f"bound of {name}", curves.theorem1_widths, curves.theorem1, answer.theorem1.value))
    title = f"Squared norm outside 1 ± {answer.epsilon:g} after {_layers(answer.depth)}"
    failure_curves(drawn, answer.delta, title).save(options["figure"])
