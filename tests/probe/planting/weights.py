"""Mistakes in the weights of one place: dead, saturated, zero, symmetric, far too large or too small."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from probe.planting.bases import dense
from probe.planting.row import BAD, EMBEDDING, HEAD, MILD, NORM, REDRAW, WARN, Planted, bias, every, scale, weight, zero
from probe.planting.settings import (
    CONV,
    CONV_BN,
    DENSE,
    DENSE_BN,
    DENSE_LN,
    GPT,
    GRAPHS,
    LSTM,
    RESIDUAL,
    SHALLOW,
    TANH,
    WORDS,
)

LINEAR = tuple(str(i) for i in range(17))


def _constant(module: nn.Linear | nn.Conv2d) -> None:
    """All entries the same, of the size that keeps positive signals."""
    module.weight.fill_(1 / module.weight[0].numel())


def _same_rows(model: nn.Module) -> None:
    linear = model.get_submodule("6")
    linear.weight.copy_(linear.weight[:1].expand_as(linear.weight))


def _forget(model: nn.Module) -> None:
    """Recurrent weights of an LSTM a hundred times too large."""
    model.get_submodule("lstm").weight_hh_l0.mul_(100)


class LateRelu(nn.Module):
    """A ReLU behind the head, whose biases are negative."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.relu = dense(4), nn.ReLU()
        nn.init.constant_(self.body[-1].bias, -10.0)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.body(x))
        return out


DEAD: dict[str, Planted] = {
    "layer norm bias -10 in front of a ReLU": DENSE_LN.mistake(
        "dead-units", bias("4", -10), steps=("4", "5"), remedy=NORM
    ),
    "batch norm bias -10 in front of a ReLU": DENSE_BN.mistake(
        "dead-units", bias("4", -10), steps=("4", "5"), remedy=NORM
    ),
    "bias -10 at layer 4": DENSE.mistake("dead-units", bias("6", -10), steps=("6", "7"), remedy=REDRAW),
    "conv bias -10 in the middle": CONV.mistake("dead-units", bias("6", -10), steps=("6", "7"), remedy=REDRAW),
    "bias -10 at the first layer": DENSE.mistake("dead-units", bias("0", -10), steps=("0", "1"), remedy=REDRAW),
    "ReLU behind a head with bias -10": SHALLOW.mistake(
        "dead-units", make=LateRelu, steps=("body.8", "relu"), remedy=REDRAW
    ),
    "tanh with weights N(0, 5)": TANH.mistake(
        "saturated",
        every(nn.Linear, lambda m: nn.init.normal_(m.weight, std=5.0)),
        steps=("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
        remedy=REDRAW,
    ),
    "tanh bias 30 at layer 3": TANH.mistake("saturated", bias("4", 30), steps=("4", "5"), remedy=REDRAW),
    "sigmoid bias -30 at layer 2": SHALLOW.mistake(
        "saturated", bias("2", -30), make=partial(dense, 4, activation=nn.Sigmoid), steps=("2", "3"), remedy=REDRAW
    ),
}


def _zeros(layer: nn.Linear) -> None:
    layer.weight.zero_()
    layer.bias.zero_()


def _closed(model: nn.Module) -> None:
    """The output gate of the LSTM."""
    model.lstm.bias_ih_l0[-64:] = -20


ZERO: dict[str, Planted] = {
    "zeroed stem": DENSE.mistake("zero-weights", zero("0"), steps=("0",), remedy=REDRAW),
    "all weights and biases zero": DENSE.mistake("zero-weights", every(nn.Linear, _zeros), steps=("0",), remedy=REDRAW),
    "zeroed middle layer": DENSE.mistake("zero-weights", zero("6"), steps=("6",), remedy=REDRAW),
    "zeroed conv in the middle": CONV.mistake("zero-weights", zero("6"), steps=("6",), remedy=REDRAW),
    "zeroed layer behind scatter_add": GRAPHS.mistake("zero-weights", zero("third"), steps=("third",), remedy=REDRAW),
    "batch norm gamma 0": CONV_BN.mistake("zero-weights", weight("7", 0), steps=("7",), remedy=NORM),
    "layer norm weight 0": DENSE_LN.mistake("zero-weights", weight("4", 0), steps=("4",), remedy=NORM),
    "zeroed embedding": WORDS.mistake("zero-weights", zero("embed"), steps=("embed",), verdicts=BAD, remedy=EMBEDDING),
    "both layers of a residual branch zero": RESIDUAL.mistake(
        "zero-gradient",
        zero("blocks.2.fc1"),
        zero("blocks.2.fc2"),
        steps=("blocks.2.fc1", "blocks.2.fc2", "blocks.2:relu"),
        verdicts=MILD,
        remedy=REDRAW,
    ),
}

SYMMETRIC: dict[str, Planted] = {
    "constant weights in all layers": SHALLOW.mistake(
        "symmetric-units", every(nn.Linear, _constant), steps=LINEAR[:9], remedy=REDRAW
    ),
    "constant filters in all layers": CONV.mistake(
        "symmetric-units", every((nn.Linear, nn.Conv2d), _constant), steps=LINEAR[:15], remedy=REDRAW
    ),
    "weights and biases of ones": SHALLOW.mistake(
        "symmetric-units",
        every(nn.Linear, lambda m: [nn.init.ones_(p) for p in m.parameters()]),
        steps=LINEAR[:9],
        remedy=REDRAW,
    ),
    "one layer with equal rows": DENSE.mistake(
        "symmetric-units", _same_rows, steps=("6", "7"), verdicts=WARN, remedy=REDRAW
    ),
}

SCALE: dict[str, Planted] = {
    "layer 4 x 1e-6": DENSE.mistake("activation-scale", scale("6", 1e-6), steps=("6",), verdicts=WARN, remedy=REDRAW),
    "layer 4 x 1e6": DENSE.mistake("activation-scale", scale("6", 1e6), steps=("6",), remedy=REDRAW),
    "first layer x 1e5": DENSE.mistake("activation-scale", scale("0", 1e5), steps=("0",), remedy=REDRAW),
    "conv x 1e5 in the middle": CONV.mistake("activation-scale", scale("6", 1e5), steps=("6",), remedy=REDRAW),
    "layer norm weight 1e-5": DENSE_LN.mistake(
        "activation-scale", weight("4", 1e-5), steps=("4",), verdicts=MILD, remedy=NORM
    ),
    "layer norm weights 1e-5 everywhere": DENSE_LN.mistake(
        "activation-scale",
        every(nn.LayerNorm, lambda m: m.weight.fill_(1e-5)),
        steps=("1", "4", "7", "10"),
        verdicts=BAD,
        remedy=NORM,
    ),
    "huge head": DENSE.mistake("output-scale", scale("16", 1e4), steps=("16",), remedy=REDRAW | HEAD),
    "head bias of 100 for one class": DENSE.mistake(
        "initial-loss", lambda m: m[16].bias[3].fill_(100.0), steps=("16",), verdicts=BAD, remedy=REDRAW | HEAD
    ),
    "bias 100 at layer 4": DENSE.mistake("collapse", bias("6", 100), steps=("6", "7"), verdicts=BAD, remedy=REDRAW),
    "embedding with std 1000": WORDS.mistake(
        "activation-scale", scale("embed", 1e3), steps=("embed",), verdicts=BAD, remedy=EMBEDDING
    ),
    "positions with std 100": GPT.mistake(
        "collapse", scale("position", 1e3), steps=("add", "position"), verdicts=BAD, remedy=EMBEDDING
    ),
    "LSTM whose output gate is closed": LSTM.mistake("activation-scale", _closed, steps=("lstm",), remedy=REDRAW),
    "LSTM with recurrent weights x 100": LSTM.mistake(
        "gradient-scale", _forget, steps=("lstm",), verdicts=BAD, remedy=REDRAW
    ),
}

ROWS = DEAD | ZERO | SYMMETRIC | SCALE
