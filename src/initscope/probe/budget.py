"""How long theory may take, what its steps cost, and what to thin or to leave out so that the rest fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from initscope.activations import Making

LEAST_SECONDS, MOST_SECONDS = 0.2, 30.0  # of the default budget, which is otherwise what the measured pass took
LEAST_PAIRS = 2  # that theory follows when it is thinned
LEAST_POINTS = 128  # pairs and positions at which an integral is taken when it is thinned
MOST_POINTS = 1 << 12  # the thinnest choice that is tried first
TWICE = 2  # a step is taken once for its value and once for its slope
SMALL = 1 << 14  # pairs and positions up to which both are taken together
WORTH = 0.7  # thinning has to save a third of the time, or steps are left out at once
TRIED = (8, 32, 256)  # points at which an unknown integral is timed, as long as the next is expected to take
QUICK = 0.25  # less than this share of what is left; from 200 points on a series may serve them all
TABLES = 0.1  # seconds for each function that do not count
OVERHEAD = 1 << 10  # positions that take as long as the fixed part of a step without an integral

Clock = Callable[[], float]


def default_seconds(measured: float) -> float:
    """The budget for theory beside a measured pass of so many seconds.

    >>> default_seconds(0.01), default_seconds(1.5), default_seconds(1e3)
    (0.2, 1.5, 30.0)
    """
    return min(max(measured, LEAST_SECONDS), MOST_SECONDS)


@dataclass(frozen=True)
class Work:
    """An integral that lies ahead: its step, the function, and the positions of what it takes."""

    index: int
    function: str
    positions: int
    way: str = ""  # how it is taken, by which it is priced; "" for its function


@dataclass(frozen=True)
class Choice:
    """How a step is taken: with how many pairs, and at how many points, None for all."""

    pairs: int
    points: int | None = None


@dataclass
class Price:
    """Seconds of an integral over some points: a fixed part and one for each point."""

    fixed: float
    each: float

    def of(self, points: int) -> float:
        return self.fixed + self.each * points

    def twice(self, points: int) -> float:
        """Value and slope; of few points they are one integral over twice as many."""
        return self.of(TWICE * points) if points <= SMALL else TWICE * self.of(points)


class Budget:
    """Seconds that are left, and what the steps ahead will take.

    `work` are the integrals that lie ahead, in order; `others` the positions of all other steps, by their index.
    """

    def __init__(
        self,
        seconds: float,
        work: Sequence[Work] = (),
        others: Mapping[int, int] | None = None,
        clock: Clock = time.thread_time,
        made: Making | None = None,
    ) -> None:
        self.clock = clock
        self._made = Making(clock) if made is None else made
        self._work = list(work)
        self._functions = {each.function for each in work}
        self._end = self.now() + seconds
        self._prices: dict[str, Price] = {}
        self._others = {index: OVERHEAD + positions for index, positions in (others or {}).items()}
        self._plain = (0.0, 0)  # seconds and positions of the steps without integrals

    def now(self) -> float:
        """The clock, which stands while tables are made that stay."""
        return self.clock() - self._made.seconds

    @property
    def left(self) -> float:
        """Of the time for tables only what goes beyond `TABLES` for each function counts."""
        return self._end - self.now() - max(self._made.seconds - TABLES * len(self._functions), 0.0)

    def by(self, index: int, function: str, way: str) -> None:
        """From this step on the integrals of a function are held to be taken another way, which has a price of its own."""
        self._work = [
            replace(work, way=way) if work.index >= index and work.function == function else work for work in self._work
        ]

    def knows(self, function: str) -> bool:
        return function in self._prices

    def price(self, function: str, every: int, run: Callable[[int], object]) -> None:
        """Finds out what an unknown integral over `every` point costs; `run(points)` takes it at some of them.

        If trying it takes long already, each point is held to cost the same. What is made once for all counts only once.
        """
        allowed = QUICK * self.left
        few, last = min(TRIED[0], every), min(TRIED[-1], every)
        short = self._timed(few, run)
        if allowed < short <= self.left:  # tables may have taken it
            short = min(short, self._timed(few, run))
        expected = short
        price = Price(0.0, short / few) if few < last else Price(short, 0.0)
        for many, after in zip(TRIED[1:], (*TRIED[2:], last), strict=True):
            if few == last or expected > allowed:
                break
            many = min(many, last)
            long = self._timed(many, run)
            if many == last and long <= allowed:
                long = min(long, self._timed(many, run))
            each = max(long - short, 0.0) / (many - few)
            price = Price(max(min(short, long) - each * few, 0.0), each)
            few, short, expected = many, long, price.of(after)
        self._prices[function] = price

    def _timed(self, points: int, run: Callable[[int], object]) -> float:
        started = self.now()
        run(points)
        return self.now() - started

    def learn(self, function: str, points: int, seconds: float) -> None:
        """What a priced integral really took corrects the price of each point."""
        price = self._prices[function]
        if seconds < price.fixed:
            self._prices[function] = Price(seconds, 0.0)
        elif points > TRIED[-1]:
            price.each = (seconds - price.fixed) / points

    def took(self, index: int, seconds: float) -> None:
        """A step took so long; those with integrals are priced by themselves."""
        if index in self._others:
            total, count = self._plain
            self._plain = (total + seconds, count + self._others[index])

    def choose(self, index: int, pairs: int) -> Choice | None:
        """How the integral of a step is taken; None: it is left out, because it and others like it cost most.

        All pairs and positions if they fit; then fewer pairs, which takes nothing from the accuracy of the rest; then a
        random part of the points; then the steps that cost most are left out.
        """
        ahead = [work for work in self._work if work.index >= index]
        room = self.left - self._reserve(index)
        if not ahead or self._total(ahead, pairs) <= room:
            return Choice(pairs)
        fewest = min(pairs, LEAST_PAIRS)
        if self._total(ahead, fewest, LEAST_POINTS) > WORTH * self._total(ahead, pairs):
            return Choice(pairs) if self._affordable(ahead, pairs, None, room) else None
        count = pairs
        while count > fewest:
            count = max(count // 2, fewest)
            if self._total(ahead, count) <= room:
                return Choice(count)
        points = MOST_POINTS
        while points > LEAST_POINTS and self._total(ahead, fewest, points) > room:
            points //= 2
        return Choice(fewest, points) if self._affordable(ahead, fewest, points, room) else None

    def _reserve(self, index: int) -> float:
        """For the steps without integrals that lie ahead."""
        total, count = self._plain
        return total / count * sum(size for i, size in self._others.items() if i > index) if count else 0.0

    def _cost(self, work: Work, pairs: int, points: int | None = None) -> float:
        price = self._prices.get(work.way or work.function) or next(iter(self._prices.values()))
        every = pairs * work.positions
        return price.twice(every if points is None else min(every, points))

    def _total(self, ahead: Sequence[Work], pairs: int, points: int | None = None) -> float:
        return sum(self._cost(work, pairs, points) for work in ahead)

    def _affordable(self, ahead: Sequence[Work], pairs: int, points: int | None, room: float) -> bool:
        """Whether the first is among the cheapest of them that fit together; among equals the earlier one stays."""
        costs = [self._cost(work, pairs, points) for work in ahead]
        return sum(cost for cost in costs if cost < costs[0]) + costs[0] <= room
