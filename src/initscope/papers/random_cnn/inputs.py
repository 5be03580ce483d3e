"""DC Theorems 3 and 9: how far the limit is from the input."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from initscope.bounds import angle_to_input
from initscope.figures import Line, Panel, Points, curves_and_points
from initscope.geometry import similarity
from initscope.images import limit_network
from initscope.images.architectures import layout
from initscope.layers import Conv, ReLU
from initscope.networks import Sequential
from initscope.papers.item import Check, Desk, Item, Outcome, claim
from initscope.weights import Gaussian

SET = "imagenet224"
KERNELS = (1, 3, 5, 7, 9, 11)


def _stack(kernel: int, layers: int = 1) -> Sequential:
    return Sequential(*(Conv(8, kernel, padding="zero"), ReLU()) * layers)


def _found(net: Sequential, images: Tensor) -> tuple[Tensor, Tensor]:
    """cos Φ and DC's lower bound on it, (n,)."""
    found = angle_to_input(net, images)
    assert found.theorem is not None
    return found.cosine.value, found.theorem.value


def _degrees(cosine: Tensor) -> float:
    return float(torch.rad2deg(cosine.clamp(-1, 1).acos()).mean())


def run_theorem3(desk: Desk) -> Outcome:
    images = desk.images(SET, count=desk.pick(10, 50), size=64, channels=1).images.double()
    rows = {k: _found(_stack(k), images) for k in KERNELS}
    margin = min(float((cosine - bound).min()) for cosine, bound in rows.values())
    exact = [_degrees(cosine) for cosine, _ in rows.values()]
    bound = [_degrees(low) for _, low in rows.values()]
    checks = (
        claim(f"cos Φ is at least 1 - Σ εX/M for {len(images)} images and {len(KERNELS)} kernels: smallest margin",
              margin >= -1e-12, exact=margin),
        claim("the bound gets worse as the kernel grows: smallest step, degrees",
              _step(bound) > 0, exact=_step(bound)),
        claim("so does the angle itself: smallest step, degrees",
              _step(exact) > 0, exact=_step(exact)),
        _own_pixels(),
    )  # fmt: skip
    marks: list[Line | Points] = [
        Line("bound of Theorem 3", list(KERNELS), bound, hue=1),
        Points("exact", list(KERNELS), exact, hue=0),
    ]
    panel = Panel(
        marks, "side of the kernel, pixels", "angle between input and limit, degrees", counts=True, limits_up=(0, None)
    )
    title = f"Larger kernels take the limit away from the input ({len(images)} grey images of 64x64)"
    said = ", ".join(f"{k}: {a:.1f}° (bound {b:.1f}°)" for k, a, b in zip(KERNELS, exact, bound, strict=True))
    picture = curves_and_points([panel], title, f"{title}. Mean angle by side: {said}.", size=(6.4, 3.6))
    return Outcome(checks, {"kernels": list(KERNELS), "exact_deg": exact, "bound_deg": bound}, picture)


def _step(values: Sequence[float]) -> float:
    """The smallest step from one value to the next."""
    return min(b - a for a, b in itertools.pairwise(values))


def _own_pixels() -> Check:
    """A constant image, with the mean over the patch's own pixels: ε = 0, so cos Φ should be 1, and is not at the border."""
    image = torch.ones(1, 1, 8, 8, dtype=torch.float64)
    inside = torch.nn.functional.avg_pool2d(image, 3, 1, 1, count_include_pad=False)
    bound = float(1 - ((image - inside) * image).sum() / image.square().sum())
    limit = torch.nn.functional.avg_pool2d(image, 3, 1, 1).sqrt()
    cosine = float(similarity(image.flatten(1), limit.flatten(1)))
    why = f"the bound would be {bound:.3f} and the cosine is {cosine:.4f}: the zeros of the padding have to count in the mean"
    return claim(
        "the mean may leave out the padding's zeros (constant image): margin",
        cosine >= bound,
        exact=cosine - bound,
        why=why,
    )


def run_theorem9(desk: Desk) -> Outcome:
    images = desk.images(SET, count=desk.pick(8, 40), size=64, channels=1).images.double()
    deep = {f"{n} layers, 3x3": _stack(3, n) for n in (1, 2, 4, 8)}
    pooled = {
        f"CD{k}, {up}": limit_network(
            layout("vgg16", k, inputs=1, channels=8), Gaussian(2.0), pooling="l2", upsampling=up
        )
        for k in (1, 2, 3)
        for up in ("zeros", "nearest")
        if k > 1 or up == "zeros"
    }
    rows = {name: _found(net, images) for name, net in {**deep, **pooled}.items()}
    margin = min(float((cosine - bound).min()) for cosine, bound in rows.values())
    exact = {name: _degrees(cosine) for name, (cosine, _) in rows.items()}
    layers, stages = _step([exact[name] for name in deep]), _step([exact[f"CD{k}, zeros"] for k in (1, 2, 3)])
    checks = (
        claim(f"cos Φ is at least 1 - Σ εX/M, X̄ weighted by routes, for {len(rows)} networks: smallest margin",
              margin >= -1e-12, exact=margin),
        claim("deeper networks are farther from the input: smallest step from 1 to 8 layers, degrees", layers > 0, exact=layers),
        claim("so are CD1, CD2, CD3: smallest step, degrees", stages > 0, exact=stages),
    )  # fmt: skip
    bound = {name: _degrees(low) for name, (_, low) in rows.items()}
    return Outcome(checks, {name: {"exact_deg": exact[name], "bound_deg": bound[name]} for name in rows})


ITEMS = (
    Item(
        "random-cnn/thm3", "Theorem 3: limit and input, one layer of filters",
        "The limit is near an image whose pixels are like their neighbours, and farther with larger kernels.",
        run_theorem3, (SET,),
    ),
    Item(
        "random-cnn/thm9", "Theorem 9: limit and input, several layers",
        "The same bound holds for deep networks, where it is worse.", run_theorem9, (SET,),
    ),
)  # fmt: skip
