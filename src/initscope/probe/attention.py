"""How sharp attention is: the share of queries that look at one key only, where the softmax has next to no derivative."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

SURE = 0.99  # of the weight on one key
SAMPLES, QUERIES = 2, 64  # that are looked at where the weights have to be computed for it


def sharpness(function: str, args: Any, keywords: dict[str, Any]) -> float | None:
    """From the arguments of a softmax over keys or of a fused attention; None for other calls, and where nothing can be said.

    >>> scores = torch.tensor([[[0.0, 100.0], [0.0, 0.1]]])
    >>> sharpness("softmax", (scores, -1), {})
    0.5
    """
    if not args or not isinstance(args[0], Tensor) or not args[0].is_floating_point():
        return None
    with torch.no_grad():
        scores = _scores(function, args, keywords)
        return None if scores is None else _share(scores)


def _scores(function: str, args: Any, keywords: dict[str, Any]) -> Tensor | None:
    if function == "softmax":
        axis = keywords.get("dim", args[1] if len(args) > 1 else None)
        over_keys = args[0].ndim > 2 and axis is not None and axis % args[0].ndim == args[0].ndim - 1
        return args[0].detach()[:SAMPLES] if over_keys else None
    if function == "scaled_dot_product_attention" and len(args) > 1:
        mask = keywords.get("attn_mask", args[3] if len(args) > 3 else None)
        causal = bool(keywords.get("is_causal", args[5] if len(args) > 5 else False))
        if isinstance(mask, Tensor):
            return None  # masked keys would have to be followed; the softmax of written-out attention shows them
        return _products(args[0], args[1], keywords.get("scale"), causal)
    if function == "multi_head_attention_forward" and len(args) > 6 and isinstance(args[5], Tensor):
        return _fused(args)
    return None


def _products(query: Tensor, key: Tensor, scale: float | None, causal: bool) -> Tensor | None:
    """(samples, ..., queries, keys); of causal attention the last queries, which see most keys."""
    if query.ndim < 3 or query.shape[-3] != key.shape[-3]:
        return None
    query = query.detach()[:SAMPLES][..., -QUERIES:, :].float()
    scores = query @ key.detach()[:SAMPLES].float().transpose(-1, -2)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if causal and scores.shape[-1] >= scores.shape[-2]:
        rows, keys = scores.shape[-2:]
        later = torch.ones(rows, keys, dtype=torch.bool, device=scores.device).triu(keys - rows + 1)
        scores = scores.masked_fill(later, -math.inf)
    return scores


def _fused(args: Any) -> Tensor | None:
    """Sequence first: (length, samples, width), and the projections of queries and keys in one matrix."""
    query, key, heads, weight, bias = args[0], args[1], args[4], args[5], args[6]
    if query.ndim != 3:
        return None
    width = query.shape[-1]
    shift = [None, None] if bias is None else [bias.detach()[:width], bias.detach()[width : 2 * width]]
    sides = []
    for values, block, offset in zip((query, key), weight.detach().split(width)[:2], shift, strict=True):
        side = torch.nn.functional.linear(values.detach()[:, :SAMPLES], block, offset)
        sides.append(side.reshape(*side.shape[:2], heads, -1).permute(1, 2, 0, 3))  # samples, heads, length, width
    return _products(sides[0], sides[1], None, False)


def _share(scores: Tensor) -> float | None:
    """Of the queries that see at least two keys."""
    seen = torch.isfinite(scores).sum(-1) > 1
    if not bool(seen.any()):
        return None
    top = torch.softmax(scores.float(), -1).amax(-1)[seen]
    return float((top > SURE).double().mean())
