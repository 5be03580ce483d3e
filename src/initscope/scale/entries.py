"""What an entry of a stored matrix is: a kernel, by one of its quantities, or a tangent kernel, by its parametrization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from initscope.errors import BadInput
from initscope.networks import KernelResult, Sequential, kernel_estimate, kernel_with_error, tangent_kernel_with_error
from initscope.networks.fast import fast_plan
from initscope.networks.fused import compiled_path
from initscope.networks.own_share import Parametrization
from initscope.networks.planning import entry_bytes
from initscope.networks.stepping import Quantity
from initscope.networks.tangent import LARGEST_TILE, parameters, require_closed_forms

StoredQuantity = Quantity | Literal["tangent"]
QUANTITIES = (*get_args(Quantity), "tangent")
# The digits of a tile must not depend on the free memory of the machine that computes it: tiles are chosen to fit.
UNLIMITED = 1 << 62


@dataclass(frozen=True)
class Entries:
    """A quantity of `kernel`, or "tangent" with the parametrization of `tangent_kernel`."""

    quantity: StoredQuantity = "product"
    parametrization: Parametrization | None = None  # None: of "tangent" that by ω; anything else has none

    def __post_init__(self) -> None:
        if self.quantity not in QUANTITIES:
            raise BadInput("quantity", f"got {self.quantity!r}", f"use one of {', '.join(QUANTITIES)}")
        if self.quantity == "tangent" and self.parametrization is None:
            object.__setattr__(self, "parametrization", "ntk")
        if self.parametrization not in (None, *get_args(Parametrization)):
            raise BadInput("parametrization", f"got {self.parametrization!r}", "choose 'ntk' or 'standard'")
        if self.quantity != "tangent" and self.parametrization is not None:
            problem = f"got {self.parametrization!r} with the quantity {self.quantity!r}, which has none"
            raise BadInput("parametrization", problem, "ask for the quantity 'tangent', or leave it out")

    def require(self, net: Sequential, x: Tensor) -> None:
        """Refuse a network that these entries do not exist for, before any work."""
        if self.quantity == "tangent":
            require_closed_forms(net, x)

    def peak_bytes(self, net: Sequential, x: Tensor) -> int:
        """The most that all pairs of x (n, ...) with others like them take, beside the inputs."""
        quantity = "product" if self.quantity == "tangent" else self.quantity
        estimate = kernel_estimate(net, x, x, quantity=quantity, memory=UNLIMITED)
        if estimate.method == "joint":
            problem = "a network with batch norm, or with a layer that is simulated, takes all inputs at once"
            raise BadInput("kernel_to", problem, "use iscope.kernel, or a network whose layers have closed forms")
        if self.quantity != "tangent":
            return estimate.peak_bytes
        side, shape = min(len(x), LARGEST_TILE), tuple(x.shape[1:])
        fast = fast_plan(net, shape)
        if fast is not None and compiled_path() is not None:
            return fast.tangent_bytes(x, len(x), self.parametrization == "standard")
        each = entry_bytes(net, shape, x.dtype) * max(1, len(parameters(net, shape)))
        return 2 * estimate.output_bytes + side * side * each

    def compute(self, net: Sequential, x: Tensor, y: Tensor | None) -> KernelResult:
        """The entries over all pairs of x (n, ...) and y (m, ...): (n, m), and how certain they are."""
        if self.quantity == "tangent":
            assert self.parametrization is not None
            return tangent_kernel_with_error(net, x, y, parametrization=self.parametrization, memory=UNLIMITED)
        return kernel_with_error(net, x, y, quantity=self.quantity, memory=UNLIMITED)
