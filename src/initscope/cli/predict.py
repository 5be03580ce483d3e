"""`initscope predict`: similarity layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from initscope.cli.common import Settings, advancing, common_options, progress_bar
from initscope.cli.options import Task, memory_option, task_options

if TYPE_CHECKING:
    from initscope.data import Pairs
    from initscope.report import LayerRow


@click.command("predict", short_help="Similarity of pairs of inputs, layer by layer, exactly.")
@common_options
@task_options(data="photos", dtype="float64")
@click.option("--pairs", type=click.IntRange(1), default=8, show_default=True, help="How many pairs of inputs.")
@click.option(
    "--figure", type=click.Path(path_type=Path), default=None, help="Also draw the cosines into this .svg or .png file."
)
@memory_option
def command(settings: Settings, task: Task, pairs: int, figure: Path | None, memory: int | None) -> None:
    """Similarity of pairs of inputs after every layer of the infinitely wide network ARCH.

    ARCH is a text such as "10x(conv3 relu) gap"; see docs/language.md for the words.
    """
    from initscope.networks import predict
    from initscope.report import layer_rows

    if figure is not None:
        from initscope.figures import check_suffix
        from initscope.files import check_writable

        check_suffix(figure)
        check_writable(figure, "--figure")
    net = task.network()
    data, x, y = task.pairs(settings, pairs)
    with progress_bar(settings) as bar:
        advance = advancing(bar, bar.add_task("predict", total=1.0))
        prediction = predict(net, x, y, seed=settings.seed, dtype=x.dtype, memory=memory, progress=advance)
    rows = layer_rows(prediction.layers)
    if figure is not None:
        _draw(rows, data, figure)
        settings.say(f"wrote {figure}")
    if settings.json:
        _print_json(settings, task, data, rows)
    else:
        _print_table(settings, task, data, rows)


def _print_json(settings: Settings, task: Task, data: Pairs, rows: list[LayerRow]) -> None:
    settings.print_json(
        "predict",
        {
            "architecture": task.architecture,
            "data": {
                "source": data.source,
                "description": data.description,
                "pairs": len(data),
                "shape": list(data.x.shape[1:]),
            },
            "width": task.width,
            "dtype": task.dtype,
            "layers": [row.to_dict() for row in rows],
            "seeds": {"data": settings.seed, "simulation": settings.seed},
        },
    )


def _print_table(settings: Settings, task: Task, data: Pairs, rows: list[LayerRow]) -> None:
    from initscope.report import layer_table

    out = settings.stdout()
    shape = "x".join(str(side) for side in data.x.shape[1:])
    out.print(layer_table(rows, f"{len(data)} pairs, {data.source}, {shape}"))
    notes = dict.fromkeys(row.note for row in rows if row.note)
    for note in notes:
        out.print(f"note: {note}", markup=False)


def _draw(rows: list[LayerRow], data: Pairs, path: Path) -> None:
    from initscope.figures import Curve, similarity_curves

    curve = Curve(
        data.source,
        [row.cosine_mean for row in rows],
        low=[row.cosine_min for row in rows],
        high=[row.cosine_max for row in rows],
    )
    similarity_curves([row.name for row in rows], [curve]).save(path)
