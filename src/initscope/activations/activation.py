"""The activation: a function, its dual map, and where the dual comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from initscope.activations.batches import autograd_derivative, jumps
from initscope.activations.dual import Dual, DualValue, Function, Pair, PairValue
from initscope.activations.other_rungs import Distance, MonteCarloDual, OwnDual
from initscope.activations.pieces import Pieces
from initscope.activations.quadrature import QuadratureDual
from initscope.activations.triangle import broadcast
from initscope.errors import BadInput

_SLICE = 1 << 16  # pairs whose closed form is computed at once


@dataclass(frozen=True, eq=False)
class Activation:
    """An elementwise function f with the moments of f(u), f(v) for a zero-mean Gaussian pair (u, v).

    Every question is asked in second moments, A = E u², B = E v², D = E (u-v)²: floating tensors that broadcast
    (numbers are taken as float64); the answers have the broadcast shape and the dtype of the question.

    >>> from initscope.activations import RELU
    >>> one = torch.tensor(1.0, dtype=torch.float64)
    >>> float(RELU.second_moment(one)), float(RELU.distance(one, one, 0 * one))
    (0.5, 0.0)
    """

    name: str
    fn: Function
    dual: Dual = field(repr=False)
    source: str
    degree: float | None = None
    kinks: tuple[float, ...] = ()
    monotone: bool = False
    derivative: Function | None = field(default=None, repr=False)

    @classmethod
    def from_function(
        cls,
        fn: Function,
        *,
        name: str | None = None,
        kinks: tuple[float, ...] = (),
        pieces: Sequence[Sequence[float]] | None = None,
        degree: float | None = None,
        monotone: bool = False,
        dual: Distance | None = None,
        derivative: Function | None = None,
        method: Literal["auto", "quadrature", "monte carlo"] = "auto",
        samples: int = 100_000,
        seed: int = 0,
    ) -> Activation:
        """Take any elementwise function: by `dual`, the user's own (A, B, D) -> E (f(u)-f(v))², or by quadrature.

        `kinks` are the points where f or f' jumps; without them the quadrature stays honest (its error is large) but
        not accurate. For a continuous f that is a polynomial between its kinks, `pieces` are the coefficients of each,
        lowest power first, and many states are answered much faster. `derivative` defaults to autograd.

        >>> cube = Activation.from_function(lambda z: z**3, name="cube")
        >>> one = torch.tensor(1.0, dtype=torch.float64)
        >>> cube.rung, round(float(cube.second_moment(one)), 9)
        ('quadrature', 15.0)
        """
        label = name or getattr(fn, "__name__", "") or "function"
        if not isinstance(kinks, tuple | list) or not all(isinstance(k, int | float) for k in kinks):
            raise BadInput(label, f"kinks is {kinks!r}, expected a tuple of numbers", "pass for example kinks=(0.0,)")
        kinks = tuple(float(k) for k in kinks)
        _check_elementwise(fn, label)
        if method not in ("auto", "quadrature", "monte carlo"):
            raise BadInput(label, f"method is {method!r}", 'choose "auto", "quadrature" or "monte carlo"')
        polynomials = None if pieces is None else Pieces.of(label, fn, kinks, pieces)
        if polynomials is not None:
            derivative = derivative or polynomials.derivative(1)
        rule = _quadrature(fn, derivative, kinks, polynomials)
        own = cls(label, fn, rule, "quadrature", degree, kinks, monotone, derivative)
        if method == "monte carlo":
            return own.by_monte_carlo(samples, seed)
        if dual is not None and method == "auto":
            return replace(own, dual=OwnDual(dual, rule), source="given with the function")
        return own

    @property
    def rung(self) -> str:
        """Which rung of the ladder answers: "closed form", "own dual", "quadrature" or "monte carlo"."""
        return self.dual.rung

    def by_quadrature(self) -> Activation:
        """The same function answered by quadrature."""
        return replace(self, dual=_quadrature(self.fn, self.derivative, self.kinks), source="quadrature")

    def by_monte_carlo(self, samples: int = 100_000, seed: int = 0) -> Activation:
        """The same function answered by seeded Monte Carlo with `samples` antithetic pairs of draws."""
        if samples < 2:
            raise BadInput(self.name, f"{samples} samples give no standard error", "use at least 2")
        slope = self.derivative or autograd_derivative(self.fn)
        return replace(self, dual=MonteCarloDual(self.fn, slope, samples, seed), source="monte carlo")

    def __call__(self, z: Tensor) -> Tensor:
        """Apply f elementwise."""
        return self.fn(z)

    def second_moment(self, A: Tensor) -> Tensor:
        """E f(u)²."""
        A = self._number(A, "A")
        return self.dual.second_moment(self._widen(A)).to(A.dtype)

    def mean(self, A: Tensor) -> Tensor:
        """E f(u)."""
        A = self._number(A, "A")
        return self.dual.mean(self._widen(A)).to(A.dtype)

    def distance(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        """E (f(u) - f(v))², never as a difference of two nearly equal numbers."""
        state, dtype = self._state(A, B, D)
        return self.dual.distance(*state).to(dtype)

    def product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        """E f(u) f(v), the dual activation (JL Def. 1, eq. 5)."""
        state, dtype = self._state(A, B, D)
        return self.dual.product(*state).to(dtype)

    def derivative_product(self, A: Tensor, B: Tensor, D: Tensor) -> Tensor:
        """E f'(u) f'(v), the slope of `product` in E uv (Price's theorem); a jump of f counts as a delta function."""
        state, dtype = self._state(A, B, D)
        return self.dual.derivative_product(*state).to(dtype)

    def derivative_second_moment(self, A: Tensor) -> Tensor:
        """E f'(u)²; infinite where f jumps, since the square of a delta function has no integral."""
        A = self._number(A, "A")
        return self.dual.derivative_second_moment(self._widen(A)).to(A.dtype)

    def evaluate(self, A: Tensor, B: Tensor, D: Tensor) -> DualValue:
        """Distance and product with an estimate of the error and the rung that answered."""
        state, dtype = self._state(A, B, D)
        value = self.dual.evaluate(*state)
        error = value.error
        if dtype != value.distance.dtype:
            error = error + torch.finfo(dtype).eps * value.distance.abs().nan_to_num(nan=0.0)
        return DualValue(value.distance.to(dtype), value.product.to(dtype), error.to(dtype), value.rung)

    def carry(self, pair: Pair, a: Tensor, b: Tensor) -> PairValue:
        """Excess and product of (f(u), f(v)) for a pair given by its excess; a, b: the roots of E f(u)², E f(v)²."""
        excess, product = torch.empty_like(pair.excess), torch.empty_like(pair.excess)
        a, b = self._unrounded(pair.A, a), self._unrounded(pair.B, b)
        for part, (one, left, right) in self._slices(pair, a, b):
            value = self.dual.carry(self._pair(one), self._widen(left), self._widen(right))
            excess[part], product[part] = value.excess.to(excess.dtype), value.product.to(excess.dtype)
        return PairValue(excess, product)

    def slopes(self, pair: Pair) -> Tensor:
        """E f'(u) f'(v) for a pair given by its excess, with f' almost everywhere: a jump counts for nothing."""
        slopes = torch.empty_like(pair.excess)
        for part, (one,) in self._slices(pair):
            slopes[part] = self.dual.slopes(self._pair(one)).to(slopes.dtype)
        return slopes

    def correlation(self, rho: Tensor) -> Tensor:
        """σ̂(rho) of a homogeneous activation, 1 at rho = 1 (JL eq. 6).

        >>> from initscope.activations import RELU
        >>> round(float(RELU.correlation(torch.tensor(0.0, dtype=torch.float64))), 12)  # 1/π
        0.318309886184
        """
        return 1 - self.defect(1 - self._number(rho, "rho"))

    def defect(self, d: Tensor) -> Tensor:
        """1 - σ̂(1 - d) as a function of d = 1 - rho, relatively accurate down to the tiniest d."""
        if self.degree is None:
            raise BadInput(
                self.name,
                "is not homogeneous, so its similarity map depends on the norms and not only on the correlation",
                "use .distance(A, B, D) or .product(A, B, D)",
            )
        d = self._number(d, "d")
        wide = self._widen(d)
        direct = self.dual.defect(wide)
        if direct is not None:
            return direct.to(d.dtype)
        one = torch.ones_like(wide)
        return (self.dual.distance(one, one, 2 * wide) / (2 * self.dual.second_moment(one))).to(d.dtype)

    def _number(self, value: Tensor | float, what: str) -> Tensor:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
        if not tensor.is_floating_point():
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise BadInput(
                self.name, f"{what} has dtype {dtype}, expected a floating dtype", "convert it with .double()"
            )
        return tensor

    def _widen(self, x: Tensor) -> Tensor:
        # Apple's GPUs have no float64: there the arithmetic keeps the dtype it was given.
        return x.double() if self.dual.wide and x.device.type != "mps" else x

    def _unrounded(self, A: Tensor, root: Tensor) -> Tensor:
        """√E f(u)² in the type of the arithmetic: beside it a closed form's small excess is a difference."""
        wide = self._widen(A)
        if self.rung != "closed form" or wide.dtype == root.dtype or A.shape != root.shape:
            return root
        return self.dual.second_moment(wide).sqrt()

    def _slices(self, pair: Pair, *sides: Tensor) -> Iterator[tuple[tuple[slice, ...], tuple[Any, ...]]]:
        """Parts of a large family of pairs along one axis: closed forms have some thirty temporaries.

        Integrals are asked for all states at once, since equal ones are integrated once.
        """
        shape = pair.excess.shape
        pieces = -(-pair.excess.numel() // _SLICE) if self.rung == "closed form" else 1
        axis = next(
            (i for i, n in enumerate(shape) if n >= pieces), max(range(len(shape)), key=shape.__getitem__, default=0)
        )
        step = -(-shape[axis] // pieces) if shape else 1
        for start in range(0, shape[axis] if shape else 1, max(step, 1)):
            part = (slice(None),) * axis + (slice(start, start + step),)

            def cut(t: Tensor, part: tuple[slice, ...] = part) -> Tensor:
                return t[part] if t.ndim and t.shape[axis] > 1 else t

            one = Pair(*(cut(t) for t in (pair.A, pair.B, pair.excess, pair.product)))
            yield part if shape else (), (one, *(cut(t) for t in sides))

    def _pair(self, pair: Pair) -> Pair:
        A, B, excess = broadcast(pair.A, pair.B, pair.excess)
        A, B, excess, product = (self._widen(t) for t in (A, B, excess, pair.product))
        return Pair(A, B, excess, product)

    def _state(self, A: Tensor, B: Tensor, D: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], torch.dtype]:
        first, second, third = (self._number(x, what) for x, what in ((A, "A"), (B, "B"), (D, "D")))
        try:
            a, b, d = broadcast(first, second, third)
        except ValueError as problem:
            shapes = ", ".join(str(tuple(x.shape)) for x in (first, second, third))
            raise BadInput(
                self.name, f"A, B, D have the shapes {shapes}", "give shapes that broadcast together"
            ) from problem
        dtype = torch.promote_types(torch.promote_types(a.dtype, b.dtype), d.dtype)
        a, b, d = (self._widen(x.to(dtype)) for x in (a, b, d))
        return (a, b, d), dtype


def _check_elementwise(fn: Function, label: str) -> None:
    """Refuse a function that changes the shape or mixes the elements of a probe vector."""
    if not callable(fn):
        raise BadInput(label, f"got {fn!r}, expected a function", "pass for example torch.tanh")
    probe = torch.tensor([-1.3, 0.4, 2.1], dtype=torch.float64)
    try:
        result = fn(probe.clone())
    except Exception as error:
        raise BadInput(
            label, f"f of a float64 vector of 3 raised {error!r}", "give an elementwise torch function"
        ) from error
    if not isinstance(result, Tensor) or result.shape != probe.shape or not result.is_floating_point():
        got = f"a tensor of shape {tuple(result.shape)}" if isinstance(result, Tensor) else f"a {type(result).__name__}"
        raise BadInput(label, f"f of a float64 vector of 3 gave {got}", "give an elementwise torch function")
    alone = torch.cat([fn(probe[i : i + 1].clone()) for i in range(3)])
    if not torch.allclose(result, alone, rtol=1e-9, atol=1e-12, equal_nan=True):
        raise BadInput(label, "f of a vector differs from f of its elements", "give an elementwise torch function")


def _quadrature(
    fn: Function, derivative: Function | None, kinks: tuple[float, ...], pieces: Pieces | None = None
) -> QuadratureDual:
    return QuadratureDual(fn, derivative or autograd_derivative(fn), kinks, jumps(fn, kinks), pieces)
