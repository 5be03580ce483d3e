"""neural-tangents: a kernel matrix with its own batching, or by hand each pair once, or (pooled, one layer) on patches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import neural_tangents as nt
import numpy as np
from differ_neural_tangents import translate
from neural_tangents import stax
from serve import serve

DEGREE = 40  # of its own quadrature, which none of the workloads needs


def prepare(setting: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], dict[str, str]]:
    jax.config.update("jax_enable_x64", setting["dtype"] == "f64")
    x = np.load(setting["inputs"]).astype(np.float64 if setting["dtype"] == "f64" else np.float32)
    mode, block, get, count = setting["mode"], setting["block"], setting["get"], len(x)
    kernel = of_layers(setting["layers"], x.shape[1:])
    if mode == "patches":
        x, (_, _, kernel) = patches(x), stax.serial(stax.Dense(1, W_std=2**0.5), stax.Relu())
    elif x.ndim == 4:
        x = x.transpose(0, 2, 3, 1)

    def of_patches(a: Any, b: Any) -> Any:
        whole = kernel(a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]), get)
        return whole.reshape(len(a), a.shape[1], len(b), b.shape[1]).mean((1, 3))

    once = jax.jit(of_patches if mode == "patches" else lambda a, b: kernel(a, b, get))
    batched = nt.batch(lambda a, b=None, get=get: kernel(a, b, get), batch_size=block, store_on_device=True)

    def run(count: int = count) -> Any:
        if mode == "batched":
            return np.asarray(batched(x[:count], None, get))
        out = np.zeros((count, count), x.dtype)
        for i in range(0, count, block):
            for j in range(i, count, block):
                out[i : i + block, j : j + block] = once(x[i : i + block], x[j : j + block])
        return np.triu(out) + np.triu(out, 1).T

    versions = {"neural-tangents": nt.__version__, "jax": jax.__version__, "numpy": np.__version__}
    few = block if mode == "once" else 2 * block  # all blocks that are driven by hand run the same code
    return run, lambda: run(min(count, few)), versions


def of_layers(layers: list[dict[str, Any]], shape: tuple[int, ...]) -> Any:
    """The kernel function; a network that ends in images is compared at equal positions, on average."""
    net, shape = translate(layers, shape, "ntk", DEGREE)
    return stax.serial(net, *([stax.Flatten()] if len(shape) > 1 else []))[2]


def patches(x: Any) -> Any:
    """(n, c, h, w) to the patches of a circular 3x3 convolution, (n, h w, 9 c)."""
    shifted = [np.roll(x, (-r, -c), (2, 3)) for r in (-1, 0, 1) for c in (-1, 0, 1)]
    return np.concatenate(shifted, 1).reshape(len(x), -1, x.shape[2] * x.shape[3]).transpose(0, 2, 1).copy()


if __name__ == "__main__":
    serve(prepare)
