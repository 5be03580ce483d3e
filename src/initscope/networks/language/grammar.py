"""The grammar of the architecture language: text, tokens, arguments, and errors that point at the character.

`words.py` gives the words their meaning; this file knows none of them.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from initscope.errors import BadInput

Text = TypeVar("Text", bound=str)
LONGEST_TEXT = 20_000
LARGEST_INTEGER = 1_000_000
_SHOWN = 68  # columns of the offending line that an error shows

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
      | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<symbol>[()=,|/*])""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Token:
    """A piece of the text: `kind` is number, word, symbol or end; `start` is its place in the text."""

    kind: str
    text: str
    start: int

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else f"'{_visible(self.text[:40])}'"


@dataclass(frozen=True)
class Source:
    """The text being read, and complaints about it that point at the character."""

    text: str

    def refuse(self, at: Token, problem: str, remedy: str) -> NoReturn:
        raise self.complaint(at, problem, remedy)

    def complaint(self, at: Token, problem: str, remedy: str) -> BadInput:
        """Where, the line with carets under the token, the problem, the remedy."""
        before, line_start = self.text[: at.start], self.text.rfind("\n", 0, at.start) + 1
        line = self.text[line_start:].split("\n", 1)[0]
        column = at.start - line_start
        place = f"architecture, line {before.count(chr(10)) + 1}, column {column + 1}"
        return BadInput(place, f"\n{_pointed(line, column, len(at.text))}\n{problem}", remedy)


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def _columns(text: str) -> int:
    """Terminal columns that the text takes: wide East Asian characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _pointed(line: str, column: int, length: int) -> str:
    """The line, cut to a window around the column, and a line of carets under the token."""
    start = max(0, column - _SHOWN * 2 // 3) if len(line) > _SHOWN else 0
    cut = _visible(line[start : start + _SHOWN])
    lead, tail = "..." if start else "", "..." if start + _SHOWN < len(line) else ""
    here = column - start
    carets = max(1, _columns(cut[here : here + length]))
    return f"    {lead}{cut}{tail}\n    {' ' * (len(lead) + _columns(cut[:here]))}{'^' * carets}"


def tokenise(text: str) -> tuple[Source, list[Token]]:
    """Cut the text into tokens, the last of kind "end"; spaces, newlines and `# comments` separate.

    >>> [t.text for t in tokenise("2x(conv3/2 relu)")[1]]
    ['2', 'x', '(', 'conv3', '/', '2', 'relu', ')', '']
    """
    source = Source(text)
    if len(text) > LONGEST_TEXT:
        at = Token("end", "", LONGEST_TEXT)
        source.refuse(at, f"the text has {len(text)} characters, at most {LONGEST_TEXT} are read", "use 10x(...)")
    tokens, place = [], 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            stray = Token("symbol", text[place], place)
            source.refuse(stray, f"found the character {stray}", "write layer words such as: conv3 relu gap")
        if match.lastgroup != "space":
            tokens.append(Token(str(match.lastgroup), match.group(), place))
        place = match.end()
    return source, [*tokens, Token("end", "", len(text))]


def nearest(word: str, known: Iterable[str]) -> str:
    """The known words closest to this one, as a question; empty when none is close.

    >>> nearest("cnov3", ["conv3", "relu"])
    'did you mean conv3?'
    """
    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else ""


@dataclass(frozen=True)
class Value:
    """What stands behind a `name=` or between commas: a number, or a word with arguments of its own."""

    token: Token
    arguments: tuple[Value, ...] = ()
    label: Token | None = None  # the name before the equals sign


@dataclass
class Arguments:
    """The arguments of one word; the getters take them out, `done` complains about what nobody took."""

    source: Source
    owner: Token
    positional: list[Value] = field(default_factory=list)
    named: dict[str, Value] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def add(self, value: Value) -> None:
        label = value.label
        if label is None and self.named:
            self.source.refuse(
                value.token, f"found {value.token} after a name=value", "put values without a name first"
            )
        if label is None:
            self.positional.append(value)
        elif label.text in self.named:
            self.source.refuse(label, f"'{label.text}' is given twice", "give it once")
        else:
            self.named[label.text] = value

    def take(self, name: str, *, first: bool = False) -> Value | None:
        """The argument of this name, or with `first` the next one without a name; None when it is not given."""
        self.asked.append(name)
        if first and self.positional:
            value = self.positional.pop(0)
            if name in self.named:
                self.source.refuse(self.named[name].token, f"'{name}' is given twice", "give it once")
            return value
        return self.named.pop(name, None)

    def integer(self, name: str, default: int | None, *, first: bool = False, low: int = 1) -> int:
        value = self.take(name, first=first)
        if value is None:
            if default is None:
                self.missing(name, "a whole number")
            return default
        return whole(self.source, value.token, name, low=low)

    def number(self, name: str, default: float | None, *, first: bool = False) -> float:
        value = self.take(name, first=first)
        if value is None:
            if default is None:
                self.missing(name, "a number")
            return default
        return real(self.source, value, name)

    def choice(self, name: str, choices: Sequence[Text], default: Text, *, first: bool = False) -> Text:
        value = self.take(name, first=first)
        if value is None:
            return default
        if value.token.text not in choices or value.arguments:
            remedy = nearest(value.token.text, choices) or f"write {name}={choices[0]}"
            self.source.refuse(value.token, f"{name} is {value.token}, expected one of {', '.join(choices)}", remedy)
        return choices[choices.index(value.token.text)]

    def missing(self, name: str, kind: str) -> NoReturn:
        text = self.owner.text
        self.source.refuse(self.owner, f"'{text}' needs {kind} ({name})", f"write it as {text}(...)")

    def done(self) -> None:
        """Complain about the first argument that no getter took."""
        takes = f"it takes {', '.join(self.asked)}" if self.asked else "it takes no arguments"
        for value in self.positional:
            self.source.refuse(value.token, f"'{self.owner.text}' has no place for {value.token}", takes)
        for name, value in self.named.items():
            at = value.label or value.token
            self.source.refuse(at, f"'{self.owner.text}' has no option '{name}'", nearest(name, self.asked) or takes)


def whole(source: Source, token: Token, name: str, *, low: int = 1, high: int = LARGEST_INTEGER) -> int:
    """The token as a whole number between the limits."""
    digits = token.text.removeprefix("+")
    if token.kind != "number" or not digits.isdigit():
        source.refuse(token, f"found {token}, expected a whole number ({name})", f"write a number from {low} on")
    # Ten digits exceed every limit, and int() refuses texts of thousands of digits.
    if len(digits) > 10 or not low <= int(digits) <= high:
        source.refuse(token, f"{name} is {token}, expected {low} to {high}", "use a number in that range")
    return int(digits)


def real(source: Source, value: Value, name: str) -> float:
    """The value as a finite number."""
    token = value.token
    if token.kind != "number" or value.arguments:
        source.refuse(token, f"found {token}, expected a number ({name})", "write a number such as 0.5")
    number = float(token.text)
    if not math.isfinite(number):
        source.refuse(token, f"{name} is {token}, which is not a finite number", "write a number such as 0.5")
    return number
