"""Leaves a model as it was: weights, attributes, buffers, modes, gradients, random states; also after an exception."""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from initscope.errors import BadInput
from initscope.probe.settings import same_settings

_OWN = frozenset(nn.Module().__dict__)  # what every module has: parameters, buffers, hooks, mode
_HOLDERS = (list, dict, set, OrderedDict)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _HOOKS)
COPIED = 256 << 20  # bytes of weights that are copied before a pass; of larger models only sums are kept
_PART = 1 << 20  # values that are summed at a time


@contextmanager
def untouched(model: nn.Module, seed: int, *, weights: bool = True, users_code: bool = True) -> Iterator[Kept]:
    """Inside, the model may run in any mode with random numbers from `seed`; afterwards nothing of it shows.

    Attributes, submodules, hooks, buffers, `.grad`, modes, weights, the random states of torch, NumPy and Python, and the
    settings of the process are put back; what is given tells afterwards which weights were written to. Without `weights`,
    they are the caller's to change. Without `users_code`, nothing but the model runs. Compiled parts run as they were written.
    """
    check_trackable(model)
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    modes = [(m, m.training) for m in model.modules()]
    attributes = [_attributes(m) for m in model.modules()]
    values = [(b, b.detach().clone()) for m in model.modules() for b in m._buffers.values() if _known(b)]
    grads = [(p, p.grad) for p in model.parameters()]
    kept = Kept(model, copies=weights, users_code=users_code)
    with ExitStack() as stack:
        stack.enter_context(same_randomness(devices=devices))
        stack.enter_context(same_settings())
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
            yield kept
        finally:
            for restore in attributes:
                restore()
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for tensor, value in values:
                    if tensor.shape != value.shape:  # observers change the shape of their buffers
                        tensor.resize_(value.shape)
                    tensor.copy_(value)
                if weights:
                    kept.put_back()
            for parameter, grad in grads:
                parameter.grad = grad


class Kept:
    """The weights of a model before a pass, to find out what the pass writes to them, and to put them back.

    A write to `weight.data` moves no counter of torch's, so contents are compared: with copies, or with sums if the model is
    too large to be copied. Then `stay` names what could not be put back. `.data` that was replaced is put back in any case.
    """

    def __init__(self, model: nn.Module, *, copies: bool = True, users_code: bool = True) -> None:
        self.written: list[str] = []  # put back
        self.stay: list[str] = []
        own = _own_writers(model)
        named = [(name, p) for name, p in model.named_parameters() if _has_values(p)] if copies else []
        if not users_code and _only_torch(model):  # whose modules write to no weights but these
            named = [(name, p) for name, p in named if id(p) in own]
        small = sum(p.numel() * p.element_size() for _, p in named) <= COPIED
        self._before = [_Weight(name, p, small or id(p) in own, noted=id(p) not in own) for name, p in named]

    def put_back(self) -> None:
        for weight in self._before:
            changed = weight.put_back()
            if changed and weight.content is None:
                self.stay.append(weight.name)
            elif changed and weight.noted:
                self.written.append(weight.name)


class _Weight:
    """One parameter: its memory, and a copy of what was in it or, without `copy`, the sums of that."""

    def __init__(self, name: str, parameter: nn.Parameter, copy: bool, noted: bool) -> None:
        self.name, self.parameter, self.noted = name, parameter, noted
        self.data, self.trained = parameter.data, parameter.requires_grad
        self.content = self.data.clone() if copy else None
        self.sums = None if copy else _sums(self.data)

    def put_back(self) -> bool:
        """As far as that is possible; whether there was anything to put back."""
        replaced = _memory(self.parameter.data) != _memory(self.data)
        if replaced:
            self.parameter.data = self.data
        if self.parameter.requires_grad != self.trained:
            self.parameter.requires_grad_(self.trained)
        if self.content is None:
            return _sums(self.data) != self.sums
        changed = not torch.equal(self.data, self.content)
        if changed:
            self.data.copy_(self.content)
        return changed or replaced


def _memory(tensor: Tensor) -> tuple[object, ...]:
    """Where it lies, and how."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _known(tensor: Tensor | None) -> TypeGuard[Tensor]:
    return tensor is not None and not is_lazy(tensor)


def _has_values(tensor: Tensor) -> bool:
    """There are numbers in it, one for each index."""
    return _known(tensor) and not tensor.is_meta and tensor.layout == torch.strided


def _own_writers(model: nn.Module) -> set[int]:
    """Identities of the weights that torch's own modules write to: of embeddings with a largest norm."""
    limited = [m for m in model.modules() if getattr(m, "max_norm", None) is not None]
    return {id(p) for m in limited for p in m.parameters(recurse=False)}


def _only_torch(model: nn.Module) -> bool:
    """Whether a pass runs no code but that of torch's own modules: no other classes, no hooks, nothing replaced."""
    if any(getattr(nn.modules.module, name) for name in _GLOBAL_HOOKS):
        return False
    for module in model.modules():
        if not type(module).__module__.startswith("torch.nn.modules.") or any(getattr(module, h) for h in _HOOKS):
            return False
        called = (type(module).forward, *filter(callable, module.__dict__.values()))
        if any(not str(getattr(part, "__module__", "")).startswith("torch.nn.") for part in called):
            return False
    return all(type(p) is nn.Parameter and not p._backward_hooks for p in model.parameters())


def _sums(tensor: Tensor) -> tuple[int, int]:
    """The sum of the bits as whole numbers, and one weighted by place: equal contents give equal sums."""
    flat = tensor.detach()
    flat = (torch.view_as_real(flat.resolve_conj()) if flat.is_complex() else flat).reshape(-1)
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    place = torch.arange(1, 1 + min(len(flat), _PART), device=flat.device)
    plain = weighted = torch.zeros((), dtype=torch.int64, device=flat.device)
    for number, part in enumerate(torch.split(flat, _PART)):
        bits = part.view(whole).long()
        plain = plain + bits.sum()
        weighted = weighted * 3 + (bits * place[: len(bits)]).sum() + number
    return int(plain), int(weighted)


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


def _attributes(module: nn.Module) -> Callable[[], None]:
    """Puts back what the module keeps in attributes, also in plain lists, dictionaries and sets.

    Of what every module has, these are its parameters, buffers, submodules and hooks: a pass may add some or replace them.
    """
    before = {name: value for name, value in module.__dict__.items() if name not in _OWN or type(value) in _HOLDERS}
    inside: dict[str, Any] = {name: value.copy() for name, value in before.items() if type(value) in _HOLDERS}

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
