"""Text of users' files and models, made safe for a terminal."""

from __future__ import annotations

import re

# Characters that move the cursor, color or hide text, turn its direction, or end a line; halves of surrogate pairs.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str, *, lines: bool = False) -> str:
    """The text with control characters written out; with `lines` it keeps its ends of lines and tabs.

    >>> printable("layer\\x1b[31m\\n1"), printable("two\\nlines", lines=True)
    ('layer\\\\x1b[31m\\\\n1', 'two\\nlines')
    """
    return _HIDDEN.sub(lambda match: match[0] if lines and match[0] in "\n\t" else _escape(match[0]), text)


def one_line(text: str) -> str:
    """The text on one line: ends of lines become spaces, other control characters are written out.

    >>> one_line("a file\\nof two\\x07 lines")
    'a file of two\\\\x07 lines'
    """
    return printable(" ".join(text.split("\n")))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
