"""Mistakes by which samples get into each other or weights are not registered, and sound models that look like them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from probe.planting import bases
from probe.planting.bases import CLASSES, INPUTS, VOCABULARY, WIDTH, dense, generator
from probe.planting.row import BAD, WARN, Planted, Setting
from probe.planting.settings import CONV, LSTM, SHALLOW, WORDS
from probe.planting.values import inserted

SAMPLES = 64
Change = Callable[[Tensor], Tensor]


class Net(nn.Module):
    """Two dense layers and a head, with something between them."""

    def __init__(self, middle: Callable[[Net, Tensor], Tensor] = lambda net, h: h, **parts: Any) -> None:
        super().__init__()
        self.first, self.second, self.head = (
            nn.Linear(INPUTS, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, CLASSES),
        )
        self.middle = middle
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        h = self.middle(self, torch.relu(self.first(x)))
        out: Tensor = self.head(torch.relu(self.second(h)))
        return out


class Words(nn.Module):
    """A recurrent network over embedded words; `before` and `read` lay out what goes in and comes out."""

    def __init__(
        self, read: Change = lambda out: out[:, -1], before: Change = lambda x: x, make: Any = nn.LSTM, **options: Any
    ) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(VOCABULARY, 32), make(32, 64, **options)
        self.head, self.read, self.before = nn.Linear(64, CLASSES), read, before

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.read(self.rnn(self.before(self.embed(ids)))[0]))
        return out


class Attended(nn.Module):
    """PyTorch's encoder over embedded words; its default takes the first axis for time."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.embed(ids)).mean(1))
        return out


class Flattened(nn.Module):
    """A convolution whose channels are brought together for a dense layer."""

    def __init__(self, flat: Change) -> None:
        super().__init__()
        self.conv, self.fc, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(512, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.flat = flat

    def forward(self, x: Tensor) -> Tensor:
        h = self.flat(torch.relu(self.conv(x))).flatten(1)
        out: Tensor = self.head(torch.relu(self.fc(h)))
        return out


class Windows(nn.Module):
    """Attention inside windows of 4 x 4 places, as Swin has it: windows are folded into the axis of the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.query, self.key = nn.Conv2d(3, 32, 3, padding=1), nn.Linear(32, 32), nn.Linear(32, 32)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x).permute(0, 2, 3, 1)
        n, height, width, c = h.shape
        rolled = h.roll((2, 2), (1, 2)).view(n, height // 4, 4, width // 4, 4, c)
        parts = rolled.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        mixed = (self.query(parts) @ self.key(parts).transpose(1, 2) / c**0.5).softmax(-1) @ parts
        back = mixed.view(n, height // 4, width // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, height, width, c)
        h = h + back.roll((-2, -2), (1, 2))
        out: Tensor = self.head(self.norm(h).mean((1, 2)))
        return out


class Experts(nn.Module):
    """Each sample goes through one of four layers; this gate sends none to the last two."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.gate = nn.Linear(INPUTS, WIDTH), nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, CLASSES)
        with torch.no_grad():
            self.gate.bias[:2] += 20

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.stem(x))
        weight, choice = self.gate(h).softmax(-1).topk(1)
        out = torch.zeros_like(h)
        for number, expert in enumerate(self.experts):
            rows = (choice[:, 0] == number).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, expert(h[rows]) * weight[rows])
        result: Tensor = self.head(torch.relu(h + out))
        return result


class AllButLast(nn.Module):
    """A loop that leaves out the last block, behind a choice that has nothing to do with it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(INPUTS, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        h = torch.where(h > 0, h, 0.1 * h)
        for block in self.blocks[:-1]:
            h = h + torch.relu(block(h))
        out: Tensor = self.head(h)
        return out


def _graph(net: Net, h: Tensor) -> Tensor:
    """The mean over ten neighbors, fixed for all passes, and the node itself."""
    neighbors = torch.randint(len(h), (len(h), 10), generator=generator(5))
    return h + h[neighbors].mean(1)


def _scattered(net: Net, h: Tensor) -> Tensor:
    """The sum over edges."""
    edges = torch.randint(len(h), (2, 200), generator=generator(6))
    return h + torch.zeros_like(h).index_add(0, edges[1], h[edges[0]]) / 3


def _attended(net: Net, h: Tensor) -> Tensor:
    """All samples are one set."""
    out: Tensor = h + net.attention(h[None], h[None], h[None], need_weights=False)[0][0]  # type: ignore[operator]
    return out


def _nodes(net: Net, h: Tensor) -> Tensor:
    """A dense layer over the samples, which are the nodes of one graph, turned back behind it."""
    out: Tensor = h + net.over(h.T).T  # type: ignore[operator]
    return out


def _deviation(net: Net, h: Tensor) -> Tensor:
    """Beside the features their deviation within groups of four samples, as discriminators have it."""
    groups = h.view(4, -1, h.shape[1])
    spread = (groups - groups.mean(0)).square().mean(0).add(1e-8).sqrt().mean(-1)
    return h + spread.repeat(4)[:, None]


def _sorted(net: Net, h: Tensor) -> Tensor:
    """Sorted by their first feature, and back."""
    order = h[:, 0].argsort()
    return h[order][order.argsort()]


def _frozen(net: Net, h: Tensor) -> Tensor:
    """A teacher that does not learn is kept in a list, so that it is not saved with the model."""
    out: Tensor = h + 0.1 * net.teacher[0](h)  # type: ignore[index]
    return out


def _made(net: Net, h: Tensor) -> Tensor:
    return torch.relu(nn.Linear(WIDTH, WIDTH)(h))


def _listed(net: Net, h: Tensor) -> Tensor:
    for layer in net.layers:  # type: ignore[union-attr]
        h = torch.relu(layer(h))
    return h


def _patched(net: Net, h: Tensor) -> Tensor:
    """A layer that runs with other weights, made of registered ones."""
    weights = {"weight": net.second.weight + net.delta, "bias": net.second.bias}
    out: Tensor = torch.func.functional_call(net.second, weights, (h,))
    return out


def _plain(net: Net, h: Tensor) -> Tensor:
    return torch.relu(h @ net.matrix / 8)


def _time_first(seed: int) -> tuple[Tensor, Tensor]:
    """Words as (time, samples), one topic for each sample."""
    ids, y = bases.words(seed)
    return ids.T.contiguous(), y


NET = Setting(Net, bases.vectors)
TIME = Setting(partial(Words, read=lambda out: out[-1]), _time_first)


def _view(function: Change) -> Planted:
    return SHALLOW.mistake(
        "samples-mixed", make=partial(inserted, function), steps=("4",), advice="keep the samples on the first axis"
    )


def _mixed(make: Callable[[], nn.Module], *steps: str, setting: Setting = LSTM, advice: str) -> Planted:
    return setting.mistake("samples-mixed", make=make, steps=steps, advice=advice)


def _unseen(middle: Callable[[Net, Tensor], Tensor], step: str, verdicts: frozenset[str], **parts: Any) -> Planted:
    def make() -> Net:
        return Net(middle, **{name: part() for name, part in parts.items()})

    advice = "build the layer in __init__, in nn.ModuleList or as nn.Parameter"
    return NET.mistake("unregistered", make=make, steps=(step,), verdicts=verdicts, advice=advice)


def _sound(middle: Callable[[Net, Tensor], Tensor], **parts: Any) -> Planted:
    return NET.healthy(make=lambda: Net(middle, **{name: part() for name, part in parts.items()}))


ROWS: dict[str, Planted] = {
    "transposed and reshaped back": _view(lambda h: h.T.reshape(h.shape)),
    "features viewed as samples": _view(lambda h: h.view(WIDTH, -1).T),
    "channels in front of samples, then reshaped": CONV.mistake(
        "samples-mixed",
        make=partial(Flattened, lambda h: h.permute(1, 0, 2, 3).reshape(len(h), h.shape[1], -1)),
        steps=("permute", "reshape"),
        advice="leave out the permute",
    ),
    "LSTM without batch_first": _mixed(Words, "rnn", advice="pass batch_first=True"),
    "GRU without batch_first, mean over time": _mixed(
        partial(Words, lambda out: out.mean(1), make=nn.GRU), "rnn", advice="pass batch_first=True"
    ),
    "LSTM with batch_first on time first": _mixed(
        partial(Words, lambda out: out[-1], lambda x: x.transpose(0, 1), batch_first=True),
        "rnn",
        advice="leave out the transpose",
    ),
    "encoder without batch_first": _mixed(
        partial(Attended, False), "encoder.layers.0.self_attn", setting=WORDS, advice="pass batch_first=True"
    ),
    "rows of the output shuffled": SHALLOW.mistake(
        "samples-mixed",
        make=lambda: nn.Sequential(*inserted(lambda h: h[torch.randperm(len(h))], 8)),
        steps=("8",),
        advice="shuffle inputs and targets together",
    ),
    "rows flipped": _view(lambda h: h.flip(0)),
    "layers in a plain list": _unseen(
        _listed, "linear", BAD, layers=lambda: [nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)]
    ),
    "layer made in forward": _unseen(_made, "linear", WARN),
    "tensor that is no parameter": _unseen(
        _plain, "matmul", WARN, matrix=lambda: torch.randn(WIDTH, WIDTH).requires_grad_()
    ),
    "last block left out of a loop": NET.mistake(
        "unused", make=AllButLast, steps=("blocks.3",), verdicts=WARN, advice="run over all blocks"
    ),
    "nodes of a graph, mean over neighbors": _sound(_graph),
    "nodes of a graph, sum over edges": _sound(_scattered),
    "attention over all samples as a set": _sound(
        _attended, attention=lambda: nn.MultiheadAttention(WIDTH, 4, batch_first=True)
    ),
    "dense layer over the nodes of one graph": _sound(_nodes, over=lambda: nn.Linear(SAMPLES, SAMPLES)),
    "deviation within groups of samples": _sound(_deviation),
    "sorted and put back": _sound(_sorted),
    "teacher in a list": _sound(_frozen, teacher=lambda: [nn.Linear(WIDTH, WIDTH).requires_grad_(False)]),
    "weights made of registered ones": _sound(_patched, delta=lambda: nn.Parameter(torch.zeros(WIDTH, WIDTH))),
    "batch norm without running statistics": SHALLOW.healthy(
        make=partial(dense, 4, norm=partial(nn.BatchNorm1d, track_running_stats=False))
    ),
    "attention in windows": CONV.healthy(make=Windows),
    "LSTM on time first, done right": LSTM.healthy(
        make=partial(Words, lambda out: out[-1], lambda x: x.transpose(0, 1))
    ),
    "encoder with batch_first": WORDS.healthy(make=partial(Attended, True)),
    "experts that no sample is sent to": NET.healthy(make=Experts),
    "inputs with time first": TIME.row(WARN),
}
