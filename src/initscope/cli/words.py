"""Errors of the library in the words of the command line: `count=4` is `--samples 4` to who typed that.

The library writes its arguments as `name=` or `name=value`; here each becomes the option of the command that was called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from initscope.errors import InitscopeError

# Arguments of the library that have another name on the command line: the first that the command has.
_OTHER_NAMES = {
    "count": ("samples", "pairs", "count"),
    "target": ("batch",),
    "targets": ("batch",),
    "net": ("architecture",),
    "train": ("evaluate",),
}
_FUNCTION = re.compile(r"[a-z]+(?:_[a-z]+)+")  # a function of the library: its user called a command
_VALUE = r"""(?P<value>'[^']*'|"[^"]*"|\.\.\.|\([^)]*\)|[\w+*-]+(?:\.[\w+*-]+)*|)"""


@contextmanager
def option_words(command: click.Command) -> Iterator[None]:
    """Errors that leave this context name options of the command instead of arguments of Python functions."""
    try:
        yield
    except InitscopeError as error:
        place, problem, remedy = translated(error, option_names(command))
        if _FUNCTION.fullmatch(place):
            place = str(command.name)
        if (place, problem, remedy) == (error.place, error.problem, error.remedy):
            raise
        raise type(error)(place, problem, remedy) from error


def in_options(error: InitscopeError) -> str:
    """The message of an error in the words of the command that runs."""
    place, problem, remedy = translated(error, option_names(click.get_current_context().command))
    return f"{place}: {problem}; {remedy}"


def text_in_options(text: str) -> str:
    """A warning of the library in the words of the command that runs."""
    names = option_names(click.get_current_context().command)
    return _with_options(text, names) if names else text


def option_names(command: click.Command) -> dict[str, str]:
    """The option for each argument of the library that the command passes on."""
    own = {
        str(parameter.name): max(parameter.opts, key=len)
        for parameter in command.params
        if isinstance(parameter, click.Option)
    }
    others = {name: next((own[given] for given in known if given in own), None) for name, known in _OTHER_NAMES.items()}
    return {**own, **{name: option for name, option in others.items() if option is not None}}


def translated(error: InitscopeError, options: Mapping[str, str]) -> tuple[str, str, str]:
    """Place, problem and remedy with options for arguments.

    >>> translated(InitscopeError("count", "got 0", "use count=2 or more"), {"count": "--samples"})
    ('--samples', 'got 0', 'use --samples 2 or more')
    """
    if error.place.startswith(("architecture", "--")) or not options:  # the user's own text, or already said so
        return error.place, error.problem, error.remedy
    remedy = _with_options(error.remedy, options)
    # What a user's own model or file says is quoted as it is.
    problem = error.problem if error.place == "model" else _with_options(error.problem, options)
    return options.get(error.place, error.place), problem, remedy


def _with_options(text: str, options: Mapping[str, str]) -> str:
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))

    def option(match: re.Match[str]) -> str:
        value = match["value"].strip("'\"")
        flag = options[match["name"]]
        return flag if value in ("", "True", "...") else f"{flag} {value}"

    text = re.sub(rf"\b(?:pass|use) (?P<name>{names})=None\b", lambda m: f"leave {options[m['name']]} out", text)
    text = re.sub(rf"(?<![\w.-])(?P<name>{names})=(?![=])" + _VALUE, option, text)
    # "draws is 1, expected ..." and "pass draws >= 2" name an argument without its equals sign.
    text = re.sub(rf"^(?P<name>{names}) is (?=\S)", lambda m: f"{options[m['name']]} is ", text)
    return re.sub(rf"(?<=\bpass )(?P<name>{names})(?= [<>]=? )", lambda m: options[m["name"]], text)
