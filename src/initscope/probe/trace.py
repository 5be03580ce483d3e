"""Follows a model's forward pass call by call: modules, functions and operators alike.

A `TorchFunctionMode` sees every call of the torch API while the model runs, data-dependent code included; a call belongs to
the data if it takes a tensor that an earlier one made. Hooks on all modules give the module path, record the modules whose
inside the mode cannot see (scripted ones, custom kernels), and make one step of an activation that is written out in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from initscope.probe.operations import Operation, operation_of, short_name

INPUT = -1  # the maker of the model's own inputs
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
    inputs: tuple[int, ...]  # which calls made the tensors it takes; INPUT for the model's inputs
    parameters: tuple[str, ...]
    shape: tuple[int, ...]
    arguments: tuple[Any, ...] = field(default=(), repr=False)  # parameters as they are, activations as `Seen`
    keywords: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass(eq=False)
class Step(Generic[Observation]):
    """A call and what the observer made of its result."""

    call: Call
    observed: Observation


class Recorder(TorchFunctionMode, Generic[Observation]):
    """Records the calls of one forward pass; `observe(call, values)` sees each result while it is there.

    `merge(call, last)` is told when several calls turn out to be one step, with what was observed at the last of them.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: object,
        observe: Callable[[Call, Tensor], Observation],
        merge: Callable[[Call, Observation], Observation] = lambda call, last: last,
    ) -> None:
        super().__init__()
        self.observing = False  # an error that leaves it true came from the observer
        self._merged = merge
        self.steps: list[Step[Observation]] = []
        self._observe = observe
        self._running: list[tuple[nn.Module, int]] = []  # modules, and how many steps there were when they began
        self._paths = {id(m): name for name, m in model.named_modules(remove_duplicate=False)}
        self._parameters = {id(p): name for name, p in model.named_parameters(remove_duplicate=False)}
        self._maker: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._names: dict[str, int] = {}
        for tensor in tensors_in(inputs):
            self._maker[tensor] = INPUT

    @property
    def place(self) -> str:
        """The path of the module that is running."""
        return self._paths.get(id(self._running[-1][0]), "") if self._running else ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The forward pass goes inside. The hooks are global, so the model's own stay as they were."""
        with ExitStack() as stack:
            stack.callback(register_module_forward_pre_hook(self._enter).remove)
            stack.callback(register_module_forward_hook(self._leave).remove)
            stack.enter_context(self)
            yield

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        given = [t for t in tensors_in((args, keywords)) if t in self._maker]
        seen = {id(t): Seen(tuple(t.shape), self._maker[t]) for t in given}  # before an in-place call changes them
        makers = tuple(self._maker[t] for t in given)
        out = func(*args, **keywords)
        if given:
            self._record(
                func, makers, tree_map(lambda a: self._without_data(a, seen), (args, keywords)), tensors_in(out)
            )
        return out

    def _enter(self, module: nn.Module, _: object) -> None:
        self._running.append((module, len(self.steps)))

    def _leave(self, module: nn.Module, args: object, out: object) -> None:
        _, first = self._running[-1]
        makers = tuple(self._maker[t] for t in tensors_in(args) if t in self._maker)
        new = [t for t in tensors_in(out) if t not in self._maker]
        if makers and new:  # something the mode cannot see made them
            self._record(type(module), makers, ((), {}), new)
        elif next(module.children(), None) is None:
            self._merge(module, first, tensors_in(out))
        self._running.pop()

    def _record(self, func: Any, makers: tuple[int, ...], given: tuple[Any, Any], results: list[Tensor]) -> None:
        operation = operation_of(func)
        values = next((t for t in results if t.is_floating_point() and t.ndim > 0), None)
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
            parameters=tuple(self._parameters[id(t)] for t in tensors_in(given) if id(t) in self._parameters),
            shape=tuple(values.shape),
            arguments=given[0],
            keywords=given[1],
        )
        for tensor in results:
            self._maker[tensor] = call.index
        with self._aside():
            self.steps.append(Step(call, self._observe(call, values)))

    def _merge(self, module: nn.Module, first: int, results: list[Tensor]) -> None:
        """An activation written out in several pointwise calls (GELU by tanh) is one step, seen at its end."""
        inside = self.steps[first:]
        if len(inside) < 2 or any(s.call.kind not in _POINTWISE or s.call.parameters for s in inside):
            return
        outside = tuple({m for s in inside for m in s.call.inputs if m < first})
        if len(outside) != 1:
            return
        kind = "scale" if all(s.call.kind == "scale" for s in inside) else "activation"
        name = self._paths.get(id(module), type(module).__name__)
        function = type(module).__name__.lower()
        call = replace(
            inside[-1].call,
            index=first,
            name=name,
            function=function,
            kind=kind,
            inputs=outside,
            arguments=(),
            keywords={},
        )
        for tensor in results:
            self._maker[tensor] = first
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
        return leaf if id(leaf) in self._parameters else known

    def _name(self, kind: str, function: str) -> str:
        """The path of a module that is one call, `path:function` otherwise; a second call gets a number."""
        leaf = bool(self._running) and next(self._running[-1][0].children(), None) is None
        name = self.place if leaf and kind != "other" else ""
        name = name or f"{self.place}:{function}".lstrip(":")
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


def tensors_in(tree: object) -> list[Tensor]:
    """All tensors in nested tuples, lists, dicts and output dataclasses."""
    leaves, _ = tree_flatten(tree)
    found: list[Tensor] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dataclass_fields__"):
            found += tensors_in([getattr(leaf, name) for name in leaf.__dataclass_fields__])
    return found
