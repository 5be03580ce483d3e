"""A network on images or vectors by the machine, and the layers behind the last average by `propagate`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from initscope.geometry import Side, State
from initscope.layers import Activate, AveragePool, Conv, Dense, Dropout, Flatten, GlobalAveragePool, Layer, Rung, Trace
from initscope.networks.accuracy import Accuracy
from initscope.networks.composition import Composition, Sequential
from initscope.networks.fused import compiled_path
from initscope.networks.machine.bending import Precision, closed
from initscope.networks.machine.norms import first_moments
from initscope.networks.machine.running import Array, Machine, Vectors
from initscope.networks.machine.segments import Segment, end_with_sums, end_with_windows, plain_segment, start
from initscope.networks.machine.tape import Kind, Unknown, Value, largest
from initscope.networks.machine.writer import Writer
from initscope.networks.own_share import OwnShare
from initscope.networks.prediction import totals
from initscope.networks.progress import Progress

# Of rounding that steps have made grow: what answers of a type may have of it, and tangent kernels of both types.
ROUNDING = {torch.float32: 5e-6, torch.float64: 1e-11}
SLOPES = 2e-7
ROOM = 1e10  # between the squared norms of the steps and the ends of their type's range


@dataclass(frozen=True, eq=False)
class Answer:
    """Products and tangent kernels (n, m), squared norms (n,) and (m,), and how certain they are."""

    product: Tensor
    tangent: Tensor | None
    norm_x: Tensor
    norm_y: Tensor
    accuracy: Accuracy


@dataclass
class Notes:
    """What the writers of all segments noted, for answers of type `wanted`, with tangent kernels if `slopes`.

    `summed`: the errors of all series; `series_error`: what they make of products, as they grow and shrink in later layers.
    """

    wanted: torch.dtype
    slopes: bool = False
    summed: float = 0.0
    series_error: float = 0.0
    bias_error: float = 0.0
    lowest: float = math.inf
    highest: float = 0.0
    rounding: float = 1.0
    kinked: bool = False
    slope_loss: float = 0.0
    dropped: bool = False

    def add(self, writer: Writer, value: Value) -> None:
        """`value`: where the writer has ended."""
        self.summed += writer.summed
        grown = max(kind.error for kind in value.kinds)
        self.series_error = max(grown, self.summed) if self.slopes else grown
        self.bias_error += writer.bias_error
        self.lowest, self.highest = min(self.lowest, writer.lowest), max(self.highest, writer.highest)
        self.dropped = self.dropped or writer.dropped
        self.rounding = max(self.rounding, writer.rounding, *(kind.rounding for kind in value.kinds))
        self.kinked = self.kinked or writer.kinked
        self.slope_loss += writer.slope_loss

    @property
    def accuracy(self) -> Accuracy:
        method: Rung = "approximate" if self.bias_error else "quadrature" if self.series_error else "exact"
        return Accuracy(method, self.series_error + self.bias_error, self.series_error)

    def require(self, dtype: torch.dtype) -> None:
        """Refuse registers that cannot hold the norms, with room for sums and for shares of layers, or hold too few digits."""
        limits = torch.finfo(dtype)
        if self.highest > limits.max / ROOM or self.lowest < limits.tiny * ROOM:
            raise OutOfRange("norms leave the range of the registers", self.rounding)
        left = self.rounding * limits.eps / 2
        if left > ROUNDING[self.wanted] or self.slopes_lost(dtype, left):
            raise OutOfRange("its layers amplify rounding errors", self.rounding)

    def slopes_lost(self, dtype: torch.dtype, left: float) -> bool:
        """Whether tangent kernels of near inputs lose too much to rounding, which leaves `left` of the norms."""
        if not self.slopes:
            return False
        if dtype == torch.float32:
            return self.slope_loss > ROUNDING[dtype]
        return (math.sqrt(left) if self.kinked else left) > SLOPES


class OutOfRange(Unknown):
    """Norms and digits that another type of number can hold; `growth`: by how much errors may grow."""

    def __init__(self, text: str, growth: float) -> None:
        super().__init__(text)
        self.growth = growth


@dataclass(frozen=True, eq=False)
class Images:
    """Segments on images, and the layers that are left behind them."""

    machine: Machine
    value: Value
    everywhere: bool
    rest: tuple[Layer, ...]
    notes: Notes

    @property
    def count(self) -> int:
        """What the sums are divided by."""
        return math.prod(self.value.size) ** (2 if self.everywhere else 1)


def write_images(
    layers: tuple[Layer, ...], x: Tensor, wanted: torch.dtype, standard: bool | None, allowed: float = math.inf,
    growth: float = 1.0,
) -> Images:  # fmt: skip
    """Steps for all images x (N, c, h, w); norms behind an average over windows are computed on the way.

    `wanted`: the type of the answer, whose digits the steps must leave; they run in that of x. `allowed`: bytes that the
    machine may use; `growth`: see `Precision`.
    """
    dtype = x.dtype
    segments: list[Segment] = []
    norm, mean = first_moments(x)
    precision = Precision.of(dtype, wanted, count_activations(layers), growth)
    writer, notes = Writer(precision, standard), Notes(wanted, standard is not None)
    value = start(writer, norm, mean, x.shape[1], x.flatten(2).transpose(1, 2), False)
    kept: dict[tuple[int, int, int], Array] = {}
    for i, layer in enumerate(layers):
        if isinstance(layer, GlobalAveragePool | Flatten | Dense):  # a dense layer flattens what it gets
            everywhere, rest = isinstance(layer, GlobalAveragePool), layers[i + (not isinstance(layer, Dense)) :]
            return _finish(segments, writer, value, everywhere, rest, notes, allowed)
        if not isinstance(layer, AveragePool):
            value = writer.write(layer, value)
            continue
        _, height, width = layer.output_shape((value.channels, *value.size))
        segment, value = end_with_windows(writer, value, layer, (height, width), not segments)
        segments.append(segment)
        notes.add(writer, value)
        notes.require(dtype)
        machine = Machine(tuple(segments), dtype, standard is not None, kept)
        machine.require(len(x), allowed)
        norm, mean = _behind(machine, value, layer, (height, width))
        kind = value.kinds[0]
        growth = largest(layer._pool(kind.norm[:, None])[:, 0], norm)
        rounding = math.hypot(1, growth * kind.rounding)
        writer = Writer(precision, standard)
        value = start(writer, norm, mean, value.channels, None, kind.gaussian, growth * kind.error, rounding)
    return _finish(segments, writer, value, False, (), notes, allowed)


def _finish(
    segments: list[Segment], writer: Writer, value: Value, everywhere: bool, rest: tuple[Layer, ...], notes: Notes,
    allowed: float,
) -> Images:  # fmt: skip
    if rest and not isinstance(rest[0], Dense):
        raise Unknown(f"{rest[0].word} stands behind the last average")
    for layer in rest:
        _require_no_jump(layer)
    segment, value = end_with_sums(writer, value, everywhere, not segments)
    notes.add(writer, value)
    notes.require(writer.dtype)
    if notes.dropped and (everywhere or segments):
        raise Unknown("dropout stands in front of an average over positions")
    machine = Machine((*segments, segment), writer.dtype, writer.standard is not None)
    machine.require(len(value.kinds[0].norm), allowed)
    return Images(machine, value, everywhere, rest, notes)


def count_activations(layers: tuple[Layer, ...]) -> int:
    """Of all branches."""
    return sum(
        count_activations(layer.parts) if isinstance(layer, Composition) else isinstance(layer, Activate)
        for layer in layers
    )


def without_series(layer: Layer) -> bool:
    """Whether all activations have steps by formulas."""
    if isinstance(layer, Composition):
        return all(without_series(part) for part in layer.parts)
    return not isinstance(layer, Activate) or closed(layer.activation) is not None


def _require_no_jump(layer: Layer) -> None:
    """A jump takes the root of what rounding leaves of the distance of near inputs; `propagate` carries distances."""
    for part in layer.parts if isinstance(layer, Composition) else ():
        _require_no_jump(part)
    if isinstance(layer, Activate) and bool(layer.activation.derivative_second_moment(torch.ones(1)).isinf().any()):
        raise Unknown(f"{layer.word} jumps, for which products are too coarse")


def _behind(machine: Machine, value: Value, layer: AveragePool, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Squared norms and means of the windows, (N, height, width)."""
    kind = value.kinds[0]
    norm = machine.own_windows(len(kind.norm)).view(-1, *size)
    mean = layer._pool(kind.mean[:, None])[:, 0]
    return norm.clamp_min(0), mean


def answer_images(
    net: Sequential, x: Tensor, y: Tensor | None, wanted: torch.dtype, standard: bool | None, progress: Progress | None,
    allowed: float, growth: float = 1.0,
) -> Answer:  # fmt: skip
    """The kernel of x (n, c, h, w) and y, in the type of x; raises `Unknown` where a layer has no step."""
    both = x if y is None else torch.cat([x, y])
    images = write_images(net.layers, both, wanted, standard, allowed, growth)
    found = torch.from_numpy(images.machine.sums(len(x), None if y is None else len(y), progress)) / images.count
    product, tangent = found[0], found[1] if standard is not None else None
    norms = _norms(images, product, len(both), y is None)
    norm_x, norm_y = norms[: len(x)], norms if y is None else norms[len(x) :]
    if y is None and images.notes.dropped:
        product.diagonal().copy_(norm_x)  # an input and itself are one pass
    answer = Answer(product, tangent, norm_x, norm_y, images.notes.accuracy)
    return _head(images, answer, y is None, standard) if images.rest else answer


def _norms(images: Images, product: Tensor, count: int, symmetric: bool) -> Tensor:
    if not images.everywhere:
        return images.value.kinds[0].norm.mean((1, 2))
    if symmetric:
        return product.diagonal().clone()
    return torch.from_numpy(images.machine.own_sums(count)) / images.count


def _head(images: Images, answer: Answer, symmetric: bool, standard: bool | None) -> Answer:
    """Dense layers and what follows them, on the vectors that are left."""
    value = images.value
    channels = value.channels * (1 if images.everywhere else math.prod(value.size))
    x, y = (Side(norm[None], torch.zeros_like(norm)[None]) for norm in (answer.norm_x, answer.norm_y))
    both = x.root[0][:, None] * y.root[0]
    product = torch.minimum(torch.maximum(answer.product, -both), both)
    state = State(
        x=x, y=y, excess=2 * (both - product)[None], product=product[None], shares=torch.ones(1, dtype=torch.float64),
        channels=channels, positions=(), zipped=False, all_positions=False, law="other",
        tangent=None if answer.tangent is None else answer.tangent[None],
    )  # fmt: skip
    trace = Trace(own=None if standard is None else OwnShare("standard" if standard else "ntk"))
    found = totals(Sequential(*images.rest).propagate(state, trace))
    product = found.product
    if symmetric and any(isinstance(layer, Dropout) for layer in images.rest):
        product.diagonal().copy_(found.a)
    tangent = found.tangent
    if symmetric:
        product, tangent = mirrored(product), None if tangent is None else mirrored(tangent)
    own = Accuracy(trace.rung, trace.error, trace.integral_error)
    return Answer(product, tangent, found.a, found.b, both_of(answer.accuracy, own))


def mirrored(matrix: Tensor) -> Tensor:
    """The upper triangle on both sides."""
    return matrix.triu() + matrix.triu(1).T


def both_of(first: Accuracy, second: Accuracy) -> Accuracy:
    """Of two parts of a network, one behind the other."""
    least = Accuracy.least([first, second])
    return replace(least, error=first.error + second.error, integral_error=first.integral_error + second.integral_error)


def write_vectors(
    layers: tuple[Layer, ...], x: Tensor, wanted: torch.dtype, standard: bool | None, growth: float = 1.0
) -> tuple[Vectors, Tensor, Notes]:
    """Steps for all vectors x (N, d), and their squared norms at the end."""
    dtype = x.dtype
    precision = Precision.of(dtype, wanted, count_activations(layers), growth)
    writer, notes = Writer(precision, standard, vectors=True), Notes(wanted, standard is not None)
    norm, mean = (moment[:, None, None] for moment in first_moments(x))
    value = Value((Kind(writer.tape.take(), -1, norm, mean, gaussian=False),), (1.0,), x.shape[1])
    for layer in layers:
        value = writer.write(layer, value)
    value = writer.tape.merged(value)
    notes.add(writer, value)
    notes.require(dtype)
    kind = value.kinds[0]
    if standard is not None and kind.slopes < 0:
        raise Unknown("gradients reach no weights")
    results = (kind.register,) if standard is None else (kind.register, kind.slopes)
    return Vectors(plain_segment(writer, value), dtype, results), kind.norm[:, 0, 0], notes


def answer_vectors(
    net: Sequential, x: Tensor, y: Tensor | None, wanted: torch.dtype, standard: bool | None, progress: Progress | None,
    allowed: float, growth: float = 1.0,
) -> Answer:  # fmt: skip
    """The kernel of x (n, d) and y, in the type of x; raises `Unknown` where a layer has no step."""
    both = x if y is None else torch.cat([x, y])
    vectors, norms, notes = write_vectors(net.layers, both, wanted, standard, growth)
    vectors.require(len(x), len(x if y is None else y), allowed)
    found = vectors.matrix(x, y, progress)
    if y is None:  # known without rounding, and through dropout an input and itself are one pass
        found[0].diagonal().copy_(norms)
    tangent = found[1] if standard is not None else None
    return Answer(found[0], tangent, norms[: len(x)], norms if y is None else norms[len(x) :], notes.accuracy)


def answer(
    net: Sequential, x: Tensor, y: Tensor | None = None, *, standard: bool | None = None,
    progress: Progress | None = None, allowed: float = math.inf,
) -> Answer:  # fmt: skip
    """The kernel, and with `standard` (the parametrization) the tangent kernel, by the machine; `Unknown` where it cannot.

    Where the type of x cannot hold the norms, or too few digits, steps run in float64.
    """
    require_machine(x)
    net, x, y = on_data(net, x, y)
    ask = answer_vectors if x.ndim == 2 else answer_images
    try:
        found = ask(net, x, y, x.dtype, standard, progress, allowed)
    except OutOfRange as reason:
        if x.dtype == torch.float64:
            raise
        other = None if y is None else y.double()
        found = ask(net, x.double(), other, x.dtype, standard, progress, allowed, reason.growth)
    if any(bool(t.isnan().any()) for t in (found.product, found.tangent) if t is not None):
        raise Unknown("norms leave the range of float64")
    return found


def unknown(net: Sequential, x: Tensor, y: Tensor | None = None, *, standard: bool | None = None) -> str | None:
    """Why the machine cannot be used on inputs like x and y, None if it can; tried out on those at the ends of their norms."""
    try:
        require_machine(x)
        net, x, _ = on_data(net, _extremes(x, y), None)
        _written(net, x, standard)
    except Unknown as reason:
        return str(reason)
    return None


def _written(net: Sequential, x: Tensor, standard: bool | None) -> Images | Vectors:
    """What `answer` would run."""

    def ask(x: Tensor, wanted: torch.dtype, growth: float) -> Images | Vectors:
        if x.ndim == 2:
            return write_vectors(net.layers, x, wanted, standard, growth)[0]
        return write_images(net.layers, x, wanted, standard, growth=growth)

    try:
        return ask(x, x.dtype, 1.0)
    except OutOfRange as reason:
        if x.dtype == torch.float64:
            raise
        return ask(x.double(), x.dtype, reason.growth)


def steps_bytes(net: Sequential, x: Tensor, y: Tensor | None) -> int:
    """Peak memory of `answer`, beside the inputs."""
    n, m = len(x), len(x if y is None else y)
    net, few, _ = on_data(net, _extremes(x, y), None)
    found = _written(net, few, None)
    return (found.machine if isinstance(found, Images) else found).bytes(n, m)


def _extremes(x: Tensor, y: Tensor | None) -> Tensor:
    """Inputs with the smallest and the largest norms, and those with the darkest and the brightest positions."""
    found = []
    for t in (x,) if y is None else (x, y):
        places = t.square().sum(1).flatten(1) if t.ndim > 2 else t.square()
        whole, seen = places.sum(1), torch.where(places > 0, places, math.inf)
        dark = torch.where(whole > 0, whole, math.inf)
        ends = [int(i) for i in (whole.argmax(), dark.argmin(), places.amax(1).argmax(), seen.amin(1).argmin())]
        found.append(t[sorted(set(ends))])
    return torch.cat(found)


def require_machine(x: Tensor) -> None:
    if x.device.type != "cpu":
        raise Unknown("inputs are not in the computer's memory")
    if compiled_path() is None:
        raise Unknown("numba is not installed")


def on_data(net: Sequential, x: Tensor, y: Tensor | None) -> tuple[Sequential, Tensor, Tensor | None]:
    """The layers from the first one with weights on, and what those before it make of the data."""
    layers = list(net.layers)
    while layers and isinstance(layers[0], Flatten):
        layers.pop(0)
        x, y = x.flatten(1), None if y is None else y.flatten(1)
    if not layers or not isinstance(layers[0], Dense | Conv):
        raise Unknown("the first layer has no weights")
    if isinstance(layers[0], Dense):
        x, y = x.flatten(1), None if y is None else y.flatten(1)
    if x.ndim not in (2, 4):
        raise Unknown(f"inputs with {x.ndim - 2} position axes")
    return Sequential(*layers), x, y
