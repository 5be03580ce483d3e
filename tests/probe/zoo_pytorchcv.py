"""Image classifiers of pytorchcv with their own initialization."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from probe.trainable import CLASSES, Trainable, images, labels

# At 1e-3 classes die behind the ReLU that ends SqueezeNet and NIN, in one draw all of them; DiracNet gets only half way.
GENTLE = 3e-4


def _network(name: str) -> Callable[[], nn.Module]:
    """A function that builds the network; its last pooling takes what is there, so that images may be smaller than 224."""

    def build() -> nn.Module:
        from pytorchcv.model_provider import get_model

        classes = {} if name.endswith("_cifar10") else {"num_classes": CLASSES}
        model: nn.Module = get_model(name, **classes)
        for parent in list(model.modules()):
            if isinstance(getattr(parent, "final_pool", None), nn.AvgPool2d):
                parent.final_pool = nn.AdaptiveAvgPool2d(1)
        return model

    return build


def _entry(name: str, size: int = 32, *, labelled: bool, rate: float = 1e-3) -> Trainable:
    """labelled: `check` gets labels too and differentiates the cross-entropy."""
    given = {"target": labels()} if labelled else {}
    return Trainable(_network(name), lambda: images(size), given, labels, rate, "pytorchcv")


PYTORCHCV: dict[str, Trainable] = {
    "resnet20_cifar10": _entry("resnet20_cifar10", labelled=True),
    "preresnet20_cifar10": _entry("preresnet20_cifar10", labelled=False),
    "densenet40_k12_bc_cifar10": _entry("densenet40_k12_bc_cifar10", labelled=True),
    "nin_cifar10": _entry("nin_cifar10", labelled=False, rate=GENTLE),
    "seresnet20_cifar10": _entry("seresnet20_cifar10", labelled=True),
    "sepreresnet20_cifar10": _entry("sepreresnet20_cifar10", labelled=False),
    "shakeshakeresnet20_2x16d_cifar10": _entry("shakeshakeresnet20_2x16d_cifar10", labelled=False),
    "shakedropresnet20_cifar10": _entry("shakedropresnet20_cifar10", labelled=True),
    "resdropresnet20_cifar10": _entry("resdropresnet20_cifar10", labelled=False),
    "diaresnet20_cifar10": _entry("diaresnet20_cifar10", labelled=True),
    "diapreresnet20_cifar10": _entry("diapreresnet20_cifar10", labelled=False),
    "ror3_56_cifar10": _entry("ror3_56_cifar10", labelled=True),
    "mobilenet_wd4": _entry("mobilenet_wd4", 64, labelled=True),
    "mobilenetv2_wd4": _entry("mobilenetv2_wd4", 64, labelled=False),
    "mobilenetv3_small_w7d20": _entry("mobilenetv3_small_w7d20", 64, labelled=True),
    "efficientnet_b0": _entry("efficientnet_b0", 64, labelled=False),
    "squeezenet_v1_1": _entry("squeezenet_v1_1", 64, labelled=True, rate=GENTLE),
    "shufflenetv2_wd2": _entry("shufflenetv2_wd2", 64, labelled=False),
    "shufflenet_g1_wd4": _entry("shufflenet_g1_wd4", 64, labelled=True),
    "mnasnet_small": _entry("mnasnet_small", 64, labelled=True),
    "ghostnet": _entry("ghostnet", 64, labelled=False),
    "peleenet": _entry("peleenet", 64, labelled=True),
    "darknet_tiny": _entry("darknet_tiny", 64, labelled=False),
    "cbam_resnet18": _entry("cbam_resnet18", 64, labelled=False),
    "squeezeresnet_v1_1": _entry("squeezeresnet_v1_1", 64, labelled=False, rate=GENTLE),
    "igcv3_wd4": _entry("igcv3_wd4", 64, labelled=True),
    "resnet10": _entry("resnet10", 64, labelled=False),
    "diracnet18v2": _entry("diracnet18v2", 64, labelled=False, rate=GENTLE),
}
