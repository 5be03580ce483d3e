"""Per-sample gradient norms against autograd sample by sample, and OP's law of their ratios."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from initscope.errors import BadInput, UndefinedSimilarity
from initscope.finite import sample_gradients, simulate_gradients
from initscope.finite.per_sample import weight_layers
from initscope.geometry import generator
from initscope.layers import BatchNorm, Conv, Dense, GlobalAveragePool, Layer, LayerNorm, MaxPool, ReLU
from initscope.networks import Concat, Residual, Sequential
from initscope.weights import Gaussian

IMAGES = (4, 4, 6, 6)


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def brute_force(module: nn.Sequential, parts: list[nn.Module], last: int, x: Tensor, targets: Tensor) -> list[Tensor]:
    """|∂ℓ_i/∂W_l| and |δ_i| by a forward and a backward pass over the whole batch for each sample i."""
    weights, deltas = [], []
    for i in range(len(x)):
        h = x
        for k, layer in enumerate(module):
            h = layer(h)
            if k == last:
                h.retain_grad()
                at = h
        module.zero_grad()
        (h[i] - targets[i]).square().mean().backward()
        weights.append([part.weight.grad.norm().item() for part in parts])  # type: ignore[union-attr]
        assert at.grad is not None
        deltas.append(at.grad.norm().item())
    return [torch.tensor(weights).T, torch.tensor(deltas)]


NETS: dict[str, tuple[list[Layer], tuple[int, ...]]] = {
    "dense": ([Dense(9), ReLU(), Dense(5, bias=0.3)], (4, 7)),
    "conv": ([Conv(8), ReLU(), Conv(3, 3, 2, padding="zero")], IMAGES),
    "few positions": ([Conv(32), ReLU(), Conv(40, 3, 3), ReLU()], IMAGES),
    "groups": ([Conv(8, groups=2), ReLU(), Conv(8, (1, 3), dilation=2, groups=8), Conv(4, padding="valid")], IMAGES),
    "reflect": ([Conv(6, padding="reflect", bias=0.1), LayerNorm(), ReLU(), MaxPool(2), Dense(4)], IMAGES),
    "residual": ([Conv(4), Residual(ReLU(), Conv(4), ReLU(), Conv(4), scale=0.5), GlobalAveragePool()], IMAGES),
    "concat": ([Conv(4), Concat(Conv(2), Conv(3, 1)), ReLU()], IMAGES),
    "batch norm": ([Conv(4), BatchNorm(), ReLU(), Conv(5), BatchNorm(), ReLU(), Dense(3)], IMAGES),
}
LAST = {
    "dense": 2,
    "conv": 2,
    "few positions": 2,
    "groups": 3,
    "reflect": 4,
    "residual": 1,
    "concat": 1,
    "batch norm": 6,
}


@pytest.mark.parametrize("name", NETS)
def test_ratios_are_those_of_autograd_sample_by_sample(name: str) -> None:
    layers, shape = NETS[name]
    net, x, seed, draws = Sequential(*layers), data(*shape), 3, 3
    targets = data(len(x), *net.output_shape(shape[1:]), seed=1)
    found = simulate_gradients(net, x, loss="mse", targets=targets, draws=draws, seed=seed)
    ratios = []
    for draw in range(draws):
        module = net.sample(shape[1:], generator=generator(seed, draw), dtype=torch.float64)
        assert isinstance(module, nn.Sequential)
        weights, deltas = brute_force(module, weight_layers(module), LAST[name], x, targets)
        ratios.append(weights / (deltas * x.flatten(1).norm(dim=1)))
    squares = torch.stack(ratios).square()
    assert len(found.layers) == squares.shape[1]
    for layer, square in zip(found.layers, squares.unbind(1), strict=True):
        np.testing.assert_allclose(layer.weight.value, square.mean(0).sqrt(), rtol=1e-5)  # the brute force is float32
        stderr = square.std(0) / math.sqrt(draws) / 2 / square.mean(0).sqrt()
        np.testing.assert_allclose(layer.weight.stderr, stderr, rtol=1e-4, atol=1e-7)
    networks = simulate_gradients(net, x, loss="mse", targets=targets, draws=draws, seed=seed, average="networks")
    np.testing.assert_allclose(networks.layers[0].weight.value, squares[:, 0].sqrt().mean(0), rtol=1e-5)


def test_the_last_output_is_delta_itself() -> None:
    found = simulate_gradients(Sequential(Dense(6), ReLU(), Dense(5), ReLU()), data(3, 4), head=4, draws=4)
    np.testing.assert_allclose(found.layers[-1].output.value, 1, rtol=1e-12)
    assert found.layers[0].output.value.max() != 1


@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
def test_named_losses_are_those_of_torch(loss: str) -> None:
    x, net = data(5, 4), Sequential(Dense(6), ReLU(), Dense(3))
    targets = torch.tensor([0, 2, 1, 1, 0]) if loss == "cross-entropy" else data(5, 3, seed=2)
    function = {
        "cross-entropy": lambda out, t: F.cross_entropy(out, t, reduction="none"),
        "mse": lambda out, t: F.mse_loss(out, t, reduction="none").mean(1),
    }[loss]
    named, own = (simulate_gradients(net, x, loss=f, targets=targets, draws=3) for f in (loss, function))  # type: ignore[arg-type]
    assert named.loss == loss
    for one, two in zip(named.layers, own.layers, strict=True):
        np.testing.assert_allclose(one.weight.value, two.weight.value, rtol=1e-12)


@pytest.mark.parametrize("reduce", [torch.sum, torch.mean])
def test_a_loss_over_the_batch_gives_the_same_ratios(reduce: object) -> None:
    """A common factor of all losses cancels in |∂ℓ/∂W| / |δ|."""
    x, net = data(5, 4), Sequential(Dense(6), ReLU(), Dense(3))
    each = simulate_gradients(net, x, loss=lambda out, _: out.exp().sum(1), draws=3)
    whole = simulate_gradients(net, x, loss=lambda out, _: reduce(out.exp().sum(1)), draws=3)  # type: ignore[operator]
    for one, two in zip(each.layers, whole.layers, strict=True):
        np.testing.assert_allclose(one.weight.value, two.weight.value, rtol=1e-12)


def relu_net(depth: int, width: int, law: Gaussian) -> Sequential:
    return Sequential(*itertools.chain(*([Dense(width, weights=law), ReLU()] for _ in range(depth))))


def test_he_fan_out_keeps_gradients_and_glorot_loses_them() -> None:
    """Under OP's assumption E r² = 1 at every layer for He fan-out (OP Theorem 3), and 2^(1-L) for Glorot, uniform width.

    Every layer halves the square forwards or backwards; which of the two depends on the layer, their number does not.
    """
    depth, width = 6, 200
    x = data(4, width).float()
    for law, expected in ((Gaussian(2.0, "out"), 1.0), (Gaussian(1.0, "mean"), 2.0 ** ((1 - depth) / 2))):
        found = simulate_gradients(relu_net(depth, width, law), x, head=20, draws=150, seed=5)
        for layer in found.layers:
            assert bool(((layer.weight.value - expected).abs() <= 4 * layer.weight.stderr).all())


def test_the_head_is_no_part_of_the_network() -> None:
    net, x = relu_net(2, 30, Gaussian(2.0)), data(3, 8)
    found = simulate_gradients(net, x, head=7, draws=3)
    assert [layer.name for layer in found.layers] == ["1 dense(30)", "3 dense(30)"]
    # Cross-entropy takes any number of outputs as classes: without a head the loss sits on the last ReLU.
    assert simulate_gradients(net, x, draws=3).layers[0].weight.value.isfinite().all()


def test_names_tell_layers_inside_a_composition_apart() -> None:
    net = Sequential(Conv(4), Residual(ReLU(), Conv(4), ReLU(), Conv(4)))
    names = [layer.name for layer in simulate_gradients(net, data(*IMAGES), loss="mse", draws=2).layers]
    assert names == ["1 conv3", "2 res(relu conv3 relu conv3) [1]", "2 res(relu conv3 relu conv3) [2]"]


def test_the_seed_decides_everything() -> None:
    net, x = relu_net(2, 10, Gaussian(2.0)), data(3, 8)
    one, again, other = (simulate_gradients(net, x, head=5, draws=4, seed=s) for s in (1, 1, 2))
    assert one.to_dict() == again.to_dict()
    assert bool((one.layers[0].weight.value != other.layers[0].weight.value).all())


def test_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layers, shape = NETS["reflect"]
    whole = simulate_gradients(Sequential(*layers), data(*shape), draws=3)
    monkeypatch.setattr("initscope.finite.planning.TILE_BYTES", 10)
    monkeypatch.setattr("initscope.finite.per_sample._BLOCK", 10)
    cut = simulate_gradients(Sequential(*layers), data(*shape), draws=3)
    for one, two in zip(whole.layers, cut.layers, strict=True):
        np.testing.assert_allclose(one.weight.value, two.weight.value, rtol=1e-10)


def test_until_stops_at_the_wanted_width() -> None:
    found = simulate_gradients(relu_net(2, 50, Gaussian(2.0, "out")), data(2, 50), head=5, until=0.05)
    assert found.reached is True
    assert 0.04 < found.widest <= 0.05
    low, high = found.layers[-1].weight.interval()
    assert float((high - low).max()) <= 0.05


def test_gradients_too_small_to_square_in_float32_are_not_lost() -> None:
    """Thirty layers that shrink gradients by 2^-3 each, 2^-87 in all: the square does not fit float32."""
    net, x = relu_net(30, 200, Gaussian(2.0 / 64, "out")), data(2, 200).float()
    found = simulate_gradients(net, x, head=5, loss=lambda out, _: 1e30 * out.sum(1), draws=40)
    for layer in found.layers[::7]:
        assert bool(((layer.weight.value * 2.0**87 - 1).abs() <= 4 * layer.weight.stderr * 2.0**87).all())


def test_an_error_along_the_activations_breaks_the_assumption_of_op() -> None:
    """OP Theorem 3 takes the backward signal as independent of the masks. The sum of the last ReLU's outputs is not: its
    gradient points along the mean of the activations, and grows on the way back; behind a random head it does not.
    """
    net, x = relu_net(15, 100, Gaussian(2.0, "out")), data(2, 100).float()
    plain, behind = (simulate_gradients(net, x, loss=lambda out, _: out.sum(1), head=h, draws=60) for h in (None, 1))
    assert bool((plain.layers[0].weight.value - 10 * plain.layers[0].weight.stderr > 1).all())
    assert bool(((behind.layers[0].weight.value - 1).abs() < 4 * behind.layers[0].weight.stderr).all())


def test_inputs_without_a_gradient_are_named() -> None:
    x = data(4, 6)
    x[2] = 0
    with pytest.warns(UndefinedSimilarity, match="inputs 2 are zero, the ratio is NaN there"):
        found = simulate_gradients(relu_net(1, 20, Gaussian(2.0)), x, head=3, draws=3)
    assert found.layers[0].weight.value.isnan().tolist() == [False, False, True, False]
    with pytest.warns(UndefinedSimilarity, match="have no gradient in some networks"):
        simulate_gradients(relu_net(1, 1, Gaussian(2.0)), x[:1], head=3, draws=20)


def test_to_dict_survives_json() -> None:
    found = simulate_gradients(relu_net(2, 9, Gaussian(2.0)), data(2, 5), head=3, draws=3, seed=8)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document == found.to_dict()
    assert (document["seed"], document["draws"], document["loss"], document["reached"]) == (8, 3, "cross-entropy", None)
    assert set(document["layers"][0]) == {"name", "weight", "output"}


NET = Sequential(Dense(4), ReLU(), Dense(3))
WRONG: dict[str, tuple[dict[str, object], str]] = {
    "loss name": ({"loss": "hinge"}, "loss: got 'hinge'; use 'cross-entropy' or 'mse', or a function"),
    "loss shape": ({"loss": lambda out, _: out}, r"loss: returned shape \(2, 3\), expected \(2,\) or a single number"),
    "loss type": ({"loss": lambda out, _: 1.0}, "loss: returned a float"),
    "loss constant": ({"loss": lambda out, _: out.detach().sum()}, "loss: does not depend on the outputs"),
    "few classes": ({"head": 1}, "cross-entropy needs two or more classes"),
    "head": ({"head": 0}, "head: got 0, expected a whole number of at least 1"),
    "head flag": ({"head": True}, "head: got True"),
    "targets type": ({"targets": [0, 1]}, "targets: got a list"),
    "targets shape": (
        {"targets": torch.tensor([0, 1, 2])},
        r"targets: got shape \(3,\) of int64, expected 2 whole numbers",
    ),
    "targets floats": ({"targets": torch.tensor([0.0, 1.0])}, r"targets: got shape \(2,\) of float32"),
    "targets range": ({"targets": torch.tensor([0, 3])}, "classes reach from 0 to 3, expected 0 to 2"),
    "mse targets": ({"loss": "mse", "targets": torch.zeros(2, 4)}, r"expected shape \(2, 3\)"),
    "mse NaN": ({"loss": "mse", "targets": torch.full((2, 3), math.nan)}, "targets: hold NaN"),
    "own targets": ({"loss": lambda out, t: out.sum(1), "targets": torch.zeros(5)}, "expected one per input"),
    "draws": ({"draws": 0}, "simulate_gradients: draws is 0"),
    "until": ({"until": 0}, "simulate_gradients: until is 0"),
    "level": ({"level": 2}, "level: got 2"),
    "average": ({"average": "median"}, "average is 'median'"),
    "seed": ({"seed": 0.5}, "seed: got 0.5"),
    "memory": ({"memory": 10}, "simulate_gradients: needs about"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_by_name(name: str) -> None:
    options, said = WRONG[name]
    with pytest.raises(BadInput, match=said):
        simulate_gradients(NET, data(2, 5), **options)  # type: ignore[arg-type]


def test_wrong_inputs_and_networks_are_refused() -> None:
    with pytest.raises(BadInput, match="NaN"):
        simulate_gradients(NET, data(2, 5) * math.nan)
    with pytest.raises(BadInput, match="empty"):
        simulate_gradients(NET, data(0, 5))
    with pytest.raises(BadInput, match="the network has no weights"):
        simulate_gradients(ReLU(), data(2, 5))
    with pytest.raises(BadInput, match="samples see each other"):
        simulate_gradients(Sequential(BatchNorm(), Dense(3)), data(4, 5), loss=lambda out, _: out.sum())


def test_gradients_of_any_module_with_linear_layers_over_positions() -> None:
    """A linear layer over a sequence reads one patch per position."""
    torch.manual_seed(0)
    one, two = nn.Linear(4, 6), nn.Linear(6, 2)
    module, x = nn.Sequential(one, nn.Tanh(), two), data(3, 5, 4).float()
    found = sample_gradients(module, [one, two], x, lambda out: out.square().sum((1, 2)))
    for i in range(3):
        module.zero_grad()
        module(x[i : i + 1]).square().sum().backward()
        for k, part in enumerate((one, two)):
            assert part.weight.grad is not None
            assert found.weight[k, i].item() == pytest.approx(part.weight.grad.norm().item(), rel=1e-5)
    assert torch.equal(found.delta, found.output[-1])
    assert not one._forward_hooks


def test_parts_that_cannot_be_measured_are_refused() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.linear(self.linear(x))
            return result

    module, x = Twice(), torch.ones(2, 3)
    with pytest.raises(BadInput, match="called more than once"):
        sample_gradients(module, [module.linear], x, lambda out: out.sum(1))
    with pytest.raises(BadInput, match="took no part"):
        sample_gradients(nn.Linear(3, 3), [module.unused], x, lambda out: out.sum(1))
    assert not module.linear._forward_hooks
    norm = nn.LayerNorm(3)
    with pytest.raises(BadInput, match="unknown kind"):
        sample_gradients(norm, [norm], x, lambda out: out.square().sum(1))
