"""Training of decoders for encoders that stay as they are."""

from initscope.images.training.loop import train_decoder
from initscope.images.training.recipe import Recipe
from initscope.images.training.result import TrainedDecoder, load_decoder, loss_curves

__all__ = ["Recipe", "TrainedDecoder", "load_decoder", "loss_curves", "train_decoder"]
