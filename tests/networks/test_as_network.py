"""A text or a module where a network is expected: one clear error that says how to get one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from initscope import kernel, parse, predict, simulate, simulate_gradients, tangent_kernel
from initscope.bounds import convergence_image
from initscope.errors import BadInput
from initscope.finite import simulate_tangent, sketch_kernel
from initscope.layers import ReLU
from initscope.networks import Sequential, as_network, kernel_estimate
from initscope.scale import kernel_to, plan

X = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
CALLS: dict[str, Callable[[Any], object]] = {
    "predict": lambda net: predict(net, X, X.flip(0)),
    "simulate": lambda net: simulate(net, X, X.flip(0), draws=2),
    "simulate_gradients": lambda net: simulate_gradients(net, X, draws=2),
    "kernel": lambda net: kernel(net, X),
    "kernel_estimate": lambda net: kernel_estimate(net, X),
    "sketch": lambda net: kernel(net, X, method="sketch"),
    "sketch_kernel": lambda net: sketch_kernel(net, X),
    "tangent_kernel": lambda net: tangent_kernel(net, X),
    "simulate_tangent": lambda net: simulate_tangent(net, X, draws=2),
    "kernel_to": lambda net: kernel_to(net, X, Path("kernel.zarr")),
    "plan": lambda net: plan(net, X, count=4, measure=False),
    "convergence_image": lambda net: convergence_image(net, X),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_text_is_no_network(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = r'net is the text "conv3 relu gap", expected a network; pass parse\("conv3 relu gap"\)$'
    with pytest.raises(BadInput, match=said):
        CALLS[name]("conv3 relu gap")
    assert not list(tmp_path.iterdir())


def test_a_module_is_no_network() -> None:
    with pytest.raises(BadInput, match=r"predict: net is a Linear, expected a network; .*pass the module to check"):
        predict(nn.Linear(3, 3), X, X)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"kernel: net is a list, .*Sequential\(Conv\(64\), ReLU\(\)\)"):
        kernel([ReLU()], X)  # type: ignore[arg-type]


def test_layers_are_networks() -> None:
    net = parse("conv3 relu")
    assert as_network("here", net) is net
    assert as_network("here", ReLU()) == Sequential(ReLU())


def test_long_texts_are_cut() -> None:
    with pytest.raises(BadInput) as caught:
        as_network("here", "conv3 relu " * 40)
    assert len(str(caught.value)) < 250
