"""`check` inside other people's tools: pytest, Lightning, Hugging Face Trainer, TensorBoard, Weights & Biases.

None of them is a dependency: each is imported when it is asked for.
"""

from initscope.probe.integrations.callbacks import lightning_callback, trainer_callback
from initscope.probe.integrations.scalars import log_to_tensorboard, log_to_wandb, scalars
from initscope.probe.integrations.testing import assert_healthy

__all__ = [
    "assert_healthy",
    "lightning_callback",
    "log_to_tensorboard",
    "log_to_wandb",
    "scalars",
    "trainer_callback",
]
