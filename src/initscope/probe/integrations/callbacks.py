"""Callbacks that check a model when its training starts, on the first batch of its own data.

The training goes as it would without them: random states are put back, the loader's own iterator is not started, and a
model that cannot be checked is named in a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

from torch.utils.data import DataLoader, IterableDataset

from initscope.errors import BadInput, MissingExtra
from initscope.probe.checking import check
from initscope.probe.integrations.scalars import scalars
from initscope.probe.report import Report
from initscope.probe.safekeeping import same_randomness

On = Literal["fail", "warn", "never"]


class _AtStart:
    """What both callbacks do: check, keep the report, log it, stop an unhealthy training if asked to."""

    def __init__(self, stop: On, options: dict[str, Any]) -> None:
        if stop not in ("fail", "warn", "never"):
            raise BadInput("callback", f"stop is {stop!r}", "use 'fail', 'warn' or 'never'")
        self.stop, self.options = stop, {"seeds": 1, **options}
        self.report: Report | None = None

    def run(
        self, model: Any, loader: Any, batch: Any, moved: Callable[[Any], Any], log: Callable[[dict[str, float]], None]
    ) -> None:
        """`batch`, or without one the first of `loader`, goes through `moved` to the model's device."""
        self.report = None
        try:
            given = moved(first_batch(loader) if batch is None else batch)
            report = check(model, given, **self.options)
        except Exception as error:  # a training that nobody asked to stop goes on, whatever the check met
            if self.stop != "never":
                raise
            _not_checked(str(error) if isinstance(error, BadInput) else f"{type(error).__name__}: {error}")
            return
        if report.failure is not None and self.stop == "never":
            _not_checked(report.failure)
            return
        self.report = report
        log(scalars(report))
        if self.stop != "never":
            report.assert_healthy(allow_warnings=self.stop == "fail")


def _not_checked(why: str) -> None:
    said = next(iter(why.strip().splitlines()), why)
    remedy = "pass batch=... as the model's forward takes it"
    warnings.warn(f"initscope did not check the model, the training goes on: {said}; {remedy}", stacklevel=4)


def first_batch(loader: Any) -> Any:
    """The first batch of a loader, or of each of several; no random state shows that it was fetched.

    Of a DataLoader the samples are fetched here, since its iterator would start workers and count as a round.
    """
    if isinstance(loader, Mapping):
        return {name: first_batch(one) for name, one in loader.items()}
    if isinstance(loader, list | tuple):
        return [first_batch(one) for one in loader]
    with same_randomness(loader), same_randomness(getattr(loader, "batch_sampler", None)):
        plain = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
        if not plain or loader.batch_sampler is None:
            return next(iter(loader))
        chosen, data = next(iter(loader.batch_sampler)), loader.dataset
        many = getattr(data, "__getitems__", None)
        return loader.collate_fn([data[i] for i in chosen] if many is None else many(chosen))


def lightning_callback(*, stop: On = "never", batch: Any = None, **options: Any) -> Any:
    """A Lightning callback: `Trainer(callbacks=[lightning_callback()])`.

    At the start of `fit` the module is checked on the first training batch (or on `batch`), and the scalars go to the
    trainer's logger. `stop="fail"` ends the fit with `Unhealthy`. The report stays in `callback.report`; it is None, after
    a warning, where the module's forward does not take the batch.
    """
    base = _first_module("lightning.pytorch", "pytorch_lightning").Callback
    work = _AtStart(stop, options)

    class CheckAtStart(base):  # type: ignore[misc, valid-type]
        @property
        def report(self) -> Report | None:
            return work.report

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            def moved(given: Any) -> Any:
                return pl_module.transfer_batch_to_device(given, pl_module.device, 0)

            log = trainer.logger.log_metrics if trainer.logger is not None else lambda values: None
            work.run(pl_module, trainer.train_dataloader, batch, moved, log)

    return CheckAtStart()


def trainer_callback(*, stop: On = "never", batch: Any = None, **options: Any) -> Any:
    """A callback for Hugging Face's `Trainer(callbacks=[trainer_callback()])`.

    When training begins the model is checked on the first training batch (or on `batch`); labels in it give the model's own
    loss. Numbers go to the trainer's log history. `stop="fail"` ends the training with `Unhealthy`. The report stays in
    `callback.report`; it is None, after a warning, where the model cannot be checked.
    """
    base = _first_module("transformers").TrainerCallback
    work = _AtStart(stop, options)

    class CheckAtStart(base):  # type: ignore[misc, valid-type]
        @property
        def report(self) -> Report | None:
            return work.report

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            model = given["model"]

            def moved(data: Any) -> Any:
                return {k: v.to(model.device) if hasattr(v, "to") else v for k, v in dict(data).items()}

            def log(values: dict[str, float]) -> None:
                state.log_history.append({"step": state.global_step, **values})

            work.run(model, given["train_dataloader"], batch, moved, log)

    return CheckAtStart()


def _first_module(*names: str) -> Any:
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise MissingExtra("callback", f"{names[0]} is not installed", f"pip install {names[0].partition('.')[0]}")
