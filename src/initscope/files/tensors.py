"""Tensors on disk: safetensors files that carry their own checksum, which every other reader of the format ignores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from initscope.errors import BadInput, first_line
from initscope.files.checksums import SEAL


def sealed_tensors(tensors: Mapping[str, Tensor], schema: str, about: Mapping[str, Any]) -> bytes:
    """The content of a safetensors file: the tensors, and `about` with the checksum of both as JSON under `schema`.

    The same content has the same bytes: safetensors writes several entries of metadata in any order, so this is one.
    """
    held = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    return save(held, {schema: json.dumps({"about": about, SEAL: tensor_digest(held, schema, json.dumps(about))})})


def read_tensors(path: Path, schema: str, what: str, remedy: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and `about` of a file that `sealed_tensors` made; BadInput for any other and for a damaged one.

    `what` is what the file should be ("checkpoint of a decoder"), `remedy` what to do without it.
    """
    try:
        with safe_open(path, "pt") as stored:
            kept = json.loads((stored.metadata() or {})[schema])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 no iteration over the file
        about, seal = kept["about"], kept[SEAL]
    except Exception as error:  # damage makes the reader of the format raise almost anything
        raise BadInput(str(path), f"is no {what} ({first_line(error)})", remedy) from error
    if tensor_digest(tensors, schema, json.dumps(about)) != seal:
        raise BadInput(str(path), "is damaged: its checksum does not match its content", remedy)
    return tensors, about


def tensor_digest(tensors: Mapping[str, Tensor], *texts: str) -> str:
    """SHA-256 of texts and of tensors by their names, types, shapes and bytes.

    >>> one = tensor_digest({"a": torch.zeros(2), "b": torch.ones(1)})
    >>> one == tensor_digest({"b": torch.ones(1), "a": torch.zeros(2)}), one == tensor_digest({"a": torch.zeros(3)})
    (True, False)
    """
    digest = hashlib.sha256(json.dumps(texts).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
