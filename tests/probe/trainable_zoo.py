"""Models that are known to train: `python benchmarks/zoo.py train` shows it for each.

Rates are chosen for each entry so that all three draws train. Left out, because they did not in 150 steps of Adam:

- EfficientNet of `transformers` at this size, at 1e-3, 3e-3 and 1e-2: stays at the loss of the best constant
- SigLIP at this size, at the same rates: 2.7 at best, where a constant has 3.0
- condensenet74_c4_g4 of pytorchcv, at 1e-3: 1.7, where a constant has 2.1
- ViTMAE as transformers 5.22.2 builds it: learns one patch for each image, see `zoo_images`
"""

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
