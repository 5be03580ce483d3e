"""Tries remedies on copies of a model and ranks them by what they did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from initscope.errors import BadInput, InitscopeError
from initscope.probe.batches import Batch, as_batch
from initscope.probe.checking import check
from initscope.probe.findings import SEVERITY
from initscope.probe.progress import Progress, no_progress
from initscope.probe.remedies import data, modules, pooling, redrawn, repairs, rescaled, widening
from initscope.probe.remedies.places import Plan, plan_of
from initscope.probe.remedies.redrawn import LAWS
from initscope.probe.remedies.remedy import Candidate, Changes, Conditions, Effect, Health, NotPossible, Remedy
from initscope.probe.report import Report
from initscope.probe.safekeeping import copied, untouched
from initscope.probe.turns import in_turn

ALL: tuple[Changes, ...] = ("weights", "data", "architecture")
BACKWARD = "backward pass: "  # how a failure of the second pass begins
RESCALINGS = ("data-scaling", "residual-scaling")
JOIN = "+"  # between the names of two remedies that are applied one after the other


@in_turn
def prescribe(
    model: nn.Module,
    batch: Any,
    report: Report | None = None,
    *,
    target: Any = None,
    conditions: Conditions = Conditions(),  # noqa: B008 - frozen
    changes: Sequence[Changes] = ALL,
    shell: str | None = None,
    progress: Progress = no_progress,
) -> tuple[Remedy, ...]:
    """Remedies for a model on a batch, each tried on a copy with one draw and measured; the best first.

    report: what `check` found, if it is there already. changes: which kinds to try. shell: how the command line names model
    and data ("mlp:10 --data photos"), for the commands; without it they are lines of Python. The model is left as it was.

    >>> import torch
    >>> net = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(64, 64), nn.ReLU())))
    >>> found = prescribe(net, torch.randn(8, 64, generator=torch.Generator().manual_seed(0)))
    >>> {r.name for r in found if r.changes == "weights"} >= {"he-fan-in", "orthogonal", "data-scaling"}
    True
    """
    with untouched(model, conditions.seed):
        given = as_batch(batch, model, target)
        report = report or check(model, as_given(given), target=given.target, seeds=1, **conditions.for_check())
        if report.failure is not None:
            return ()
        plan = plan_of(model, given, conditions, report)
        trials = Trials(model, given, conditions, shell)
        waiting = candidates(plan, model, given, report, conditions, changes)
        found = []
        for number, candidate in enumerate(waiting):
            progress(candidate.name, number / (len(waiting) + 2))
            found.append(trials.remedy(candidate))
        if "weights" in changes:
            progress("pairs of remedies", len(waiting) / (len(waiting) + 2))
            able = weight_candidates(plan, model, report, conditions)
            found += [trials.remedy(c) for c in pairs(able, found)]
    return ranked(found)


def ranked(remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """By the verdict that they lead to, then by improvement, the largest first; what was not measured comes last."""

    def place(remedy: Remedy) -> tuple[int, float]:
        after = remedy.effect.after
        return (len(SEVERITY), 0.0) if after is None else (SEVERITY[after.verdict], after.decades)

    return tuple(sorted(remedies, key=place))


def candidates(
    plan: Plan, model: nn.Module, batch: Batch, report: Report, conditions: Conditions, changes: Sequence[Changes] = ALL
) -> list[Candidate]:
    """Everything that can be tried on this model."""
    found: list[Candidate] = []
    if "weights" in changes:
        found += weight_candidates(plan, model, report, conditions)
    if "data" in changes:
        found += data.candidates(batch)
    if "architecture" in changes:
        found += [
            *modules.candidates(plan, model),
            *pooling.candidates(plan, report),
            *widening.candidates(plan, report),
        ]
    return found


def weight_candidates(plan: Plan, model: nn.Module, report: Report, conditions: Conditions) -> list[Candidate]:
    """All that change only weights and buffers: repairs of what was found first, since a tie goes to the smaller change."""
    return [
        *repairs.candidates(plan, model, report, conditions),
        *redrawn.candidates(plan, model),
        *rescaled.candidates(plan, model, conditions),
    ]


def pairs(able: Sequence[Candidate], tried: Sequence[Remedy]) -> list[Candidate]:
    """The best two laws, each together with each rescaling: new directions first, then their sizes."""
    laws = [r.name for r in ranked(tried) if r.name in LAWS and r.improvement is not None][:2]
    known = {c.name: c for c in able}
    return [joined([known[law], known[other]]) for law in laws for other in RESCALINGS if other in known]


def joined(parts: Sequence[Candidate]) -> Candidate:
    """One after the other; a single one is itself."""
    if len(parts) == 1:
        return parts[0]

    def treat(model: nn.Module, batch: Batch, seed: int) -> None:
        for part in parts:
            if part.treat is not None:
                part.treat(model, batch, seed)

    text = " Then: ".join(part.description for part in parts)
    note = "; ".join(dict.fromkeys(part.note for part in parts if part.note))
    lines = "\n".join(part.code for part in parts if part.code)
    return Candidate(JOIN.join(part.name for part in parts), parts[0].changes, text, treat=treat, note=note, code=lines)


class Trials:
    """Measures candidates against the untreated model, always on the same batch and with one draw."""

    def __init__(self, model: nn.Module, batch: Batch, conditions: Conditions, shell: str | None = None) -> None:
        self.model, self.batch, self.conditions, self.shell = model, batch, conditions, shell
        self.before = Health.of(self.measure(model, batch))

    def measure(self, model: nn.Module, batch: Batch) -> Report:
        return check(model, as_given(batch), target=batch.target, seeds=1, theory=False, **self.conditions.for_check())

    def remedy(self, candidate: Candidate) -> Remedy:
        """The candidate with its effect, or with the reason why there is none to show."""
        after, note = None, candidate.note
        try:
            after = self.after(candidate)
        except (NotPossible, InitscopeError) as reason:
            note = f"not measured: {reason}" + (f"; {note}" if note else "")
        return Remedy(
            name=candidate.name,
            changes=candidate.changes,
            description=candidate.description,
            command=candidate.command or _command(candidate, self.shell),
            effect=Effect(self.before, after),
            note=note,
            code=candidate.code,
        )

    def after(self, candidate: Candidate) -> Health | None:
        if candidate.alter is not None:
            return Health.of(self.measure(self.model, candidate.alter(self.batch)))
        if candidate.treat is None:
            return None
        report = self.measure(treated(self.model, self.batch, candidate, self.conditions.seed), self.batch)
        if report.failure is not None:
            raise NotPossible(f"the changed model does not run ({report.failure})")
        return Health.of(report)


def treated(model: nn.Module, batch: Batch, candidate: Candidate, seed: int) -> nn.Module:
    """A copy of the model with the remedy applied; stale gradients are dropped."""
    twin = twin_of(model)
    if candidate.treat is not None:
        candidate.treat(twin, batch, seed)
    return twin


def twin_of(model: nn.Module) -> nn.Module:
    """A copy that shares nothing with the model."""
    try:
        twin = copied(model)
    except Exception as error:
        raise BadInput(
            "model", f"cannot be copied ({type(error).__name__}: {error})", "pass a model fresh from its class"
        ) from error
    twin.zero_grad(set_to_none=True)
    return twin


def stopped(failure: str) -> str:
    """Which pass a report's failure is about, in words."""
    back = failure.removeprefix(BACKWARD)
    return f"the forward pass fails ({failure})" if back == failure else f"the backward pass fails ({back})"


def as_given(batch: Batch) -> Any:
    """The batch in a form that `check` takes."""
    return batch.keywords or batch.arguments


def _command(candidate: Candidate, shell: str | None) -> str:
    if candidate.changes == "weights":
        if shell is not None:
            return f"initscope fix {shell} --remedy {candidate.name}"
        return f'model = initscope.fix(model, batch, remedy="{candidate.name}").model'
    return f'model = initscope.probe.apply_remedy(model, batch, "{candidate.name}")'


@in_turn
def apply_remedy(
    model: nn.Module,
    batch: Any,
    name: str,
    *,
    target: Any = None,
    conditions: Conditions = Conditions(),  # noqa: B008
) -> nn.Module:
    """A copy of the model with one remedy for its weights or its architecture, whether it helps or not.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> apply_remedy(net, torch.randn(4, 8), "leaky-slope")[1]
    LeakyReLU(negative_slope=0.2)
    """
    with untouched(model, conditions.seed):
        given = as_batch(batch, model, target)
        report = check(model, as_given(given), target=given.target, seeds=1, theory=False, **conditions.for_check())
        if report.failure is not None:
            raise BadInput("model", stopped(report.failure), "repair that first")
        plan = plan_of(model, given, conditions, report)
        able = [c for c in candidates(plan, model, given, report, conditions) if c.treat is not None]
        candidate = chosen(name, able)
        try:
            return treated(model, given, candidate, conditions.seed)
        except NotPossible as reason:
            raise BadInput("remedy", f"{name}: {reason}", "choose another remedy") from reason


def chosen(name: str, able: Sequence[Candidate], also: str = "") -> Candidate:
    """The candidate called `name`, or two of them, `first+second`."""
    known = {c.name: c for c in able}
    parts = name.split(JOIN) if isinstance(name, str) else []
    missing = [part for part in parts if part not in known]
    if not parts or missing or len(parts) > 2:
        problem = f"got {name!r}" + (f", and {missing[0]!r} does not apply to this model" if missing else "")
        raise BadInput("remedy", problem, f"choose from {', '.join(known)}, or two of them joined by {JOIN!r}{also}")
    return joined([known[part] for part in parts])
