"""Models by name: `package.module:factory`, `path/to/file.py:factory`, or a built-in one."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from initscope.errors import BadInput

if TYPE_CHECKING:
    from torch import nn

MODEL_HELP = (
    "MODEL is package.module:factory, path/to/file.py:factory, or plain-cnn, bn-cnn, resnet or mlp[:DEPTH[:WIDTH]]."
)


@contextlib.contextmanager
def users_code(seed: int) -> Iterator[None]:
    """For the time in which a user's code runs: the current folder can be imported from, and what it prints goes to stderr.

    Random numbers come from `seed`, so that a model that is built at import is the same every time. A factory may import
    when it is called, so this lasts for as long as the model is in use.
    """
    import torch

    path = list(sys.path)
    sys.path.insert(0, os.getcwd())
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        sys.path[:] = path


def find_model(name: str, shape: Sequence[int]) -> nn.Module | Callable[[], nn.Module]:
    """The module, or what builds it, that `name` stands for; `shape` is that of one sample, for built-in models.

    Call it, and use the model, inside `users_code`.
    """
    from torch import nn

    from initscope.probe.builtin import BUILTIN, builtin_model

    kind, _, rest = name.partition(":")
    # A user's own module may be called mlp: a built-in name goes with numbers only.
    if kind in BUILTIN and (rest.replace(":", "").isdigit() or not rest or importlib.util.find_spec(kind) is None):
        return builtin_model(name, shape)
    found = find_object(name, "model", _hint(name, list(BUILTIN)))
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        problem = f"{name} is a {type(found).__name__}, expected a module, its class or a function that builds one"
        raise BadInput("model", problem, "name what builds the model")
    _check_arguments(found, name)
    return _tidy(found)


def find_object(name: str, place: str, hint: str = "") -> Any:
    """What `package.module:name` or `path/to/file.py:name` names; `hint` is what to do if it has neither form."""
    source, colon, attribute = name.rpartition(":")
    if not colon or not source or not attribute:
        raise BadInput(place, f"got '{name}'", hint or "write package.module:name or path/to/file.py:name")
    module = _from_file(Path(source), place) if _is_path(source) else _from_package(source, place, hint)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise BadInput(place, f"{source} has no '{part}'", _near(part, found)) from error
    return found


def _is_path(source: str) -> bool:
    return source.endswith(".py") or os.sep in source or "/" in source


def _from_file(path: Path, place: str) -> ModuleType:
    if not path.is_file():
        near = difflib.get_close_matches(path.name, (p.name for p in path.parent.glob("*.py")), n=1)
        raise BadInput(place, f"there is no file {path}", f"did you mean {near[0]}?" if near else "check the path")
    name = f"initscope_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(place, f"{path} is not a Python file", "name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))  # its neighbours are importable, as when it is run
    sys.modules[name] = module  # dataclasses and pickles look their module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadInput(
            place, f"{path} cannot be imported: {_said(error)}", "run it with python to see where"
        ) from error
    return module


def _from_package(source: str, place: str, hint: str) -> ModuleType:
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if source == missing or source.startswith(f"{missing}."):
            what = hint or "install it, or run in the folder that holds it"
            raise BadInput(place, f"there is no module {missing}", what) from error
        raise BadInput(place, f"{source} needs the module {missing}, which is not there", "install it") from error
    except (Exception, SystemExit) as error:
        raise BadInput(
            place, f"{source} cannot be imported: {_said(error)}", f"try: python -c 'import {source}'"
        ) from error


def _hint(name: str, known: Sequence[str]) -> str:
    kind = name.partition(":")[0]
    near = difflib.get_close_matches(kind, known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    forms = f"package.module:factory, path/to/file.py:factory, or one of {', '.join(known)}"
    return (
        f"write {forms}"
        if ":" not in name
        else f"install it, run in the folder that holds it, or use one of {', '.join(known)}"
    )


def _near(part: str, owner: object) -> str:
    names = [n for n in dir(owner) if not n.startswith("_")]
    near = difflib.get_close_matches(part, names, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    made = [
        n
        for n in names
        if callable(getattr(owner, n))
        and getattr(getattr(owner, n), "__module__", "") == getattr(owner, "__name__", None)
    ]
    return f"it has {', '.join(made[:8])}" if made else "check the name"


def _check_arguments(factory: Callable[..., Any], name: str) -> None:
    """A factory is called without arguments."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return
    fixed = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in fixed]
    if needed:
        problem = f"{name} needs arguments ({', '.join(needed)}), expected something to call without any"
        raise BadInput("model", problem, "write a function without arguments that builds the model, and name that")


def _tidy(factory: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    @functools.wraps(factory, updated=())
    def build() -> nn.Module:
        try:
            return factory()
        except SystemExit as error:  # a script's own argument parser
            raise RuntimeError(f"it ended the program, {_said(error)}") from error

    return build


def _said(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
