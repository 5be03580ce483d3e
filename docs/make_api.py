"""Writes docs/api.md from the docstrings: `python docs/make_api.py`. A test fails when the page is out of date."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import initscope

PAGE = Path(__file__).with_name("api.md")
HEAD = """# API

Made by `python docs/make_api.py` from the docstrings. What comes first is imported from `initscope` itself; the rooms
below it hold what is needed less often.
"""
ROOMS = ("activations", "weights", "data", "geometry", "finite", "bounds", "networks", "probe", "papers", "scale")


def entry(name: str, thing: object) -> str:
    """Name, signature, and the first sentence of the docstring."""
    signature = ""
    if callable(thing):
        try:
            signature = str(_with_short_defaults(inspect.signature(thing)))
        except ValueError:
            signature = "(...)"
    # Annotations are kept as text: take their quotes away, not those of defaults.
    signature = re.sub(r"(: |-> )(['\"])(.*?)\2(?=[,) =]|$)", r"\1\3", signature)
    signature = re.sub(r"<factory>", "...", signature)
    signature = re.sub(r"\b(torch|initscope|collections\.abc|pathlib)\.(\w+\.)*", "", signature)
    text = inspect.getdoc(thing) or ""
    first = text.split("\n\n")[0].replace("\n", " ").strip()
    return f"- **`{name}`**`{signature}`: {first}" if signature else f"- **`{name}`**: {first}"


def _with_short_defaults(signature: inspect.Signature) -> inspect.Signature:
    """A default that is an object of ours is shown by its class, and its name if it has one."""

    def short(parameter: inspect.Parameter) -> inspect.Parameter:
        kind = type(parameter.default)
        if inspect.isfunction(parameter.default):  # its text would hold an address of memory
            return parameter.replace(default=_Shown("..."))
        if not kind.__module__.startswith("initscope"):
            return parameter
        return parameter.replace(default=_Shown(f"{kind.__name__}({getattr(parameter.default, 'name', '')})"))

    return signature.replace(parameters=[short(p) for p in signature.parameters.values()])


class _Shown(str):
    """A text that prints without quotes."""

    def __repr__(self) -> str:
        return str(self)


def is_documented(thing: object) -> bool:
    return inspect.isclass(thing) or inspect.isfunction(thing)


def room(module: ModuleType) -> list[str]:
    names = [n for n in module.__all__ if is_documented(getattr(module, n)) and n not in initscope.__all__]
    return [
        f"\n## {module.__name__}\n",
        f"{(module.__doc__ or '').strip()}\n",
        *(entry(n, getattr(module, n)) for n in names),
    ]


def page() -> str:
    names = [n for n in initscope.__all__ if is_documented(getattr(initscope, n))]
    lines = [HEAD, *(entry(n, getattr(initscope, n)) for n in sorted(names, key=str.lower))]
    for name in ROOMS:
        lines += room(getattr(initscope, name))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
