"""Remedies that put other modules into the model: leaky slopes, batch normalisation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from initscope.probe.batches import Batch
from initscope.probe.remedies.places import Plan
from initscope.probe.remedies.remedy import Candidate, NotPossible
from initscope.probe.trace import Call

SLOPE = 0.2
_NORMS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: nn.BatchNorm1d,
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.ConvTranspose1d: nn.BatchNorm1d,
    nn.ConvTranspose2d: nn.BatchNorm2d,
    nn.ConvTranspose3d: nn.BatchNorm3d,
}


def candidates(plan: Plan, model: nn.Module) -> list[Candidate]:
    """A leaky slope where there is a ReLU, batch normalisation where a hidden weight has none."""
    found = []
    relus = [call for call in plan.calls if call.function == "relu"]
    if relus:
        text = f"Replace ReLU by LeakyReLU({SLOPE}): angles shrink less with every layer, and no unit is ever dead."
        functional = [call for call in relus if type(model.get_submodule(call.module)) is not nn.ReLU]
        note = f"{len(functional)} of {len(relus)} ReLUs are functions, not modules, and stay" if functional else ""
        found.append(Candidate("leaky-slope", "architecture", text, treat=leak, note=note, code=_LEAKY_CODE))
    bare = [call for call in plan.calls if _wants_norm(call, plan)]
    if bare:
        text = f"Put batch normalisation behind the {len(bare)} hidden weight layers that have no normalisation."
        treat = partial(normalise, places=tuple(dict.fromkeys(call.module for call in bare)))
        code = _norm_code(model, treat.keywords["places"])
        found.append(Candidate("batch-norm", "architecture", text, treat=treat, code=code))
    return found


_LEAKY_CODE = f"""\
for parent in list(model.modules()):
    for name, child in list(parent.named_children()):
        if type(child) is nn.ReLU:
            setattr(parent, name, nn.LeakyReLU({SLOPE}))"""


def _norm_code(model: nn.Module, places: tuple[str, ...]) -> str:
    """A line for each layer that gets a normalization behind it."""
    lines = []
    for name in places:
        module = model.get_submodule(name) if name else None
        norm = _NORMS.get(type(module)) if module is not None else None
        if norm is not None:
            channels = getattr(module, "out_channels", None) or getattr(module, "out_features", None)
            made = f"nn.Sequential(model.get_submodule({name!r}), nn.{norm.__name__}({channels}))"
            lines.append(f"model.set_submodule({name!r}, {made})")
    return "\n".join(lines)


def leak(model: nn.Module, batch: Batch, seed: int) -> None:
    """Every `nn.ReLU` becomes `nn.LeakyReLU(0.2)`."""
    count = replace_modules(
        model,
        lambda name, module: nn.LeakyReLU(SLOPE, module.inplace) if type(module) is nn.ReLU else None,
    )
    if count == 0:
        raise NotPossible("every ReLU is called as a function; change F.relu to F.leaky_relu in the model's code")


def normalise(model: nn.Module, batch: Batch, seed: int, *, places: tuple[str, ...]) -> None:
    """Each module at `places` becomes Sequential(module, BatchNorm)."""

    def wrapped(name: str, module: nn.Module) -> nn.Module | None:
        norm = _NORMS.get(type(module))
        if name not in places or norm is None:
            return None
        weight = module.weight
        channels = getattr(module, "out_channels", None) or getattr(module, "out_features", None)
        made = norm(channels, device=weight.device, dtype=weight.dtype)
        return nn.Sequential(module, made).train(module.training)

    if replace_modules(model, wrapped) == 0:
        raise NotPossible("the weights are not in modules that can be wrapped")


def replace_modules(model: nn.Module, other: Callable[[str, nn.Module], nn.Module | None]) -> int:
    """Puts `other(name, module)` in the place of each module for which it is not None; a shared one is replaced by one."""
    made: dict[int, nn.Module] = {}
    for path, module in list(model.named_modules()):
        new = other(path, module) if path else None
        if new is not None:
            made[id(module)] = new
    for parent in list(model.modules()):
        for key, child in list(parent._modules.items()):
            if child is not None and id(child) in made and parent not in made.values():
                parent._modules[key] = made[id(child)]
    return len(made)


def _wants_norm(call: Call, plan: Plan) -> bool:
    """A hidden weight of images or vectors whose output is not normalised; positions of tokens are left to layer norm."""
    if call.kind not in ("dense", "conv") or (call.kind == "dense" and len(call.shape) != 2):
        return False
    takers = plan.consumers.get(call.index, [])
    return bool(takers) and not any(taker.kind == "norm" for taker in takers)
