"""Real architectures with random weights, from configurations: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def _images(size: int, samples: int = 4) -> Tensor:
    return torch.randn(samples, 3, size, size, generator=torch.Generator().manual_seed(0))


def _tokens(vocabulary: int, length: int = 12, samples: int = 4) -> dict[str, Tensor]:
    ids = torch.randint(vocabulary, (samples, length), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids}


def vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        if width == 0:
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
    return nn.Sequential(nn.Sequential(*layers), nn.Flatten(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def alexnet() -> nn.Module:
    features = nn.Sequential(
        nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
    )  # fmt: skip
    return nn.Sequential(features, nn.Flatten(), nn.Dropout(), nn.Linear(256 * 9, 512), nn.ReLU(), nn.Linear(512, 10))


def resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64], depths=[2, 2, 2], layer_type="basic", num_labels=10
    )
    return ResNetForImageClassification(config)


def densenet() -> nn.Module:
    from pytorchcv.model_provider import get_model

    model: nn.Module = get_model("densenet40_k12_cifar10")
    return model


def convnext() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig(hidden_sizes=[16, 32, 64, 96], depths=[1, 1, 2, 1]))


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    size = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
    return ViTModel(ViTConfig(image_size=32, patch_size=8, **size))


def swin() -> nn.Module:
    from transformers import SwinConfig, SwinModel

    return SwinModel(
        SwinConfig(image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4)
    )


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(
        BertConfig(vocab_size=100, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96)
    )


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=32, n_embd=48, n_layer=2, n_head=4))


ZOO: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "VGG16": (vgg16, _images(32)),
    "AlexNet": (alexnet, _images(127)),
    "ResNet": (resnet, _images(32)),
    "DenseNet": (densenet, _images(32)),
    "ConvNeXt": (convnext, _images(64)),
    "ViT": (vit, _images(32)),
    "Swin": (swin, _images(32)),
    "BERT": (bert, _tokens(100)),
    "GPT-2": (gpt2, _tokens(100)),
}
