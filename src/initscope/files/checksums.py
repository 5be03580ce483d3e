"""Checksums: a byte that changes on the disk is found when the file is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "seal"  # where a sealed JSON object or a sealed safetensors file keeps its checksum


def checksum(*contents: bytes | memoryview) -> str:
    """SHA-256 of the contents, one after the other.

    >>> checksum(b"ab") == checksum(b"a", b"b")
    True
    """
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content as JSON gives it back, with its checksum under "seal".

    >>> found = sealed({"tile": (0, 1), "sum": 0.5})
    >>> is_whole(found), is_whole({**found, "sum": 0.25}), is_whole({"tile": [0, 1]})
    (True, False, False)
    """
    read_back = json.loads(json.dumps({name: value for name, value in content.items() if name != SEAL}))
    return {**read_back, SEAL: _digest(read_back)}


def is_whole(content: Mapping[str, Any]) -> bool:
    """Whether what was read from a file is what `sealed` made."""
    return content.get(SEAL) == _digest({name: value for name, value in content.items() if name != SEAL})


def _digest(content: Mapping[str, Any]) -> str:
    return checksum(json.dumps(content, sort_keys=True).encode())
