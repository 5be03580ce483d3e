"""`initscope simulate`: sampled networks beside the exact prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from initscope.cli.common import Settings, advancing, common_options, progress_bar
from initscope.cli.options import Task, memory_option, task_options
from initscope.cli.words import in_options
from initscope.errors import BadInput

if TYPE_CHECKING:
    from initscope.data import Images, Pairs
    from initscope.finite import GradientSimulation, Simulation
    from initscope.finite.averages import Average
    from initscope.networks import Prediction
    from initscope.report.sampled import SampledRow


@click.command("simulate", short_help="Similarity or gradients in sampled networks, with intervals.")
@common_options
@task_options(data="photos", dtype="float32")
@click.option("--pairs", type=click.IntRange(1), default=8, show_default=True, help="How many pairs (or inputs).")
@click.option(
    "--draws",
    type=click.IntRange(2),
    default=None,
    help="How many networks [default: 100; with --until at most 10000].",
)
@click.option("--until", type=float, default=None, help="Draw until no interval of the cosine is wider than this.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Level of the intervals.")
@click.option(
    "--average",
    type=click.Choice(["moments", "networks"]),
    default="moments",
    show_default=True,
    help="What predict computes, or the mean of what each network shows.",
)
@click.option("--exact/--no-exact", default=True, show_default=True, help="Show the prediction for infinite width.")
@click.option("--gradients", is_flag=True, help="Gradient norms by layer instead of similarity.")
@click.option(
    "--loss", type=click.Choice(["cross-entropy", "mse"]), default="cross-entropy", show_default=True,
    help="With --gradients, on random targets.",
)  # fmt: skip
@click.option(
    "--head", type=click.IntRange(0), default=10, show_default=True,
    help="With --gradients, outputs of a linear read-out before the loss; 0 for none.",
)  # fmt: skip
@click.option(
    "--figure", type=click.Path(path_type=Path), default=None, help="Also draw the cosines into this .svg or .png file."
)
@memory_option
def command(settings: Settings, task: Task, gradients: bool, **options: Any) -> None:
    """Similarity of pairs of inputs after every layer of sampled networks ARCH, with intervals.

    The exact answer for infinite width stands beside it. With --gradients: the norms of each layer's weight gradient over
    the norms of the input and of the gradient at the last layer.
    """
    if gradients:
        _run_gradients(settings, task, **options)
    else:
        _run_similarity(settings, task, **options)


def _run_similarity(
    settings: Settings, task: Task, *, pairs: int, average: Average, exact: bool, figure: Path | None, **options: Any
) -> None:
    from initscope.finite import simulate
    from initscope.report.sampled import sampled_rows

    if figure is not None:
        from initscope.figures import check_suffix
        from initscope.files import check_writable

        check_suffix(figure)
        check_writable(figure, "--figure")
    net = task.network()
    data, x, y = task.pairs(settings, pairs)
    kept = {name: options[name] for name in ("draws", "until", "level", "memory")}
    with progress_bar(settings) as bar:
        advance = advancing(bar, bar.add_task("simulate", total=1.0))
        found = simulate(net, x, y, seed=settings.seed, average=average, progress=advance, **kept)
    prediction, problem = _predict(settings, task, x, y, options["memory"]) if exact else (None, None)
    rows = sampled_rows(found, prediction)
    if figure is not None:
        _draw(rows, data, figure)
        settings.say(f"wrote {figure}")
    _say_unreached(settings, found)
    if settings.json:
        described = {**_described(settings, task, data, found), "average": average, "no_exact": problem}
        settings.print_json("simulate", {**described, "layers": [row.to_dict() for row in rows]})
        return
    _print_similarity(settings, data, found, rows, prediction, problem)


def _predict(
    settings: Settings, task: Task, x: Any, y: Any, memory: int | None
) -> tuple[Prediction | None, str | None]:
    """The exact face of the same network, or why there is none."""
    import torch

    from initscope.errors import NoExactForm
    from initscope.networks import predict

    dtype = x.dtype if x.device.type == "mps" else torch.float64
    try:
        with progress_bar(settings) as bar:
            advance = advancing(bar, bar.add_task("predict", total=1.0))
            return predict(task.network(), x, y, seed=settings.seed, dtype=dtype, memory=memory, progress=advance), None
    except (NoExactForm, BadInput) as error:
        return None, in_options(error)


def _print_similarity(
    settings: Settings,
    data: Pairs,
    found: Simulation,
    rows: list[SampledRow],
    prediction: Prediction | None,
    problem: str | None,
) -> None:
    from initscope.report.sampled import sampled_table

    out = settings.stdout()
    shape = "x".join(str(side) for side in data.x.shape[1:])
    out.print(sampled_table(rows, f"{len(data)} pairs, {data.source}, {shape}; {found.draws} networks", found.level))
    if problem is not None:
        out.print(f"note: no exact prediction: {problem}", markup=False)
    methods = {} if prediction is None else {layer.method: layer.name for layer in reversed(prediction.layers)}
    for method, name in methods.items():
        if method != "exact":
            out.print(f"note: from {name} on the prediction is {method}", markup=False)


def _run_gradients(
    settings: Settings, task: Task, *, pairs: int, average: Average, loss: Any, head: int, **options: Any
) -> None:
    from initscope.finite import simulate_gradients
    from initscope.report.sampled import gradient_rows, gradient_table

    if options["figure"] is not None:
        raise BadInput("--figure", "draws cosines, which --gradients does not compute", "leave one of them out")
    net = task.network()
    data, x = task.images(settings, pairs)
    kept = {name: options[name] for name in ("draws", "until", "level", "memory")}
    with progress_bar(settings) as bar:
        advance = advancing(bar, bar.add_task("gradients", total=1.0))
        found = simulate_gradients(
            net, x, loss=loss, head=head or None, seed=settings.seed, average=average, progress=advance, **kept
        )
    rows = gradient_rows(found)
    _say_unreached(settings, found)
    if settings.json:
        described = {**_described(settings, task, data, found), "average": average, "loss": loss, "head": head or None}
        settings.print_json("simulate.gradients", {**described, "layers": [row.to_dict() for row in rows]})
        return
    shape = "x".join(str(side) for side in x.shape[1:])
    title = f"Gradients of {len(x)} inputs, {data.source}, {shape}; {loss}, {found.draws} networks"
    settings.stdout().print(gradient_table(rows, title, found.level))


def _described(
    settings: Settings, task: Task, data: Pairs | Images, found: Simulation | GradientSimulation
) -> dict[str, Any]:
    images = data.x if hasattr(data, "x") else data.images
    return {
        "architecture": task.architecture,
        "data": {
            "source": data.source,
            "description": data.description,
            "count": len(data),
            "shape": list(images.shape[1:]),
        },
        "width": task.width,
        "dtype": task.dtype,
        "draws": found.draws,
        "until": found.until,
        "level": found.level,
        "reached": found.reached,
        "widest": found.widest,
        "seeds": {"data": settings.seed, "networks": settings.seed},
    }


def _say_unreached(settings: Settings, found: Simulation | GradientSimulation) -> None:
    if found.reached is False:
        settings.say(
            f"warning: after {found.draws} networks the widest interval is {found.widest:.2g}, "
            f"not yet {found.until:g}; raise --draws"
        )


def _draw(rows: list[SampledRow], data: Pairs, path: Path) -> None:
    from initscope.figures import Curve, similarity_curves

    sampled = [row.cosine_mean for row in rows]
    margin = [row.cosine_margin for row in rows]
    exact = [sampled[i] if row.exact is None else row.exact.cosine_mean for i, row in enumerate(rows)]
    known = rows[0].exact is not None
    curve = Curve(data.source, exact, sampled=sampled if known else None, margin=margin if known else None)
    if not known:
        low, high = ([s + sign * m for s, m in zip(sampled, margin, strict=True)] for sign in (-1, 1))
        curve = Curve(f"{data.source}, sampled", sampled, low=low, high=high)
    similarity_curves([row.name for row in rows], [curve]).save(path)
