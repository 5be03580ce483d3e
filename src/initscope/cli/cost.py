"""Before long work: what it will take, on stderr, and a refusal where memory does not suffice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from initscope.cli.common import Settings, progress_bar
from initscope.cli.probing import Job, Subject
from initscope.errors import BadInput

if TYPE_CHECKING:
    from torch import nn

LONG = 10.0  # seconds from which an estimate is said
_TRIALS = 14  # remedies that `fix` tries, one pass each
_RATES = 3  # learning rates that are tried for each of two models


def load_subject(settings: Settings, job: Job, *, tries_remedies: bool = False, train_steps: int = 0) -> Subject:
    """The model and the batch; before a large batch is loaded, stderr says what the work will take."""
    with progress_bar(settings) as bar:
        bar.add_task("load", total=None)

        def announce(model: nn.Module, batch: Any, samples: int) -> None:
            bar.stop()
            announce_cost(settings, job, model, batch, samples, tries_remedies=tries_remedies, train_steps=train_steps)
            bar.start()

        return job.load(settings, announce, trains=train_steps > 0)


def announce_cost(
    settings: Settings,
    job: Job,
    model: nn.Module,
    batch: Any,
    samples: int,
    *,
    tries_remedies: bool = False,
    train_steps: int = 0,
) -> None:
    """Say how long the work on so many samples will take if it is long; refuse it where memory does not suffice.

    batch: some of the samples.
    """
    from initscope.networks.planning import free_memory, size_text
    from initscope.probe.batches import as_batch
    from initscope.probe.progress import cost_model

    given = as_batch(batch, model)
    costs = cost_model(model, given, seed=settings.seed)
    if costs is None:
        return
    needed, free = costs.of(samples, job.seeds).bytes, free_memory(given.data.device)
    if needed > free:
        fitting = costs.most_samples(free, job.seeds)
        option, fewer = (
            ("--samples", f"--samples {fitting}") if job.batch is None else ("--batch", f"{fitting} samples")
        )
        remedy = f"use {fewer} or fewer" if fitting >= 2 else "use a smaller model or smaller inputs"
        problem = f"{samples:,} samples need about {size_text(needed)} of memory, {size_text(free)} are free"
        raise BadInput(option, problem, remedy)
    passes = 3 * job.seeds + _TRIALS if tries_remedies else job.seeds
    fixed, each = costs.seconds
    seconds = costs.of(samples, passes).seconds + 2 * _RATES * train_steps * (fixed + each * samples)
    if seconds > LONG:
        settings.say(f"about {duration_text(seconds)}, {size_text(needed)}")


def duration_text(seconds: float) -> str:
    """A duration as people say it.

    >>> duration_text(12.3), duration_text(250), duration_text(9000)
    ('12 s', '4 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
