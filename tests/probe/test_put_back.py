"""A forward pass may write to weights and change torch's settings: `check` puts everything back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from initscope.probe import check, safekeeping
from initscope.probe.safekeeping import untouched


class Writes(nn.Module):
    """Calls a function of itself in every forward pass."""

    def __init__(self, act: Callable[[Any], object]) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.layer(x))
        self.act(self)
        out: Tensor = self.last(h)
        return out


def _replace(model: Any) -> None:
    model.last.weight.data = torch.zeros(4, 8)


def _counted(model: Any) -> None:
    with torch.no_grad():
        model.last.weight.mul_(2)


def _shrink(model: Any) -> None:
    model.last.weight.data = model.last.weight.data.double()
    model.last.bias.data = model.last.bias.data.double()
    model.last.float()


WRITES: dict[str, Callable[[Any], object]] = {
    "in place": lambda m: m.last.weight.data.mul_(2),
    "assigned": _replace,
    "counted": _counted,
    "another dtype and back": _shrink,
    "NaN": lambda m: m.last.bias.data.fill_(float("nan")),
}
STRUCTURE: dict[str, Callable[[Any], object]] = {
    "a new parameter": lambda m: setattr(m.last, "weight", nn.Parameter(torch.ones(4, 8))),
    "a new layer": lambda m: setattr(m, "more", nn.Linear(2, 2)),
    "a frozen weight": lambda m: m.layer.weight.requires_grad_(False) if not m.layer.weight.grad_fn else None,
    "a new hook": lambda m: m.last.register_forward_hook(lambda *_: None),
    "a new buffer": lambda m: m.register_buffer("seen", torch.ones(1)),
}


def fingerprint(model: nn.Module) -> tuple[object, ...]:
    weights = [(n, id(p), p.data_ptr(), p.dtype, p.requires_grad, p.tolist()) for n, p in model.named_parameters()]
    hooks = [len(m._forward_hooks) for m in model.modules()]
    return weights, [n for n, _ in model.named_modules()], [n for n, _ in model.named_buffers()], hooks


@pytest.mark.parametrize("how", WRITES)
def test_weights_are_put_back_and_it_is_said(how: str) -> None:
    model, x = Writes(WRITES[how]), torch.randn(4, 8)
    before = fingerprint(model)
    report = check(model, x, seeds=2, theory=False)
    assert fingerprint(model) == before
    written = [note for note in report.notes if note.kind == "written"]
    assert [note.detail for note in written] == [""]
    assert {name.partition(".")[0] for name in written[0].steps} == {"last"}
    assert "they were put back" in str(report).replace("\n", " ")


@pytest.mark.parametrize("how", STRUCTURE)
def test_what_a_module_holds_is_put_back(how: str) -> None:
    model, x = Writes(STRUCTURE[how]), torch.randn(4, 8)
    before = fingerprint(model)
    report = check(model, x, seeds=1, theory=False)
    assert report.failure is None
    assert fingerprint(model) == before


def test_of_large_models_a_write_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safekeeping, "COPIED", 0)
    model, x = Writes(WRITES["in place"]), torch.randn(4, 8)
    report = check(model, x, seeds=1, theory=False)
    assert ("stay", ("last.weight",)) in [(n.detail, n.steps) for n in report.notes if n.kind == "written"]
    assert "stay changed" in " ".join(report.to_dict()["notes"])
    replaced = Writes(_replace)
    before = fingerprint(replaced)
    report = check(replaced, x, seeds=1, theory=False)
    assert fingerprint(replaced) == before  # the memory of the weight is known without a copy
    assert not any(n.detail == "stay" for n in report.notes if n.kind == "written")


def test_weights_are_copied_unless_only_torchs_own_modules_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss, a hook, a replaced forward or a function in an attribute may write to weights of plain layers."""

    def write(*_: Any) -> None:
        model[0].weight.data.mul_(2)

    def loss(output: Tensor, _: Any) -> Tensor:
        write()
        return output.square().mean()

    def forward(x: Tensor) -> Tensor:
        write()
        return x

    changes: list[Callable[[], dict[str, Any]]] = [
        lambda: {"loss": loss},
        lambda: model[1].register_forward_hook(write) and {},  # type: ignore[func-returns-value]
        lambda: setattr(model[1], "forward", forward) or {},  # type: ignore[func-returns-value]
        lambda: model[0].bias.register_hook(write) and {},  # type: ignore[func-returns-value]
    ]
    for change in changes:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
        options = change() or {}
        before = fingerprint(model)
        report = check(model, torch.randn(4, 8), seeds=1, theory=False, **options)
        assert fingerprint(model) == before
        assert [note.steps for note in report.notes if note.kind == "written"] == [("0.weight",)]
    plain = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Embedding(4, 4, max_norm=1.0))
    assert [w.name for w in safekeeping.Kept(plain, users_code=False)._before] == ["2.weight"]
    assert len(safekeeping.Kept(plain)._before) == 3


def test_sums_see_what_moves() -> None:
    for dtype in (torch.float32, torch.float16, torch.float64, torch.complex64, torch.int8):
        values = torch.arange(1, 9).to(dtype)
        other = values.clone()
        assert safekeeping._sums(values) == safekeeping._sums(other)
        other[[0, 1]] = other[[1, 0]]  # the plain sum is the same
        assert safekeeping._sums(values) != safekeeping._sums(other)


def _autocast(_: object) -> None:
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_cache_enabled(False)


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "default dtype": (torch.get_default_dtype, lambda _: torch.set_default_dtype(torch.float64)),
    "threads": (torch.get_num_threads, lambda _: torch.set_num_threads(torch.get_num_threads() + 1)),
    "determinism": (
        torch.are_deterministic_algorithms_enabled,
        lambda _: torch.use_deterministic_algorithms(True, warn_only=True),
    ),
    "matmul precision": (
        torch.get_float32_matmul_precision,
        lambda _: torch.set_float32_matmul_precision("medium"),
    ),
    "cudnn": (
        lambda: (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled),
        lambda _: [setattr(torch.backends.cudnn, n, v) for n, v in (("benchmark", True), ("enabled", False))],
    ),
    "grad mode": (torch.is_grad_enabled, lambda _: torch._C._set_grad_enabled(False)),
    "autocast on": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda _: torch.set_autocast_enabled("cpu", True),
    ),
    "autocast": (lambda: (torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()), _autocast),
    "anomaly mode": (torch.is_anomaly_enabled, lambda _: torch.set_anomaly_enabled(True)),
    "default device": (torch.get_default_device, lambda _: torch.set_default_device("meta")),
    "numpy": (np.geterr, lambda _: np.seterr(over="raise")),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_put_back(name: str) -> None:
    read, change = SETTINGS[name]
    before = read()
    try:
        with untouched(nn.Linear(2, 2), 0):
            change(None)
            assert read() != before
        assert read() == before
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", ["default dtype", "threads", "determinism", "matmul precision", "cudnn", "grad mode"])
def test_settings_are_put_back_by_check(name: str) -> None:
    read, change = SETTINGS[name]
    before = read()
    check(Writes(change), torch.randn(4, 8), seeds=1, theory=False)
    assert read() == before
