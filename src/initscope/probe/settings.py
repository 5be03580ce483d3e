"""The settings of torch and NumPy that a model's code may change for the whole process, and how they are put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

Setting = tuple[Callable[[], Any], Callable[[Any], object]]  # read it, write it


def _attribute(owner: Any, name: str) -> Setting:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


def _autocast(device: str) -> Setting:
    def write(state: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(device, state[0])
        torch.set_autocast_dtype(device, state[1])

    return lambda: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)), write


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _default_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)  # None: as if nobody had set it


_cuda, _cudnn, _mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
_SETTINGS: tuple[Setting, ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, _default_device),
    (torch.get_num_threads, torch.set_num_threads),
    (_deterministic, lambda state: torch.use_deterministic_algorithms(state[0], warn_only=state[1])),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),  # the public one is meant for `with`, and warns when compiled
    (torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    *(_autocast(device) for device in ("cpu", "cuda")),
    *(_attribute(_cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
    *(_attribute(_cuda.matmul, name) for name in ("allow_tf32", "allow_fp16_reduced_precision_reduction")),
    *(_attribute(_mkldnn, name) for name in ("enabled", "deterministic")),
    (_cuda.flash_sdp_enabled, _cuda.enable_flash_sdp),
    (_cuda.mem_efficient_sdp_enabled, _cuda.enable_mem_efficient_sdp),
    (_cuda.math_sdp_enabled, _cuda.enable_math_sdp),
    (np.geterr, lambda state: np.seterr(**state)),
)


@contextmanager
def same_settings() -> Iterator[None]:
    """The settings are afterwards what they were before."""
    before = [(read, write, _read(read)) for read, write in _SETTINGS]
    try:
        yield
    finally:
        for read, write, value in before:
            if value is not None and _read(read) != value:
                write(value)


def _read(read: Callable[[], Any]) -> Any:
    """None where torch does not tell: it refuses its old switches of tf32 once the new ones have been used."""
    try:
        return read()
    except RuntimeError:
        return None
