"""`initscope kernel`: the matrix of all pairs, into a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from initscope.cli.common import Settings, advancing, common_options, progress_bar
from initscope.cli.kernel_scale import Spread, print_plan, spread_options, write_store
from initscope.cli.kernel_what import What, what_options
from initscope.cli.options import Task, memory_option, task_options
from initscope.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    import torch

    from initscope.finite import Estimate
    from initscope.networks import Accuracy, Sequential

_MOST_EIGENVALUES = 2000  # the spectrum of a larger matrix takes longer than a summary may


@click.command("kernel", short_help="The matrix of all pairs of inputs, into an .npy, .npz or .zarr file.")
@common_options
@task_options(data="gaussian", dtype="float32")
@click.option("--count", type=click.IntRange(1), default=50, show_default=True, help="How many inputs.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="The .npy or .npz file or .zarr folder.")
@what_options
@memory_option
@spread_options
def command(
    settings: Settings,
    task: Task,
    count: int,
    out: Path | None,
    what: What,
    memory: int | None,
    spread: Spread,
) -> None:
    """The kernel matrix of the infinitely wide network ARCH over COUNT inputs, written to a file.

    An .npy file holds the matrix; an .npz file holds it as `kernel`, beside `architecture`, `data`, `quantity`, `seed`.

    --quantity tangent is the matrix of inner products of gradients (NTK). --method sketch is for convolutions with a
    global average: without the sum over all pairs of positions, with a bound of each entry's error at --level (`error` in
    the .npz file).

    A .zarr folder is written tile by tile, by worker processes or a Dask cluster if asked for; a run that was stopped
    or killed goes on with --resume. --memory is then that of each worker.
    """
    from initscope.files import check_writable, write_atomically

    what.check(out, spread)
    if spread.plan:
        print_plan(settings, task, count, what, memory, spread)
        return
    if out is None:
        raise BadInput("--out", "is missing", "name a .npy, .npz or .zarr file, or ask only for a --plan")
    if out.suffix.lower() == ".zarr":
        write_store(settings, task, count, out, what, memory, spread, summarise)
        return
    if out.suffix.lower() not in (".npy", ".npz"):
        raise BadInput("--out", f"got '{out.name}', expected a .npy, .npz or .zarr file", f"name it {out.stem}.npy")
    if spread != Spread():
        raise BadInput("--out", f"got '{out.name}', and options for tiles", f"name it {out.stem}.zarr")
    check_writable(out, "--out")
    net = task.network()
    data, x = task.images(settings, count)
    matrix, errors, accuracy = _compute(settings, net, x, what, memory)
    write_atomically(out, lambda file: _write(file, out, matrix, errors, accuracy, settings, task, what), "--out")
    summary = {"shape": list(matrix.shape), "dtype": task.dtype, **summarise(matrix, what.quantity)}
    certificate = None if errors is None else _certificate(errors, what, x.dtype)
    if settings.json:
        source = {
            "source": data.source,
            "description": data.description,
            "count": len(data),
            "shape": list(x.shape[1:]),
        }
        settings.print_json(
            "kernel",
            {
                "architecture": task.architecture,
                "data": source,
                **what.to_dict(),
                "width": task.width,
                "file": str(out),
                "summary": summary,
                "accuracy": accuracy.to_dict(),
                "sketch": certificate,
                "seeds": {"data": settings.seed, "simulation": settings.seed},
            },
        )
    else:
        _print_summary(settings, out, what, summary, certificate, accuracy)


def _compute(
    settings: Settings, net: Sequential, x: torch.Tensor, what: What, budget: int | None
) -> tuple[np.ndarray[Any, np.dtype[np.floating[Any]]], Estimate | None, Accuracy]:
    """Say how large the work is, do it under a bar, and bring the matrix back as an array; a sketch with its errors."""
    from initscope.finite import sketch_kernel
    from initscope.networks import Accuracy, kernel_estimate, kernel_with_error, tangent_kernel_with_error
    from initscope.networks.accuracy import warn_inexact
    from initscope.networks.machine import compiling_announced
    from initscope.networks.planning import size_text

    pairs = len(x) * (len(x) + 1) // 2
    errors: Estimate | None = None
    with progress_bar(settings) as bar, compiling_announced(settings.say):
        advance = advancing(bar, bar.add_task("kernel", total=1.0))
        if what.method == "sketch":
            settings.say(f"{len(x)} x {len(x)} kernel: {pairs:,} pairs, a sketch")
            errors = sketch_kernel(net, x.cpu(), work=what.work, seed=settings.seed, dtype=x.dtype, progress=advance)
            share = errors.stderr.max() / errors.value.diagonal().max()
            matrix, accuracy = errors.value.to(x.dtype), Accuracy("simulated", float(share))
        elif what.quantity == "tangent":
            settings.say(f"{len(x)} x {len(x)} tangent kernel: {pairs:,} pairs")
            result = tangent_kernel_with_error(
                net, x, parametrization=what.parametrization or "ntk", memory=budget, progress=advance
            )
            matrix, accuracy = result.value, result.accuracy
        else:
            estimate = kernel_estimate(net, x, quantity=what.quantity, memory=budget)
            settings.say(
                f"{len(x)} x {len(x)} kernel: {pairs:,} pairs, about {size_text(estimate.peak_bytes)} of memory, "
                f"{estimate.updates:.1e} pairs of units ({estimate.method}: {estimate.why})"
            )
            result = kernel_with_error(
                net, x, quantity=what.quantity, memory=budget, seed=settings.seed, progress=advance
            )
            matrix, accuracy = result.value, result.accuracy
    warn_inexact("kernel", accuracy, matrix.dtype)
    return matrix.cpu().numpy(), errors, accuracy


def _stated_error(errors: Estimate, what: What, dtype: torch.dtype) -> torch.Tensor:
    """Of each entry at the level asked for; the matrix is written in `dtype`, and that rounds it."""
    import torch

    return errors.reach(what.sketch_level) + torch.finfo(dtype).eps / 2 * errors.value.abs()


def _certificate(errors: Estimate, what: What, dtype: torch.dtype) -> dict[str, Any]:
    """How large the error of an entry may be at the level asked for: in units of the matrix, and of the entry."""
    reach = _stated_error(errors, what, dtype)
    share = (reach / errors.value.abs()).nan_to_num(0.0, posinf=math.inf)  # inputs that are zero have no error
    return {
        "work": what.work,
        "draws": errors.draws,
        "level": what.sketch_level,
        "largest_error": float(reach.max()),
        "largest_relative_error": float(share.max()),
        "median_relative_error": float(share.median()),
    }


def _write(
    file: IO[bytes],
    out: Path,
    matrix: Any,
    errors: Estimate | None,
    accuracy: Accuracy,
    settings: Settings,
    task: Task,
    what: What,
) -> None:
    import numpy as np

    if out.suffix.lower() == ".npy":
        np.save(file, matrix, allow_pickle=False)
        return
    more: dict[str, Any] = {"error": np.float64(accuracy.error)}
    if what.parametrization is not None:
        more["parametrization"] = np.str_(what.parametrization)
    if errors is not None:
        import torch

        error = _stated_error(errors, what, torch.from_numpy(matrix).dtype)
        more |= {"error": error.numpy(), "level": np.float64(what.sketch_level)}
        more |= {"stderr": errors.stderr.numpy(), "draws": np.int64(errors.draws)}
    np.savez(
        file,
        kernel=matrix,
        architecture=np.str_(task.architecture),
        data=np.str_(task.data),
        quantity=np.str_(what.quantity),
        method=np.str_(what.method),
        rung=np.str_(accuracy.method),
        seed=np.int64(settings.seed),
        **more,
    )


def summarise(matrix: np.ndarray[Any, Any], quantity: str) -> dict[str, float | None]:
    """Range and mean of the entries, the mean cosine off the diagonal, and the spectrum of a Gram matrix.

    What the quantity does not tell, or would take too long, is None.
    """
    import numpy as np

    exact = matrix.astype(np.float64)
    count = len(exact)
    summary: dict[str, float | None] = {
        "min": float(exact.min()),
        "mean": float(exact.mean()),
        "max": float(exact.max()),
        "off_diagonal_cosine": None,
        "smallest_eigenvalue": None,
        "condition": None,
    }
    if quantity != "distance" and count > 1:
        gram = quantity in ("product", "tangent")
        values = _to_cosine(exact) if gram else 1 - exact if quantity == "defect" else exact
        summary["off_diagonal_cosine"] = float((values.sum() - np.trace(values)) / (count * (count - 1)))
    if quantity in ("product", "cosine", "tangent") and count <= _MOST_EIGENVALUES and bool(np.isfinite(exact).all()):
        spectrum = np.linalg.eigvalsh(exact)
        summary["smallest_eigenvalue"] = float(spectrum[0])
        summary["condition"] = float(spectrum[-1] / spectrum[0]) if spectrum[0] > 0 else None
    return summary


def _to_cosine(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    norms = np.sqrt(np.diagonal(matrix))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine: np.ndarray[Any, Any] = matrix / np.outer(norms, norms)
    return cosine


def _print_summary(
    settings: Settings,
    out: Path,
    what: What,
    summary: dict[str, Any],
    certificate: dict[str, Any] | None,
    accuracy: Accuracy,
) -> None:
    from initscope.networks.planning import size_text
    from initscope.report import facts_table

    shape = " x ".join(str(side) for side in summary["shape"])
    facts = {"file": f"{out} ({size_text(out.stat().st_size)})", "matrix": f"{shape}, {summary['dtype']}, {what}"}
    facts["min, mean, max"] = ", ".join(f"{summary[name]:.5g}" for name in ("min", "mean", "max"))
    labels = {"off_diagonal_cosine": "mean off-diagonal cosine", "smallest_eigenvalue": "smallest eigenvalue"}
    for name, label in {**labels, "condition": "condition number"}.items():
        if summary[name] is not None:
            facts[label] = f"{summary[name]:.5g}"
    if certificate is None and accuracy.method != "exact":
        facts["accuracy"] = str(accuracy)
    if certificate is not None:
        median, largest = (certificate[f"{name}_relative_error"] for name in ("median", "largest"))
        facts[f"error, confidence {certificate['level']:.4g}"] = (
            f"{median:.2g} of an entry (median), {largest:.2g} at most"
        )
    settings.stdout().print(facts_table(facts))
