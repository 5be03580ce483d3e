"""Random networks over the layers that initscope and neural-tangents share, as plain data that both translate.

A network is a list of layers, each a dict with "op" and its numbers; "sum" and "cat" have lists of layers as branches (an empty
one is a skip). Needs only numpy, so it runs in the environment of every peer. The rules are those under which both sides have
an exact answer: activations and layer norm act on Gaussian units, a skip is added only to Gaussian units, weights follow a
concatenation. Strides are drawn only where "same" padding means the same window on both sides (neural-tangents takes
TensorFlow's rule, which shifts the window with the size of the image).
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

Node = dict[str, Any]
Network = dict[str, Any]

IMAGES = ((3, 4, 4), (2, 5, 4), (3, 5, 5), (1, 6, 6))
VECTORS = ((5,), (12,))
SMALLEST_SCALE = 1e-3  # of an input, by the largest one: norm ratios up to 1000
# Name and the numbers it may have; "growing" ones have variances that explode when they follow each other.
HOMOGENEOUS = (
    ("relu", ()), ("relu", ()), ("relu", ()), ("leaky", (0.2,)), ("leaky", (-0.5,)), ("abs", ()), ("abrelu", (0.3, 1.7)),
    ("identity", ()), ("sign", ()), ("step", ()),
)  # fmt: skip
BOUNDED = (
    ("erf", ()), ("erf", ()), ("sin", ()), ("cos", ()), ("gaussian", ()), ("rbf", (0.5,)), ("rbf", (1.5,)), ("gabor", ()),
    ("sigmoid_like", ()),
)  # fmt: skip
OTHERS = (("gelu", ()), ("gelu", ()))
GROWING = (
    ("exp", ()), ("poly", (0.3, 1.0, 0.5)), ("poly", (0.0, 1.0, 0.0, -0.3)), ("poly", (0.1, 0.0, 0.0, 0.2, 0.05)),
    ("monomial", (2,)), ("monomial", (3,)), ("relupower", (2,)), ("relupower", (3,)),
)  # fmt: skip
NUMERICAL = (("tanh", ()), ("sigmoid", ()), ("silu", ()), ("softplus", ()))
HERMITE = (("hermite", (2,)), ("hermite", (3,)))


class Writer:
    """Draws one network, keeping account of the shape and of what the units are so far."""

    def __init__(self, rng: random.Random, shape: tuple[int, ...]) -> None:
        self.rng, self.size = rng, shape[1:]
        self.gaussian, self.growing, self.numerical = False, False, rng.random() < 0.15
        self.biased = rng.random() < 0.5
        self.pools = rng.random() < 0.5
        self.fixed_width = rng.randint(16, 64)

    def weights(self) -> Node:
        bias = round(self.rng.uniform(0.05, 0.6), 3) if self.biased and self.rng.random() < 0.8 else 0.0
        return {"w": round(self.rng.uniform(0.7, 1.5), 3), "b": bias, "width": self.fixed_width}

    def dense(self) -> list[Node]:
        self.size, self.gaussian = (), True
        return [{"op": "dense", **self.weights()}]

    def conv(self, keep_size: bool = False) -> list[Node]:
        kernels = [k for k in ((3, 3), (3, 3), (1, 1), (2, 2), (1, 3), (3, 2)) if all(map(int.__le__, k, self.size))]
        padding = self.rng.choice(
            ("circular", "circular", "zero") if keep_size else ("circular", "circular", "zero", "valid")
        )
        kernel = self.rng.choice(kernels)
        strides = [(1, 1)] if keep_size else [(1, 1), (1, 1), (2, 2), (2, 1)]
        stride = self.rng.choice([s for s in strides if self._same(kernel, s, padding)])
        self.gaussian = True
        self.size = tuple(
            (n - k) // s + 1 if padding == "valid" else -(-n // s)
            for n, k, s in zip(self.size, kernel, stride, strict=True)
        )
        node = {"op": "conv", "kernel": kernel, "stride": stride, "padding": padding, **self.weights()}
        return [node]

    def _same(self, kernel: tuple[int, int], stride: tuple[int, int], padding: str) -> bool:
        """Whether TensorFlow's padding, which depends on the size and the stride, is that of stride 1."""
        if padding == "valid":
            return True
        for n, k, s in zip(self.size, kernel, stride, strict=True):
            total = max((-(-n // s) - 1) * s + k - n, 0)
            if (total // 2, total - total // 2) != ((k - 1) // 2, k - 1 - (k - 1) // 2):
                return False
        return True

    def linear(self, keep_size: bool = False) -> list[Node]:
        return self.conv(keep_size) if self.size else self.dense()

    def activation(self) -> list[Node]:
        if not self.gaussian:
            return []
        groups = [HOMOGENEOUS, HOMOGENEOUS, BOUNDED, BOUNDED, OTHERS]
        groups += [] if self.growing else [GROWING]
        small = not self.size or np.prod(self.size) <= 16
        if self.numerical and small and not self.growing:
            groups = [NUMERICAL]
        elif self.rng.random() < 0.04:
            groups = [HERMITE]
        name, numbers = self.rng.choice(self.rng.choice(groups))
        self.growing = self.growing or (name, numbers) in GROWING or name == "hermite"
        self.gaussian = False
        node = {"op": "act", "name": name, "numbers": list(numbers)}
        # neural-tangents has Hermite polynomials for units of variance one.
        return [{"op": "ln", "over": "channels", "epsilon": 0.0}, node] if name == "hermite" else [node]

    def norm(self) -> list[Node]:
        over = self.rng.choice(("all", "channels")) if self.size else "channels"
        return [{"op": "ln", "over": over, "epsilon": self.rng.choice((1e-5, 1e-3))}] if self.gaussian else []

    def pool(self) -> list[Node]:
        window = 2
        if not self.size or min(self.size) < window:
            return []
        stride = self.rng.choice((1, 2))
        self.size = tuple((n - window) // stride + 1 for n in self.size)
        return [{"op": "avgpool", "window": window, "stride": stride}]

    def up(self) -> list[Node]:
        if not self.size or np.prod(self.size) > 9:
            return []
        self.size = tuple(2 * n for n in self.size)
        return [{"op": "up", "factor": 2}]

    def dropout(self) -> list[Node]:
        self.gaussian = False
        return [{"op": "dropout", "p": self.rng.choice((0.1, 0.5))}]

    def block(self) -> list[Node]:
        """Branches that end in weights, added up or side by side; at most one is a skip."""
        before, size = self.growing, self.size
        skip_allowed = self.gaussian
        branches: list[list[Node]] = []
        for _ in range(2):
            self.gaussian, self.growing, self.size = skip_allowed, before, size
            inner = self.activation() if self.rng.random() < 0.7 else []
            inner += self.linear(keep_size=True)
            if self.rng.random() < 0.4:
                inner += self.activation() + self.linear(keep_size=True)
            branches.append(inner)
        self.gaussian, self.growing, self.size = True, True, size
        if not size:
            self.size = ()
        if self.rng.random() < 0.35:
            self.gaussian = False
            return [{"op": "cat", "branches": branches}, *self.linear()]
        if skip_allowed and self.rng.random() < 0.6:
            branches[0] = []
        if self.rng.random() < 0.3:
            branches[1] = [*branches[1], {"op": "scale", "factor": self.rng.choice((0.5, -1.5))}]
        return [{"op": "sum", "branches": branches}]

    def body(self) -> list[Node]:
        layers: list[Node] = []
        for _ in range(self.rng.randint(1, 4)):
            layers += self.linear()
            draw = self.rng.random()
            if draw < 0.15:
                layers += self.norm()
            elif draw < 0.35:
                layers += self.block()
            elif draw < 0.45 and self.pools:
                layers += self.pool()
            if self.rng.random() < 0.9:
                layers += self.activation()
            draw = self.rng.random()
            if draw < 0.2 and self.pools:
                layers += self.pool()
            elif draw < 0.24:
                layers += self.up()
            elif draw < 0.28:
                layers += self.dropout()
        return layers

    def head(self) -> list[Node]:
        layers: list[Node] = []
        if self.size:
            layers += [{"op": "gap" if self.pools and self.rng.random() < 0.8 else "flatten"}]
            self.gaussian = self.gaussian and layers[0]["op"] == "gap"
            self.size = ()
        if self.rng.random() < 0.3:
            layers += self.activation() + self.dense() + self.activation()
        return layers + (self.dense() if self.rng.random() < 0.6 else [])


def network(seed: int, index: int) -> Network:
    """The network of that number, its inputs (in the order channels, height, width) included."""
    rng = random.Random(f"{seed}/{index}")
    shape = rng.choice(IMAGES) if rng.random() < 0.65 else rng.choice(VECTORS)
    writer = Writer(rng, shape)
    layers = writer.body()
    layers += writer.head()
    parametrization = "standard" if rng.random() < 0.25 else "ntk"
    tame = any(node["name"] in GROWING_NAMES for node in activations(layers))
    inputs = draw_inputs(rng, shape, 1.0 if tame else rng.choice((1.0, 1.0, 0.1, 10.0)))
    return {
        "index": index,
        "shape": list(shape),
        "layers": layers,
        "parametrization": parametrization,
        "inputs": inputs,
    }


GROWING_NAMES = {name for name, _ in (*GROWING, *NUMERICAL)}


def draw_inputs(rng: random.Random, shape: tuple[int, ...], scale: float) -> list[Any]:
    """Four inputs that float32 holds exactly: two of one size, one related to the first, one up to 1000 times smaller."""
    gen = np.random.default_rng(rng.getrandbits(32))
    x = gen.standard_normal((4, *shape))
    related = rng.choice(("free", "free", "near", "near", "parallel", "opposite", "dark"))
    if related == "near":
        x[2] = x[0] + 10 ** rng.uniform(-5, -1) * x[2]
    elif related == "parallel":
        x[2] = rng.choice((0.5, 2.0)) * x[0]
    elif related == "opposite":
        x[2] = -x[0]
    elif related == "dark":
        x[2] *= gen.random(shape) < 0.2
        x[2].flat[0] = 0.5
    x[3] *= SMALLEST_SCALE ** rng.random()
    return (scale * x).astype(np.float32).tolist()


def activations(layers: list[Node]) -> list[Node]:
    return [node for node in every(layers) if node["op"] == "act"]


def every(layers: list[Node]) -> list[Node]:
    """All layers, those of branches included."""
    found = []
    for node in layers:
        found.append(node)
        for branch in node.get("branches", ()):
            found += every(branch)
    return found


def kinds(layers: list[Node]) -> set[str]:
    """What a network is made of, for the table."""
    found = set()
    for node in every(layers):
        name = node["name"] if node["op"] == "act" else node["op"]
        if node["op"] == "conv":
            found.add(f"conv {node['padding']}")
            name = "conv strided" if tuple(node["stride"]) != (1, 1) else "conv"
        if node["op"] == "sum" and [] in node["branches"]:
            name = "residual"
        found.add(name)
        if node.get("b"):
            found.add("bias")
    return found


def text(layers: list[Node]) -> str:
    """One line, in the words of initscope's architecture language where it has them."""
    return " ".join(_word(node) for node in layers)


def _word(node: Node) -> str:
    op = node["op"]
    if op == "act":
        return node["name"] + (f"({', '.join(f'{n:g}' for n in node['numbers'])})" if node["numbers"] else "")
    if op in ("sum", "cat"):
        return f"{op}({' | '.join(text(branch) for branch in node['branches'])})"
    if op in ("dense", "conv"):
        name = "dense" if op == "dense" else f"conv{_size(node['kernel'])}"
        if op == "conv" and tuple(node["stride"]) != (1, 1):
            name += f"/{_size(node['stride'])}"
        options = [node["padding"]] if op == "conv" and node["padding"] != "circular" else []
        options += [f"{letter}={node[letter]:g}" for letter in "wb" if node[letter]]
        return f"{name}({', '.join(options)})"
    if op == "avgpool":
        return f"avgpool{node['window']}" + ("" if node["stride"] == node["window"] else f"/{node['stride']}")
    if op == "ln":
        return f"ln({node['over']}, {node['epsilon']:g})"
    return op + {"up": "{factor}", "scale": "({factor})", "dropout": "({p})"}.get(op, "").format(**node)


def _size(pair: tuple[int, int]) -> str:
    return f"{pair[0]}" if pair[0] == pair[1] else f"{pair[0]}x{pair[1]}"
