"""One exception family: a message names the place, what it got, what it expected, and the remedy.

>>> raise BadInput("conv2", "kernel 7x7 is larger than the 5x5 input", "use padding='circular' or a smaller kernel")
Traceback (most recent call last):
    ...
initscope.errors.BadInput: conv2: kernel 7x7 is larger than the 5x5 input; use padding='circular' or a smaller kernel
"""

from __future__ import annotations


class InitscopeError(Exception):
    """Every error that initscope raises on purpose; the command line turns it into one line and exit code 2."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        self.place, self.problem, self.remedy = place, problem, remedy
        super().__init__(f"{place}: {problem}; {remedy}")


class BadInput(InitscopeError, ValueError):
    """An argument, a tensor or a file is not what the function needs."""


class NoExactForm(InitscopeError):
    """The network asks for something that has neither an exact form nor a simulated stand-in."""


class MissingExtra(InitscopeError, ImportError):
    """An optional package is needed for this call; the remedy is the command that installs it."""


def first_line(error: BaseException) -> str:
    """What another package's error says, short enough for one line of ours.

    >>> first_line(OSError("no space\\nat all"))
    'OSError: no space'
    """
    said = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class UndefinedSimilarity(UserWarning):
    """Some inputs are zero: their angle does not exist, the answer is NaN there, the message names them."""


class InexactIntegral(UserWarning):
    """The integrals of an activation without a closed form could not be computed precisely; the message says how far."""


class SimulatedKernel(UserWarning):
    """A kernel has a layer without a closed form: it was simulated, and the message says how precisely."""
