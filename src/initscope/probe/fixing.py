"""`fix`: the best remedy for a model's weights, applied to a copy and measured again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from initscope.errors import BadInput, first_line
from initscope.probe.batches import Batch, Loss, as_batch
from initscope.probe.checking import build, check, check_model
from initscope.probe.findings import SEVERITY, Note
from initscope.probe.progress import Progress, no_progress, part
from initscope.probe.redraw import Redraw
from initscope.probe.remedies.places import plan_of
from initscope.probe.remedies.remedy import Candidate, Changes, Conditions, Effect, Health, Remedy, curable
from initscope.probe.remedies.screening import (
    ALL,
    Trials,
    as_given,
    chosen,
    prescribe,
    stopped,
    treated,
    twin_of,
    weight_candidates,
)
from initscope.probe.report import Report
from initscope.probe.safekeeping import untouched
from initscope.probe.thresholds import DEFAULT, Thresholds
from initscope.probe.training import Training, check_targets, check_training, compare_training
from initscope.probe.turns import in_turn
from initscope.results import jsonable, shown

MARGIN = 0.1  # powers of ten that a change of the weights must win: less can be the luck of a draw
SHARE = 0.1  # of what the network is off by that it must win as well, where the verdict stays
CONFIRMED = 2  # of the best remedies of one draw, how many are measured again with all seeds before giving up


@dataclass(frozen=True, eq=False)
class Fixed:
    """A copy of the model with the remedy applied, and the evidence.

    `applied` is empty where nothing helped; then `model` has the weights of the original and `after` is `before`. The
    remedies of `before` are all that were tried; those of `after` are what can be done next, measured on the new weights.
    `note` says which weights no remedy changes.
    """

    model: nn.Module
    before: Report
    after: Report
    applied: tuple[Remedy, ...]
    message: str
    training: Training | None
    seconds: float = field(compare=False)
    note: str = ""

    def save(self, path: str | Path) -> Path:
        """The weights as a safetensors file; `safetensors.torch.load_model(model, path)` puts them into a model."""
        from safetensors import SafetensorError
        from safetensors.torch import save_model

        path = Path(path)
        if not path.parent.is_dir() or path.is_dir():
            raise BadInput("save", f"cannot write {path}", "name a file in a folder that exists")
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            save_model(self.model, str(temporary), {"initscope": self.message})
            temporary.replace(path)
        except (
            OSError,
            SafetensorError,
        ) as error:  # safetensors writes by itself, and tells of a full disk in its own way
            said = error.strerror if isinstance(error, OSError) else first_line(error)
            raise BadInput(
                "save", f"cannot write {path} ({said})", "free some space or choose another place"
            ) from error
        finally:
            temporary.unlink(missing_ok=True)
        return path

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists; what is not a number is null."""
        found: dict[str, Any] = {
            "message": self.message,
            "note": self.note,
            "applied": [asdict(r) for r in self.applied],
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "training": None if self.training is None else self.training.to_dict(),
            "seconds": self.seconds,
        }
        plain: dict[str, Any] = jsonable(found)
        return plain

    def summary(self) -> str:
        """What was done and what it changed, in a few lines."""
        lines = [self.message, *([self.note] if self.note else [])]
        old, new = Health.of(self.before), Health.of(self.after)
        for text, was, now in (
            ("angle between samples in front of the readout, degrees", old.angle_deg, new.angle_deg),
            ("activations against the data or the last normalization, worst step", old.norm_ratio, new.norm_ratio),
            ("gradient against the output's, worst step", old.grad_norm_ratio, new.grad_norm_ratio),
        ):
            lines.append(f"{text}: {_short(was)} -> {_short(now)}" if self.applied else f"{text}: {_short(was)}")
        if self.training is not None:
            first, second = self.training.before, self.training.after
            lines.append(f"loss after {self.training.steps} steps: {_short(first.final)} -> {_short(second.final)}")
        further = [r for r in self.after.remedies if r.changes != "weights" and r.effect.helps(MARGIN)]
        lines += [f"next: {r.name}: {r.description}" for r in further[:1]]
        return "\n".join(lines)

    def to_html(self, path: str | Path) -> Path:
        """One page that needs nothing else, before and after side by side."""
        written: Path = shown("page", "write_fix_page", self, path)
        return written

    def __repr__(self) -> str:
        if not self.applied:
            return f"Fixed(nothing applied, {self.before.verdict})"
        return f"Fixed({self.applied[0].name}, {self.before.verdict} -> {self.after.verdict})"

    def __str__(self) -> str:
        """What `initscope fix` prints."""
        return str(shown("fix_views", "fix_text", self))

    def _repr_html_(self) -> str:
        """The first screen of the page, for notebooks."""
        return str(shown("fix_views", "fix_html", self))


@in_turn
def fix(
    model: nn.Module | Callable[[], nn.Module],
    batch: Any,
    *,
    target: Any = None,
    loss: Loss | None = None,
    seeds: int = 3,
    seed: int = 0,
    remedy: str | None = "auto",
    train_steps: int = 0,
    lr: float | None = None,
    train: bool = True,
    dropout: bool = False,
    thresholds: Thresholds = DEFAULT,
    shell: str | None = None,
    progress: Progress = no_progress,
) -> Fixed:
    """Tries every remedy on copies, applies the best one for the weights to a copy, and measures that with all seeds.

    Weights change only if the finding that decides the verdict is a matter of weights, and if the verdict gets better, or
    stays and the network is clearly less off (`Health.decades`). "auto" leaves healthy models alone. Frozen weights and
    weights that are zero on purpose stay. The model itself is left as it was.

    Args:
        model: As for `check`, and so are batch, target, loss, seeds, seed, train, dropout, thresholds and progress.
        remedy: "auto", the name of the only one to try, or two names joined by "+".
        train_steps: Trains a copy of the model before and after for so many steps.
        lr: Learning rate of that training. Default: the best of three.
        shell: How the command line names model and data, for commands that can be pasted.

    Returns:
        The repaired copy, the reports before and after, and all that was tried.

    >>> import torch
    >>> net = nn.Sequential(*(m for _ in range(12) for m in (nn.Linear(64, 64), nn.ReLU())))
    >>> fixed = fix(net, torch.randn(16, 64, generator=torch.Generator().manual_seed(0)), seeds=1)
    >>> fixed.before.verdict, len(fixed.applied), Health.of(fixed.after).decades < Health.of(fixed.before).decades
    ('fail', 1, True)
    """
    started = time.perf_counter()
    conditions = Conditions(loss=loss, seed=seed, train=train, dropout=dropout, thresholds=thresholds)
    first = model if isinstance(model, nn.Module) else build(model, seed)
    check_model(first)
    with untouched(first, seed):
        given = as_batch(batch, first, target)
        check_training(train_steps, lr)
        options = conditions.for_check()
        before = check(
            model, as_given(given), target=given.target, seeds=seeds, progress=part(progress, 0.0, 0.2), **options
        )
        if train_steps and before.failure is None:
            check_targets(before.loss)
        factory = None if isinstance(model, nn.Module) else model
        work = _Work(first, factory, given, conditions, before, shell, part(progress, 0.2, 0.9))
        fixed = work.fixed(remedy or "auto")
        if train_steps and before.failure is None:
            pair = (first, fixed.model, batch, given)
            curves = compare_training(*pair, steps=train_steps, loss=loss, lr=lr, seed=seed)
            fixed = replace(fixed, training=curves)
    progress("done", 1.0)
    return replace(fixed, seconds=time.perf_counter() - started)


class _Work:
    """One call of `fix`: what is known about the model, and the steps from there to an answer."""

    def __init__(
        self,
        model: nn.Module,
        factory: Callable[[], nn.Module] | None,
        batch: Batch,
        conditions: Conditions,
        before: Report,
        shell: str | None,
        progress: Progress,
    ) -> None:
        self.model, self.batch, self.conditions, self.shell = model, batch, conditions, shell
        self.progress = progress
        self.before, self.redraw, self.note = before, Redraw(model, factory), ""

    def fixed(self, remedy: str) -> Fixed:
        if self.before.failure is not None:
            return self._unchanged(f"{stopped(self.before.failure)}; no remedy was tried")
        plan = plan_of(self.model, self.batch, self.conditions, self.before)
        self.note = plan.note
        able = weight_candidates(plan, self.model, self.before, self.conditions)
        wanted = self._best(able) if remedy == "auto" else [self._named(remedy, able)]
        if remedy == "auto" and self.before.verdict == "healthy":
            return self._unchanged("the model is healthy; the weights stay as they are")
        if remedy == "auto" and not curable(self.before):
            return self._unchanged("what was found is not a matter of the weights, they stay as they are")
        tried, good = "", []
        for candidate in wanted:
            twin, after = self._confirmed(candidate)
            if self._better(after) and after.verdict != "fail":
                good.append((candidate, twin, after))
                if after.verdict == "healthy":
                    break
            seeds = f"{after.seeds} seed{'s' * (after.seeds > 1)}"
            tried = f"{candidate.name} was tried with {seeds}: {self._off(after)}{_still(after)}; "
        if good:
            return self._changed(*min(good, key=lambda g: (SEVERITY[g[2].verdict], Health.of(g[2]).decades)))
        return self._unchanged(
            f"{tried}no change of the weights helps, they stay as they are" if able else self._none()
        )

    def _none(self) -> str:
        """Where there was nothing to try, that is what is said."""
        return f"nothing was tried: {self.note or 'no weights were found that a remedy could change'}"

    def _best(self, able: Sequence[Candidate]) -> list[Candidate]:
        """Everything is tried; the candidates that did best with one draw."""
        self.before = replace(self.before, remedies=self._prescribed(self.model, self.before, ALL))
        good = [r for r in self.before.remedies if r.changes == "weights" and r.effect.helps(MARGIN)]
        return [chosen(r.name, able) for r in good[:CONFIRMED]]

    def _named(self, name: str, able: Sequence[Candidate]) -> Candidate:
        """What the user asked for is the only thing tried."""
        hint = "; prescribe(model, batch) measures those for data and architecture, apply_remedy applies them"
        candidate = chosen(name, able, hint)
        tried = Trials(self.model, self.batch, self.conditions, self.shell).remedy(candidate)
        self.before = replace(self.before, remedies=(tried,))
        return candidate

    def _confirmed(self, candidate: Candidate) -> tuple[nn.Module, Report]:
        """The treated copy, and its report over all seeds: for each, the model's own new draw, treated."""
        seed = self.conditions.seed
        twin = treated(self.model, self.batch, candidate, seed)
        numbers = iter(range(self.before.seeds))

        def drawn() -> nn.Module:
            number = next(numbers)
            if number == 0:
                return twin
            other = self.redraw.draw(seed + number)
            if candidate.treat is not None:
                candidate.treat(other, self.batch, seed + number)
            return other

        options = self.conditions.for_check()
        after = check(drawn, as_given(self.batch), target=self.batch.target, seeds=self.before.seeds, **options)
        notes = [note for note in after.notes if note.kind != "draws"]
        if after.seeds > 1:
            notes.append(Note("draws", f"{self.redraw.how}, then {candidate.name}"))
        return twin, replace(after, notes=tuple(notes))

    def _prescribed(self, model: nn.Module, report: Report, changes: Sequence[Changes]) -> tuple[Remedy, ...]:
        return prescribe(
            model,
            as_given(self.batch),
            report,
            target=self.batch.target,
            conditions=self.conditions,
            changes=changes,
            shell=self.shell,
            progress=self.progress,
        )

    def _better(self, after: Report) -> bool:
        was = Health.of(self.before)
        return Effect(was, Health.of(after)).helps(max(MARGIN, SHARE * was.decades))

    def _off(self, after: Report) -> str:
        return f"off by {Health.of(self.before).decades:.2f} -> {Health.of(after).decades:.2f} powers of ten"

    def _changed(self, candidate: Candidate, twin: nn.Module, after: Report) -> Fixed:
        effect = Effect(Health.of(self.before), Health.of(after))
        known = next((r for r in self.before.remedies if r.name == candidate.name), None)
        command = known.command if known is not None else ""
        applied = Remedy(
            candidate.name, "weights", candidate.description, command, effect, True, candidate.note, candidate.code
        )
        others = tuple(r for r in self.before.remedies if r.name != candidate.name)
        self.progress = no_progress  # the bar has been there already
        further = self._prescribed(twin, after, ("data", "architecture"))
        return Fixed(
            model=twin,
            before=replace(self.before, remedies=(applied, *others)),
            after=replace(after, remedies=further),
            applied=(applied,),
            message=f"{candidate.name}: {self.before.verdict} -> {after.verdict}, {self._off(after)}",
            training=None,
            seconds=0.0,
            note=candidate.note,
        )

    def _unchanged(self, message: str) -> Fixed:
        return Fixed(twin_of(self.model), self.before, self.before, (), message, None, 0.0, self.note)


def _still(after: Report) -> str:
    return ", and it still fails" if after.verdict == "fail" else ""


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
