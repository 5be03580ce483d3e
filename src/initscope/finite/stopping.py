"""How many draws: a given number, or as many as a wanted width of the intervals takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from initscope.errors import BadInput
from initscope.finite.estimate import Estimate, check_level
from initscope.finite.workers import drawing
from initscope.networks.progress import Progress

DRAWS = 100
MOST_DRAWS = 10_000  # with a wanted width, unless the caller says otherwise
# Stopping at the first lucky look would make intervals too narrow: no look before there is a variance, and few looks.
FEWEST, GROWTH = 30, 1.2


@dataclass(frozen=True)
class Stopping:
    """At most `draws`; with `until`, no more than make every interval, from end to end, at most that wide."""

    draws: int
    until: float | None
    level: float

    @classmethod
    def checked(cls, place: str, draws: int | None, until: float | None, level: float) -> Stopping:
        if draws is None:
            draws = DRAWS if until is None else MOST_DRAWS
        if isinstance(draws, bool) or not isinstance(draws, int) or draws < 2:
            raise BadInput(
                place,
                f"draws is {draws!r}, expected a whole number of at least 2",
                "pass draws >= 2: one draw has no interval",
            )
        number = isinstance(until, int | float) and not isinstance(until, bool)
        if until is not None and not (number and 0 < until < math.inf):
            raise BadInput(
                place,
                f"until is {until!r}, expected a width greater than 0",
                "pass for example until=0.01, or leave it out",
            )
        check_level(level)
        return cls(draws, until, level)

    def rounds(self) -> Iterator[int]:
        """Numbers of draws after which to look.

        >>> list(Stopping(50, 0.1, 0.95).rounds()), list(Stopping(50, None, 0.95).rounds())
        ([30, 36, 44, 50], [50])
        """
        look = FEWEST if self.until is not None else self.draws
        while look < self.draws:
            yield look
            look = math.ceil(GROWTH * look)
        yield self.draws


def collect(
    work: Callable[[int, Callable[[], None]], Tensor],
    add: Callable[[Tensor], None],
    estimate: Callable[[], Estimate],
    stopping: Stopping,
    workers: int,
    progress: Progress | None,
) -> bool | None:
    """Draws into `add`, in order, until `stopping` is met. Whether the wanted width was reached; None if none was wanted."""
    report = progress if progress is not None else lambda done, total: None
    done, total = 0, stopping.draws
    report(done, total)
    with drawing(work, workers) as draws:
        for look in stopping.rounds():
            for result in draws.run(done, look):
                add(result)
                done += 1
                report(done, total)
            if stopping.until is not None and widest(estimate(), stopping.level) <= stopping.until:
                if done < total:
                    report(done, done)
                return True
    return None if stopping.until is None else False


def widest(estimate: Estimate, level: float) -> float:
    """From end to end of the widest interval; values that do not exist have none.

    >>> import torch
    >>> widest(Estimate(torch.tensor([0.5, torch.nan]), torch.tensor([1.0, torch.nan]), draws=2), 0.5)
    2.0
    """
    reach = estimate.reach(level)[~estimate.value.isnan()]
    return 2 * float(reach.max()) if reach.numel() else 0.0
