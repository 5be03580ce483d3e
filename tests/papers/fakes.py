"""Small items that stand in for those of the papers."""

from __future__ import annotations

from collections.abc import Callable

from initscope.figures import Line, Panel, curves_and_points
from initscope.papers import Desk, Item, Outcome, Sampled, claim, compare, undecided


def outcome(desk: Desk) -> Outcome:
    panel = Panel([Line("exact <curve>", [1, 2], [1.0, 0.5])], "layer", "angle, degrees")
    picture = curves_and_points([panel], "Angles & halves", "From 1 to 0.5.")
    checks = (
        compare("slope", "0.97", exact=0.9701, sampled=Sampled(0.9712, 0.001, 100)),
        claim("a <b> & c", False, why="because of <it>"),
        undecided("nothing to compare", "the figure has no digits"),
    )
    return Outcome(checks, {"seed": desk.seed, "size": desk.pick("quick", "normal", "full")}, picture, ("a note",))


def item(key: str = "overparam/fake", run: Callable[[Desk], Outcome] = outcome, sets: tuple[str, ...] = ()) -> Item:
    return Item(key, f"Title of {key}", "What it claims.", run, sets=sets, full_minutes=3.0)


def failing(desk: Desk) -> Outcome:
    raise ZeroDivisionError("a fault in the item")


class Counted:
    """An item's function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, desk: Desk) -> Outcome:
        self.calls += 1
        return outcome(desk)
