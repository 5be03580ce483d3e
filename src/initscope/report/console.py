"""The way to the terminal: what a model or a file is called there cannot move the cursor or color the text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import rich.console
from rich.segment import Segment

from initscope.printable import printable

Value = TypeVar("Value")
_OF_LINES = ("code", "failure")  # fields whose texts have several lines


class Console(rich.console.Console):
    """A console that writes control characters out instead of sending them.

    Views pass their texts through `shown`, so that columns are as wide as what stands in them; this is the last door.
    """

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text, lines=True)
            yield segment if text is segment.text else Segment(text, segment.style)


def shown(value: Value, *, lines: bool = False) -> Value:
    """A result with all its texts printable; what has none to change is the same object.

    >>> shown(("conv", "a\\x1b[2J"))
    ('conv', 'a\\\\x1b[2J')
    """
    made: Any = value
    if isinstance(value, str):
        made = printable(value, lines=lines)
    elif isinstance(value, tuple | list):
        parts = [shown(part, lines=lines) for part in value]
        if _differ(parts, value):
            made = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif isinstance(value, dict):
        pairs = {shown(key): shown(part, lines=lines) for key, part in value.items()}
        made = pairs if _differ(pairs, value) or _differ(pairs.values(), value.values()) else value
    elif is_dataclass(value) and not isinstance(value, type):
        old = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        new = {name: shown(part, lines=name in _OF_LINES) for name, part in old.items()}
        changed = {name: part for name, part in new.items() if part is not old[name]}
        made = replace(value, **changed) if changed else value
    return made  # type: ignore[no-any-return]


def _differ(new: Iterable[Any], old: Iterable[Any]) -> bool:
    return any(one is not other for one, other in zip(new, old, strict=True))
