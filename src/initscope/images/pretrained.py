"""Encoders with the convolutions of VGG16 and AlexNet as trained on ImageNet, to compare random filters with.

No weights come with the package. They are looked for in a safetensors file under the names that torchvision gives them
(features.0.weight, features.0.bias, ...), and among what torchvision has downloaded before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from initscope.errors import BadInput, first_line
from initscope.files import is_file
from initscope.images.architectures import Depth, Layout, layout
from initscope.images.modules import Filters, Pooling
from initscope.images.networks import Encoder, Stage

FOLDER = (
    "INITSCOPE_WEIGHTS"  # the environment variable that names a folder of vgg16.safetensors and alexnet.safetensors
)

# Mean and deviation of the red, green and blue of ImageNet's pixels in [0, 1], which both networks were trained with.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)

# Of each network: its layers in `ARCHITECTURES`, the name of its file, and what torchvision calls its weights.
_KNOWN = {
    "vgg16": ("vgg16", "vgg16", "VGG16_Weights"),
    "alexnet": ("alexnet2014", "alexnet", "AlexNet_Weights"),
    "alexnet2014": ("alexnet2014", "alexnet", "AlexNet_Weights"),
}


class NormalisedStage(Stage):
    """Conv1 of a network that was trained on pixels of mean 0 and deviation 1: takes pixels in [0, 1], grey or colour."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, convs: list[Filters]) -> None:
        super().__init__(None, convs)
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(3, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x - self.mean) / self.deviation)


def pretrained_encoder(
    arch: str = "vgg16", depth: Depth = 5, path: str | Path | None = None, *, pooling: Pooling = "max"
) -> Encoder:
    """The encoder Conv[depth] with its ImageNet filters and biases; images (n, 3, h, w) with pixels in [0, 1].

    The first stage subtracts ImageNet's mean and divides by its deviation, so that images go in as they go into a random
    encoder; grey ones are taken for colour with equal channels. `arch`: "vgg16", or "alexnet" for the widths 64 to 256 of the
    published weights ("alexnet2014" in `ARCHITECTURES`). `path`: a safetensors file, or a folder of them; without it the
    folder that INITSCOPE_WEIGHTS names, then what torchvision has downloaded. Filters need no gradient.

        encoder = pretrained_encoder("vgg16", depth=3)
        encoder(torch.rand(1, 3, 64, 64)).shape         # (1, 256, 16, 16)
    """
    plan = layout(_known(arch)[0], depth)
    encoder = Encoder(plan, pooling=pooling, bias=True, keep=False)
    pairs = _read(arch, path, plan)
    for stage in encoder.stages:
        assert isinstance(stage, Stage)
        for conv in stage.convs:
            assert isinstance(conv, Filters)
            weight, bias = pairs.pop(0)
            conv.weight, conv.bias = nn.Parameter(weight), nn.Parameter(bias)
    first = encoder.stages[0]
    assert isinstance(first, Stage)
    encoder.stages[0] = NormalisedStage(list(first.convs))  # type: ignore[arg-type]
    return encoder.requires_grad_(False)


def pretrained_weights(arch: str = "vgg16", path: str | Path | None = None) -> dict[str, Tensor]:
    """The weights (outputs, inputs, k, k) and biases (outputs,) of all convolutions, by torchvision's names, in order."""
    plan = layout(_known(arch)[0], 5)
    found: dict[str, Tensor] = {}
    for name, (weight, bias) in zip(weight_names(arch), _read(arch, path, plan), strict=True):
        found |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return found


def weight_names(arch: str) -> list[str]:
    """What torchvision calls the convolutions, in order: a position counts activations and poolings too.

    >>> weight_names("alexnet")
    ['features.0', 'features.3', 'features.6', 'features.8', 'features.10']
    """
    names, position = [], 0
    for stage in layout(_known(arch)[0], 5).stages:
        position += stage.pool is not None
        for _ in stage.convs:
            names.append(f"features.{position}")
            position += 2
    return names


def _known(arch: str) -> tuple[str, str, str]:
    if arch not in _KNOWN:
        raise BadInput("arch", f"{arch!r} has no pre-trained weights", "choose from vgg16, alexnet")
    return _KNOWN[arch]


def _read(arch: str, path: str | Path | None, plan: Layout) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each convolution of `plan`."""
    file = _file(arch, path)
    if file is None:
        return _torchvision(arch, plan)
    try:
        with safe_open(file, "pt") as stored:
            return _pairs(str(file), stored.get_tensor, set(stored.keys()), plan)
    except BadInput:
        raise
    except Exception as error:  # damage makes the reader of the format raise almost anything
        problem = f"is no safetensors file ({first_line(error)})"
        raise BadInput(str(file), problem, f"convert it again: {_convert()}") from error


def _file(arch: str, path: str | Path | None) -> Path | None:
    """The safetensors file: the argument, or the one in the folder of the environment; None where neither is given."""
    name = f"{_known(arch)[1]}.safetensors"
    if path is not None:
        given = Path(path).expanduser()
        file = given / name if given.is_dir() else given
    elif os.environ.get(FOLDER):
        file = Path(os.environ[FOLDER]).expanduser() / name
    else:
        return None
    if not is_file(file):
        place = "path" if path is not None else FOLDER
        raise BadInput(place, f"{file} does not exist", f"make it: {_convert()}")
    return file


def _torchvision(arch: str, plan: Layout) -> list[tuple[Tensor, Tensor]]:
    """What torchvision downloaded before; nothing is downloaded here."""
    name = _known(arch)[1]
    remedy = f"{_convert()} makes them, then set {FOLDER}=FOLDER; or, with torchvision, {_download(name)}"
    try:
        import torchvision.models  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except (ImportError, RuntimeError) as error:  # beside another torch its import fails with RuntimeError
        problem = f"no ImageNet weights: no path, {FOLDER} is not set, and torchvision does not import"
        raise BadInput(f"pretrained {name}", problem, remedy) from error
    url = getattr(torchvision.models, _known(arch)[2]).IMAGENET1K_V1.url
    file = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    if not file.is_file():
        problem = f"no ImageNet weights: no path, {FOLDER} is not set, and torchvision has not downloaded them"
        raise BadInput(f"pretrained {name}", problem, remedy)
    try:
        state: Mapping[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
        return _pairs(str(file), state.__getitem__, set(state), plan)
    except BadInput:
        raise
    except Exception as error:  # damage makes torch's reader raise almost anything
        problem = f"cannot be read ({first_line(error)})"
        raise BadInput(str(file), problem, f"remove it, then {_download(name)}") from error


def _convert() -> str:
    return "python benchmarks/pretrained.py FOLDER"


def _download(name: str) -> str:
    return f"python -c \"import torchvision; torchvision.models.{name}(weights='IMAGENET1K_V1')\""


def _pairs(place: str, get: Callable[[str], Any], names: set[str], plan: Layout) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of each convolution, in the order of their numbers, of the shapes that the layers have."""
    numbers = sorted(
        int(match[1]) for name in names if (match := re.fullmatch(r"features\.([0-9]{1,4})\.weight", name))
    )
    if len(numbers) < len(plan.convs):
        problem = f"holds {len(numbers)} convolutions, {plan.arch} up to Conv{plan.depth} has {len(plan.convs)}"
        raise BadInput(place, problem, "give features.0.weight, features.0.bias and so on, as torchvision names them")
    found = []
    for number, conv in zip(numbers, plan.convs, strict=False):
        shape = (conv.outputs, conv.inputs, conv.kernel, conv.kernel)
        pair = []
        for kind, wanted in (("weight", shape), ("bias", shape[:1])):
            name = f"features.{number}.{kind}"
            if name not in names:
                raise BadInput(place, f"has no {name}", f"convert it again: {_convert()}")
            value = get(name)
            if tuple(value.shape) != wanted:
                problem = f"{name} has shape {tuple(value.shape)}, {plan.arch} has {wanted}"
                raise BadInput(place, problem, "give the file of that network")
            if not bool(value.isfinite().all()):
                raise BadInput(place, f"{name} holds values that are not numbers", f"convert it again: {_convert()}")
            pair.append(value.to(torch.float32))
        found.append((pair[0], pair[1]))
    return found
