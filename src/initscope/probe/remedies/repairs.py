"""Remedies for one mistake each: norms, running statistics, embeddings, sines. They change what is wrong and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from initscope.probe.batches import Batch
from initscope.probe.remedies.places import Plan, Site, following
from initscope.probe.remedies.remedy import Candidate, Conditions
from initscope.probe.report import Report
from initscope.probe.safekeeping import prepare
from initscope.probe.trace import INPUT, Call

EMBEDDING = 1.0  # root mean square of embeddings that are only read
_SMALL = 1e-4  # at which the slope of a sine is read off


def candidates(plan: Plan, model: nn.Module, report: Report, conditions: Conditions) -> list[Candidate]:
    """Those for which there is something to repair."""
    found = []
    kinds = {f.kind for f in report.findings}
    norms = [name for name, m in model.named_modules() if _is_norm(m) and not _plain(m)]
    if norms:
        text = f"Set the scale of {len(norms)} normalization layer{'s' * (len(norms) > 1)} to 1 and the shift to 0."
        treat = partial(reset_norms, names=tuple(norms))
        found.append(Candidate("reset-norms", "weights", text, treat=treat, code=_NORM_CODE))
    if "norm-statistics" in kinds:
        text = "Reset the running statistics of all batch norms and estimate them again on this batch."
        found.append(Candidate("reset-statistics", "weights", text, treat=reset_statistics, code=_STATISTICS_CODE))
    tables = embeddings(plan, model)
    if tables and kinds & {"initial-loss", "output-scale", "activation-scale", "zero-weights", "collapse"}:
        sizes = ", ".join(f"{name} to {size:.3g}" for name, size in tables.items())
        text = f"Bring the embeddings to this root mean square: {sizes}."
        treat = partial(scale_embeddings, sizes=tables)
        found.append(Candidate("scale-embedding", "weights", text, treat=treat, code=_embedding_code(tables)))
    waves = sines(plan, model)
    if waves:
        text = "Draw the weights uniformly within 1/n in the first layer and within √(6/n)/ω in the others (SIREN's own law)."
        treat = partial(draw_siren, waves=tuple(waves), rest=_behind(plan, waves))
        found.append(Candidate("siren", "weights", text, treat=treat, code=_siren_code(plan, waves)))
    return found


def reset_norms(model: nn.Module, batch: Batch, seed: int, *, names: Sequence[str]) -> None:
    """Scales of one and shifts of zero."""
    with torch.no_grad():
        for name in names:
            module = model.get_submodule(name)
            for key, p in module.named_parameters(recurse=False):
                p.fill_(_neutral(module, key))


def reset_statistics(model: nn.Module, batch: Batch, seed: int) -> None:
    """The statistics of the batch itself, from one pass in training mode without dropout."""
    layers = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    modes = [(m, m.training) for m in model.modules()]
    momenta = [(m, m.momentum) for m in layers]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        prepare(model, train=True, dropout=False)
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the mean over all passes, here over one
        batch.copy().run(model)
    for layer, momentum in momenta:
        layer.momentum = momentum
    for module, mode in modes:
        module.training = mode


def embeddings(plan: Plan, model: nn.Module) -> dict[str, float]:
    """Trainable embeddings and positions, and the root mean square that each should have.

    One that is also the output's matrix gets 1/√d: then logits have unit size.
    """
    read = {name for call in plan.calls if call.kind == "embedding" for name in call.parameters}
    attended = {call.index for call in plan.calls if call.kind == "attention"}
    early = [call for call in plan.calls if call.kind == "shift" and not plan.ancestors(call.index) & attended]
    added = {name for call in early for name in call.sources}  # also what is looked up by positions, not by the data
    products = {name for call in plan.calls if call.kind in ("dense", "attention") for name in call.sources}
    found = {}
    for name, p in model.named_parameters():
        table = name in read or (name in added and sum(side > 1 for side in p.shape) > 1)
        if table and p.requires_grad:
            found[name] = 1 / math.sqrt(p.shape[-1]) if name in products else EMBEDDING
    return found


def scale_embeddings(model: nn.Module, batch: Batch, seed: int, *, sizes: dict[str, float]) -> None:
    """Scales them; those that are zero are drawn."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, size in sizes.items():
            p = model.get_parameter(name)
            rms = float(p.double().square().mean().sqrt())
            if rms > 0:
                p.mul_(size / rms)
            else:
                p.copy_((size * torch.randn(p.shape, generator=generator)).to(p))


def sines(plan: Plan, model: nn.Module) -> list[tuple[Site, float]]:
    """Weights that feed a sine, with its frequency."""
    found = []
    for site in plan.sites:
        after = following(site.call, plan.consumers)
        frequency = None if after is None else _frequency(after, plan, model)
        if frequency is not None:
            found.append((site, frequency))
    return found


def draw_siren(
    model: nn.Module,
    batch: Batch,
    seed: int,
    *,
    waves: Sequence[tuple[Site, float]],
    rest: Sequence[tuple[Site, float]],
) -> None:
    """Sitzmann et al. 2020, section 3.2; biases uniform within 1/√n."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(shape: Sequence[int], bound: float) -> Tensor:
        return bound * (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1)

    with torch.no_grad():
        for number, (site, frequency) in enumerate([*waves, *rest]):
            inputs = site.fans.fan_in
            bound = 1 / inputs if number == 0 else math.sqrt(6 / inputs) / frequency
            site.write(model, uniform(site.shape, bound))
            if site.bias is not None:
                shift = model.get_parameter(site.bias)
                shift.copy_(uniform(shift.shape, 1 / math.sqrt(inputs)))


def _behind(plan: Plan, waves: Sequence[tuple[Site, float]]) -> tuple[tuple[Site, float], ...]:
    """The other weights, with the frequency of the last sine: the readout."""
    fed = {site.name for site, _ in waves}
    return tuple((site, waves[-1][1]) for site in plan.sites if site.name not in fed)


def _frequency(call: Call, plan: Plan, model: nn.Module) -> float | None:
    """ω of sin(ω x): the factor in front of a sine, or the slope at zero of a module that is one."""
    if call.function == "sin":
        before = plan.calls[call.inputs[0]] if call.inputs[0] != INPUT else None
        factors = [a for a in before.arguments if isinstance(a, int | float)] if before is not None else []
        return float(abs(factors[0])) if before is not None and before.kind == "scale" and factors else 1.0
    if "sin" not in call.function:
        return None
    try:
        with torch.no_grad():
            value = model.get_submodule(call.module)(torch.tensor([_SMALL], dtype=torch.float64))
        return float(value.abs().max()) / _SMALL or None
    except Exception:  # a user's module may refuse a vector in any way
        return None


def _is_norm(module: nn.Module) -> bool:
    own = [p for _, p in module.named_parameters(recurse=False)]
    return "norm" in type(module).__name__.lower() and bool(own) and all(p.ndim == 1 for p in own)


def _plain(module: nn.Module) -> bool:
    """Whether its scale is 1 and its shift 0 already."""
    return all(bool((p == _neutral(module, key)).all()) for key, p in module.named_parameters(recurse=False))


def _neutral(module: nn.Module, key: str) -> float:
    """The value that changes nothing; Gemma's scale is what is added to 1."""
    return 0.0 if key == "bias" or "gemma" in type(module).__name__.lower() else 1.0


_NORM_CODE = """\
for m in model.modules():
    if "norm" in type(m).__name__.lower():
        for name, p in m.named_parameters(recurse=False):
            nn.init.zeros_(p) if name == "bias" else nn.init.ones_(p)"""
_STATISTICS_CODE = """\
for m in model.modules():
    if isinstance(m, nn.modules.batchnorm._BatchNorm):
        m.reset_running_stats()
        m.momentum = None  # the mean over the passes below; set it back afterwards
model.train()
with torch.no_grad():
    model(batch)"""


def _embedding_code(sizes: dict[str, float]) -> str:
    return "\n".join(f'nn.init.normal_(model.get_parameter("{name}"), std={size:.6g})' for name, size in sizes.items())


def _siren_code(plan: Plan, waves: Sequence[tuple[Site, float]]) -> str:
    listed = [*waves, *_behind(plan, waves)]
    lines = []
    for number, (site, frequency) in enumerate(listed):
        bound = 1 / site.fans.fan_in if number == 0 else math.sqrt(6 / site.fans.fan_in) / frequency
        lines.append(f'nn.init.uniform_(model.get_parameter("{site.name}"), -{bound:.6g}, {bound:.6g})')
    return "\n".join(lines)
