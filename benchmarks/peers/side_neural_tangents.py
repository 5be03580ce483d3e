"""neural-tangents: a kernel matrix with its own batching, or by hand each pair once, or (pooled, one layer) on patches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from serve import serve


def prepare(setting: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], dict[str, str]]:
    jax.config.update("jax_enable_x64", setting["dtype"] == "f64")
    import neural_tangents as nt
    from neural_tangents import stax

    x = np.load(setting["inputs"]).astype(np.float64 if setting["dtype"] == "f64" else np.float32)
    pooled, mode, block, get = setting["kind"] == "pooled", setting["mode"], setting["block"], setting["get"]
    if mode == "patches":
        x = patches(x)
    elif x.ndim == 4:
        x = x.transpose(0, 2, 3, 1)
    dense = setting["kind"] == "dense" or mode == "patches"
    weights = stax.Dense(1, W_std=2**0.5) if dense else stax.Conv(1, (3, 3), padding="CIRCULAR", W_std=2**0.5)
    last = [] if dense else [stax.GlobalAvgPool() if pooled else stax.Flatten()]
    _, _, kernel = stax.serial(*[weights, stax.Relu()] * setting["depth"], *last)
    count = len(x)

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
    return run, lambda: run(min(count, 2 * block)), versions


def patches(x: Any) -> Any:
    """(n, c, h, w) to the patches of a circular 3x3 convolution, (n, h w, 9 c)."""
    shifted = [np.roll(x, (-r, -c), (2, 3)) for r in (-1, 0, 1) for c in (-1, 0, 1)]
    return np.concatenate(shifted, 1).reshape(len(x), -1, x.shape[2] * x.shape[3]).transpose(0, 2, 1).copy()


if __name__ == "__main__":
    serve(prepare)
