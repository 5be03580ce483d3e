"""Follows a model's forward pass call by call: modules, functions and operators alike.

A `TorchFunctionMode` sees every call of the torch API while the model runs, data-dependent code included; a call belongs to
the data if it takes a tensor that an earlier one made. Hooks on all modules give the module path, record the modules whose
inside the mode cannot see (scripted ones, custom kernels), and make one step of an activation that is written out in pieces.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from initscope.probe.attention import sharpness
from initscope.probe.axes import axis_after, doubtful, moved_axis
from initscope.probe.operations import Operation, operation_of, short_name

INPUT = -1  # the maker of the data
OTHER_INPUT = -2  # the maker of the model's other inputs
_DROPOUT = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_TRAINING, _ATTENTION_DROPOUT = 2, 4  # the places of the arguments that switch them on
_RATE, _FUSED_RATE = 1, 10  # the places of the share that is dropped
_ATTENDS = ("softmax", "scaled_dot_product_attention", "multi_head_attention_forward")
_ROUTES = (
    "topk",
    "argmax",
    "argmin",
    "nonzero",
    "where",
    "one_hot",
    "multinomial",
    "sort",
    "argsort",
    "gumbel_softmax",
)
_PLAIN = (bool, int, float, str, torch.dtype, torch.device, torch.Size)  # arguments that hold no tensors
_POINTWISE = ("activation", "scale", "shift", "gate", "residual")

Observation = TypeVar("Observation")


@dataclass(frozen=True)
class Seen:
    """Stands for a tensor among the arguments of a call: its shape, and which call made it (None: not from the data)."""

    shape: tuple[int, ...]
    maker: int | None


@dataclass(frozen=True, eq=False)
class Call:
    """One call in the forward pass that made new values out of the data."""

    index: int
    name: str  # module path, with the function where the module is more than one call
    module: str
    function: str
    kind: str
    operation: Operation
    inputs: tuple[int, ...]  # which calls made the tensors it takes; INPUT for the data
    parameters: tuple[str, ...]
    shape: tuple[int, ...]
    axis: int | None = 0  # along which the samples lie, as far as that can be followed
    sources: tuple[str, ...] = ()  # all parameters behind it, also those that it uses transposed or computed
    drop_rate: float = 0.0  # share of units that the call drops while the model trains
    opaque: bool = False  # a module with several weights whose inside cannot be seen
    sharpness: float | None = None  # of attention: share of queries that look at one key only
    arguments: tuple[Any, ...] = field(default=(), repr=False)  # parameters as they are, activations as `Seen`
    keywords: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(eq=False)
class Step(Generic[Observation]):
    """A call and what the observer made of its result."""

    call: Call
    observed: Observation


class Recorder(TorchFunctionMode, Generic[Observation]):
    """Records the calls of one forward pass; `observe(call, values)` sees each result while it is there.

    `data` is the tensor whose samples are followed, the first of the `inputs` if it is not named. `merge(call, last)` is told
    when several calls turn out to be one step, with what was observed at the last of them. Without `dropout`, functions that
    drop units keep all.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: object,
        observe: Callable[[Call, Tensor], Observation],
        merge: Callable[[Call, Observation], Observation] = lambda call, last: last,
        *,
        data: Tensor | None = None,
        dropout: bool = True,
    ) -> None:
        super().__init__()
        self.observing = False  # an error that leaves it true came from the observer
        self._merged, self._dropout = merge, dropout
        self.steps: list[Step[Observation]] = []
        self._observe = observe
        self._thread = threading.get_ident()  # the hooks are called by all threads, the model runs in one
        self._running: list[tuple[nn.Module, int]] = []  # modules, and how many steps there were when they began
        self._paths = {id(m): name for name, m in model.named_modules(remove_duplicate=False)}
        self._parameters = {id(p): name for name, p in model.named_parameters(remove_duplicate=False)}
        self._maker: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._axis: WeakIdKeyDictionary = WeakIdKeyDictionary()  # of each tensor, the axis of the samples
        self._behind: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensor -> parameters that it was computed from
        self.cuts: list[int] = []  # steps whose result was detached
        self.entered: set[str] = set()  # paths of the modules that ran
        self.doubts = False  # whether a call may have carried samples into each other
        self.routings: list[tuple[str, int]] = []  # choices made by the data: module, and the step that comes next
        self.strangers: dict[int, tuple[Tensor, int]] = {}  # weights that the model does not know, and who uses them
        self._settled: set[int] = set()  # those whose step is known
        self._born: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensors made from nothing in this pass
        data = tensors_in(inputs)[0] if data is None else data
        self._names: dict[str, int] = {}
        self._samples = len(data)
        for tensor in tensors_in(inputs):
            self._maker[tensor] = INPUT if tensor is data else OTHER_INPUT
            self._axis[tensor] = 0 if tensor.ndim > 0 and len(tensor) == len(data) else None

    @property
    def place(self) -> str:
        """The path of the module that is running."""
        return self._paths.get(id(self._running[-1][0]), "") if self._running else ""

    def maker_of(self, tensor: Tensor) -> int | None:
        """The step that made a tensor; None if none did."""
        maker: int = self._maker.get(tensor, INPUT)  # type: ignore[no-untyped-call]
        return maker if maker >= 0 else None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The forward pass goes inside. The hooks are global, so the model's own stay as they were."""
        with ExitStack() as stack:
            stack.callback(register_module_forward_pre_hook(self._enter).remove)
            stack.callback(register_module_forward_hook(self._leave).remove)
            stack.enter_context(self)
            yield

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = dict(kwargs or {})
        rate = self._drop_rate(short_name(func), args, keywords)
        sharp = sharpness(short_name(func), args, keywords) if short_name(func) in _ATTENDS else None
        if not self._dropout:
            args, keywords = _without_dropout(short_name(func), args, keywords)
        every = tensors_in((args, keywords))
        given = [t for t in every if t in self._maker]
        seen = {id(t): Seen(tuple(t.shape), self._maker[t]) for t in given}  # before an in-place call changes them
        makers = tuple(self._maker[t] for t in given)
        first = given[0] if given else None
        shape, axis = (tuple(first.shape), self._axis[first]) if first is not None else ((), None)
        sources = self._sources(every)
        self._meet(every, used=first is not None)
        out = func(*args, **keywords)
        if first is None:
            for tensor in tensors_in(out):
                if sources and id(tensor) not in self._parameters:
                    self._behind[tensor] = sources
                self._born[tensor] = True
        elif operation_of(func).constant:
            self._born.update(dict.fromkeys(tensors_in(out), True))
        else:
            if short_name(func) in _ROUTES:
                self.routings.append((self.place, len(self.steps)))
            if short_name(func) == "detach" and first.requires_grad and self._maker[first] >= 0:
                self.cuts.append(self._maker[first])
            kept = tree_map(lambda a: self._without_data(a, seen), (args, keywords))
            written = [args[0]] if short_name(func) == "setitem" and isinstance(args[0], Tensor) else tensors_in(out)
            moved = moved_axis(short_name(func), kept[0], shape, axis)
            found = lambda size: axis_after(short_name(func), shape, axis, moved, size)  # noqa: E731
            self._record(func, makers, kept, written, found, sources, rate, sharp)
            after = self._axis.get(written[0]) if written else None  # type: ignore[no-untyped-call]
            self.doubts |= doubtful(short_name(func), kept[0], kept[1], shape, axis, after)
        return out

    def axis_of(self, tensor: Tensor) -> int | None:
        """Along which axis of a tensor the samples lie, as far as that was followed."""
        axis: int | None = self._axis.get(tensor)  # type: ignore[no-untyped-call]
        return axis

    def _meet(self, tensors: list[Tensor], used: bool) -> None:
        """Notes tensors that learn and that the model does not know. What a pass makes for each sample is no weight.

        The step is the first that uses one together with data, else the one behind the last call that has it.
        """
        for t in tensors:
            if not (t.requires_grad and t.is_leaf) or id(t) in self._parameters or t in self._maker:
                continue
            for_samples = t in self._born and not isinstance(t, nn.Parameter) and len(t.shape) > 0
            if not (for_samples and len(t) == self._samples) and id(t) not in self._settled:
                self.strangers[id(t)] = (t, len(self.steps))
                self._settled |= {id(t)} if used else set()

    def _sources(self, tensors: list[Tensor]) -> tuple[str, ...]:
        """The parameters among the tensors, and those that other tensors among them were computed from."""
        names: dict[str, None] = {}
        for tensor in tensors:
            own = self._parameters.get(id(tensor))
            if own is not None:
                names[own] = None
            elif tensor in self._behind:
                names.update(dict.fromkeys(self._behind[tensor]))
        return tuple(names)

    def _drop_rate(self, function: str, args: Any, keywords: dict[str, Any]) -> float:
        """The share that a call drops while the model trains; dropout modules may be switched off for the measurement."""
        if function in _DROPOUT:
            module = self._running[-1][0] if self._running else None
            given = args[_TRAINING] if len(args) > _TRAINING else keywords.get("training", keywords.get("train", True))
            wanted = "drop" in type(module).__name__.lower() or bool(given)
            return float(args[_RATE] if len(args) > _RATE else keywords.get("p", 0.5)) if wanted else 0.0
        if function == "scaled_dot_product_attention":
            return float(args[_ATTENTION_DROPOUT] if len(args) > _ATTENTION_DROPOUT else keywords.get("dropout_p", 0.0))
        if function == "multi_head_attention_forward":
            return float(args[_FUSED_RATE] if len(args) > _FUSED_RATE else keywords.get("dropout_p", 0.0))
        return 0.0

    def _enter(self, module: nn.Module, _: object) -> None:
        if threading.get_ident() != self._thread:
            return
        self._running.append((module, len(self.steps)))
        self.entered.add(self.place)

    def _leave(self, module: nn.Module, args: object, out: object) -> None:
        if threading.get_ident() != self._thread:
            return
        _, first = self._running[-1]
        makers = tuple(self._maker[t] for t in tensors_in(args) if t in self._maker)
        new = [t for t in tensors_in(out) if t not in self._maker]
        if makers and new:  # something the mode cannot see made them
            own = tuple(self._parameters[id(p)] for p in module.parameters() if id(p) in self._parameters)
            matrices = sum(p.ndim > 1 for p in module.parameters())
            self._record(type(module), makers, ((), {}), new, lambda size: None, own, opaque=matrices > 1)
        elif next(module.children(), None) is None:
            self._merge(module, first, tensors_in(out))
        self._running.pop()

    def _record(
        self,
        func: Any,
        makers: tuple[int, ...],
        given: tuple[Any, Any],
        results: list[Tensor],
        axis_in: Callable[[tuple[int, ...]], int | None],
        sources: tuple[str, ...] = (),
        drop_rate: float = 0.0,
        sharp: float | None = None,
        opaque: bool = False,
    ) -> None:
        operation = operation_of(func)
        if operation.constant:
            return
        for tensor in results:
            self._axis[tensor] = axis_in(tuple(tensor.shape))
        values = next((t for t in results if (t.is_floating_point() or t.is_complex()) and t.ndim > 0), None)
        if operation.same_values or values is None:
            for tensor in results:
                self._maker[tensor] = makers[0]
            return
        kind = operation.kind_for(len(makers))
        call = Call(
            index=len(self.steps),
            name=self._name(kind, short_name(func)),
            module=self.place,
            function=short_name(func),
            kind=kind,
            operation=operation,
            inputs=makers,
            parameters=tuple(name for t in tensors_in(given) if (name := self._parameter(t)) is not None),
            shape=tuple(values.shape),
            axis=self._axis[values],
            sources=sources,
            drop_rate=drop_rate,
            sharpness=sharp,
            opaque=opaque,
            arguments=given[0],
            keywords=given[1],
        )
        for tensor in results:
            self._maker[tensor] = call.index
        with self._aside():
            self.steps.append(Step(call, self._observe(call, values)))

    def _merge(self, module: nn.Module, first: int, results: list[Tensor]) -> None:
        """What one module writes out in several calls is one step, seen at its end: GELU by tanh, a normalization."""
        inside = self.steps[first:]
        norm = "norm" in type(module).__name__.lower()
        pointwise = all(s.call.kind in _POINTWISE and not s.call.parameters for s in inside)
        outside = tuple({m for s in inside for m in s.call.inputs if m < first})
        if len(inside) < 2 or len(outside) != 1 or not (norm or pointwise):
            return
        kind = "norm" if norm else "scale" if all(s.call.kind == "scale" for s in inside) else "activation"
        name = self._paths.get(id(module), type(module).__name__)
        function = type(module).__name__.lower()
        call = replace(
            inside[-1].call,
            index=first,
            name=name,
            function=function,
            kind=kind,
            inputs=outside,
            parameters=tuple(dict.fromkeys(name for s in inside for name in s.call.parameters)),
            sources=tuple(dict.fromkeys(name for s in inside for name in s.call.sources)),
            arguments=(),
            keywords={},
        )
        for tensor in results:
            self._maker[tensor] = first
        self.strangers = {key: (t, min(at, first)) for key, (t, at) in self.strangers.items()}
        with self._aside():
            self.steps[first:] = [Step(call, self._merged(call, inside[-1].observed))]

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """The observer's own calls are not the model's, nor are its errors."""
        self.observing = True
        with torch._C.DisableTorchFunction():  # a module's hook runs inside the mode
            yield
        self.observing = False

    def _without_data(self, leaf: object, seen: dict[int, Seen]) -> object:
        """Arguments are kept for the theory, but not the activations among them: they would pile up."""
        if not isinstance(leaf, Tensor):
            return leaf
        known = seen.get(id(leaf), Seen(tuple(leaf.shape), None))
        return leaf if self._parameter(leaf) is not None else known

    def _parameter(self, tensor: Tensor) -> str | None:
        """The name of a parameter, also of one that is seen through a view: transposed, or in part."""
        own = self._parameters.get(id(tensor))
        if own is not None or tensor._base is None or _overlaps(tensor):
            return own
        return self._parameters.get(id(tensor._base))

    def _name(self, kind: str, function: str) -> str:
        """The path of a module that is one call, `path:function` otherwise; a second call gets a number."""
        leaf = bool(self._running) and next(self._running[-1][0].children(), None) is None
        name = self.place if leaf and kind != "other" else ""
        name = name or f"{self.place}:{function}".lstrip(":")
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def _overlaps(view: Tensor) -> bool:
    """Whether several of its entries may be one place in memory, as in what `expand` gives."""
    return view.layout != torch.strided or any(s == 0 for s, n in zip(view.stride(), view.shape, strict=True) if n > 1)


def _without_dropout(function: str, args: Any, keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of a call that drops units at random, changed so that it keeps them all."""
    value: bool | float = False
    if function in _DROPOUT:
        place, name = _TRAINING, "train" if "train" in keywords else "training"
    elif function == "scaled_dot_product_attention":
        place, name, value = _ATTENTION_DROPOUT, "dropout_p", 0.0
    elif function == "multi_head_attention_forward" and "training" in keywords:
        place, name = len(args), "training"
    else:
        return args, keywords
    if len(args) > place:
        return (*args[:place], value, *args[place + 1 :]), keywords
    return args, keywords | {name: value}


def tensors_in(tree: object) -> list[Tensor]:
    """All tensors in nested tuples, lists, dicts and output dataclasses."""
    found: list[Tensor] = []
    _collect(tree, found)
    return found


def _collect(tree: object, found: list[Tensor]) -> None:
    """The usual containers by hand, which is ten times faster than the registry of all containers."""
    if isinstance(tree, Tensor):
        found.append(tree)
    elif tree is None or type(tree) in _PLAIN:
        return
    elif type(tree) in (tuple, list):
        for part in tree:  # type: ignore[attr-defined]
            _collect(part, found)
    elif type(tree) is dict:
        for part in tree.values():
            _collect(part, found)
    elif hasattr(tree, "__dataclass_fields__"):
        _collect([getattr(tree, name) for name in tree.__dataclass_fields__], found)
    else:
        leaves = tree_leaves(tree)
        if len(leaves) != 1 or leaves[0] is not tree:
            _collect(leaves, found)
