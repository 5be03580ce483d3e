"""The command line: results on stdout, the rest on stderr, exit codes, valid JSON, whole files."""

from __future__ import annotations

import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from initscope.cli import main
from initscope.cli.common import Settings, pick_device
from initscope.cli.demo import NEXT
from initscope.cli.entry import COMMANDS
from initscope.cli.kernel import summarise
from initscope.cli.options import memory_size
from initscope.data import load, load_pairs
from initscope.errors import BadInput
from initscope.networks import kernel, parse, predict
from initscope.results import jsonable

SMALL = ["--data", "photos", "--pairs", "2", "--size", "8"]
START = [sys.executable, "-c", "from initscope.cli import main; main(prog_name='initscope')"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="initscope")


def strict(text: str) -> Any:
    """JSON as the standard has it: NaN and Infinity are errors."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS), ["--version"]])
def test_help_needs_no_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom initscope.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'scipy', 'rich'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "initscope" in done.stdout or "Usage" in done.stdout


def test_every_command_has_the_common_options() -> None:
    for name in COMMANDS:
        words = [name, "run"] if name == "papers" else [name]  # the options are those of its commands
        text = run(*words, "--help").stdout
        for option in ("--json", "--seed", "--device", "--quiet"):
            assert option in text, (name, option)


def test_predict_json_is_what_the_library_says() -> None:
    result = run("predict", "conv3 relu gap", *SMALL, "--json", "--seed", "3")
    assert result.exit_code == 0, result.output
    document = strict(result.stdout)
    assert document["schema"] == "initscope.predict/1"
    assert document["seeds"] == {"data": 3, "simulation": 3}
    pairs = load_pairs("photos", pairs=2, size=8, seed=3)
    exact = predict(parse("conv3 relu gap"), pairs.x, pairs.y, seed=3)
    assert [row["name"] for row in document["layers"]] == [layer.name for layer in exact.layers]
    for row, layer in zip(document["layers"], exact.layers, strict=True):
        assert row["cosine_mean"] == pytest.approx(layer.cosine.mean().item(), rel=1e-12)
        assert row["cosine_min"] == pytest.approx(layer.cosine.min().item(), rel=1e-12)
        assert row["angle_deg"] == pytest.approx(math.degrees(layer.angle.mean().item()), rel=1e-12)
        assert row["method"] == "exact"
    # He weights: a convolution doubles the mean square of a unit, ReLU halves it again.
    assert [row["norm_ratio"] for row in document["layers"][:3]] == pytest.approx([1, math.sqrt(2), 1], rel=1e-9)


def test_predict_table_names_every_layer_and_method() -> None:
    result = run("predict", "conv3 relu conv3 tanh conv3 maxpool2", *SMALL)
    assert result.exit_code == 0, result.output
    for word in ("input", "1 conv3", "2 relu", "quadrature ±", "simulated ±", "exact"):
        assert word in result.stdout
    assert "\x1b" not in result.output


def test_predict_is_the_same_for_the_same_seed() -> None:
    arguments = ["predict", "conv3 maxpool2", *SMALL, "--json"]
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    assert first.stdout == run(*arguments).stdout
    assert first.stdout != run(*arguments, "--seed", "1").stdout


def test_figure_is_written(tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    result = run("predict", "conv3 relu", *SMALL, "--figure", str(path))
    assert result.exit_code == 0, result.output
    assert path.read_text().startswith("<svg")
    assert str(path) in result.stderr
    assert str(path) not in result.stdout


@pytest.mark.parametrize("quantity", ["product", "cosine", "distance", "defect"])
def test_kernel_file_is_the_librarys_matrix(tmp_path: Path, quantity: Any) -> None:
    path = tmp_path / "K.npz"
    result = run(
        "kernel", "conv3 relu gap", "--count", "5", "--size", "6", "--out", str(path), "--quantity", quantity, "--json",
        "--dtype", "float64",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    x = load("gaussian", count=5, size=6).images.double()
    matrix = kernel(parse("conv3 relu gap"), x, quantity=quantity).numpy()
    with np.load(path, allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["kernel"], matrix)
        assert str(stored["architecture"]) == "conv3 relu gap"
        assert str(stored["quantity"]) == quantity
    document = strict(result.stdout)
    assert document["schema"] == "initscope.kernel/1"
    assert document["summary"]["shape"] == [5, 5]
    assert document["summary"]["max"] == pytest.approx(matrix.max())
    assert "5 x 5 kernel" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["K.npz"]


def test_summary_numbers() -> None:
    matrix = np.array([[4.0, 1.0], [1.0, 1.0]])
    summary = summarise(matrix, "product")
    assert summary["off_diagonal_cosine"] == pytest.approx(0.5)
    small, large = (5 - math.sqrt(13)) / 2, (5 + math.sqrt(13)) / 2
    assert summary["smallest_eigenvalue"] == pytest.approx(small)
    assert summary["condition"] == pytest.approx(large / small)
    assert summarise(matrix, "distance")["off_diagonal_cosine"] is None
    assert summarise(np.array([[0.0, 0.25], [0.25, 0.0]]), "defect")["off_diagonal_cosine"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("2GiB", 2**31), ("500MB", 5 * 10**8), ("1.5 kb", 1500), ("4Ki", 4096), ("3g", 3 * 10**9)],
)
def test_memory_sizes(text: str, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1XB", "1e9", "0", "i", "1ib", "nan"])
def test_wrong_memory_sizes(text: str) -> None:
    with pytest.raises(BadInput):
        memory_size(text)


OUT = ["--out", "K.npy"]
WRONG = {
    "unknown word": (["predict", "cnov3 relu"], "did you mean conv3"),
    "unknown data": (["predict", "conv3", "--data", "fotos"], "photos"),
    "kernel too large": (["predict", "conv99", *SMALL], "larger than"),
    "image layer on vectors": (["predict", "dense gap", *SMALL], "expected sequences (c, l), images"),
    "no pairs": (["predict", "conv3", "--pairs", "0"], "0 is not in the range"),
    "seed": (["predict", "conv3", "--seed", "-1"], "-1 is not in the range"),
    "no such option": (["predict", "conv3", "--sede", "1"], "--seed"),
    "no architecture": (["predict"], "Missing argument 'ARCH'"),
    "figure suffix": (["predict", "conv3", "--figure", "f.pdf"], ".svg or .png"),
    "figure folder": (["predict", "conv3", "--figure", "no/f.svg"], "mkdir -p no"),
    "out suffix": (["kernel", "conv3", "--out", "K.txt"], ".npy, .npz or .zarr"),
    "out folder": (["kernel", "conv3", "--out", "no/K.npy"], "mkdir -p no"),
    "out is a folder": (["kernel", "conv3", "--out", "folder.npy"], "is a folder"),
    "memory": (["kernel", "conv3", *OUT, "--memory", "much"], "2GiB"),
    "too little memory": (["kernel", "conv3 relu gap", *OUT, "--memory", "1B"], "allowed"),
    "no command": (["predct"], "did you mean predict?"),
    "demo takes no arguments": (["demo", "conv3"], "unexpected extra argument"),
    "demo in a file": (["demo", "--out", "file"], "file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_exit_code_2_and_says_why(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "file").write_text("")
    arguments, said = WRONG[name]
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.npy"]


def test_devices() -> None:
    import torch

    assert pick_device("cpu", torch.float64).type == "cpu"
    assert pick_device("auto", torch.float64).type in ("cpu", "cuda")
    if not torch.cuda.is_available():
        assert run("predict", "conv3", "--device", "cuda").exit_code == 2


def test_plain_json_values() -> None:
    assert jsonable({"a": (1, math.inf, -math.inf, math.nan, "x", None, True)}) == {
        "a": [1, None, None, None, "x", None, True]
    }
    assert jsonable(np.array([1.5, math.nan])) == [1.5, None]


def test_undefined_similarity_is_null_and_warned_about(tmp_path: Path) -> None:
    images = np.zeros((2, 3, 8, 8), dtype=np.float32)
    images[0] = 1
    np.savez(tmp_path / "zero.npz", images=images)
    arguments = ["predict", "conv3 relu", "--data", f"npz:{tmp_path / 'zero.npz'}", "--pairs", "1", "--json"]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert strict(result.stdout)["layers"][0]["cosine_mean"] is None
    assert "warning:" in result.stderr
    assert run(*arguments, "--quiet").stderr == ""


def test_quiet_leaves_stderr_empty(tmp_path: Path) -> None:
    result = run("kernel", "conv3", "--count", "3", "--size", "4", "--out", str(tmp_path / "K.npy"), "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Settings, "print_json", interrupt)
    result = run("predict", "conv3", *SMALL, "--json")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr


def test_process_stdout_is_pure_json() -> None:
    done = subprocess.run(
        [*START, "predict", "conv3 relu", *SMALL, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert strict(done.stdout)["architecture"] == "conv3 relu"


def test_process_exit_code_and_plain_text() -> None:
    done = subprocess.run([*START, "predict", "conv3 rellu"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: architecture, line 1, column 7")
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*START, "predict", "conv3 relu", *SMALL], capture_output=True, check=False, env=ascii_only)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert done.stdout.isascii()


def test_process_interrupted_leaves_no_file(tmp_path: Path) -> None:
    arguments = ["kernel", "20x(conv3 sin) gap", "--count", "300", "--size", "16", "--out", str(tmp_path / "K.npy")]
    process = subprocess.Popen([*START, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "kernel" in process.stderr.readline()  # the estimate: the work begins
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", NEXT)
def test_what_the_demo_suggests_works(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*shlex.split(line), "--json")
    assert result.exit_code == 0, result.output
    strict(result.stdout)
