"""How far random CNNs stray from their limit and the limit from the input, measured, next to the bounds.

    python benchmarks/reconstruction.py

Photographs from scikit-image; a few minutes on two cores.
"""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

import initscope as iscope
from initscope.bounds import angle_to_input, angle_to_limit, convergence_image
from initscope.geometry import angle, generator
from initscope.layers import Conv, L2Pool, Layer, ReLU, Upsample

DELTA = 0.05


def conv(width: int, kernel: int = 3) -> tuple[Layer, Layer]:
    return Conv(width, kernel, padding="zero"), ReLU()


def one_layer(width: int) -> iscope.Sequential:
    return iscope.Sequential(*conv(width))


def cnn_dcn(width: int) -> iscope.Sequential:
    return iscope.Sequential(*conv(width), L2Pool(2), *conv(width), Upsample(2, "zeros"), *conv(width))


@torch.no_grad()
def angles(net: iscope.Sequential, images: Tensor, draws: int) -> Tensor:
    """(draws, n) angles between sampled networks' outputs and the limit."""
    limit = convergence_image(net, images).image
    found = []
    for draw in range(draws):
        module = net.sample(tuple(images.shape[1:]), generator=generator(0, draw))
        found.append(angle(module(images).mean(1).double(), limit))
    return torch.stack(found)


def widths(title: str, build: object, settings: list[tuple[int, int]], images: Tensor) -> None:
    assert callable(build)
    print(f"\n{title}; sin Θ, the worst of {len(images)} photographs {images.shape[-1]}x{images.shape[-1]}\n")
    print("| N | draws | mean angle | root mean square | to first order | 95 % of draws below | sharper bound | DC |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for width, draws in settings:
        net = build(width)
        bounds = angle_to_limit(net, images, DELTA)
        samples = angles(net, images, draws)
        square = samples.sin().square().mean(0).max().sqrt()
        first = "" if bounds.first_order is None else f"{float(bounds.first_order.value.max().sqrt()):.3f}"
        quantile = samples.sin().quantile(1 - DELTA, 0).max()
        last = [f"{float(b.value.max()):.3f}" for b in (bounds.sharper, bounds.theorem)]
        degrees = math.degrees(float(samples.mean(0).max()))
        row = [
            str(width),
            str(draws),
            f"{degrees:.1f}°",
            f"{float(square):.3f}",
            first,
            f"{float(quantile):.3f}",
            *last,
        ]
        print("| " + " | ".join(row) + " |", flush=True)


def needed(build: object, images: Tensor) -> None:
    """The smallest powers of two at which the bounds say anything."""
    assert callable(build)
    for name in ("sharper", "theorem"):
        width = 1
        while float(getattr(angle_to_limit(build(width), images, DELTA), name).value.max()) >= 1:
            width *= 2
        print(f"  {name}: below 1 from N = {width} on (powers of two)")


def inputs(images: Tensor) -> None:
    print(f"\nlimit and input, angle Φ over {len(images)} grey photographs {images.shape[-1]}x{images.shape[-1]}\n")
    print("| network | exact, mean | exact, worst | Theorem 3 / 9, mean |")
    print("| --- | --- | --- | --- |")
    nets = {f"one layer, {k}x{k}": iscope.Sequential(*conv(8, k)) for k in (1, 3, 5, 7, 11)}
    nets |= {f"{d} layers, 3x3": iscope.Sequential(*conv(8) * d) for d in (2, 4, 8)}
    nets["cnn-dcn, zeros"] = cnn_dcn(8)
    nets["cnn-dcn, nearest"] = iscope.Sequential(*conv(8), L2Pool(2), *conv(8), Upsample(2), *conv(8))
    for name, net in nets.items():
        found = angle_to_input(net, images)
        assert found.theorem is not None
        exact = found.cosine.value.clamp(-1, 1).acos().rad2deg()
        bound = found.theorem.value.clamp(-1, 1).acos().rad2deg()
        print(f"| {name} | {exact.mean():.1f}° | {exact.max():.1f}° | {bound.mean():.1f}° |")


if __name__ == "__main__":
    started = time.perf_counter()
    photos = iscope.data.load("photos", count=6, size=24, seed=0).images
    widths("one layer of N filters 3x3", one_layer, [(n, 400) for n in (16, 64, 256, 1024, 4096)], photos)
    widths("conv, l2 pooling, conv, upsampling, conv", cnn_dcn, [(16, 400), (64, 200), (256, 50), (1024, 10)], photos)
    for label, builder in (("one layer", one_layer), ("cnn-dcn", cnn_dcn)):
        print(f"\n{label}:")
        needed(builder, photos)
    inputs(iscope.data.load("photos", count=12, size=64, channels=1, seed=0).images)
    print(f"\n{time.perf_counter() - started:.0f} s")
