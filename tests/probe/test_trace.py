"""What the tracer sees of models of many shapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from initscope.probe.trace import INPUT, Call, Recorder
from probe.models import Functional, Residual, Stops, WrittenOut


def _calls(model: nn.Module, *inputs: Tensor) -> list[Call]:
    recorder: Recorder[None] = Recorder(model, inputs, lambda call, values: None)
    with recorder.watching():
        model(*inputs)
    return [step.call for step in recorder.steps]


def test_functions_operators_and_shared_modules_are_seen() -> None:
    calls = _calls(Functional(), torch.randn(4, 8))
    assert [(c.name, c.kind) for c in calls] == [
        ("first", "dense"),
        ("relu", "activation"),
        ("shared", "dense"),
        ("add", "residual"),
        ("shared#2", "dense"),
        ("tanh", "activation"),
        ("mul", "scale"),
        ("add#2", "residual"),
        ("square", "activation"),
        ("cat", "concat"),
    ]


def test_operands_are_known_through_views_and_in_place_calls() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 4, 1), nn.Linear(4 * 9, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.conv(x)
            kept = h.permute(0, 2, 3, 1).contiguous()
            h = torch.relu_(h)
            out: Tensor = self.head(h.flatten(1)) + kept.flatten(1)[:, :2]
            return out

    calls = _calls(Views(), torch.randn(2, 3, 3, 3))
    names = {c.name: c for c in calls}
    assert names["conv"].inputs == (INPUT,)
    assert names["relu"].inputs == (names["conv"].index,)
    assert names["head"].inputs == (names["relu"].index,)
    assert names["add"].kind == "residual"
    assert names["add"].inputs == (names["head"].index, names["getitem"].index)


def test_parameters_belong_to_their_calls() -> None:
    calls = _calls(Residual(8, 1), torch.randn(3, 8))
    assert calls[0].parameters == ("enter.weight", "enter.bias")
    assert [c.kind for c in calls] == ["dense", "dense", "activation", "dense", "residual"]
    assert calls[-1].inputs == (0, 3)


def test_an_activation_in_pieces_is_one_step() -> None:
    calls = _calls(nn.Sequential(nn.Linear(8, 8), WrittenOut(), nn.Linear(8, 8)), torch.randn(3, 8))
    assert [(c.name, c.kind, c.inputs) for c in calls] == [
        ("0", "dense", (INPUT,)),
        ("1", "activation", (0,)),
        ("2", "dense", (1,)),
    ]


def test_scripted_modules_are_recorded_as_a_whole() -> None:
    with pytest.warns(DeprecationWarning, match="jit"):
        scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    calls = _calls(nn.Sequential(nn.Linear(8, 8), scripted), torch.randn(3, 8))
    assert [c.inputs for c in calls] == [(INPUT,), (0,)]


def test_calls_that_do_not_touch_the_data_are_not_steps() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.exp(self.scale.cumsum(0).sigmoid())

    assert [(c.kind, c.function) for c in _calls(Scaled(), torch.randn(2, 8))] == [("scale", "mul")]


def test_the_place_of_a_failure_is_known() -> None:
    model = Stops()
    x = torch.randn(2, 8)
    recorder: Recorder[None] = Recorder(model, x, lambda call, values: None)
    with pytest.raises(RuntimeError), recorder.watching():
        model(x)
    assert recorder.place == "bad"
    assert [s.call.name for s in recorder.steps] == ["good"]


def test_no_hook_is_left_behind() -> None:
    from torch.nn.modules import module

    before = dict(module._global_forward_hooks), dict(module._global_forward_pre_hooks)
    test_the_place_of_a_failure_is_known()
    assert (dict(module._global_forward_hooks), dict(module._global_forward_pre_hooks)) == before
