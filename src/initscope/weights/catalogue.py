"""The weight laws by name, as the architecture language spells them, and the laws that have an author's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from initscope.errors import BadInput
from initscope.weights.correlated import ZeroSum
from initscope.weights.independent import Gaussian, Independent, Laplace, Logistic, TruncatedNormal, Uniform
from initscope.weights.law import Fan, WeightLaw
from initscope.weights.orthogonal import DeltaOrthogonal, Orthogonal
from initscope.weights.sparse import Sparse


def He(fan: Fan = "in", gain: float = 2.0, *, uniform: bool = False) -> Gaussian | Uniform:  # noqa: N802 - the law's name
    """He et al. 2015: Var(w) = 2 / fan keeps the norm through ReLU; for a leaky ReLU of slope a the gain is 2 / (1 + a²)."""
    return Uniform(gain, fan) if uniform else Gaussian(gain, fan)


def Glorot(gain: float = 1.0, *, uniform: bool = False) -> Gaussian | Uniform:  # noqa: N802 - the law's name
    """Glorot and Bengio 2010: Var(w) = gain · 2 / (fan_in + fan_out).

    `gain` multiplies the variance; torch.nn.init.xavier_normal_ takes its square root.
    """
    return Uniform(gain, "mean") if uniform else Gaussian(gain, "mean")


def PyTorchDefault() -> Uniform:  # noqa: N802 - the law's name
    """What nn.Linear and nn.Conv2d start from: U(-b, b) with b = 1/√fan_in, for weights and for biases.

    >>> PyTorchDefault() == Uniform(1 / 3)
    True
    """
    return Uniform(1 / 3)


@dataclass(frozen=True)
class _Family:
    """Laws that differ by numbers: `make(*numbers)`, the last ones with defaults."""

    make: Callable[..., WeightLaw]
    usage: str
    least: int  # numbers that must be given
    most: int


_SUFFIXES: dict[Fan, str] = {
    "in": "", "out": "_fan_out", "mean": "_fan_mean", "geometric": "_fan_geometric", "none": "_fixed",
}  # fmt: skip
_SHAPES: dict[str, type[Independent]] = {
    law.kind: law for law in (Gaussian, Uniform, Logistic, Laplace, TruncatedNormal)
}

_FIXED: dict[str, WeightLaw] = {
    "he": He(),
    "he_fan_out": He("out"),
    "he_geometric": He("geometric"),
    "he_uniform": He(uniform=True),
    "glorot": Glorot(),
    "glorot_uniform": Glorot(uniform=True),
    "lecun": Gaussian(1.0),
    "pytorch": PyTorchDefault(),
    "dc_gaussian": Gaussian.of_deviation(0.015),  # DC A.1.2; its words are no help, see docs/errata.md
    "dc_uniform": Uniform.of_bound(0.04),
    "dc_logistic": Logistic.of_width(0.015),
    "dc_laplace": Laplace.of_width(0.015),
}


def _independent(shape: type[Independent], fan: Fan) -> Callable[..., WeightLaw]:
    return lambda scale=2.0, *rest: shape(scale, fan, *rest)


def _sparse(fan: Fan) -> Callable[..., WeightLaw]:
    return lambda sparsity, scale=2.0: Sparse(sparsity, scale, fan)


def _families() -> dict[str, _Family]:
    families = {
        "orthogonal": _Family(Orthogonal, "orthogonal(scale)", 0, 1),
        "delta_orthogonal": _Family(DeltaOrthogonal, "delta_orthogonal(scale)", 0, 1),
        "zero_sum": _Family(ZeroSum, "zero_sum(scale)", 0, 1),
        "zero_sum_channel": _Family(lambda scale=2.0: ZeroSum(scale, "channel"), "zero_sum_channel(scale)", 0, 1),
    }
    for fan, suffix in _SUFFIXES.items():
        given = int(fan == "none")  # without a fan there is no usual variance, so it must be given
        for kind, shape in _SHAPES.items():
            cut = shape is TruncatedNormal
            usage = f"{kind}{suffix}({'variance' if given else 'scale'}{', cut' if cut else ''})"
            families[kind + suffix] = _Family(_independent(shape, fan), usage, given, 1 + cut)
        usage = f"sparse{suffix}(sparsity, {'variance' if given else 'scale'})"
        families["sparse" + suffix] = _Family(_sparse(fan), usage, 1 + given, 2)
    return families


_FAMILIES = _families()


def names() -> tuple[str, ...]:
    """Every name that `by_name` knows, in alphabetical order.

    >>> "glorot_uniform" in names()
    True
    """
    return tuple(sorted({**_FIXED, **_FAMILIES}))


def by_name(name: str, *numbers: float) -> WeightLaw:
    """The law called `name`; the numbers are its parameters.

    >>> by_name("lecun") == Gaussian(1.0)
    True
    >>> by_name("laplace", 1.0) == Laplace(1.0)
    True
    >>> by_name("gaussian_fixed", 0.0004) == Gaussian(0.0004, fan="none")
    True
    """
    if name in _FIXED:
        if numbers:
            raise BadInput("weights", f"{name} takes no numbers, got {list(numbers)}", f"write {name}")
        return _FIXED[name]
    family = _FAMILIES.get(name)
    if family is None:
        raise BadInput("weights", f"unknown weight law {name!r}", _suggestion(name))
    if not family.least <= len(numbers) <= family.most:
        raise BadInput("weights", f"{name} was given {len(numbers)} numbers", f"write {family.usage}")
    return family.make(*numbers)


def name_of(law: WeightLaw) -> str | None:
    """How the architecture language writes the law; None where it has no name for it.

    >>> name_of(Gaussian(2.0)), name_of(Laplace(0.5, "none"))
    ('he', 'laplace_fixed(0.5)')
    """
    for name, known in _FIXED.items():
        if known == law:
            return name
    spelled = _spelled(law)
    if spelled is None:
        return None
    name, numbers = spelled
    if by_name(name, *numbers) != law:  # a parameter that the language cannot say
        return None
    if _FAMILIES[name].least == 0 and by_name(name) == law:
        return name
    return f"{name}({', '.join(repr(float(n)) for n in numbers)})"


def _spelled(law: WeightLaw) -> tuple[str, tuple[float, ...]] | None:
    """The family and the numbers of a law."""
    if isinstance(law, TruncatedNormal):
        return law.kind + _SUFFIXES[law.fan], (law.scale, law.cut)
    if isinstance(law, Sparse):
        return "sparse" + _SUFFIXES[law.fan], (law.sparsity, law.scale)
    if isinstance(law, Independent) and law.kind in _SHAPES:
        return law.kind + _SUFFIXES[law.fan], (law.scale,)
    if isinstance(law, Orthogonal | DeltaOrthogonal):
        return law.name, (law.scale,)
    if isinstance(law, ZeroSum):
        return "zero_sum" if law.over == "filter" else "zero_sum_channel", (law.scale,)
    return None


def _suggestion(name: str) -> str:
    near = get_close_matches(name, names(), n=3, cutoff=0.5)
    if near:
        return f"did you mean {', '.join(near)}?"
    short = [n for n in names() if not n.endswith(tuple(s for s in _SUFFIXES.values() if s)) or n in _FIXED]
    return (
        f"choose from {', '.join(short)}; those with a fan also end in {', '.join(s for s in _SUFFIXES.values() if s)}"
    )
