"""`initscope kernel --out K.zarr` and `--plan`: kernels in tiles, on workers, resumable."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from initscope.cli.common import Settings, advancing, progress_bar
from initscope.cli.options import Task
from initscope.errors import BadInput

if TYPE_CHECKING:
    import torch

    from initscope.cli.kernel_what import What
    from initscope.scale import KernelRun, Plan, StoredKernel

_SAMPLE = 64  # inputs on which a plan's speed is measured
_MOST_READ = 2000  # a larger matrix is summarised from its records alone
_CORES = (1, 16, 256, 4096)


@dataclass(frozen=True)
class Spread:
    """How a kernel is cut and who computes it."""

    tile: int | None = None
    workers: int | None = None
    scheduler: str | None = None
    resume: bool = False
    plan: bool = False


def spread_options(function: Callable[..., None]) -> Callable[..., None]:
    """--tile, --workers, --scheduler, --resume, --plan, handed to the command as one `spread` argument."""

    @click.option(
        "--tile", type=click.IntRange(1), default=None, help="Inputs along a side of a tile [default: what fits]."
    )
    @click.option("--workers", type=click.IntRange(1), default=None, help="Worker processes [default: this process].")
    @click.option("--scheduler", default=None, metavar="ADDRESS", help="A Dask scheduler, such as tcp://host:8786.")
    @click.option("--resume", is_flag=True, help="Go on with what is in the .zarr folder.")
    @click.option("--plan", is_flag=True, help="Say tiles, bytes and hours; compute nothing.")
    @functools.wraps(function)
    def with_spread(*arguments: Any, **options: Any) -> None:
        names = ("tile", "workers", "scheduler", "resume", "plan")
        spread = Spread(**{name: options.pop(name) for name in names})
        function(*arguments, spread=spread, **options)

    return with_spread


def print_plan(settings: Settings, task: Task, count: int, what: What, memory: int | None, spread: Spread) -> None:
    """Tiles, bytes and hours for COUNT inputs, from the speed on a few of them."""
    from initscope.scale import plan

    _, x = _inputs(settings, task, min(count, _SAMPLE))
    made = plan(
        task.network(),
        x,
        count=count,
        quantity=what.quantity,
        parametrization=what.parametrization,
        tile=spread.tile,
        workers=spread.workers or 1,
        memory=memory,
    )
    if settings.json:
        hours = {str(cores): made.hours_on(cores) for cores in _CORES}
        described = {"architecture": task.architecture, "data": task.data, **what.to_dict()}
        settings.print_json("kernel-plan", {**described, **made.to_dict(), "hours_on_cores": hours})
        return
    from initscope.report import facts_table

    settings.stdout().print(facts_table(_plan_facts(made)))


def _plan_facts(made: Plan) -> dict[str, str]:
    from initscope.networks.planning import size_text

    facts = {
        "matrix": f"{made.count} x {made.count}, {made.pairs:,} pairs",
        "tiles": f"{made.tiles:,} of at most {made.tile} x {made.tile}",
        "memory of a worker": f"at most {size_text(made.worker_bytes)}",
        "disk": size_text(made.disk_bytes),
    }
    if made.pair_seconds is not None:
        facts["a pair on one core"] = f"{made.pair_seconds:.3g} s, measured now"
        facts["a tile"] = _time_text(made.pair_seconds * made.pairs / made.tiles / 3600)
        for cores in sorted({made.workers, *_CORES}):
            facts[f"on {cores} core{'s' * (cores != 1)}"] = _time_text(made.hours_on(cores) or 0.0)
    return facts


def _time_text(hours: float) -> str:
    """Hours as people read them.

    >>> _time_text(0.001), _time_text(0.5), _time_text(5), _time_text(100)
    ('3.6 s', '30 min', '5 h', '4.2 days')
    """
    for unit, length in (("days", 24.0), ("h", 1.0), ("min", 1 / 60)):
        if hours >= length * (2 if unit == "days" else 1):
            return f"{hours / length:.2g} {unit}" if hours / length < 100 else f"{hours / length:,.0f} {unit}"
    return f"{hours * 3600:.2g} s"


def write_store(
    settings: Settings,
    task: Task,
    count: int,
    out: Path,
    what: What,
    memory: int | None,
    spread: Spread,
    summarise: Callable[[Any, str], dict[str, float | None]],
) -> None:
    """Compute what is missing of the matrix, tile by tile, and say what is in it."""
    data, x = _inputs(settings, task, count)
    run = _compute(settings, task, x, out, what, memory, spread)
    stored = run.open()
    summary = {"shape": list(stored.shape), "dtype": task.dtype, **_summary(stored, what.quantity, summarise)}
    accuracy = stored.accuracy
    tiles = {"tiles": run.plan.tiles, "tile": run.plan.tile, "computed": run.computed, "found": run.found}
    if settings.json:
        shape = list(x.shape[1:])
        source = {"source": data.source, "description": data.description, "count": len(data), "shape": shape}
        described = {"architecture": task.architecture, "data": source, **what.to_dict(), "width": task.width}
        seeds = {"data": settings.seed}
        settings.print_json(
            "kernel",
            {
                **described,
                "file": str(out),
                "summary": summary,
                "accuracy": accuracy.to_dict(),
                **tiles,
                "seconds": run.seconds,
                "seeds": seeds,
            },
        )
        return
    from initscope.report import facts_table

    side = " x ".join(str(length) for length in stored.shape)
    facts = {"folder": str(out), "matrix": f"{side}, {task.dtype}, {what}"}
    if accuracy.method != "exact":
        facts["accuracy"] = str(accuracy)
    facts["tiles"] = f"{run.plan.tiles} of at most {run.plan.tile} x {run.plan.tile}"
    facts["computed now"] = f"{run.computed}, {run.found} were complete, {run.seconds:.1f} s"
    facts["min, mean, max"] = ", ".join(
        "-" if (v := summary[n]) is None else f"{v:.5g}" for n in ("min", "mean", "max")
    )
    settings.stdout().print(facts_table(facts))


def _compute(
    settings: Settings, task: Task, x: torch.Tensor, out: Path, what: What, memory: int | None, spread: Spread
) -> KernelRun:
    """Say how large the work is, do it under a bar; after an interrupt say how to go on."""
    from initscope.scale import kernel_to

    with progress_bar(settings) as bar:
        advance = advancing(bar, bar.add_task("tiles", total=1.0))
        try:
            return kernel_to(
                task.network(),
                x,
                out,
                quantity=what.quantity,
                parametrization=what.parametrization,
                tile=spread.tile,
                workers=spread.workers or 0,
                scheduler=spread.scheduler,
                memory=memory,
                resume=spread.resume,
                progress=advance,
                say=settings.say,
            )
        except KeyboardInterrupt:
            if out.exists():
                settings.say(f"{out} keeps the complete tiles: add --resume to go on")
            raise


def _inputs(settings: Settings, task: Task, count: int) -> tuple[Any, torch.Tensor]:
    """The inputs on the CPU: tiles are computed there, on every worker alike."""
    if settings.device not in ("auto", "cpu"):
        problem = f"got {settings.device}, and tiles are computed on the CPU"
        raise BadInput("--device", problem, "use --device cpu, or write an .npy file")
    images, x = task.images(settings, count)
    return images, x.cpu()


def _summary(
    stored: StoredKernel, quantity: str, summarise: Callable[[Any, str], dict[str, float | None]]
) -> dict[str, float | None]:
    """That of the matrix if it is small, else range and mean from the records: an entry above the diagonal counts twice."""
    if len(stored) <= _MOST_READ:
        return summarise(stored.tensor().numpy(), quantity)
    records = stored.records()
    total = sum(record["sum"] * (1 if record["row"] == record["column"] else 2) for record in records)
    defined = [record for record in records if record["min"] is not None]
    undefined = any(record["undefined"] for record in records)
    return {
        "min": min((record["min"] for record in defined), default=None),
        "mean": None if undefined else total / len(stored) ** 2,
        "max": max((record["max"] for record in defined), default=None),
        "off_diagonal_cosine": None,
        "smallest_eigenvalue": None,
        "condition": None,
    }
