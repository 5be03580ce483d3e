"""`fix`: it finds the remedy, proves it, never makes a model worse and never touches it."""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_model
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from initscope.data import load
from initscope.errors import BadInput
from initscope.probe import Fixed, Health, check, fix
from initscope.probe.batches import as_batch
from initscope.probe.findings import Note
from initscope.probe.fixing import MARGIN
from initscope.probe.training import compare_training
from probe.models import Functional, Residual, Stops, cnn, he, mlp


def _batch(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _decades(report: object) -> float:
    return Health.of(report).decades  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def collapsed() -> tuple[nn.Module, Tensor, Fixed]:
    """A 30-layer plain CNN with PyTorch's own initialization, on photographs."""
    torch.manual_seed(0)
    model, photos = cnn(30, 16), load("photos", count=8, size=16, seed=0).images.float()
    return model, photos, fix(model, photos, seeds=2)


def test_a_deep_plain_cnn_on_photos_is_repaired(collapsed: tuple[nn.Module, Tensor, Fixed]) -> None:
    _, _, fixed = collapsed
    before, after = Health.of(fixed.before), Health.of(fixed.after)
    assert fixed.before.verdict == "fail"
    assert fixed.after.verdict != "fail"
    assert before.angle_deg is not None
    assert after.angle_deg is not None
    assert after.angle_deg > 1e4 * before.angle_deg
    assert before.grad_norm_ratio is not None
    assert after.grad_norm_ratio is not None
    assert abs(math.log10(before.grad_norm_ratio)) > abs(math.log10(after.grad_norm_ratio)) + 6
    assert fixed.applied[0].applied
    assert fixed.applied[0].effect.before == before
    assert fixed.applied[0].effect.after == after


def test_what_is_reported_is_what_the_fixed_model_does(collapsed: tuple[nn.Module, Tensor, Fixed]) -> None:
    model, photos, fixed = collapsed
    again = check(fixed.model, photos, seeds=1)
    for row, first in zip(again.layers, fixed.after.layers, strict=True):
        assert row.cosine_seeds.values[0] == first.cosine_seeds.values[0]
    assert fixed.after.seeds == 2
    assert len(set(fixed.after.layers[-1].cosine_seeds.values)) == 2
    assert fixed.after.notes[-1] == Note("draws", f"drawn again by reset_parameters, then {fixed.applied[0].name}")
    old = check(model, photos, seeds=2)
    assert [r.cosine_mean for r in old.layers] == [r.cosine_mean for r in fixed.before.layers]


def test_remedies_are_those_tried_before_and_those_open_afterwards(collapsed: tuple[nn.Module, Tensor, Fixed]) -> None:
    _, _, fixed = collapsed
    tried = [r.name for r in fixed.before.remedies]
    assert {"he-fan-in", "delta-orthogonal", "zero-sum", "data-scaling", "batch-norm", "centre-channels"} <= set(tried)
    assert [r.name for r in fixed.before.remedies if r.applied] == [fixed.applied[0].name]
    assert {r.changes for r in fixed.after.remedies} == {"data", "architecture"}
    assert all(not r.applied for r in fixed.after.remedies)


def test_the_answer_is_plain_data_and_a_few_lines(collapsed: tuple[nn.Module, Tensor, Fixed]) -> None:
    _, _, fixed = collapsed
    found = json.loads(json.dumps(fixed.to_dict(), allow_nan=False))
    assert found["applied"][0]["effect"]["after"]["verdict"] == fixed.after.verdict
    assert found["before"]["remedies"][0]["command"]
    lines = fixed.summary().splitlines()
    assert lines[0].startswith(f"{fixed.applied[0].name}: fail -> ")
    assert lines[1].startswith("angle between samples in front of the readout, degrees: ")


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: mlp(12, 48, 32, nn.Tanh), (12, 32)),
        (lambda: he(Residual(32, 6), 16.0), (12, 32)),
        (lambda: nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(12))), (12, 32)),
    ],
    ids=["tanh", "residual", "gelu"],
)
def test_other_networks_are_repaired(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    fixed = fix(make(), _batch(*shape), seeds=2)
    assert fixed.before.verdict != "healthy"
    assert len(fixed.applied) == 1
    assert _decades(fixed.after) < _decades(fixed.before) - 1
    assert fixed.after.verdict == "healthy"


def test_functional_networks_and_shared_weights_are_repaired() -> None:
    torch.manual_seed(0)
    model = Functional()
    with torch.no_grad():
        model.first.weight.mul_(1e-4)
        model.shared.weight.mul_(1e4)
    fixed = fix(model, _batch(12, 8), seeds=2)
    assert len(fixed.applied) == 1
    assert (fixed.before.verdict, fixed.after.verdict) == ("fail", "healthy")  # the branch, which the trunk goes around
    shared = nn.Linear(32, 32)
    again = fix(nn.Sequential(*(m for _ in range(10) for m in (shared, nn.ReLU()))), _batch(12, 32), seeds=1)
    assert len(again.applied) == 1
    assert len(list(again.model.parameters())) == 2
    assert again.model[0] is again.model[2]


def test_a_healthy_model_is_left_alone() -> None:
    torch.manual_seed(0)
    model = he(mlp(2, 64, 32))
    fixed = fix(model, _batch(12, 32), seeds=1)
    assert fixed.applied == ()
    assert fixed.after is fixed.before
    assert "healthy" in fixed.message
    assert fixed.model is not model
    assert all(torch.equal(a, b) for a, b in zip(fixed.model.parameters(), model.parameters(), strict=True))


def test_what_does_not_help_is_not_kept() -> None:
    """Frozen weights leave nothing to do; a named remedy that makes things worse is refused."""
    torch.manual_seed(0)
    frozen = mlp(12, 32, 32).requires_grad_(False)
    nothing = fix(frozen, _batch(8, 32), seeds=1)
    assert nothing.applied == ()
    assert nothing.before.leading is not None
    assert nothing.before.leading.kind == "frozen"
    assert nothing.message == "what was found is not a matter of the weights, they stay as they are"
    worse = fix(he(Residual(32, 4), 0.5), _batch(8, 32), seeds=2, remedy="he-fan-out")
    assert worse.applied == ()
    assert worse.message.startswith("he-fan-out was tried with 2 seeds: off by ")
    assert [r.name for r in worse.before.remedies] == ["he-fan-out"]
    assert worse.before.remedies[0].improvement is not None
    assert worse.before.remedies[0].improvement < MARGIN


def test_a_named_remedy_is_the_one_applied() -> None:
    torch.manual_seed(0)
    fixed = fix(mlp(10, 32, 32), _batch(8, 32), seeds=1, remedy="orthogonal")
    assert fixed.applied[0].name == "orthogonal"
    weight = fixed.model[2].weight.detach()
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(32), rtol=0, atol=1e-5)
    both = fix(mlp(10, 32, 32), _batch(8, 32), seeds=1, remedy="orthogonal+data-scaling")
    assert both.applied[0].name == "orthogonal+data-scaling"


def test_a_factory_is_drawn_again_for_every_seed() -> None:
    fixed = fix(lambda: mlp(10, 32, 32), _batch(8, 32), seeds=3, remedy="he-fan-in")
    assert fixed.after.seeds == 3
    assert len(set(fixed.after.layers[-1].cosine_seeds.values)) == 3


def _learnable(count: int) -> tuple[Tensor, Tensor]:
    """Four classes by the signs of two directions."""
    x = _batch(count, 32)
    return x, (x[:, :8].sum(1) > 0).long() + 2 * (x[:, 8:16].sum(1) > 0).long()


def test_the_fixed_model_learns_where_the_original_does_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(mlp(16, 48, 32), nn.Linear(48, 4))
    fixed = fix(model, _learnable(64), seeds=1, train_steps=60)
    assert fixed.training is not None
    assert fixed.before.loss == "cross-entropy"
    before, after = fixed.training.before, fixed.training.after
    assert len(before.losses) == len(after.losses) == 60
    assert before.final > 1.2  # log 4 = 1.386 is guessing
    assert after.final < 0.5 * before.final
    assert f"loss after 60 steps: {before.final:.3g} -> {after.final:.3g}" in fixed.summary()
    first = torch.nn.functional.cross_entropy(fixed.model(_learnable(64)[0]), _learnable(64)[1])
    assert after.losses[0] == pytest.approx(float(first.detach()), rel=1e-5)


def test_training_is_plain_sgd_with_momentum() -> None:
    torch.manual_seed(0)
    model, (x, y) = mlp(1, 4, 32), _learnable(16)
    fixed = fix(model, (x, y), seeds=1, train_steps=3, lr=0.05, loss=nn.CrossEntropyLoss())
    assert fixed.training is not None
    assert fixed.training.rates == (0.05,)
    weights = [p.detach().clone().requires_grad_() for p in model.parameters()]
    velocity = [torch.zeros_like(w) for w in weights]
    losses = []
    for _ in range(3):
        value = torch.nn.functional.cross_entropy(torch.relu(x @ weights[0].T + weights[1]), y)
        losses.append(float(value.detach()))
        for w, v, g in zip(weights, velocity, torch.autograd.grad(value, weights), strict=True):
            v.mul_(0.9).add_(g)
            w.data -= 0.05 * v
    assert fixed.training.before.losses == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("own", [False, True], ids=["global generator", "its own generator"])
def test_both_models_see_the_batches_of_a_loader_in_the_same_order(own: bool) -> None:
    generator = torch.Generator().manual_seed(3) if own else None
    x, y = _learnable(33)
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True, generator=generator)
    seen: list[float] = []

    def loss(output: Tensor, target: Tensor) -> Tensor:
        seen.append(float(target.double().mean()) + len(target))
        return torch.nn.functional.cross_entropy(output, target)

    model, other = mlp(1, 4, 32), he(mlp(1, 4, 32))
    states = [torch.get_rng_state(), *([] if generator is None else [generator.get_state()])]
    compare_training(model, other, loader, as_batch((x, y), model), steps=9, loss=loss, lr=0.01)
    assert len(seen) == 18
    assert seen[:9] == seen[9:]
    assert len(set(seen[:4])) > 1
    assert seen[:4] != seen[4:8]  # shuffled again in the second round; the rest of one sample is left out
    assert _same(states, [torch.get_rng_state(), *([] if generator is None else [generator.get_state()])])


def test_training_that_diverges_is_infinite_and_still_json() -> None:
    torch.manual_seed(0)
    fixed = fix(mlp(4, 16, 32), (_batch(8, 32), 1e3 * _batch(8, 16)), seeds=1, train_steps=40, lr=1e6)
    assert fixed.training is not None
    assert fixed.training.before.final == math.inf
    assert len(fixed.training.before.losses) == 40
    assert json.loads(json.dumps(fixed.to_dict(), allow_nan=False))["training"]["before"]["final"] is None


def test_weights_go_to_safetensors_and_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shared = nn.Linear(32, 32)

    def make() -> nn.Module:
        return nn.Sequential(shared, nn.ReLU(), shared, nn.ReLU(), nn.BatchNorm1d(32), mlp(8, 32, 32))

    fixed = fix(make(), _batch(8, 32), seeds=1, remedy="orthogonal")
    path = fixed.save(tmp_path / "weights.safetensors")
    with safe_open(path, "pt") as file:
        assert file.metadata()["initscope"] == fixed.message
    other = make()
    load_model(other, path)
    x = _batch(8, 32)
    assert torch.equal(other(x), fixed.model(x))
    assert [p.name for p in tmp_path.iterdir()] == ["weights.safetensors"]
    with pytest.raises(BadInput, match="folder that exists"):
        fixed.save(tmp_path / "nowhere" / "weights.safetensors")


def _fingerprint(model: nn.Module) -> list[object]:
    return [
        [(k, v.clone()) for k, v in model.state_dict().items()],
        [id(p) for p in model.parameters()],
        [p._version for p in model.parameters()],
        [m.training for m in model.modules()],
        [p.grad is None for p in model.parameters()],
        [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        torch.get_rng_state(),
        np.random.get_state()[1].copy(),  # noqa: NPY002
        random.getstate(),
    ]


def _same(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def test_the_model_and_the_random_states_stay() -> None:
    model = nn.Sequential(cnn(8, 4), nn.Dropout(0.5)).eval()
    model[0].append(nn.BatchNorm1d(10))
    model[0][0].weight.grad = torch.ones_like(model[0][0].weight)
    x, y = _batch(6, 3, 8, 8), torch.zeros(6, dtype=torch.long)
    before = _fingerprint(model)
    fixed = fix(model, (x, y), seeds=2, train_steps=2)
    assert _same(before, _fingerprint(model))
    assert fixed.applied
    assert [m.training for m in fixed.model.modules()] == [m.training for m in model.modules()]
    assert all(p.grad is None for p in fixed.model.parameters())
    pointers = {p.data_ptr() for p in model.parameters()}
    assert pointers.isdisjoint(p.data_ptr() for p in fixed.model.parameters())


def test_the_model_stays_when_something_raises() -> None:
    model, x = mlp(10, 16, 8), _batch(6, 8)
    before = _fingerprint(model)
    calls = []

    def broken(output: object, target: object) -> Tensor:
        calls.append(1)
        if len(calls) > 4:
            raise ZeroDivisionError
        return output.square().sum()  # type: ignore[attr-defined, no-any-return]

    with pytest.raises(ZeroDivisionError):
        fix(model, x, seeds=2, loss=broken)
    assert _same(before, _fingerprint(model))


def test_a_model_that_does_not_run_is_returned_as_it_is() -> None:
    fixed = fix(Stops(), _batch(4, 8))
    assert fixed.applied == ()
    assert fixed.message.startswith("the forward pass fails (bad: RuntimeError")


def test_a_backward_pass_that_fails_is_called_so() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, *grads: Tensor) -> Tensor:
            raise RuntimeError("no gradient today")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = Broken.apply(self.one(x))
            return out

    fixed = fix(Net(), _batch(4, 8))
    assert fixed.message.startswith("the backward pass fails (")
    assert "no gradient today" in fixed.message
    assert "forward" not in fixed.message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"remedy": "magic"}, "choose from he-fan-in"),
        ({"remedy": "batch-norm"}, "apply_remedy"),
        ({"train_steps": -1}, "train_steps is -1"),
        ({"train_steps": 5}, "training needs targets"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"seeds": 0}, "seeds is 0"),
    ],
)
def test_bad_input_gets_one_clear_error(given: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        fix(mlp(2), _batch(4, 32), **given)  # type: ignore[arg-type]


def test_a_model_that_cannot_be_copied_is_refused() -> None:
    model = mlp(10, 16, 32)
    model.lock = threading.Lock()
    with pytest.raises(BadInput, match="cannot be copied"):
        fix(model, _batch(4, 32), seeds=1)


def test_results_that_modules_keep_are_copied_by_value() -> None:
    model = mlp(10, 16, 32)
    model.cache = model[0].weight * 2  # a result with history
    fixed = fix(model, _batch(4, 32), seeds=1)
    assert torch.equal(fixed.model.cache, model.cache)
    assert model.cache.grad_fn is not None
