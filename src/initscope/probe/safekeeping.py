"""Leaves a model as it was: attributes, buffers, modes, gradients, random states; also after an exception."""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from initscope.errors import BadInput

_OWN = frozenset(nn.Module().__dict__)  # what every module has: parameters, buffers, hooks, mode


@contextmanager
def untouched(model: nn.Module, seed: int) -> Iterator[None]:
    """Inside, the model may run in any mode with random numbers from `seed`; afterwards nothing of it shows.

    Attributes, batch statistics, `.grad`, modes, weights that the model itself renormalises, and the random states of torch,
    NumPy and Python are put back. Other weights are not copied: see `Rewritten`. Compiled parts run as they were written.
    """
    check_trackable(model)
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    modes = [(m, m.training) for m in model.modules()]
    attributes = [_attributes(m) for m in model.modules()]
    values = [(m, name, b, b.detach().clone()) for m in model.modules() for name, b in _written(m)]
    grads = [(p, p.grad) for p in model.parameters()]
    with ExitStack() as stack:
        stack.enter_context(same_randomness(devices=devices))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if "torch._dynamo" in sys.modules:  # nothing can have been compiled without it
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Using `torch.compile.*global hooks", UserWarning)
        try:
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
        finally:
            for restore in attributes:
                restore()
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for module, name, tensor, value in values:
                    if name in module._buffers and module._buffers[name] is not tensor:
                        module._buffers[name] = tensor
                    if tensor.shape != value.shape:  # observers change the shape of their buffers
                        tensor.resize_(value.shape)
                    tensor.copy_(value)
            for parameter, grad in grads:
                parameter.grad = grad


def copied(model: nn.Module) -> nn.Module:
    """A deep copy; results of an earlier pass that modules keep as attributes, as old weight norm does, are copied by value."""
    kept = [v for m in model.modules() for v in m.__dict__.values() if isinstance(v, Tensor) and not v.is_leaf]
    return copy.deepcopy(model, {id(value): value.detach().clone() for value in kept})


def check_trackable(model: nn.Module) -> None:
    """Weights and buffers made under `torch.inference_mode` have no gradients and cannot be put back: one clear error."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not is_lazy(tensor) and tensor.is_inference():
            remedy = "build the model outside of inference_mode, or pass copy.deepcopy(model) made outside of it"
            raise BadInput("model", f"{name} was made under torch.inference_mode, so it has no gradient", remedy)


def _written(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What a forward pass of the module may write to: its buffers, and the weights of embeddings with a largest norm."""
    yield from ((name, b) for name, b in module._buffers.items() if b is not None)
    if getattr(module, "max_norm", None) is not None:
        yield from ((name, p) for name, p in module._parameters.items() if p is not None)


def _attributes(module: nn.Module) -> Callable[[], None]:
    """Puts back what the module's own code keeps in attributes, also in plain lists, dictionaries and sets."""
    before = {name: value for name, value in module.__dict__.items() if name not in _OWN}
    inside: dict[str, Any] = {name: value.copy() for name, value in before.items() if type(value) in (list, dict, set)}

    def restore() -> None:
        for name in [name for name in module.__dict__ if name not in _OWN and name not in before]:
            del module.__dict__[name]
        module.__dict__.update(before)
        for name, content in inside.items():
            value: Any = before[name]
            value.clear()
            value.extend(content) if isinstance(value, list) else value.update(content)

    return restore


@contextmanager
def same_randomness(source: Any = None, devices: list[int] | None = None) -> Iterator[None]:
    """The random states of torch, NumPy, Python and of a loader's own generator are afterwards what they were before."""
    owners = (source, getattr(source, "sampler", None))
    found = [g for g in (getattr(owner, "generator", None) for owner in owners) if isinstance(g, torch.Generator)]
    states = [g.get_state() for g in found]
    plain, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's global state
    with torch.random.fork_rng(devices=devices or []):
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(arrays)  # noqa: NPY002
            for generator, state in zip(found, states, strict=True):
                generator.set_state(state)


class Rewritten:
    """Which weights a pass has written to and nobody puts back, by the counters that torch keeps of it."""

    def __init__(self, model: nn.Module) -> None:
        kept = {id(tensor) for module in model.modules() for _, tensor in _written(module)}
        self._before = [(name, p, p._version) for name, p in model.named_parameters() if id(p) not in kept]

    @property
    def names(self) -> list[str]:
        return [name for name, p, version in self._before if p._version != version]


def prepare(model: nn.Module, *, train: bool, dropout: bool) -> None:
    """Training mode with batch statistics, and dropout only if it is wanted: angles are compared, masks would hide them.

    Modules that drop whole paths are known by their name; functions that drop units are switched off by the recorder.
    """
    model.train(train)
    if not dropout:
        for module in model.modules():
            leaf = next(module.children(), None) is None and next(module.parameters(recurse=False), None) is None
            if leaf and "drop" in type(module).__name__.lower():
                module.eval()
