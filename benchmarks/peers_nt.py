"""neural-tangents beside initscope on the same inputs, in the same run: W1 and W3 with 16 images.

    python benchmarks/peers_nt.py [--repeats N] [--folder build/peer-nt]

The peer lives in its own virtual environment, made on first use: neural-tangents 0.6.5 needs jax and jaxlib 0.5.3 and
tf2jax 0.3.6. The two sides take turns, so that noise meets both. The peer runs in float32 and float64 with its own
batching, and by hand each pair once (blocks of the upper triangle); its best time is the one compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from kernels import WORKS, compute, make_inputs, seconds_of

PACKAGES = ("jax==0.5.3", "jaxlib==0.5.3", "tf2jax==0.3.6", "neural-tangents==0.6.5")
TIMED = ("W1", "W3 16")

PEER = """
import json, sys, time
import numpy as np
name, path, double, mode, repeats = sys.argv[1], sys.argv[2], sys.argv[3] == "f64", sys.argv[4], int(sys.argv[5])
import jax
jax.config.update("jax_enable_x64", double)
import neural_tangents as nt
from neural_tangents import stax
x = np.load(path).transpose(0, 2, 3, 1).astype(np.float64 if double else np.float32)
last = stax.GlobalAvgPool() if name.startswith("W3") else stax.Flatten()
_, _, kernel = stax.serial(stax.Conv(1, (3, 3), padding="CIRCULAR", W_std=2**0.5), stax.Relu(), last)
n = len(x)
block = {"W1": 50, "W3 16": 2}[name]
once = jax.jit(lambda a, b: kernel(a, b, "nngp"))
batched = nt.batch(lambda a, b=None, get="nngp": kernel(a, b, get), batch_size=block, store_on_device=True)

def run():
    if mode == "batched":
        return np.asarray(batched(x, None, "nngp"))
    out = np.zeros((n, n), x.dtype)
    for i in range(0, n, block):
        for j in range(i, n, block):
            out[i : i + block, j : j + block] = once(x[i : i + block], x[j : j + block])
    return np.triu(out) + np.triu(out, 1).T

run()
times = []
for _ in range(repeats):
    start = time.perf_counter()
    answer = run()
    times.append(time.perf_counter() - start)
print(json.dumps({"seconds": times, "corner": np.asarray(answer, np.float64)[:4, :4].tolist()}))
"""


def peer_python(folder: Path) -> Path:
    """The interpreter of the peer's environment, made if it is not there."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        (folder / "ready").touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("build/peer-nt"))
    arguments = parser.parse_args()
    python = peer_python(arguments.folder)
    for work in (work for work in WORKS if work.name in TIMED):
        x = make_inputs(work)
        answer = compute(work, x)
        ours, theirs = [], {}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.npy"
            np.save(path, x.numpy())
            for dtype in ("f32", "f64"):
                for mode in ("batched", "once"):
                    ours += seconds_of(lambda work=work, x=x: compute(work, x), arguments.repeats)
                    command = [str(python), "-c", PEER, work.name, str(path), dtype, mode, str(arguments.repeats)]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    peer = json.loads(done.stdout.splitlines()[-1])
                    least = theirs[f"{dtype} {mode}"] = min(peer["seconds"])
                    corner = answer[:4, :4].double().numpy()
                    apart = np.abs(np.array(peer["corner"]) / corner - 1).max()
                    print(f"{work.name} peer {dtype} {mode}: {least:.3f} s, entries differ by {apart:.1e}")
        ours += seconds_of(lambda work=work, x=x: compute(work, x), arguments.repeats)
        best = min(theirs, key=lambda key: theirs[key])
        ratio = theirs[best] / min(ours)
        print(
            f"{work.name} ours f32: {min(ours):.3f} s (most {max(ours):.3f}); peer's best ({best}) / ours = {ratio:.1f}"
        )


if __name__ == "__main__":
    main()
