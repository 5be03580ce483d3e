"""Random networks of the architecture language, over its whole grammar, as the texts that `parse` reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from initscope.errors import InitscopeError
from initscope.networks import Sequential, parse

CLOSED = (
    "relu", "relu", "relu", "leaky_relu(0.2)", "leaky_relu(-0.5)", "abs", "identity", "sign", "step", "erf", "gelu", "sin", "cos",
    "gaussian", "exp", "hermite(2)", "hermite(3)", "poly(0.5, 1, 0.2)", "relupower(2)", "relupower(3)",
)  # fmt: skip
INTEGRATED = ("tanh", "silu", "softplus", "elu", "selu", "mish", "sigmoid", "hardswish", "relu6", "hardtanh")
WEIGHTS = (
    "he", "lecun", "glorot", "orthogonal", "delta_orthogonal", "zero_sum", "zero_sum_channel", "uniform(1)", "laplace(1)",
    "pytorch", "sparse(0.5)",
)  # fmt: skip
WIDTH = 8


@dataclass
class Grammar:
    """A source of texts: `sentence` gives one network, `integrated` the share of activations without a closed form."""

    random: Random
    integrated: float = 0.1
    drawn: float = 0.02  # share of the poolings and norms of images that have no closed form

    def sentence(self) -> str:
        """A network on images or on vectors; some texts describe nothing that exists, and are refused by name."""
        if self.random.random() < 0.25:
            return " ".join(self.vector_layers(self.random.randint(1, 4)))
        words = [self.conv(), *self.image_layers(self.random.randint(0, 4))]
        if self.random.random() < self.drawn:
            words += self.choose(["gmp"], ["l2pool2"])
        else:
            words += self.choose([], ["gap"], ["gap"], ["gap"], ["flatten"], ["avgpool2", "flatten"], ["flatten"])
        return " ".join(words + self.choose([], self.vector_layers(1), self.vector_layers(2)))

    def choose(self, *options: list[str]) -> list[str]:
        return self.random.choice(options)

    def activation(self) -> str:
        return self.random.choice(INTEGRATED if self.random.random() < self.integrated else CLOSED)

    def options(self, *more: str) -> str:
        """Of a layer with weights, each now and then."""
        r = self.random
        bias = r.choice(("bias=0.1", "bias=1", "bias=pytorch", "bias=1e-6"))
        given = [option for option in (*more, f"init={r.choice(WEIGHTS)}", bias) if r.random() < 0.3]
        return f"({', '.join(given)})" if given else ""

    def conv(self) -> str:
        r = self.random
        size = r.choice(("conv1", "conv3", "conv3", "conv1x3", "conv2"))
        padding = r.choice(("padding=zero", "padding=zero", "padding=reflect", "padding=valid"))
        return size + self.options(padding, r.choice(("stride=2", "dilation=2", "groups=2")))

    def image_layers(self, count: int) -> list[str]:
        words: list[str] = []
        for _ in range(count):
            inside = [self.activation(), self.conv()]
            if self.random.random() < self.drawn:
                words += self.choose(
                    ["bn", *inside], ["relu maxpool2", self.conv()], [self.activation(), "bn", self.conv()]
                )
                continue
            words += self.choose(
                inside, inside, inside,
                [self.norm(), self.activation(), self.conv()],
                [self.activation(), "avgpool2", self.conv()],
                [self.activation(), f"up2 {self.conv()}"],
                [self.activation(), "zeroup2", "conv3"],
                [f"res({self.activation()} conv3{self.scale()})"],
                [f"res({self.norm()} {self.activation()} conv1)", self.activation(), "conv1"],
                [f"cat({self.activation()} | {self.activation()})", self.conv()],
                [f"cat(conv1 {self.activation()} | conv3 {self.activation()})", self.conv()],
                [f"sum(conv3 | {self.activation()} conv1)"],
                [self.activation(), f"dropout({self.random.choice((0.1, 0.5))})", self.conv()],
                [self.activation(), self.norm(), self.conv()],
                [f"scale({self.random.choice((0.5, 2, -1))})", *inside],
            )  # fmt: skip
        return words

    def vector_layers(self, count: int) -> list[str]:
        words: list[str] = []
        for _ in range(count):
            words += ["dense" + self.options()]
            if self.random.random() < self.drawn:
                words += ["relu maxpool2"]
                continue
            words += self.choose(
                [self.activation()], [self.activation()], ["ln", self.activation()], [self.activation(), "ln"],
                [f"res({self.activation()} dense)"], [f"cat({self.activation()} | {self.activation()})"],
                [self.activation(), "avgpool2"], ["l2pool2"], [self.activation(), "dropout(0.3)"],
                [f"gn(2) {self.activation()}"], [f"sum({self.activation()} dense | dense)"],
            )  # fmt: skip
        return [*words, *self.choose([], ["dense"], ["dense(bias=0.5)"])]

    def norm(self) -> str:
        return self.random.choice(("ln", "ln(channels)", "gn(2)", "gn(1)"))

    def scale(self) -> str:
        return self.random.choice(("", "", ", scale=0.5"))


def networks(count: int, seed: int = 0, integrated: float = 0.1) -> Iterator[tuple[str, Sequential, Tensor]]:
    """`count` texts that exist on their inputs, the networks, and six inputs: near copies, opposites, dark and flat ones."""
    random = Random(seed)
    grammar = Grammar(random, integrated)
    made = 0
    while made < count:
        text = grammar.sentence()
        if text.count("up2") > 1:
            continue  # pairs of positions grow with the fourth power of the size
        x = batch(random, text)
        try:
            net = parse(text, width=WIDTH)
            net.output_shape(tuple(x.shape[1:]))
        except InitscopeError:
            continue
        made += 1
        yield text, net, x


def batch(random: Random, text: str) -> Tensor:
    """Six inputs: one, nearly the same, brighter, opposite and noisy, another one in the dark, one that is partly flat."""
    g = torch.Generator().manual_seed(random.getrandbits(32))
    # Every pair of positions is an integral of its own where an activation has no closed form.
    sizes = ((1, 3),) if any(word in text for word in INTEGRATED) else ((4, 4), (3, 5), (4, 2))
    shape = (6,) if text.startswith("dense") else (2, *random.choice(sizes))
    first, second, third = torch.randn(3, *shape, generator=g, dtype=torch.float64) + random.choice((0.0, 0.5, 3.0))
    noise = torch.randn(shape, generator=g, dtype=torch.float64)
    third[..., : third.shape[-1] // 2] = random.choice((0.0, 0.7))
    return torch.stack([first, first + 1e-9 * noise, 3 * first, 0.3 * noise - first, 1e-3 * second, third])
