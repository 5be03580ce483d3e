"""Runs a target on case after case for a given time; each case is a function of its number, so that any can be run again."""

from __future__ import annotations

import random
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from initscope.errors import InitscopeError

# One case: draws from the generator, and returns what came of it in a word. It raises InitscopeError where the input is
# refused, which is a good outcome, and AssertionError where what was promised does not hold.
Case = Callable[[random.Random], str]
REFUSED = "refused"


@dataclass(frozen=True)
class Target:
    """Something to try: `prepare(folder)` makes what all cases share. `what` and `holds` are its words in a table."""

    name: str
    what: str
    holds: str
    prepare: Callable[[Path], Case]
    share: float = 1.0  # of the time, against the others'


@dataclass
class Tally:
    """What came of the cases: how many by outcome, and every one that broke a promise, by its number."""

    outcomes: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tried(self) -> int:
        return self.outcomes.total() + len(self.broken)


def run_case(case: Case, number: int) -> str:
    """The outcome of one case; any exception but a refusal of one line is a broken promise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return case(random.Random(number))
        except InitscopeError as error:
            if not (error.place and error.problem and error.remedy):
                raise AssertionError(f"a refusal that does not say everything: {error}") from error
            return REFUSED


def run_target(target: Target, folder: Path, seconds: float, *, first: int = 0, most_broken: int = 20) -> Tally:
    """Cases from number `first` on until the time is over; at least one is run."""
    case, tally = target.prepare(folder), Tally()
    start = time.monotonic()
    number = first
    while number == first or time.monotonic() - start < seconds:
        try:
            tally.outcomes[run_case(case, number)] += 1
        except Exception as error:  # whatever it is, it is what the fuzzing is for
            frames = traceback.extract_tb(error.__traceback__)
            own = next((f for f in reversed(frames) if "initscope" in f.filename), frames[-1])
            place = f"{Path(own.filename).name}:{own.lineno}"
            tally.broken.append((number, f"{type(error).__name__}: {str(error)[:200]} ({place})"))
            if len(tally.broken) >= most_broken:
                break
        number += 1
    tally.seconds = time.monotonic() - start
    return tally


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The content with one or a few things wrong with it, as disks, transfers and editors do it."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.randrange(len(data) + 1)
        length = rng.choice((1, 2, 8, 64, 1000))
        kind = rng.randrange(8)
        if kind <= 2 and data:  # a bit
            data[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 3:  # the end is missing
            del data[place:]
        elif kind == 4:  # a piece is missing
            del data[place : place + length]
        elif kind == 5:  # a piece comes twice
            data[place:place] = data[place : place + length]
        elif kind == 6:  # zeros, or ones
            size = len(data[place : place + length])
            data[place : place + size] = bytes([rng.choice((0, 255))]) * size
        else:  # something else
            data[place : place + length] = rng.randbytes(rng.choice((0, 1, length)))
    return bytes(data)
