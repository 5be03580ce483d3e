"""initscope: what a neural network does to the geometry of its data before training.

Names are loaded when first used, so that importing the package stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from initscope import (
        activations,
        bounds,
        data,
        finite,
        geometry,
        images,
        layers,
        networks,
        papers,
        probe,
        scale,
        weights,
    )
    from initscope.activations import Activation
    from initscope.bounds import filters_for, width_for
    from initscope.errors import InitscopeError
    from initscope.finite import Estimate, kernel, simulate, simulate_gradients
    from initscope.images import reconstruct, stylize
    from initscope.layers import (
        Activate,
        AveragePool,
        BatchNorm,
        Conv,
        Dense,
        Dropout,
        Flatten,
        GlobalAveragePool,
        GlobalMaxPool,
        GroupNorm,
        L2Pool,
        LayerNorm,
        MaxPool,
        ReLU,
        Upsample,
    )
    from initscope.networks import Concat, Masked, Product, Residual, Sequential, Sum, parse, predict, tangent_kernel
    from initscope.probe import check, fix
    from initscope.scale import kernel_classifier

_ROOMS = (
    "activations",
    "bounds",
    "data",
    "finite",
    "geometry",
    "images",
    "layers",
    "networks",
    "papers",
    "probe",
    "scale",
    "weights",
)
_HOME = {
    "activations": ("Activation",),
    "bounds": ("filters_for", "width_for"),
    "errors": ("InitscopeError",),
    "finite": ("Estimate", "kernel", "simulate", "simulate_gradients"),
    "images": ("reconstruct", "stylize"),
    "layers": (
        "Activate", "AveragePool", "BatchNorm", "Conv", "Dense", "Dropout", "Flatten", "GlobalAveragePool",
        "GlobalMaxPool", "GroupNorm", "L2Pool", "LayerNorm", "MaxPool", "ReLU", "Upsample",
    ),
    "networks": ("Concat", "Masked", "Product", "Residual", "Sequential", "Sum", "parse", "predict", "tangent_kernel"),
    "probe": ("check", "fix"),
    "scale": ("kernel_classifier",),
}  # fmt: skip
_ROOM_OF = {name: room for room, names in _HOME.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "Activate",
    "Activation",
    "AveragePool",
    "BatchNorm",
    "Concat",
    "Conv",
    "Dense",
    "Dropout",
    "Estimate",
    "Flatten",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GroupNorm",
    "InitscopeError",
    "L2Pool",
    "LayerNorm",
    "Masked",
    "MaxPool",
    "Product",
    "ReLU",
    "Residual",
    "Sequential",
    "Sum",
    "Upsample",
    "activations",
    "bounds",
    "check",
    "data",
    "filters_for",
    "finite",
    "fix",
    "geometry",
    "images",
    "kernel",
    "kernel_classifier",
    "layers",
    "networks",
    "papers",
    "parse",
    "predict",
    "probe",
    "reconstruct",
    "scale",
    "simulate",
    "simulate_gradients",
    "stylize",
    "tangent_kernel",
    "weights",
    "width_for",
]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"initscope.{name}")
    if name in _ROOM_OF:
        return getattr(import_module(f"initscope.{_ROOM_OF[name]}"), name)
    raise AttributeError(f"module 'initscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
