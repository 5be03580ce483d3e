"""The workloads, what is aimed at, and the settings that each peer is tried with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

CIRCULAR, ZERO = "", "(padding=zero)"
TINY = {"images": 4, "side": 12, "width": 24}  # of a trial of the harness


@dataclass(frozen=True)
class Work:
    """All pairs of some inputs through a network; the first images or vectors of one seeded draw."""

    name: str
    kind: str  # "same", "pooled", "dense", as in benchmarks/kernels.py
    inputs: int
    depth: int
    what: str
    target: float | None  # peer's time over ours
    get: str = "nngp"
    padding: str = CIRCULAR
    peer: str = "neural-tangents"
    blocks: tuple[int, ...] = ()  # inputs along one side of a block; the middle one is tried in every mode first
    rounds: int = 5  # in which both sides take turns
    stops: str = ""  # what keeps ours from being faster
    text: str = ""  # the network, where it is no stack of one layer and ReLU

    @property
    def net(self) -> str:
        if self.text:
            return self.text
        layer = "dense(1) relu" if self.kind == "dense" else f"conv3{self.padding} relu"
        return f"{self.depth}x({layer}){' gap' if self.kind == 'pooled' else ''}"

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Every dtype and mode with the middle block; what is usually fastest comes first, so that the rest need not finish."""
        modes = ("once",) if self.peer == "cnn-gp's method" else ("once", "batched")
        types = ("f64", "f32") if self.kind == "pooled" else ("f32", "f64")
        middle = self.blocks[len(self.blocks) // 2]
        return [{"dtype": dtype, "mode": mode, "block": middle} for mode in modes for dtype in types]


LOOPS = "vector units: a root and about 30 operations for each pair of positions and layer, which wait for each other"
ONE = "vector units: a root and about 25 operations for each pair of positions, then only sums; with few images the start counts"
ROWS = (
    "vector units, then loads and stores of the first cache: a root and about 25 operations for each pair of positions"
)
BOTH = "as its twin; the root is shared, two polynomials and two sums over taps instead of one"
BENT = "as its twin, with a longer polynomial and distances instead of products"

FORMULAS = "vector units: two roots, an arcsine and about 60 operations for each pair of positions and layer"
FEW_PAIRS = "as for W7; two fifths of the time go into norms and numbers of the inputs, which serve 200 pairs each"
PRODUCT = "the product of the inputs takes two thirds of the time"
BRANCHES = "vector units; copies and sums of branches, which the second cache holds"
POOLS = "the store of pairs of windows, which is larger than the caches"
NORMED = "vector units; a step more for each norm"
WIDE = "vector units in float64, with half as many lanes, and registers larger than the second cache"
ACTIVATIONS = ("gelu", "erf")
POOLED, SAME, DENSE = (1, 2, 4, 8), (20, 40, 100), (125, 250, 500, 1000)  # blocks


def stack(name: str, act: str) -> str:
    """The networks of W7, W8 and W9; SELU has the weights it is made for, others those of He."""
    init = "init=lecun" if act == "selu" else ""
    conv, dense = f"conv3({init})" if init else "conv3", f"dense(1{', ' * bool(init)}{init})"
    return {"W7": f"3x({conv} {act}) gap", "W8": f"10x({conv} {act})", "W9": f"10x({dense} {act})"}[name]


def _off_relu() -> Iterator[Work]:
    for act in ACTIVATIONS:
        yield Work(f"W7 {act}", "pooled", 16, 3, f"three conv3 + {act} + average, 16 images", 20, blocks=POOLED,
                   rounds=2, stops=FORMULAS, text=stack("W7", act))  # fmt: skip
    for act in ACTIVATIONS:
        yield Work(f"W8 {act}", "same", 200, 10, f"ten conv3 + {act}, 200 images", 8, blocks=SAME, rounds=3,
                   stops=FEW_PAIRS, text=stack("W8", act))  # fmt: skip
    for act in ACTIVATIONS:
        yield Work(f"W9 {act}", "dense", 2000, 10, f"ten dense + {act}, 2000 vectors", 2, blocks=DENSE,
                   stops=PRODUCT, text=stack("W9", act))  # fmt: skip


def _networks() -> Iterator[Work]:
    def one(name: str, depth: int, what: str, target: float, text: str, stops: str) -> Work:
        return Work(name, "pooled", 16, depth, what, target, blocks=POOLED, rounds=2, stops=stops, text=text)

    yield one(
        "W11", 7, "conv3, six residual ReLU + conv3, average, 16 images", 40, "conv3 6x(res(relu conv3)) gap", BRANCHES
    )
    yield one(
        "W12", 3, "three conv3 + ReLU + average pool, average, 16 images", 20, "3x(conv3 relu avgpool2) gap", POOLS
    )
    yield one("W13", 6, "layer norm, biases, dense head, 16 images", 10,
              "conv3(bias=0.1) 3x(ln relu conv3(bias=0.1)) gap dense(bias=0.1) relu dense", NORMED)  # fmt: skip


def _tangents() -> Iterator[Work]:
    for twin in (*_off_relu(), *_networks()):
        if twin.name.split()[0] in ("W7", "W8", "W11"):
            stops = WIDE if twin.name == "W11" else BOTH
            yield replace(
                twin, name=f"W14 of {twin.name}", what=f"tangent kernel of {twin.name}", get="ntk", stops=stops
            )


WORKS = (
    Work("W1", "same", 500, 1, "conv3 + ReLU, 500 images", 12, blocks=(25, 50, 100), stops=ONE),
    Work("W2", "same", 200, 10, "ten conv3 + ReLU, 200 images", 12, blocks=(20, 40, 100), stops=LOOPS),
    Work("W3 16", "pooled", 16, 1, "conv3 + ReLU + average, 16 images", 80, blocks=(1, 2, 4), rounds=3, stops=ROWS),
    Work("W3 32", "pooled", 32, 1, "the same, 32 images", 80, blocks=(2,), rounds=2, stops=ROWS),
    Work("W4", "pooled", 8, 5, "five conv3 + ReLU + average, 8 images", 50, blocks=(1, 2, 4), rounds=3, stops=LOOPS),
    Work("W5", "dense", 2000, 10, "ten dense + ReLU, 2000 vectors", 2.5, blocks=(250, 500, 1000),
         stops="the product of the inputs, and then the vector units as for the convolutions"),
    Work("W6 of W2", "same", 200, 10, "tangent kernel of W2", 12, "ntk", blocks=(20, 40, 100), rounds=3, stops=BOTH),
    Work("W6 of W3", "pooled", 16, 1, "tangent kernel of W3 16", 80, "ntk", blocks=(1, 2, 4), rounds=3, stops=BENT),
    *_off_relu(),
    *_networks(),
    *_tangents(),
    Work("W1 zero", "same", 500, 1, "zero padding, beside cnn-gp", None, padding=ZERO, peer="cnn-gp's method",
         blocks=(10, 25, 50), stops=ONE),
    Work("W2 zero", "same", 200, 10, "zero padding, beside cnn-gp", None, padding=ZERO, peer="cnn-gp's method",
         blocks=(10, 20, 40), rounds=3, stops=LOOPS),
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two ways to the same end, timed in turns: ours first."""

    name: str
    what: str
    ours: dict[str, Any]
    theirs: dict[str, Any]
    peer: str
    script: str
    rounds: int = 5


def _pairs() -> tuple[Pair, ...]:
    found = []
    for model, words in (("mlp", "50-layer MLP"), ("cnn", "50-layer CNN")):
        for mode in ("analytic", "empirical"):
            found.append(
                Pair(
                    f"check {model} {mode}",
                    f"`check` of a {words}, one seed; anyinit's report, {mode}",
                    {"what": "check", "model": model},
                    {"mode": mode, "model": model, "cold": mode == "empirical"},  # it takes too long to be run in vain
                    "anyinit",
                    "side_anyinit.py",
                    rounds=2 if mode == "empirical" else 5,
                )
            )
        for ours, said in (("check", "`check`"), ("measure", "`check(theory=False)`")):
            found.append(
                Pair(
                    f"inspect {model} {ours}",
                    f"{said} of a {words}, one seed; hooks on every layer, norms, cosines, gradients",
                    {"what": ours, "model": model},
                    {"what": "hooks", "model": model},
                    "plain torch",
                    "side_torch.py",
                )
            )
    for ours, said in (("outputs", "`simulate`"), ("weights", "`simulate(materialise=True)`")):
        found.append(
            Pair(
                f"simulate {ours}",
                f"{said}, 100 draws of ten dense layers of 1000, 100 pairs; a loop over torch.randn and products",
                {"what": f"simulate {ours}"},
                {"what": "simulate by hand"},
                "plain torch",
                "side_torch.py",
                rounds=3,
            )
        )
    return tuple(found)


PAIRS = _pairs()
