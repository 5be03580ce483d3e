"""What `check` says about claims of the papers: JL §4.2 (what spreads angles with depth) and PC (what contracts them in ResNets).

    python benchmarks/check_claims.py

Photos of scikit-image, 32 x 32, 16 of them. JL: plain CNNs of 32 channels, He weights, before the head: the mean angle between
photos by depth. PC: CIFAR networks of pytorchcv at their own initialization on centred photos: which kind of operation owns
which share of the contraction.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from torch import Tensor, nn

import initscope as iscope

DEPTHS = (5, 10, 20, 30)


def stack(depth: int, *, norm: bool = False, zero_sum: bool = False, channels: int = 32) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(depth):
        conv = nn.Conv2d(3 if i == 0 else channels, channels, 3, padding=1, padding_mode="circular", bias=False)
        nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        if zero_sum:
            with torch.no_grad():
                conv.weight -= conv.weight.mean((1, 2, 3), keepdim=True)
        layers += [conv, nn.BatchNorm2d(channels), nn.ReLU()] if norm else [conv, nn.ReLU()]
    return nn.Sequential(*layers)


def expansion(photos: Tensor) -> None:
    print("| angle between photos, degrees | input | " + " | ".join(f"{d} layers" for d in DEPTHS) + " |")
    print("| --- " * (len(DEPTHS) + 2) + "|")
    kinds = {"plain": {}, "batch norm": {"norm": True}, "zero-sum filters": {"zero_sum": True}}
    for name, options in kinds.items():
        torch.manual_seed(0)
        reports = [iscope.check(lambda d=d, o=options: stack(d, **o), photos, seeds=3, theory=False) for d in DEPTHS]
        angles = [r.layers[-1].angle_deg for r in reports]
        print(f"| {name} | {reports[0].data['angle_deg']:.1f} | " + " | ".join(f"{a:.1f}" for a in angles) + " |")


def contraction(photos: Tensor) -> None:
    from pytorchcv.model_provider import get_model

    centred = photos - photos.mean(0)
    columns = ("pooling", "activation", "conv", "angle before and after the last pooling", "step that contracts most")
    print("\n| share of the contraction | " + " | ".join(columns) + " |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in ("resnet20_cifar10", "resnet56_cifar10", "densenet40_k12_cifar10"):
        torch.manual_seed(0)
        report = iscope.check(get_model(name), centred, seeds=1, theory=False)
        pool = max(i for i, layer in enumerate(report.layers) if layer.kind == "pooling")
        before, after = report.layers[pool - 1].angle_deg, report.layers[pool].angle_deg
        shares = " | ".join(f"{report.blame.get(kind, 0.0):.0%}" for kind in ("pooling", "activation", "conv"))
        most = max(report.layers, key=lambda layer: layer.contraction)
        print(f"| {name} | {shares} | {before:.1f}, {after:.1f} | {most.kind} |")


def main() -> None:
    photos = iscope.data.load("photos", count=16, size=32).images
    expansion(photos)
    contraction(photos)


if __name__ == "__main__":
    main()
