"""Leaves a model as it was: buffers, modes, gradients, random states; also after an exception."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import nn


@contextmanager
def untouched(model: nn.Module, seed: int) -> Iterator[None]:
    """Inside, the model may run in any mode with random numbers from `seed`; afterwards nothing of it shows.

    Weights are not copied: nothing inside may write to them. Batch statistics, `.grad`, modes and the random states of
    torch, NumPy and Python are put back.
    """
    modes = [(m, m.training) for m in model.modules()]
    buffers = [
        (m, name, b, b.detach().clone()) for m in model.modules() for name, b in m._buffers.items() if b is not None
    ]
    grads = [(p, p.grad) for p in model.parameters()]
    plain, arrays = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's global state
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        try:
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(arrays)  # noqa: NPY002
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for module, name, buffer, value in buffers:
                    if module._buffers.get(name) is not buffer:
                        module._buffers[name] = buffer
                    buffer.copy_(value)
            for parameter, grad in grads:
                parameter.grad = grad


def prepare(model: nn.Module, *, train: bool, dropout: bool) -> None:
    """Training mode with batch statistics, and dropout only if it is wanted: angles are compared, masks would hide them."""
    model.train(train)
    if not dropout:
        for module in model.modules():
            if "drop" in type(module).__name__.lower():
                module.eval()
