"""Where inputs come from: built-in generators and photographs, folders, npz, idx, torchvision, the Hugging Face hub."""

from initscope.data.load import FORMS as FORMS
from initscope.data.load import load as load
from initscope.data.load import load_pairs as load_pairs
from initscope.data.sets import Images as Images
from initscope.data.sets import Pairs as Pairs
