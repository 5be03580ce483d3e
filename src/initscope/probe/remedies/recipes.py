"""Remedies as lines of plain PyTorch that can be pasted behind a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from initscope.probe.remedies.assignment import is_computed

if TYPE_CHECKING:
    from initscope.probe.remedies.places import Plan, Site

_MODULES: tuple[type[nn.Module], ...] = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)


def law_code(law: str, plan: Plan, model: nn.Module) -> str:
    """Draws the weights from the law and sets biases to zero: a loop over modules where that reaches just the right ones.

    Other weights are named one by one; "" where the law cannot be written down so.
    """
    classes = _classes(plan, model)
    looped = [site for site in plan.sites if _class_of(site, model) in classes]
    fused = _fused(plan, model)
    rest = [site for site in plan.sites if site not in looped and site not in fused]
    named = [_named(law, site, model) for site in rest]
    if any(lines is None for lines in named):
        return ""
    lines: list[str] = []
    if looped:
        factor = 1 / _spread_share(looped) if law == "zero-sum" else 1.0
        tall = law == "orthogonal" and any(site.fans.outputs > site.fans.fan_in for site in looped)
        drawn = _draw(law, "m.weight", _gain(looped) * factor, tall)
        lines += _loop(f"isinstance(m, ({', '.join(map(_written, classes))},))", drawn, "m.bias")
    if fused:
        drawn = ["for w in m.in_proj_weight.data.chunk(3):", *(f"    {line}" for line in _draw(law, "w", 1.0, False))]
        lines += _loop("isinstance(m, nn.MultiheadAttention)", drawn, "m.in_proj_bias")
    lines += [line for part in named if part is not None for line in part]
    biases = dict.fromkeys(site.bias for site in rest if site.bias is not None)
    lines += [f'nn.init.zeros_(model.get_parameter("{name}"))' for name in biases]
    return "\n".join(lines)


def _loop(which: str, drawn: Sequence[str], bias: str) -> list[str]:
    return [
        "for m in model.modules():",
        f"    if {which}:",
        *(f"        {line}" for line in drawn),
        f"        if {bias} is not None:",
        f"            nn.init.zeros_({bias})",
    ]


def data_scaling_code(plan: Plan, model: nn.Module) -> str:
    """One forward pass in which each layer is divided by the deviation of its output; "" where weights are in no layers."""
    classes = _classes(plan, model)
    if not classes or any(_class_of(site, model) not in classes for site in plan.sites if site.last):
        return ""
    return f"""\
layers = [m for m in model.modules() if isinstance(m, ({", ".join(map(_written, classes))},))]
def unit_variance(m, args, out):
    m.weight.data /= out.std()
    return out / out.std()
for m in layers:
    if m.bias is not None:
        nn.init.zeros_(m.bias)
handles = [m.register_forward_hook(unit_variance) for m in layers]
with torch.no_grad():
    model(batch)
for handle in handles:
    handle.remove()"""


def factor_code(names: Sequence[str], factor: float) -> str:
    """The named parameters times a factor."""
    listed = ",\n    ".join(f'"{name}"' for name in names)
    return f"for name in (\n    {listed},\n):\n    model.get_parameter(name).data.mul_({factor:.6g})"


def _classes(plan: Plan, model: nn.Module) -> list[type[nn.Module]]:
    """Classes of modules all of which are sites: a loop over them reaches no weight that is to stay as it is."""
    reached = {site.name.rpartition(".")[0] for site in plan.sites if _class_of(site, model) is not None}
    used = dict.fromkeys(cls for site in plan.sites if (cls := _class_of(site, model)) is not None)
    others = {cls for cls in used for path, m in model.named_modules() if isinstance(m, cls) and path not in reached}
    return [cls for cls in used if cls not in others]


def _class_of(site: Site, model: nn.Module) -> type[nn.Module] | None:
    """The class of the module whose weight it is, if that is one of PyTorch's own."""
    owner, _, key = site.name.rpartition(".")
    if key != "weight" or site.view is not None or is_computed(model, site.name):
        return None
    module = model.get_submodule(owner)
    return next((cls for cls in _MODULES if isinstance(module, cls)), None)


def _fused(plan: Plan, model: nn.Module) -> list[Site]:
    """Queries, keys and values of `nn.MultiheadAttention`, if those of all of them are sites."""
    found = [site for site in plan.sites if site.view is not None and site.name.endswith("in_proj_weight")]
    owners = {site.name.rpartition(".")[0] for site in found}
    every = {path for path, m in model.named_modules() if isinstance(m, nn.MultiheadAttention)}
    return found if owners == every else []


def _written(cls: type[nn.Module]) -> str:
    return f"nn.{cls.__name__}"


def _gain(sites: Sequence[Site]) -> float:
    """The gain that most weights have."""
    return Counter(round(site.gain, 6) for site in sites).most_common(1)[0][0]


def _spread_share(sites: Sequence[Site]) -> float:
    """What is left of the second moment of most inputs once their mean is taken away."""
    return 1 - Counter(round(site.before.mean_share, 6) for site in sites).most_common(1)[0][0]


def _draw(law: str, w: str, gain: float, tall: bool) -> list[str]:
    """For a weight that lies as PyTorch's modules have it, by its own fans."""
    root = f"{math.sqrt(gain):.6g}"
    if law.startswith("he-"):
        mode = {"he-fan-out": "fan_out"}.get(law, "fan_in")
        lines = [
            f'nn.init.kaiming_normal_({w}, mode="{mode}", nonlinearity="{"relu" if root == "1.41421" else "linear"}")'
        ]
        lines += [f"{w}.data.mul_({root})"] if root not in ("1", "1.41421") else []
        if law == "he-geometric":
            lines.append(f"{w}.data.mul_(({w}.shape[1] / {w}.shape[0]) ** 0.25)")
        return lines
    if law == "orthogonal":
        more = f" * max(1, {w}.shape[0] / {w}[0].numel()) ** 0.5" if tall else ""
        return [f"nn.init.orthogonal_({w}, gain={root}{more})"]
    if law == "delta-orthogonal":
        return [
            f"center = {w}.data",
            f"for k in {w}.shape[2:]:",
            "    center = center[..., (k - 1) // 2, :] if center.ndim > 3 else center[..., (k - 1) // 2]",
            f"nn.init.zeros_({w})",
            f"center.copy_(nn.init.orthogonal_(torch.empty_like(center), gain={root}))",
        ]
    return [  # zero-sum
        f'nn.init.kaiming_normal_({w}, mode="fan_in", nonlinearity="linear")',
        f"{w}.data.sub_({w}.data.flatten(1).mean(1).view(-1, *[1] * ({w}.ndim - 1)))",
        f"{w}.data.mul_({root})",
    ]


def _named(law: str, site: Site, model: nn.Module) -> list[str] | None:
    """For one weight, with its own numbers; None where plain lines do not do."""
    if is_computed(model, site.name):
        return None  # its parameters are not the weight
    parameter = model.get_parameter(site.name)
    weight = _expression(site, parameter.numel())
    fans = site.fans
    if law.startswith("he-"):
        fan = {"he-fan-in": fans.fan_in / site.stride, "he-fan-out": fans.fan_out}.get(
            law, math.sqrt(fans.fan_in / site.stride * fans.fan_out)
        )
        return [f"nn.init.normal_({weight}, std={math.sqrt(site.gain / fan):.6g})"]
    if law == "orthogonal" and parameter.ndim == 2 and site.groups == 1:
        gain = site.gain * max(site.shape) / fans.fan_in  # fan_in · Var(w) is the gain
        return [f"nn.init.orthogonal_({weight}, gain={math.sqrt(gain):.6g})"]
    if law == "zero-sum" and len(site.shape) == 2 and fans.fan_in > 1 and math.prod(site.shape) == parameter.numel():
        axes = (1,) if site.view is None else site.view.input_axes(parameter)
        std = math.sqrt(site.gain / (1 - site.before.mean_share) / fans.fan_in)
        lines = [f"nn.init.normal_({weight}, std={std:.6g})"]
        return [*lines, f"{weight}.data.sub_({weight}.data.mean({axes}, keepdim=True))"]
    return None


def _expression(site: Site, size: int) -> str:
    """The weight in the model, as one would write it: all of a parameter, or a part by its place in memory."""
    whole = f'model.get_parameter("{site.name}")'
    view = site.view
    if view is None or math.prod(view.size) == size:
        return whole
    first, remainder = divmod(view.offset, view.stride[0])
    if remainder == 0 and view.stride[0] == math.prod(view.size[1:]):
        return f"{whole}.data[{first}:{first + view.size[0]}]"
    return f"{whole}.data.as_strided({view.size}, {view.stride}, {view.offset})"
