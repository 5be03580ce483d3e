"""Before the work: how much memory it may use, how much it needs, and whether anything has to be simulated."""

from __future__ import annotations

import ctypes
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from initscope.errors import BadInput
from initscope.geometry import Inputs
from initscope.layers import Conv, Dense, Flatten, Layer, Shape, Trace
from initscope.networks.branches import Concat, Product, Residual, Sum
from initscope.networks.composition import Composition, Sequential
from initscope.networks.masks import Masked

SHARE = 0.25  # of the free memory, where the caller gives no budget
REPLICATES = 16  # independent repetitions of a simulated layer: their spread is the standard error
UNITS = 2048  # units drawn in each
# Arrays of the size of the distances that are alive at once, measured: the state, its successor, temporaries.
_LIVE_ALL, _LIVE_TILE, _LIVE_SAME, _LIVE_JOINT = 44, 22, 24, 16
_PROBE_BYTES = 1 << 26
_PHYSICAL_GUESS = 4 << 30  # where nothing tells
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def budget(memory: int | None, device: torch.device) -> int:
    """Bytes that may be used: the caller's number, or a quarter of what is free."""
    if memory is None:
        return int(free_memory(device) * SHARE)
    if isinstance(memory, bool) or not isinstance(memory, int) or memory <= 0:
        raise BadInput("memory", f"got {memory!r}, expected a positive whole number of bytes", "pass for example 2**30")
    return memory


def free_memory(device: torch.device) -> int:
    """Free bytes on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = [number for number in (_system_memory(), _container_memory()) if number is not None]
    return max(min(known), 0) if known else _PHYSICAL_GUESS


def _system_memory() -> int | None:
    """Available bytes of this computer; where only the installed memory is known, half of that."""
    info = Path("/proc/meminfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return _windows_memory()


def _windows_memory() -> int | None:
    library = getattr(ctypes, "windll", None)
    if library is None:
        return None
    fields = ("total", "available", "total_page", "available_page", "total_virtual", "available_virtual", "extended")
    kinds = [("length", ctypes.c_uint32), ("load", ctypes.c_uint32), *((name, ctypes.c_uint64) for name in fields)]
    status = type("MemoryStatus", (ctypes.Structure,), {"_fields_": kinds})()
    status.length = ctypes.sizeof(status)
    return int(status.available) if library.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)) else None


def _container_memory() -> int | None:
    """What is left of a container's limit; None without one."""
    for folder, most, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit, taken = (int((Path(folder) / name).read_text()) for name in (most, used))
            stat = (Path(folder) / "memory.stat").read_text()
        except (OSError, ValueError):  # not there, or "max": no limit
            continue
        cached = re.search(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)  # given back when it is needed
        return limit - taken + (int(cached[1]) if cached else 0)
    return None


def working_dtype(x: Tensor) -> torch.dtype:
    """What the propagation works in: the type of the answer loses angles that pooling leaves small, and costs no less."""
    return x.dtype if x.device.type == "mps" else torch.float64


def pair_bytes(net: Layer, shape: Shape, dtype: torch.dtype, simulated: bool = False) -> int:
    """Peak bytes of one zipped pair: distances within x, within y and between them."""
    live = _LIVE_ALL if net.needs_all_positions and math.prod(shape[1:]) > 1 else _LIVE_SAME
    state = live * dtype.itemsize * _largest(net, shape, 1)[0]
    if not simulated:
        return state
    return state + _draw_bytes(net, shape, 2) + REPLICATES * 3 * state // live


def entry_bytes(net: Layer, shape: Shape, dtype: torch.dtype) -> int:
    """Peak bytes of one entry of a tile of all pairs; distances within one image take about as much."""
    live = _LIVE_TILE if net.needs_all_positions and math.prod(shape[1:]) > 1 else _LIVE_SAME
    return live * dtype.itemsize * _largest(net, shape, 1)[0]


def joint_bytes(net: Layer, shape: Shape, inputs: int, simulated: bool) -> int:
    """Peak bytes of a whole batch taken at once, in float64."""
    state = _LIVE_JOINT * 8 * inputs * inputs * _largest(net, shape, 1)[0]
    return state + (_draw_bytes(net, shape, inputs) if simulated else 0)


def _draw_bytes(net: Layer, shape: Shape, inputs: int) -> int:
    """Covariance, its root and work space, and the samples, over the values that are drawn together."""
    most = _largest(net, shape, 1)[0]
    positions = math.isqrt(most) if net.needs_all_positions else most
    values = inputs * positions if net.needs_all_positions else inputs
    return 8 * (4 * values * values + 4 * inputs * positions * UNITS)


def _largest(layer: Layer, shape: Shape, kinds: int, raw: bool = True) -> tuple[int, int]:
    """The most distances of one pair inside the layer, over kinds of units and (pairs of) positions; kinds at its end.

    `raw`: what goes in is data, of which each channel is a kind of its own for a layer with groups.
    """
    if isinstance(layer, Residual):
        layer = layer.sum
    if isinstance(layer, Sum | Product | Concat):
        parts = [_sequence((b,), shape, kinds, layer.needs_all_positions, raw) for b in layer.branches]
        ends = [k for _, k in parts]
        beside = isinstance(layer, Concat) and layer.axis == 0
        return sum(p for p, _ in parts), sum(ends) if beside else max(ends)
    layers = layer.layers if isinstance(layer, Sequential | Masked) else (layer,)
    return _sequence(layers, shape, kinds, layer.needs_all_positions, raw)


def _sequence(layers: tuple[Layer, ...], shape: Shape, kinds: int, pairs: bool, raw: bool) -> tuple[int, int]:
    def count(shape: Shape, kinds: int) -> int:
        positions = math.prod(shape[1:])
        return kinds * (positions**2 if pairs else positions)

    top = count(shape, kinds)
    for layer in layers:
        if isinstance(layer, Composition):
            inside, kinds = _largest(layer, shape, kinds, raw)
            top = max(top, inside)
        elif isinstance(layer, Flatten):
            kinds *= math.prod(shape[1:])
        elif isinstance(layer, Dense):
            kinds = 1
        elif isinstance(layer, Conv) and (raw or layer.groups < shape[0]):  # depthwise filters keep the kinds of units
            kinds = layer.groups
        raw = raw and not layer.has_weights
        shape = layer.output_shape(shape)
        top = max(top, count(shape, kinds))
    return top, kinds


def simulates(net: Layer, x: Tensor) -> bool:
    """Whether some layer has to be simulated, found on one input with two units; of large images on a corner."""
    positions = math.prod(x.shape[2:])
    if net.needs_draws and positions > 1:
        return True
    few = _corner(net, x[:2].double())
    if few is None:
        return any(_depthwise(net, tuple(x.shape[1:])))
    few = few if len(few) == 2 else few.repeat(2, *(1,) * (x.ndim - 1))
    trace = Trace(units=2)
    inputs = Inputs(few, few, zipped=False, all_positions=net.needs_all_positions, joint=True)
    if not net.needs_joint_batch:
        inputs = Inputs(few[:1], few[1:], all_positions=net.needs_all_positions)
    net.propagate(inputs, trace)
    return trace.simulated


def _corner(net: Layer, x: Tensor) -> Tensor | None:
    """The inputs, or the smallest corner of them that the layers fit on, if that can be tried out."""
    if pair_bytes(net, tuple(x.shape[1:]), torch.float64) <= _PROBE_BYTES:
        return x
    axes = x.ndim - 2
    for side in range(2, min(x.shape[2:], default=0)):
        shape = (x.shape[1],) + (side,) * axes
        try:
            net.output_shape(shape)
        except BadInput:
            continue  # a layer does not fit on images of this size
        small = pair_bytes(net, shape, torch.float64) <= _PROBE_BYTES
        return x[(slice(None), slice(None), *(slice(side),) * axes)].contiguous() if small else None
    return None


def _depthwise(layer: Layer, shape: Shape) -> Iterator[bool]:
    """For every layer whether it has one filter for each channel, whose units are no longer Gaussian."""
    if isinstance(layer, Residual):
        layer = layer.sum
    if isinstance(layer, Sum | Product | Concat):
        for branch in layer.branches:
            yield from _depthwise(branch, shape)
    elif isinstance(layer, Sequential | Masked):
        for part in layer.layers:
            yield from _depthwise(part, shape)
            shape = part.output_shape(shape)
    else:
        yield isinstance(layer, Conv) and layer.groups > 1 and layer.groups == shape[0]


def require_memory(place: str, needed: int, allowed: int, remedy: str) -> None:
    if needed > allowed:
        raise BadInput(place, f"needs about {size_text(needed)}, {size_text(allowed)} are allowed", remedy)


def require_range(place: str, moments: Tensor) -> None:
    """Second moments without NaN: behind a norm that overflowed nothing is known."""
    if bool(moments.isnan().any()):
        problem = "norms leave the range of float64 inside the network"
        raise BadInput(place, problem, "use smaller inputs or gains, or an activation that grows less than exp")


def memory_bytes(memory: int | str, place: str = "memory") -> int:
    """Bytes of a number or of a text such as 2 GiB or 500 MB.

    >>> memory_bytes("2 GiB"), memory_bytes("1.5kB"), memory_bytes(800)
    (2147483648, 1500, 800)
    """
    if isinstance(memory, int) and not isinstance(memory, bool) and memory > 0:
        return memory
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?:([kmgt])(i?))?b?\s*", str(memory), re.IGNORECASE)
    size = 0
    if match is not None and not isinstance(memory, bool):
        power = _POWERS[(match[2] or "").lower()]
        size = int(float(match[1]) * (1024 if match[3] else 1000) ** power)
    if size < 1:
        raise BadInput(place, f"got {memory!r}, expected a size", "write for example 2GiB or 500MB")
    return size


def size_text(count: int) -> str:
    """Bytes as people read them.

    >>> size_text(3 * 2**30), size_text(1536), size_text(10)
    ('3.0 GiB', '1.5 KiB', '10 B')
    """
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} B"
