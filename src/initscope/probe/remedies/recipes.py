"""Remedies as lines of plain PyTorch that can be pasted behind a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from initscope.probe.remedies.places import Plan

_MODULES = {
    "linear": "nn.Linear",
    "conv1d": "nn.Conv1d",
    "conv2d": "nn.Conv2d",
    "conv3d": "nn.Conv3d",
    "conv_transpose1d": "nn.ConvTranspose1d",
    "conv_transpose2d": "nn.ConvTranspose2d",
    "conv_transpose3d": "nn.ConvTranspose3d",
}
_ATTENTION = """\
    elif isinstance(m, nn.MultiheadAttention):
        for w in m.in_proj_weight.chunk(3):
            nn.init.kaiming_normal_(w, nonlinearity="linear")
        if m.in_proj_bias is not None:
            nn.init.zeros_(m.in_proj_bias)"""


def law_code(law: str, plan: Plan) -> str:
    """A loop over the modules that draws their weights from the law and sets biases to zero; "" for other weights."""
    classes = _classes(plan)
    if not classes:
        return ""
    lines = [f"for m in model.modules():\n    if isinstance(m, ({', '.join(classes)},)):"]
    lines += [f"        {line}" for line in _draw(law, _gain(plan) / (_spread_share(plan) if law == "zero-sum" else 1))]
    lines += ["        if m.bias is not None:", "            nn.init.zeros_(m.bias)"]
    if any(site.call.function == "multi_head_attention_forward" for site in plan.sites):
        lines.append(_ATTENTION)
    return "\n".join(lines)


def data_scaling_code(plan: Plan) -> str:
    """One forward pass in which each layer is divided by the deviation of its output."""
    classes = _classes(plan)
    if not classes:
        return ""
    return f"""\
layers = [m for m in model.modules() if isinstance(m, ({", ".join(classes)},))]
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


def _classes(plan: Plan) -> list[str]:
    functions = dict.fromkeys(site.call.function for site in plan.sites)
    return [_MODULES[name] for name in functions if name in _MODULES]


def _gain(plan: Plan) -> float:
    """The gain that most weights have."""
    return Counter(round(site.gain, 6) for site in plan.sites).most_common(1)[0][0]


def _spread_share(plan: Plan) -> float:
    """What is left of the second moment of most inputs once their mean is taken away."""
    return 1 - Counter(round(site.before.mean_share, 6) for site in plan.sites).most_common(1)[0][0]


def _draw(law: str, gain: float) -> list[str]:
    root = f"{math.sqrt(gain):.6g}"
    if law.startswith("he-"):
        mode = {"he-fan-out": "fan_out"}.get(law, "fan_in")
        lines = (
            [f'nn.init.kaiming_normal_(m.weight, mode="{mode}", nonlinearity="relu")']
            if abs(gain - 2) < 1e-6
            else [
                f'nn.init.kaiming_normal_(m.weight, mode="{mode}", nonlinearity="linear")',
                f"m.weight.data.mul_({root})",
            ]
        )
        if law == "he-geometric":
            lines.append("m.weight.data.mul_((m.weight.shape[1] / m.weight.shape[0]) ** 0.25)")
        return lines
    if law == "orthogonal":
        return [f"nn.init.orthogonal_(m.weight, gain={root})"]
    if law == "delta-orthogonal":
        return [
            "centre = m.weight.data",
            "for k in m.weight.shape[2:]:",
            "    centre = centre[..., (k - 1) // 2, :] if centre.ndim > 3 else centre[..., (k - 1) // 2]",
            "nn.init.zeros_(m.weight)",
            f"centre.copy_(nn.init.orthogonal_(torch.empty_like(centre), gain={root}))",
        ]
    return [  # zero-sum
        'nn.init.kaiming_normal_(m.weight, mode="fan_in", nonlinearity="linear")',
        "m.weight.data -= m.weight.data.flatten(1).mean(1).view(-1, *[1] * (m.weight.ndim - 1))",
        f"m.weight.data.mul_({root})",
    ]
