"""What DC's theorems say about one reconstruction: the limit of the output, its angle to the input, ours to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from initscope.bounds import angle_to_input, angle_to_limit, convergence_image
from initscope.errors import InitscopeError, NoExactForm
from initscope.geometry import angle
from initscope.images.architectures import ConvPlan, Layout
from initscope.images.laws import holds_width
from initscope.images.modules import Pooling, Upsampling
from initscope.layers import AveragePool, Conv, L2Pool, Layer, ReLU, Scale, Upsample
from initscope.networks import Sequential
from initscope.networks.planning import size_text
from initscope.weights import WeightLaw

DELTA = 0.05  # of the bound on the angle to the limit
_MAPS = 48  # double-precision maps of one channel that the theorems hold at once, measured: 23 to 45


@dataclass(frozen=True)
class Theory:
    """DC's theorems for one image and the averaging variant of one network; angles in degrees.

    limit: f* of Theorem 1 or 10, (h, w). input_angle: between f* and the input, exactly, at most `input_bound` (Theorems 3 and
    9). output_angle: between this network's output and f*, at most `output_bound` with probability 1 - delta (Theorems 2, 6 and
    8); `sharper_bound` says the same, proved for any windows. What cannot be had is None, and `why` says why.
    """

    limit: Tensor | None = None
    input_angle: float | None = None
    input_bound: float | None = None
    output_angle: float | None = None
    output_bound: float | None = None
    sharper_bound: float | None = None
    delta: float = DELTA
    why: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings; the limit image itself is left out."""
        names = ("input_angle", "input_bound", "output_angle", "output_bound", "sharper_bound", "delta")
        return {"limit": self.limit is not None, **{name: getattr(self, name) for name in names}, "why": dict(self.why)}


ANGLES = ("input_angle", "input_bound", "output_angle", "output_bound", "sharper_bound")


def nothing(why: str) -> Theory:
    """No theorem applies."""
    return Theory(why=dict.fromkeys(("limit", *ANGLES), why))


def limit_network(
    plan: Layout,
    law: WeightLaw,
    *,
    pooling: Pooling = "l2",
    upsampling: Upsampling = "zeros",
    normalise: bool = False,
    size: tuple[int, int] | None = None,
) -> Sequential:
    """The averaging variant of Conv[k]-DeConv[k] as layers whose limit is known; the mean over channels is implied.

    >>> from initscope.images.architectures import layout
    >>> from initscope.weights import He
    >>> [layer.word for layer in limit_network(layout("vgg16", 1, channels=8), He()).layers]
    ['conv3', 'relu', 'conv3', 'relu', 'conv3', 'relu']
    """
    _check_covered(plan, pooling, size)
    steps = plan.steps
    found: list[Layer] = []

    def conv(step: ConvPlan, scaled: bool) -> None:
        found.extend([Conv(step.outputs, step.kernel, padding="zero", weights=law), ReLU()])
        if scaled and normalise and not holds_width(law):
            found.append(Scale(1 / math.sqrt(step.outputs)))  # DC Definition 1, 3)

    for step in steps:
        if isinstance(step, ConvPlan):
            conv(step, True)
        else:
            found.append(L2Pool(step.window) if pooling == "l2" else AveragePool(step.window))
    back = list(reversed(steps))[:-1]  # the mean takes the place of the last convolution
    for number, step in enumerate(back):
        if isinstance(step, ConvPlan):
            conv(step.mirrored(step.inputs), number < len(back) - 1)
        else:
            found.append(Upsample(step.stride, upsampling))
    return Sequential(*found)


def _check_covered(plan: Layout, pooling: Pooling, size: tuple[int, int] | None) -> None:
    """Refuse what the theorems, or the layers that compute them, do not cover."""
    steps = plan.steps
    if any(isinstance(step, ConvPlan) and step.stride > 1 for step in steps):
        raise NoExactForm("theory", "a strided convolution is undone by an upsampling of its own offset", "use vgg16")
    pooled = plan.stride > 1
    if pooled and pooling == "max":
        raise NoExactForm(
            "theory", "max pooling has no known limit (Theorem 1: l2, Theorem 10: average)", "pooling='l2'"
        )
    if pooled and any(step.stride > 1 and step.offset for step in steps):
        raise NoExactForm("theory", "poolings that overlap are upsampled with an offset", "use vgg16")
    if size is not None and any(n % plan.stride for n in size):
        problem = f"{size[0]}x{size[1]} does not divide into windows of {plan.stride}x{plan.stride}"
        raise NoExactForm("theory", problem, f"crop the image to multiples of {plan.stride}")


def find_theory(net: Sequential, image: Tensor, output: Tensor | None, allowed: int, without: str) -> Theory:
    """The theorems for one image (1, c, h, w); `output` (1, 1, h, w) is None where it has no limit, and `without` says why."""
    if not bool(image.any()):
        return nothing("the picture is black, and zeros have no angle")
    needed = _MAPS * 8 * image.shape[-1] * image.shape[-2]
    if needed > allowed:
        return nothing(f"the limit of an image of this size needs about {size_text(needed)}; raise memory")
    try:
        found = convergence_image(net, image, memory=allowed)
        near = angle_to_input(net, image, memory=allowed)
    except InitscopeError as error:
        return nothing(f"{error.problem}; {error.remedy}")
    why: dict[str, str] = {}
    parts: dict[str, Any] = {"input_angle": _degrees(near.cosine.value)}
    if near.theorem is None:
        why["input_bound"] = "Theorems 3 and 9 count routes, which average pooling does not leave"
    elif float(near.theorem.value) <= 0:
        why["input_bound"] = "vacuous: the bound on the cosine is not positive"
    else:
        parts["input_bound"] = _degrees(near.theorem.value)
    if output is None:
        why |= dict.fromkeys(("output_angle", "output_bound", "sharper_bound"), without)
    else:
        if bool((output == 0).all()):
            why["output_angle"] = "the output is zero"
        else:
            parts["output_angle"] = math.degrees(float(angle(output[:, 0].double(), found.image)))
        _bounds(net, image, parts, why)
    return replace(Theory(found.image[0], why=why), **parts)


def _bounds(net: Sequential, image: Tensor, parts: dict[str, Any], why: dict[str, str]) -> None:
    """The bounds on the angle between output and limit; a sine above 1 bounds nothing."""
    try:
        bounds = angle_to_limit(net, image, DELTA)
    except InitscopeError as error:
        why |= dict.fromkeys(("output_bound", "sharper_bound"), f"{error.problem}; {error.remedy}")
        return
    for name, bound in (("output_bound", bounds.theorem), ("sharper_bound", bounds.sharper)):
        sine = float(bound.value)
        if sine < 1:
            parts[name] = math.degrees(math.asin(sine))
        else:
            why[name] = f"vacuous: the bound on the sine is {sine:.3g}; use more channels"


def _degrees(cosine: Tensor) -> float:
    return float(torch.rad2deg(cosine.clamp(-1, 1).acos()))
