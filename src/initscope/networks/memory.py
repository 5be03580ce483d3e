"""How much memory a computation may use, and how much a propagation needs."""

from __future__ import annotations

import os
from pathlib import Path

import torch

SHARE = 0.25  # of the free memory, where the caller gives no budget


def budget(memory: int | None, device: torch.device) -> int:
    """Bytes that may be used: the caller's number, or a quarter of what is free."""
    if memory is not None:
        return memory
    return int(free_memory(device) * SHARE)


def free_memory(device: torch.device) -> int:
    """Free bytes on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    info = Path("/proc/meminfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def pair_bytes(positions: int, all_positions: bool, dtype: torch.dtype) -> int:
    """Peak bytes that one pair of inputs needs on its way through any layer: the state, its successor, temporaries."""
    width = torch.finfo(dtype).bits // 8
    return width * (14 * positions * positions if all_positions else 12 * positions)
