"""The four untrained networks of figures 1 and 5, built from pytorchcv's blocks; no weights are ever fetched."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from initscope.errors import BadInput

DEPTHS = {"dense": 148}  # 6 L + 4 layers: 150 is not of that form


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"pytorchcv.models.{name}")
    except ImportError as error:
        raise BadInput(
            "pooling/fig1 and fig5",
            "the networks come from pytorchcv, which is not installed",
            'pip install "initscope[papers]"',
        ) from error


def _resnet32() -> nn.Module:
    return _before_pool(_module("resnet_cifar").get_resnet_cifar(num_classes=10, blocks=32, bottleneck=False))


def _resnet50() -> nn.Module:
    """ResNet-50's units behind a 3x3 stem without stride, the usual form for 32x32 images: it ends at 4x4."""
    channels = [[256] * 3, [512] * 4, [1024] * 6, [2048] * 3]
    return _before_pool(_module("resnet_cifar").CIFARResNet(channels, init_block_channels=64, bottleneck=True))


def _densenet() -> nn.Module:
    make = _module("densenet_cifar").get_densenet_cifar
    return _before_pool(make(num_classes=10, blocks=DEPTHS["dense"], growth_rate=12, bottleneck=True))


def _dla34() -> nn.Module:
    """DLA-34 whose stem and first stage keep the size, so that 32x32 images end at 4x4, not at 1x1."""
    net = _module("dla").dla34(num_classes=10)
    for part in (net.features.init_block, net.features.stage1):
        for module in part.modules():
            if isinstance(module, nn.Conv2d):
                module.stride = (1, 1)
            elif isinstance(module, nn.MaxPool2d):
                module.kernel_size = module.stride = 1
    return _before_pool(net)


def _before_pool(net: Any) -> nn.Module:
    return nn.Sequential(*(part for name, part in net.features.named_children() if name != "final_pool"))


NETWORKS = {
    "DLA-34": _dla34,
    "ResNet-32": _resnet32,
    f"DenseNet-{DEPTHS['dense']}": _densenet,
    "ResNet-50": _resnet50,
}


@torch.no_grad()
def features(name: str, images: Tensor, seed: int) -> Tensor:
    """The last ReLU features of an untrained network, (n, c, h, w), batch norm using the statistics of these images.

    Python's and torch's own random states are left as they were.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = NETWORKS[name]().train()
    found: Tensor = net(images)
    return found
