"""Where inputs come from: built-in generators and photographs, folders, npz, idx, torchvision, the Hugging Face hub."""

from initscope.data.load import FORMS, load, load_pairs
from initscope.data.sets import Images, Pairs

__all__ = ["FORMS", "Images", "Pairs", "load", "load_pairs"]
