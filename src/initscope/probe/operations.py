"""What the functions of the torch API do, by name: the table that tracing, diagnosis and theory read.

A function is known by the last part of its name, so `F.relu`, `torch.relu`, `Tensor.relu_` and the module `ReLU` are one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from torch.overrides import resolve_name

from initscope.errors import BadInput

Kind = Literal[
    "dense", "conv", "activation", "pooling", "norm", "residual", "concat", "attention", "embedding",
    "dropout", "scale", "gate", "shift", "select", "recurrent", "other",
]  # fmt: skip
KINDS: tuple[str, ...] = Kind.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Operation:
    """One row: the kind of a call, and how the tracer treats it.

    `alone`: the kind where only one of the operands depends on the data (`x + y` is a residual, `x + bias` a shift);
    `same_values`: a view or a copy, not a step of its own; `constant`: the data lend their shape only; `limits`: the range
    of an activation that saturates.
    """

    kind: Kind
    alone: Kind | None = None
    same_values: bool = False
    constant: bool = False
    limits: tuple[float, float] | None = None

    def kind_for(self, operands: int) -> Kind:
        return self.alone if self.alone is not None and operands < 2 else self.kind


_OTHER = Operation("other")
_VIEW = Operation("other", same_values=True)
_ROWS: dict[str, Operation] = {
    **dict.fromkeys(("linear", "addmm", "addbmm", "bilinear"), Operation("dense")),
    **dict.fromkeys(("matmul", "mm", "bmm", "baddbmm", "einsum"), Operation("attention", alone="dense")),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), Operation("conv")
    ),
    **dict.fromkeys(
        ("relu", "leaky_relu", "prelu", "rrelu", "gelu", "silu", "elu", "celu", "selu", "mish", "softplus", "hardswish",
         "threshold", "glu", "logsigmoid", "abs", "sin", "cos", "erf", "exp", "hardshrink", "softshrink", "tanhshrink",
         "sinc", "sinh", "cosh", "asinh", "atan", "exp2", "expm1", "erfc", "sqrt", "pow", "square", "log", "log1p",
         "maximum", "minimum", "clamp", "clamp_min", "clamp_max"),
        Operation("activation"),
    ),
    **dict.fromkeys(("tanh", "hardtanh", "softsign"), Operation("activation", limits=(-1.0, 1.0))),
    **dict.fromkeys(("sigmoid", "hardsigmoid"), Operation("activation", limits=(0.0, 1.0))),
    **dict.fromkeys(("rnn_tanh", "gru"), Operation("recurrent", limits=(-1.0, 1.0))),
    **dict.fromkeys(("lstm", "rnn_relu", "lstm_cell", "rnn_relu_cell"), Operation("recurrent")),
    **dict.fromkeys(("rnn_tanh_cell", "gru_cell"), Operation("recurrent", limits=(-1.0, 1.0))),
    "relu6": Operation("activation", limits=(-float("inf"), 6.0)),
    **dict.fromkeys(
        (*(f"{adaptive}{how}_pool{d}d{also}" for adaptive in ("", "adaptive_") for how in ("avg", "max")
           for d in (1, 2, 3) for also in ("", "_with_indices")),
         "lp_pool1d", "lp_pool2d", "lp_pool3d", "mean", "amax", "sum", "max", "logsumexp"),
        Operation("pooling"),
    ),
    **dict.fromkeys(
        ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm", "normalize"),
        Operation("norm"),
    ),
    **dict.fromkeys(("add", "iadd", "radd", "sub", "isub", "rsub"), Operation("residual", alone="shift")),
    **dict.fromkeys(("cat", "concat", "stack", "hstack", "vstack"), Operation("concat")),
    **dict.fromkeys(("mul", "imul", "rmul", "div", "idiv", "rdiv", "truediv", "neg"), Operation("gate", alone="scale")),
    **dict.fromkeys(("scaled_dot_product_attention", "softmax", "multi_head_attention_forward"), Operation("attention")),
    **dict.fromkeys(
        ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"), Operation("dropout")
    ),
    **dict.fromkeys(("embedding", "embedding_bag"), Operation("embedding")),
    **dict.fromkeys(("getitem", "narrow", "select", "index_select", "gather", "take_along_dim", "masked_select"),
                    Operation("select")),
    **dict.fromkeys(
        ("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel", "transpose", "swapaxes", "permute",
         "movedim", "t", "T", "mT", "contiguous", "clone", "detach", "to", "type", "type_as", "float", "double", "half",
         "bfloat16", "unsqueeze", "squeeze", "expand", "expand_as", "repeat", "chunk", "split", "unbind", "roll", "pad",
         "flip", "requires_grad", "channel_shuffle", "pixel_shuffle", "pixel_unshuffle", "identity", "data", "fold",
         "set", "as_tensor", "cpu", "cuda", "unfold", "split_with_sizes", "tensor_split", "tile"),
        _VIEW,
    ),
    **dict.fromkeys(
        (*(f"new_{what}" for what in ("zeros", "ones", "empty", "full", "tensor")),
         *(f"{what}_like" for what in ("zeros", "ones", "empty", "full", "rand", "randn", "randint"))),
        Operation("other", constant=True),
    ),
    "setitem": Operation("concat", alone="select"),
    "log_softmax": Operation("activation"),
}  # fmt: skip


# Functions that torch has under two names; `torch.mm` itself says that it is `spmm`.
_OTHER_NAMES = {
    "spmm": "mm",
    "itruediv": "idiv",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "absolute": "abs",
    "clip": "clamp",
    "concatenate": "cat",
    "swapdims": "swapaxes",
    "log_sigmoid": "logsigmoid",
    "arctan": "atan",
    "arcsinh": "asinh",
    "expit": "sigmoid",
}
_RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("relu", "softplus", "exp", "abs", "square", "sqrt", "threshold"), (0.0, float("inf"))),
    **dict.fromkeys(("softmax", "gumbel_softmax"), (0.0, 1.0)),
    **dict.fromkeys(("log_softmax", "logsigmoid"), (-float("inf"), 0.0)),
    **dict.fromkeys(("sin", "cos", "erf"), (-1.0, 1.0)),
    "relu6": (0.0, 6.0),
    "elu": (-1.0, float("inf")),
}


def range_of(function: str) -> tuple[float, float]:
    """The values that a function can take, whatever goes in; all numbers where that is not known.

    >>> range_of("relu"), range_of("tanh"), range_of("linear")
    ((0.0, inf), (-1.0, 1.0), (-inf, inf))
    """
    row = _ROWS.get(function, _OTHER)
    limits = row.limits if row.kind == "activation" and row.limits is not None else (-float("inf"), float("inf"))
    return _RANGES.get(function, limits)


def operation_of(function: Any) -> Operation:
    """The row of a function, a tensor method or a module class; what is not in the table is of the kind "other".

    >>> import torch
    >>> operation_of(torch.relu).kind, operation_of(torch.Tensor.view).same_values
    ('activation', True)
    """
    return _ROWS.get(short_name(function), _OTHER)


@lru_cache(maxsize=4096)
def short_name(function: Callable[..., Any] | type | str) -> str:
    """`relu` for `torch.nn.functional.relu`, `torch.Tensor.relu_` and `nn.ReLU`."""
    if isinstance(function, type):
        return function.__name__.lower()
    full = function if isinstance(function, str) else resolve_name(function) or getattr(function, "__name__", "")
    parts = [part for part in full.split(".") if part not in ("__get__", "__set__")]
    name = parts[-1].strip("_") if parts else ""
    return _OTHER_NAMES.get(name, name)


def register_operation(name: str, kind: Kind) -> None:
    """Teach the tracer what a function called `name` is; it wins over the built-in table.

    >>> register_operation("my_swish", kind="activation")
    """
    if kind not in KINDS:
        raise BadInput("register_operation", f"kind is {kind!r}", f"use one of {', '.join(KINDS)}")
    _ROWS[short_name(name)] = Operation(kind)
