"""What `initscope kernel` computes: which quantity, exactly or as a sketch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from initscope.errors import BadInput

if TYPE_CHECKING:
    from initscope.cli.kernel_scale import Spread
    from initscope.networks.own_share import Parametrization
    from initscope.scale.entries import StoredQuantity

QUANTITIES = ("product", "cosine", "distance", "defect", "tangent")
LEVEL = 0.95


@dataclass(frozen=True)
class What:
    """The options of the quantity and of the method, as they were given."""

    quantity: StoredQuantity = "product"
    parametrization: Parametrization | None = None
    method: Literal["exact", "sketch"] = "exact"
    work: int | None = None
    level: float | None = None

    @property
    def sketch_level(self) -> float:
        return LEVEL if self.level is None else self.level

    def check(self, out: Path | None, spread: Spread) -> None:
        """One message for options that do not go together."""
        if self.parametrization is not None and self.quantity != "tangent":
            problem = f"got {self.parametrization}, and the quantity {self.quantity} has none"
            raise BadInput("--parametrization", problem, "add --quantity tangent")
        if self.method == "exact":
            for option, value in (("--work", self.work), ("--level", self.level)):
                if value is not None:
                    raise BadInput(option, f"got {value}, and an exact kernel has no error", "add --method sketch")
            return
        if self.quantity != "product":
            problem = f"a sketch is of products, got --quantity {self.quantity}"
            raise BadInput("--method", problem, "leave out --quantity, or use --method exact")
        if spread.plan or (out is not None and out.suffix.lower() == ".zarr"):
            where = "--plan" if spread.plan else str(out)
            problem = f"a sketch is of all inputs at once and has no tiles, got {where}"
            raise BadInput("--method", problem, "write an .npz file, or use --method exact")

    def to_dict(self) -> dict[str, Any]:
        parametrization = (self.parametrization or "ntk") if self.quantity == "tangent" else None
        return {"quantity": self.quantity, "parametrization": parametrization, "method": self.method}

    def __str__(self) -> str:
        standard = ", standard parametrization" if self.parametrization == "standard" else ""
        return f"{self.quantity}{standard}{', sketched' * (self.method == 'sketch')}"


def what_options(function: Callable[..., None]) -> Callable[..., None]:
    """--quantity, --parametrization, --method, --work, --level, handed to the command as one `what` argument."""

    @click.option(
        "--quantity", type=click.Choice(QUANTITIES), default="product", show_default=True, help="What an entry is."
    )
    @click.option(
        "--parametrization",
        type=click.Choice(["ntk", "standard"]),
        default=None,
        help="Of a tangent kernel: by weights of variance one, or by the weights themselves [default: ntk].",
    )
    @click.option(
        "--method", type=click.Choice(["exact", "sketch"]), default="exact", show_default=True, help="How to compute."
    )
    @click.option(
        "--work",
        type=click.IntRange(1, 1_000_000),
        default=None,
        help="References of a sketch: more take longer and leave a smaller error [default: 512, or 128 if deep].",
    )
    @click.option(
        "--level",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        default=None,
        help=f"Confidence level of the errors of a sketch [default: {LEVEL}].",
    )
    @functools.wraps(function)
    def with_what(*arguments: Any, **options: Any) -> None:
        names = ("quantity", "parametrization", "method", "work", "level")
        what = What(**{name: options.pop(name) for name in names})
        function(*arguments, what=what, **options)

    return with_what
