"""Pictures out of untrained networks: reconstruction with random encoders and decoders."""

from initscope.images.architectures import ARCHITECTURES, Layout, layout
from initscope.images.files import read_picture, write_picture
from initscope.images.networks import Decoder, Encoder, Stage
from initscope.images.pretrained import pretrained_encoder, pretrained_weights
from initscope.images.quality import Quality, compare_pictures, to_pictures
from initscope.images.reconstruction import Reconstruction, reconstruct
from initscope.images.sheet import Cell, Sheet, contact_sheet, picture_grid
from initscope.images.style import Judgement, Stylized, judge_style, stylize
from initscope.images.theory import Theory, limit_network
from initscope.images.training import Recipe, TrainedDecoder, load_decoder, loss_curves, train_decoder

__all__ = [
    "ARCHITECTURES",
    "Cell",
    "Decoder",
    "Encoder",
    "Judgement",
    "Layout",
    "Quality",
    "Recipe",
    "Reconstruction",
    "Sheet",
    "Stage",
    "Stylized",
    "Theory",
    "TrainedDecoder",
    "compare_pictures",
    "contact_sheet",
    "judge_style",
    "layout",
    "limit_network",
    "load_decoder",
    "loss_curves",
    "picture_grid",
    "pretrained_encoder",
    "pretrained_weights",
    "read_picture",
    "reconstruct",
    "stylize",
    "to_pictures",
    "train_decoder",
    "write_picture",
]
