"""Image models from `transformers` configurations: small sizes, their own initialization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from probe.trainable import CLASSES, SAMPLES, Trainable, images, labels, random

TRANSFORMER = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
PATCHES: dict[str, Any] = {"image_size": 32, "patch_size": 8, **TRANSFORMER}


def from_config(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    """A function that builds a class of `transformers` from a configuration."""

    def build() -> nn.Module:
        import transformers

        made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**options))
        return made

    return build


def _classifier(name: str, size: int = 32, *, rate: float = 1e-3, labelled: bool, **options: Any) -> Trainable:
    """A classifier. labelled: `check` gets labels and uses the model's own loss; otherwise only images."""

    def batch() -> dict[str, Tensor]:
        return {"pixel_values": images(size)} | ({"labels": labels()} if labelled else {})

    build = from_config(f"{name}ForImageClassification", f"{name}Config", num_labels=CLASSES, **options)
    return Trainable(build, batch, {}, None if labelled else labels, rate, "transformers")


def _masked_patches() -> dict[str, Tensor]:
    return {"pixel_values": images(), "noise": torch.rand(SAMPLES, 16, generator=random())}


def _masked_autoencoder() -> nn.Module:
    """ViTMAE with the positions that it is meant to have: transformers 5.22 leaves them, and the class token, at zero.

    They are not trained, so that as the library builds it every masked patch of an image gets the same prediction.
    """
    size = {"decoder_hidden_size": 48, "decoder_num_hidden_layers": 2, "decoder_num_attention_heads": 4}
    options = {**PATCHES, **size, "decoder_intermediate_size": 96}
    model: Any = from_config("ViTMAEForPreTraining", "ViTMAEConfig", **options)()
    place = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    angles = (place[..., None] * 10000 ** -torch.linspace(0, 1, 13)[:-1]).flatten(1)
    waves = torch.cat([torch.zeros(1, 48), torch.cat([angles.sin(), angles.cos()], 1)])
    with torch.no_grad():
        model.vit.embeddings.position_embeddings.copy_(waves)
        model.decoder.decoder_pos_embed.copy_(waves)
        for token in (model.vit.embeddings.cls_token, model.decoder.mask_token):
            token.normal_(std=0.02)
    return model


IMAGES: dict[str, Trainable] = {
    "ResNet, basic blocks": _classifier(
        "ResNet", embedding_size=16, hidden_sizes=[16, 32, 64], depths=[2, 2, 2], layer_type="basic", labelled=True
    ),
    "ResNet, bottlenecks": _classifier(
        "ResNet", embedding_size=16, hidden_sizes=[32, 64, 96], depths=[2, 2, 2], labelled=False
    ),
    "RegNet": _classifier(
        "RegNet", embedding_size=16, hidden_sizes=[24, 48, 64], depths=[1, 2, 2], groups_width=8, labelled=False
    ),
    "BiT": _classifier(
        "Bit", embedding_size=16, hidden_sizes=[32, 64, 96], depths=[1, 2, 2], num_groups=8, labelled=True
    ),
    "ConvNeXt": _classifier(
        "ConvNext", 64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1], labelled=False, rate=3e-4
    ),
    "ConvNeXt V2": _classifier(
        "ConvNextV2", 64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1], labelled=True, rate=3e-4
    ),
    "FocalNet": _classifier("FocalNet", image_size=32, embed_dim=24, depths=[2, 2], labelled=False, rate=3e-4),
    "ViT": _classifier("ViT", **PATCHES, labelled=True, rate=3e-4),
    "ViT, no labels": _classifier("ViT", **PATCHES, labelled=False, rate=3e-4),
    "ViT, 12 layers": _classifier("ViT", **PATCHES | {"num_hidden_layers": 12}, labelled=True, rate=3e-4),
    "DeiT": _classifier("DeiT", **PATCHES, labelled=False, rate=3e-4),
    "BEiT": _classifier("Beit", **PATCHES, labelled=False, rate=3e-4),
    "Data2Vec, vision": _classifier("Data2VecVision", **PATCHES, labelled=True, rate=3e-4),
    "DINOv2": _classifier("Dinov2", **PATCHES, labelled=True, rate=3e-4),
    "Swin": _classifier(
        "Swin", image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4,
        labelled=False, rate=3e-4,
    ),
    "Swin V2": _classifier(
        "Swinv2", image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4,
        labelled=True, rate=3e-4,
    ),
    "Hiera": _classifier(
        "Hiera", image_size=[32, 32], patch_size=[3, 3], patch_stride=[2, 2], patch_padding=[1, 1], embed_dim=24,
        depths=[1, 2], num_heads=[1, 2], masked_unit_size=[4, 4], num_query_pool=1, query_stride=[2, 2],
        labelled=True, rate=3e-4,
    ),
    "MobileNet V1": _classifier("MobileNetV1", 64, depth_multiplier=0.25, classifier_dropout_prob=0.0, labelled=False),
    "MobileNet V2, transformers": _classifier("MobileNetV2", 64, depth_multiplier=0.35, labelled=True),
    "MobileViT": _classifier(
        "MobileViT", 64, image_size=64, hidden_sizes=[32, 48, 64], neck_hidden_sizes=[16, 16, 24, 32, 48, 64, 128],
        labelled=True, rate=2e-3,
    ),
    "SegFormer": _classifier(
        "Segformer", 64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], labelled=False, rate=3e-4
    ),
    "PVT": _classifier("Pvt", 64, image_size=64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
                       num_attention_heads=[1, 2, 4, 8], labelled=True, rate=3e-4),
    "PVT V2": _classifier("PvtV2", 64, image_size=64, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1],
                          num_attention_heads=[1, 2, 4, 8], labelled=False, rate=3e-4),
    "PoolFormer": _classifier(
        "PoolFormer", 64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1], labelled=True, rate=3e-4
    ),
    "LeViT": _classifier(
        "Levit", 64, image_size=64, hidden_sizes=[32, 48, 64], num_attention_heads=[2, 3, 4], depths=[1, 1, 1],
        key_dim=[8, 8, 8], labelled=False, rate=3e-4,
    ),
    "CvT": _classifier(
        "Cvt", embed_dim=[16, 32, 48], num_heads=[1, 2, 3], depth=[1, 2, 3], labelled=True, rate=1e-3
    ),
    "SwiftFormer": _classifier(
        "SwiftFormer", 64, image_size=64, embed_dims=[16, 32, 48, 64], depths=[1, 1, 2, 1], labelled=False, rate=3e-4
    ),
    "ViTMAE": Trainable(_masked_autoencoder, _masked_patches, {}, None, 1e-3, "transformers"),
}  # fmt: skip
