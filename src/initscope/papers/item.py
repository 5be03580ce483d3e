"""What a reproduced figure, table or theorem is: a function over the public names that returns data, checks and a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from initscope.data import Images, Pairs
from initscope.figures import Picture
from initscope.finite.estimate import student_quantile


@dataclass(frozen=True)
class Sampled:
    """A number found by drawing: the mean, its standard error, and over how many independent draws."""

    value: float
    stderr: float
    draws: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Two-sided, by Student's t.

        >>> low, high = Sampled(2.0, 1.0, draws=2).interval(0.5)
        >>> round(low, 6), round(high, 6)
        (1.0, 3.0)
        """
        reach = student_quantile(self.draws, level) * self.stderr
        return self.value - reach, self.value + reach


@dataclass(frozen=True)
class Check:
    """One line of the table: published, exact, sampled, agrees?

    `measured` is what these draws, runs or pictures gave where no interval can be had.
    `agrees` is None where nothing can be compared, and `why` then says what is missing; where it is False, `why` says
    what explains the difference as far as that is known.
    """

    says: str
    agrees: bool | None
    published: str | None = None
    exact: float | None = None
    sampled: Sampled | None = None
    why: str = ""
    measured: float | None = None


def compare(
    says: str, published: str, *, exact: float | None = None, sampled: Sampled | None = None, why: str = ""
) -> Check:
    """Hold a figure as printed ('0.97', '38178', '12.5') against ours.

    It agrees if the exact value rounds to the printed digits, or if the 95 % interval of the sampled one meets the
    numbers that round to them.

    >>> compare("slope", "0.97", exact=0.9688).agrees, compare("slope", "0.97", exact=0.98).agrees
    (True, False)
    """
    middle, half = float(published.replace(",", "")), printed_half_digit(published)
    agrees = exact is not None and abs(exact - middle) <= half
    if sampled is not None:
        low, high = sampled.interval()
        agrees = agrees or (low <= middle + half and high >= middle - half)
    return Check(says, agrees, published, exact, sampled, why)


def claim(
    says: str,
    holds: bool,
    *,
    exact: float | None = None,
    sampled: Sampled | None = None,
    measured: float | None = None,
    published: str | None = None,
    why: str = "",
) -> Check:
    """A sentence of the paper turned into an inequality, already decided by the caller."""
    return Check(says, bool(holds), published, exact, sampled, why, measured)


def undecided(says: str, why: str, *, published: str | None = None, exact: float | None = None) -> Check:
    """Something that cannot be held against anything, and why."""
    return Check(says, None, published, exact, None, why)


def printed_half_digit(printed: str) -> float:
    """Half of the last digit that is printed.

    >>> printed_half_digit("0.97"), printed_half_digit("38178")
    (0.005, 0.5)
    """
    mantissa, _, exponent = printed.lower().replace(",", "").partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * math.pow(10.0, int(exponent or 0) - decimals)


@dataclass(frozen=True)
class Outcome:
    """What an item found. `data` is plain (numbers, strings, lists, dicts): it is written as JSON, curves included."""

    checks: tuple[Check, ...]
    data: Mapping[str, Any]
    picture: Picture | None = None
    notes: tuple[str, ...] = ()


def _silent(done: int, total: int) -> None:
    """No progress bar."""


@dataclass(frozen=True)
class Desk:
    """What a running item is given: the size of the work, the seed, its pictures, its published figures, a progress bar.

    `images(name, ...)` and `pairs(name, ...)` take the name of a set ("cifar10", "fashion_mnist", "imagenet224", ...) and
    the arguments of `data.load` / `data.load_pairs`; where the set is not at hand they give photographs of the same shape
    and the run says so. "cifar10:x_test" names an array of the file, x_train without it; sources of the data room that
    need no file ("gaussian:0.5", "photos", ...) go by their own names. Without `seed` the run's seed is taken.
    """

    images: Callable[..., Images]
    pairs: Callable[..., Pairs]
    published: Mapping[str, str]
    quick: bool = False
    full: bool = False
    seed: int = 0
    progress: Callable[[int, int], None] = _silent

    def pick(self, quick: Any, normal: Any, full: Any = None) -> Any:
        """One of three sizes of the work."""
        if self.quick:
            return quick
        return full if self.full and full is not None else normal


@dataclass(frozen=True)
class Item:
    """A figure, table or statement of a paper. `says` is its claim in one sentence; `sets` the data it asks for.

    Only sets named there are handed out: a finished result is kept until one of them changes, or one of the pre-trained
    networks named in `filters`.

    `heavy` items (minutes at full size) say in `full_minutes` how long `--full` takes.
    """

    key: str
    title: str
    says: str
    run: Callable[[Desk], Outcome]
    sets: tuple[str, ...] = ()
    full_minutes: float | None = None
    filters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Erratum:
    """A slip in a paper: where it stands, what is printed, what it should be, and what shows it.

    `items` are the keys of the items whose checks give the evidence, `evidence` says the rest (a test, a page, a proof).
    """

    where: str
    printed: str
    should_be: str
    evidence: str
    items: tuple[str, ...] = ()
