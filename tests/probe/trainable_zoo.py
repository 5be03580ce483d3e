"""Models that are known to train: `python benchmarks/zoo.py train` shows it for each."""

from __future__ import annotations

from probe.trainable import Trainable
from probe.zoo_attention import ATTENTION
from probe.zoo_images import IMAGES
from probe.zoo_language import LANGUAGE
from probe.zoo_own import OWN
from probe.zoo_pytorchcv import PYTORCHCV
from probe.zoo_signals import SIGNALS

__all__ = ["TRAINABLE", "Trainable"]

TRAINABLE: dict[str, Trainable] = {**OWN, **ATTENTION, **IMAGES, **LANGUAGE, **SIGNALS, **PYTORCHCV}
