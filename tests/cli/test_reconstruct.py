"""`initscope reconstruct`: the library's numbers, pictures and sheets on disk, wrong use in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
import torch
from click.testing import CliRunner, Result

from initscope.cli import main
from initscope.images import read_picture, reconstruct, write_picture


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    rough = torch.rand(1, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.interpolate(rough, size=(24, 32), mode="bilinear")[0]
    return write_picture(smooth, folder / "photo.png")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["reconstruct", *map(str, arguments)], prog_name="initscope")


def document(*arguments: str | Path) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_picture_and_numbers(photo: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    result = run(photo, "--arch", "vgg16", "--depth", "1", "--channels", "64", "--seed", "3", "-o", out)
    assert result.exit_code == 0, result.output
    expected = reconstruct(photo, channels=64, seed=3)
    assert f"{expected.ssim:.4f}" in result.stdout
    assert f"{expected.psnr:.2f} dB" in result.stdout
    assert f"{expected.theory.input_angle:.2f}°" in result.stdout
    assert "none: random weights in the last layer" in result.stdout
    assert f"wrote {out}" in result.stderr
    torch.testing.assert_close(read_picture(out)[0], expected.image, rtol=0, atol=0.51 / 255)


def test_json_is_what_the_library_says(photo: Path) -> None:
    options = ("--variant", "average", "--channels", "600", "--depth", "1_1", "--kernel", "5", "--quiet")
    found = document(photo, *options)
    assert found["schema"] == "initscope.reconstruct/1"
    expected = reconstruct(photo, channels=600, depth="1_1", kernel=5, variant="average").to_dict()
    assert {key: found[key] for key in expected} == json.loads(json.dumps(expected))
    assert found["theory"]["output_angle"] < found["theory"]["output_bound"]
    assert found["out"] is None


def test_all_theory_in_the_table(photo: Path) -> None:
    text = run(photo, "--variant", "average", "--channels", "600", "--depth", "1_1").stdout
    for word in ("limit to input", "Theorem 3", "output to limit", "Theorem 2", "with probability 0.95", "sharper"):
        assert word in text


@pytest.mark.parametrize(
    "options",
    [
        ("--arch", "alexnet", "--depth", "2"),
        ("--depth", "2", "--pooling", "l2", "--upsampling", "nearest", "--variant", "average"),
        ("--decoder", "matched", "--law", "laplace_fixed(0.01)"),
        ("--decoder", "averaged", "--decoders", "2", "--tone", "match"),
        ("--decoder", "least-squares", "--examples", "photos", "--count", "1"),
        ("--channels", "4,8", "--depth", "2", "--memory", "500MB"),
    ],
)
def test_other_ways(photo: Path, options: tuple[str, ...]) -> None:
    widths = () if "--channels" in options else ("--channels", "8")
    found = document(photo, *options, *widths)
    assert 0 <= found["ssim"] <= 1
    assert found["shape"][1:] == [24, 32]


@pytest.mark.parametrize(("sheet", "count"), [("depth", 5), ("channels=2,4", 2), ("kernel", 5)])
def test_sheets(photo: Path, tmp_path: Path, sheet: str, count: int) -> None:
    out = tmp_path / "sheet.svg"
    widths = () if sheet.startswith("channels") else ("--channels", "4")
    result = run(photo, "--sheet", sheet, *widths, "-o", out)
    assert result.exit_code == 0, result.output
    assert out.read_text().count("<image") == count + 1
    assert "SSIM" in result.stdout
    assert len(document(photo, "--sheet", sheet, *widths, "-o", out)["results"]) == count


WRONG: dict[str, tuple[list[str], str]] = {
    "depth": (["--depth", "9"], "stage from 1 to 5"),
    "channels": (["--channels", "ten"], "write 64, or 64,128,256"),
    "kernel": (["--kernel", "0"], "kernel: got 0"),
    "kernels": (["--kernel", "3,5"], "expected one number"),
    "law": (["--law", "hee"], "unknown weight law"),
    "arch": (["--arch", "lenet"], "lenet"),
    "memory": (["--memory", "10MB"], "needs about"),
    "memory size": (["--memory", "much"], "--memory: got 'much'"),
    "suffix": (["-o", "out.txt"], "expected one of"),
    "folder": (["-o", "none/out.png"], "does not exist"),
    "sheet without file": (["--sheet", "depth"], "add -o sheet.png"),
    "sheet suffix": (["--sheet", "depth", "-o", "s.jpg"], ".png or .svg; name it s.png"),
    "sheet of what": (["--sheet", "seed", "-o", "s.png"], "choose from depth, channels, kernel"),
    "sheet twice": (["--sheet", "depth", "--depth", "1", "-o", "s.png"], "leave --depth out"),
    "examples": (["--examples", "photos"], "are for --decoder least-squares"),
    "variant": (["--decoder", "matched", "--variant", "average"], "only random ones"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_exit_code_2_and_leaves_nothing(
    name: str, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    arguments, said = WRONG[name]
    result = run(photo, *arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output
    assert not list(work.iterdir())


def test_bad_pictures(tmp_path: Path) -> None:
    text = tmp_path / "text.jpg"
    text.write_text("hello")
    assert "cannot be read as an image" in run(text).stderr
    assert "does not exist" in run(tmp_path / "none.jpg").stderr
    dot = tmp_path / "dot.png"
    PIL.Image.new("L", (1, 1), 99).save(dot)
    result = run(dot, "--channels", "4")
    assert result.exit_code == 0, result.output
    assert "undefined below 11x11" in result.stdout
