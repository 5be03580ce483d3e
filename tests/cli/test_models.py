"""Models by name: modules, files, built-in ones; every way to get it wrong says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from initscope.cli.losses import find_loss
from initscope.cli.models import find_model, find_object, users_code
from initscope.errors import BadInput
from initscope.probe.builtin import BUILTIN, builtin_model

SOURCE = """
from __future__ import annotations
import sys
from dataclasses import dataclass
from torch import nn
print("imported", __name__)

@dataclass
class Config:
    width: int = 4

class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(8, width)
    def forward(self, x):
        return self.layer(x)

def build():
    import helper_beside
    return Net(helper_beside.WIDTH)

def wide(width):
    return Net(width)

def scale(output, target):
    return output.square().mean()

ready = Net(5)
number = 3
class Zoo:
    small = Net
"""
SHAPE = (3, 8, 8)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "zoo_of_models.py").write_text(SOURCE)
    (tmp_path / "helper_beside.py").write_text("WIDTH = 6")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.py").write_text(SOURCE)
    (tmp_path / "sub" / "helper_beside.py").write_text("WIDTH = 7")
    (tmp_path / "broken.py").write_text("import zoo_that_is_not_there")
    (tmp_path / "syntax.py").write_text("def (")
    (tmp_path / "script.py").write_text("import sys; sys.exit('usage: ...')")
    monkeypatch.chdir(tmp_path)
    for name in ("zoo_of_models", "helper_beside", "broken", "script"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def width(model: object) -> int:
    made = model if isinstance(model, nn.Module) else model()  # type: ignore[operator]
    assert isinstance(made, nn.Module)
    return len(next(made.parameters()))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("zoo_of_models:build", 6),
        ("zoo_of_models:Net", 4),
        ("zoo_of_models:Zoo.small", 4),
        ("zoo_of_models:ready", 5),
        ("zoo_of_models.py:build", 6),
        ("sub/inner.py:build", 7),
        ("./sub/inner.py:Net", 4),
    ],
)
def test_modules_files_classes_functions_and_instances(name: str, expected: int, here: Path) -> None:
    before = list(sys.path)
    with users_code(0):
        assert width(find_model(name, SHAPE)) == expected
    assert sys.path == before
    sys.modules.pop("helper_beside", None)


def test_what_users_code_prints_goes_to_stderr(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with users_code(0):
        find_model("zoo_of_models:build", SHAPE)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "imported" in printed.err


WRONG = {
    "zoo_of_models:biuld": "did you mean build?",
    "zoo_of_models:qqqqqqq": "it has ",
    "zoo_of_models:number": "is a int, expected",
    "zoo_of_models:wide": r"needs arguments \(width\)",
    "zoo_that_is_not_there:build": "there is no module zoo_that_is_not_there",
    "broken:build": "needs the module zoo_that_is_not_there",
    "syntax:build": "SyntaxError",
    "syntax.py:build": "SyntaxError",
    "script:build": "SystemExit",
    "script.py:build": "SystemExit: usage",
    "zoo_of_model.py:build": "did you mean zoo_of_models.py?",
    "no/such/file.py:build": "there is no file",
    "zoo_of_models": "package.module:factory",
    "zoo_of_models:": "got 'zoo_of_models:'",
    ":build": "got ':build'",
    "": "got ''",
    "plain_cnn": "did you mean plain-cnn?",
    "plain-cnn:x": "is no number",
    "plain-cnn:0": "is no number",
    "plain-cnn:3:4:5": "plain-cnn",
    "mlp:99999999": "is no number",
    "sub:build": "has no 'build'",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_names_are_refused_with_a_remedy(name: str, here: Path) -> None:
    before, known = list(sys.path), set(sys.modules)
    with users_code(0), pytest.raises(BadInput, match=WRONG[name]):
        find_model(name, SHAPE)
    assert sys.path == before
    assert not {m for m in set(sys.modules) - known if m.startswith("initscope_user_s")}


def test_a_factory_that_ends_the_program_is_an_error(here: Path) -> None:
    (here / "ends.py").write_text("import sys\ndef build():\n    sys.exit(3)")
    with users_code(0):
        factory = find_model("ends.py:build", SHAPE)
    with pytest.raises(RuntimeError, match="ended the program"):
        factory()


@pytest.mark.parametrize("kind", BUILTIN)
def test_builtin_models_run_and_have_the_depth_asked_for(kind: str) -> None:
    model = builtin_model(f"{kind}:3:8", SHAPE)()
    assert model(torch.rand(2, *SHAPE)).shape == (2, 10)
    weights = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(weights) == {"resnet": 1 + 2 * 3 + 1}.get(kind, 4)
    assert weights[0].weight.shape[0] == 8
    if kind == "mlp":
        assert builtin_model("mlp:2", (5,))()(torch.rand(2, 5)).shape == (2, 10)
    else:
        with pytest.raises(BadInput, match="takes images"):
            builtin_model(kind, (5,))


def test_a_users_module_may_be_called_like_a_builtin_model(here: Path) -> None:
    (here / "mlp.py").write_text(SOURCE)
    with users_code(0):
        assert width(find_model("mlp:Net", SHAPE)) == 4
        assert width(find_model("mlp:2:16", SHAPE)) == 16
    sys.modules.pop("mlp", None)


def test_losses(here: Path) -> None:
    logits = torch.zeros(6, 10)
    assert float(find_loss("random-direction", 0)(logits, None)) == 0.0
    entropy = find_loss("cross-entropy", 0)
    assert float(entropy(logits, None)) == pytest.approx(torch.log(torch.tensor(10.0)).item())
    assert float(entropy({"logits": logits, "other": 1}, None)) == pytest.approx(2.302585, rel=1e-6)
    square = find_loss("squared-error", 0)
    spread = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
    assert float(square((spread,), None)) == 0.0  # the targets are those of the seed
    with users_code(0):
        own = find_loss("zoo_of_models:scale", 0)
        assert float(own(logits + 2, None)) == 4.0
        with pytest.raises(BadInput, match="is a int"):
            find_loss("zoo_of_models:number", 0)
    with pytest.raises(BadInput, match="cross-entropy"):
        find_loss("entropy", 0)
    with pytest.raises(BadInput, match="cross-entropy needs scores of classes"):
        entropy(torch.zeros(3), None)


def test_objects_need_both_parts() -> None:
    with pytest.raises(BadInput, match=r"--loss: got 'x'; write package\.module:name"):
        find_object("x", "--loss")
