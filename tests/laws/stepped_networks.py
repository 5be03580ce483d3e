"""Random networks that compiled steps answer: more of what has a step than `random_networks` has, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import torch
from torch import Tensor

from initscope.errors import InitscopeError
from initscope.networks import Sequential, parse
from initscope.networks.machine import Unknown, answer
from laws.random_networks import Grammar

GAUSSIAN = ("he", "lecun", "glorot")  # of the first layer, whose few inputs make no sum Gaussian
WEIGHTS = ("he", "he", "lecun", "glorot", "orthogonal", "uniform(1)", "laplace(1)", "pytorch", "sparse(0.5)")


class SteppedGrammar(Grammar):
    """Every layer with a step; borders wrap or end in the whole network, as steps demand."""

    wraps = True
    first = False  # layer of the network

    def sentence(self) -> str:
        """A network on images or on vectors."""
        r = self.random
        self.wraps, self.first = r.random() < 0.5, True
        if r.random() < 0.25:
            return " ".join(self.vector_layers(r.randint(1, 3)))
        words = [self.conv(), *self.image_layers(r.randint(1, 3)), *self.choose([], [self.activation()])]
        words += self.choose([], ["gap"], ["gap"], ["gap"], ["flatten"], ["avgpool2"], ["avgpool2", "gap"])
        return " ".join(words + self.choose([], [], [f"dense(bias=0.1) {self.activation()}"], self.vector_layers(1)))

    def options(self, *more: str) -> str:
        r, first, self.first = self.random, self.first, False
        bias = r.choice(("bias=0.1", "bias=1", "bias=0.5" if first else "bias=pytorch"))
        laws = GAUSSIAN if first else WEIGHTS
        given = [option for option in (*more, f"init={r.choice(laws)}", bias) if r.random() < 0.3]
        return f"({', '.join(given)})" if given else ""

    def conv(self) -> str:
        r = self.random
        size = r.choice(("conv1", "conv3", "conv3", "conv1x3", "conv2"))
        if self.wraps:
            return size + self.options(r.choice(("stride=2", "dilation=2")))
        padding = r.choice(("padding=zero", "padding=zero", "padding=valid", "padding=same"))
        rest = self.options(r.choice(("stride=2", "dilation=2")))
        return f"{size}({padding})" if not rest else f"{size}({padding}, {rest[1:]}"

    def same(self) -> str:
        """A convolution that keeps the size."""
        return self.random.choice(("conv3", "conv1x3", "conv1") if self.wraps else ("conv3(padding=zero)", "conv1"))

    def pool(self) -> str:
        return self.random.choice(("avgpool2", "avgpool2", "avgpool2(stride=1)", "avgpool3(stride=2, padding=zero)"))

    def image_layers(self, count: int) -> list[str]:
        words: list[str] = []
        for _ in range(count):
            f, g = self.activation(), self.activation()
            words += self.choose(
                [f, self.conv()],
                [f, self.conv()],
                [self.norm(), f, self.conv()],
                [f, self.norm(), self.conv()],
                [f, self.pool(), self.conv()],
                [self.pool(), f, self.conv()],
                [f"res({f} {self.same()}{self.scale()})"],
                [f"res({self.norm()} {f} {self.same()})", g, self.conv()],
                [f"res({f} {self.same()} {self.norm()} {g} {self.same()})"],
                [f"cat({f} | {g})", self.conv()],
                [f"cat({self.same()} {f} | {g})", self.norm(), self.conv()],
                [f"sum({self.same()} {f} | {self.same()} {g})", self.conv()],
                [f"prod({self.same()} {f} | {self.same()} {g})", self.conv()],
                [f"cat({self.same()} | {f} {self.same()} | {self.same()})", g, self.conv()],
                [f, "dropout(0.3)", self.conv()],
                [f"scale({self.random.choice((0.5, 2, -1))})", f, "scale(-0.5)", self.conv()],
            )  # fmt: skip
        return words

    def vector_layers(self, count: int) -> list[str]:
        words: list[str] = []
        for _ in range(count):
            f, g = self.activation(), self.activation()
            words += ["dense" + self.options()]
            words += self.choose(
                [f], [f], ["ln", f], [f, "ln"], [f"res({f} dense)"], [f"cat({f} | {g})"], [f, "dropout(0.3)"],
                [f"gn(2) {f}"], [f"sum({f} dense | dense)"], [f"prod(dense {f} | dense {g})"], ["scale(0.7)", f],
                [f"res({f} dense, scale=0.5)", "ln", g], [f"cat({f} | dense {g} | {g})", "gn(1)"],
            )  # fmt: skip
        return [*words, *self.choose([], ["dense"], ["dense(bias=0.5)"])]


def stepped(
    count: int, seed: int, *, width: int, integrated: float = 0.4, without: tuple[str, ...] = ()
) -> Iterator[tuple[str, Sequential, Tensor]]:
    """`count` networks with a compiled step for every layer, in float64, on inputs of different norms and angles."""
    random = Random(seed)
    grammar, made = SteppedGrammar(random, integrated), 0
    while made < count:
        text = grammar.sentence()
        if set(without) & set(re.findall(r"\w+", text)):
            continue
        x = batch(random, text.startswith("dense"), 5)
        try:
            net = parse(text, width=width)
            net.output_shape(tuple(x.shape[1:]))
        except InitscopeError:
            continue
        if has_steps(net, x):
            made += 1
            yield text, net, x


def batch(random: Random, vectors: bool, count: int) -> Tensor:
    """One input, one near it, the opposite of a part of it, and others, of different norms."""
    g = torch.Generator().manual_seed(random.getrandbits(32))
    shape = (6,) if vectors else (2, *random.choice(((4, 4), (4, 4), (2, 4), (3, 4), (6, 4))))
    x = torch.randn(count, *shape, generator=g, dtype=torch.float64) + random.choice((0.0, 0.5))
    x[1] = x[0] + random.choice((1e-9, 0.1)) * x[1]
    x[2] = 0.3 * x[2] - x[0]
    return x * torch.linspace(0.7, 1.4, count, dtype=torch.float64).view(-1, *(1,) * len(shape))


def has_steps(net: Sequential, x: Tensor) -> bool:
    """Whether compiled steps answer all of x; `unknown` looks only at the inputs of extreme norms."""
    try:
        answer(net, x)
    except Unknown:
        return False
    return True
