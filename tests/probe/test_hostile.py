"""Inputs and models that nobody planned for: one clear error, or a report that says where the model stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from initscope.errors import BadInput
from initscope.probe import apply_remedy, check, fix, prescribe


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.parametrize("call", [check, fix])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: x.to_sparse(), r"layout sparse_coo, .*to_dense\(\)"),
        (lambda x: x.to_sparse_csr(), r"layout sparse_csr, .*to_dense\(\)"),
        (lambda x: {"input": x, "graph": x.to_sparse()}, r"layout sparse_coo, .*to_dense\(\)"),
        (lambda x: torch.nested.nested_tensor([x[:2], x[2:]]), "nested tensor, .*pad it"),
        (lambda x: torch.nested.nested_tensor([x[:2], x[2:]], layout=torch.jagged), "nested tensor, .*pad it"),
    ],
    ids=["coo", "csr", "among others", "nested", "jagged"],
)
@pytest.mark.filterwarnings("ignore:.*(CSR|nested tensors|Nested Tensor|beta):UserWarning")
def test_sparse_and_nested_inputs(call: Callable[..., object], make: Callable[[Tensor], Any], said: str) -> None:
    with pytest.raises(BadInput, match=f"batch: holds a .*{said}"):
        call(net(), make(torch.eye(8)), seeds=1)


class _Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, error: type[Exception]) -> Tensor:
        ctx.error = error
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        raise ctx.error("no way back")


class NoWayBack(nn.Module):
    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.layer, self.error = nn.Linear(8, 2), error

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _Raises.apply(self.layer(x), self.error)
        return out


@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyError, NotImplementedError, AssertionError])
def test_a_backward_pass_that_raises_anything(error: type[Exception]) -> None:
    model, x = NoWayBack(error), torch.randn(4, 8)
    report = check(model, x)
    assert report.failure is not None
    assert report.failure.startswith("backward pass: ")
    assert "no way back" in report.failure
    assert (report.verdict, report.leading and report.leading.kind) == ("fail", "stopped")
    fixed = fix(model, x, seeds=1)
    assert fixed.applied == ()
    assert "the backward pass fails" in fixed.message
    assert prescribe(model, x) == ()
    with pytest.raises(BadInput, match="the backward pass fails"):
        apply_remedy(model, x, "he-fan-in")


@pytest.mark.parametrize("loss", ["squared-error", "cross-entropy", "random-direction"])
def test_a_single_number_is_no_output_for_a_named_loss(loss: str) -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.layer(x).square().mean()
            return out

    with pytest.raises(BadInput, match=r"model: its output is a single number, .*leave out loss="):
        check(Sums(), torch.randn(4, 8), loss=loss)  # type: ignore[arg-type]
    assert check(Sums(), torch.randn(4, 8), seeds=1).loss == "the model's own"


def test_inference_mode_with_several_draws() -> None:
    """Also where copies are made: weights of zero are nudged in one."""
    models = [net(), net(), nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2, bias=False))]
    nn.init.zeros_(models[1][2].weight)
    x = torch.randn(6, 8)
    for model in models:
        with torch.inference_mode():
            report = check(model, x, seeds=3)
        assert (report.seeds, len(report.draws)) == (3, 2)
        assert report.verdict == check(model, x, seeds=3).verdict
    with torch.inference_mode():
        assert check(net, x, seeds=3).seeds == 3
        assert fix(models[1], x, seeds=2).before.seeds == 2
        assert prescribe(models[0], x)
