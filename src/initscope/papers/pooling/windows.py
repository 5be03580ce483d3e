"""Figure 6: which patches of an image share pixels with a given one."""

from __future__ import annotations

from matplotlib.patches import Rectangle

from initscope.figures import PALETTE, Picture, dress, finish, house_style, new_figure
from initscope.papers.item import Desk, Item, Outcome, claim

SIDE, KERNEL = 15, 3


def meeting(side: int, kernel: int) -> int:
    """How many windows on the torus share a pixel with a given one, itself included, counted one by one."""
    own = {(i, j) for i in range(kernel) for j in range(kernel)}
    count = 0
    for top in range(side):
        for left in range(side):
            count += any(((top + i) % side, (left + j) % side) in own for i in range(kernel) for j in range(kernel))
    return count


def run(desk: Desk) -> Outcome:
    """Windows counted for several sizes against (2k-1)², and against the 9k² and 4k² that the proof uses."""
    sizes = range(1, desk.pick(6, 8, 12))
    counted = {k: meeting(2 * k + 4, k) for k in sizes}
    desk.progress(1, 1)
    checks = (
        claim(
            f"at most (2k-1)² windows meet a given one, and so many on the torus, k up to {max(sizes)} (largest difference)",
            all(count == (2 * k - 1) ** 2 for k, count in counted.items()),
            exact=float(max(abs(count - (2 * k - 1) ** 2) for k, count in counted.items())), published="(2k-1)²",
        ),
        claim(
            "eq. 27 bounds their number by 9k² (largest ratio of the count to 9k²)",
            all(count <= 9 * k**2 for k, count in counted.items()),
            exact=max(count / (9 * k**2) for k, count in counted.items()), published="9k²",
        ),
        claim(
            "eq. 30: d² - 9k² windows do not meet it (smallest excess of the true number over that)",
            all(count == 9 * k**2 for k, count in counted.items()),
            exact=float(min(9 * k**2 - count for k, count in counted.items())),
            why="d² - (2k-1)² do not; too few are counted, so that eq. 31 is no bound any more (item thm4-4)",
        ),
    )  # fmt: skip
    return Outcome(checks, {"kernel": list(counted), "windows": list(counted.values())}, _picture())


def _picture() -> Picture:
    """The pixels of an image; the centre of every window that meets the one in the middle is marked."""
    middle, reach = SIDE // 2, KERNEL - 1
    with house_style():
        figure, axes = new_figure(6.2, 6.0)
        dress(axes)
        axes.grid(visible=False)
        for i in range(SIDE):
            for j in range(SIDE):
                near = max(abs(i - middle), abs(j - middle)) <= reach
                colour, marker = (PALETTE[1], "s") if near else ("#bbbbbb", ".")
                axes.plot(
                    j, i, marker, color=colour, markersize=6 if near else 4, markerfacecolor="white" if near else colour
                )
        for (i, j), colour, words in (
            ((middle, middle), PALETTE[0], "the patch α_i"),
            ((middle + reach, middle + reach), PALETTE[1], "a patch that shares one pixel with it"),
            ((middle - 5, middle - 4), PALETTE[2], "a patch that shares none"),
        ):
            corner = (j - KERNEL / 2, i - KERNEL / 2)
            axes.add_patch(Rectangle(corner, KERNEL, KERNEL, fill=False, edgecolor=colour, linewidth=2.2, label=words))
        axes.plot([], [], "s", color=PALETTE[1], markerfacecolor="white", label="centres of patches that meet α_i")
        axes.plot([], [], ".", color="#bbbbbb", label="centres of the others")
        axes.set(
            xlabel="column, pixels",
            ylabel="row, pixels",
            aspect="equal",
            xlim=(-0.8, SIDE - 0.2),
            ylim=(SIDE - 0.2, -0.8),
        )
        title = f"{(2 * KERNEL - 1) ** 2} = (2k-1)² patches of {KERNEL}x{KERNEL} meet a given one"
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        figure.legend(frameon=False, fontsize=8.5, loc="outside lower center", ncols=2)
        words = f"{SIDE} by {SIDE} pixels; the centres of the windows that meet the middle one form a square."
        return finish(figure, title, words)


ITEMS = (
    Item(
        "pooling/fig6",
        "Figure 6: patches that are not disjoint",
        "At most (2k-1)² patches of side k share pixels with a given one.",
        run,
    ),
)
