"""Callbacks that check a model when its training starts, on the first batch of its own data."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

from initscope.errors import BadInput, MissingExtra
from initscope.probe.checking import check
from initscope.probe.integrations.scalars import scalars
from initscope.probe.report import Report

On = Literal["fail", "warn", "never"]


class _AtStart:
    """What both callbacks do: check, keep the report, log it, stop an unhealthy training if asked to."""

    def __init__(self, stop: On, options: dict[str, Any]) -> None:
        if stop not in ("fail", "warn", "never"):
            raise BadInput("callback", f"stop is {stop!r}", "use 'fail', 'warn' or 'never'")
        self.stop, self.options = stop, {"seeds": 1, **options}
        self.report: Report | None = None

    def run(self, model: Any, batch: Any, log: Callable[[dict[str, float]], None]) -> None:
        self.report = check(model, batch, **self.options)
        log(scalars(self.report))
        if self.stop != "never":
            self.report.assert_healthy(allow_warnings=self.stop == "fail")


def lightning_callback(*, stop: On = "never", batch: Any = None, **options: Any) -> Any:
    """A Lightning callback: `Trainer(callbacks=[lightning_callback()])`.

    At the start of `fit` the module is checked on the first training batch (or on `batch`), and the scalars go to the
    trainer's logger. `stop="fail"` ends the fit with `Unhealthy`. The report stays in `callback.report`.
    """
    base = _first_module("lightning.pytorch", "pytorch_lightning").Callback
    work = _AtStart(stop, options)

    class CheckAtStart(base):  # type: ignore[misc, valid-type]
        @property
        def report(self) -> Report | None:
            return work.report

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            given = batch if batch is not None else next(iter(trainer.train_dataloader))
            given = pl_module.transfer_batch_to_device(given, pl_module.device, 0)
            log = trainer.logger.log_metrics if trainer.logger is not None else lambda values: None
            work.run(pl_module, given, log)

    return CheckAtStart()


def trainer_callback(*, stop: On = "never", batch: Any = None, **options: Any) -> Any:
    """A callback for Hugging Face's `Trainer(callbacks=[trainer_callback()])`.

    When training begins the model is checked on the first training batch (or on `batch`); labels in it give the model's own
    loss. Numbers go to the trainer's log history. `stop="fail"` ends the training with `Unhealthy`.
    """
    base = _first_module("transformers").TrainerCallback
    work = _AtStart(stop, options)

    class CheckAtStart(base):  # type: ignore[misc, valid-type]
        @property
        def report(self) -> Report | None:
            return work.report

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            model = given["model"]
            data = batch if batch is not None else next(iter(given["train_dataloader"]))
            data = {k: v.to(model.device) if hasattr(v, "to") else v for k, v in dict(data).items()}
            work.run(model, data, lambda values: state.log_history.append({"step": state.global_step, **values}))

    return CheckAtStart()


def _first_module(*names: str) -> Any:
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise MissingExtra("callback", f"{names[0]} is not installed", f"pip install {names[0].partition('.')[0]}")
