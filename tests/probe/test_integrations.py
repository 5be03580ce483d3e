"""`check` from inside pytest, Lightning, Hugging Face Trainer, TensorBoard and Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from initscope.errors import BadInput, MissingExtra
from initscope.probe import Thresholds, Unhealthy, check
from initscope.probe.integrations import (
    assert_healthy,
    callbacks,
    lightning_callback,
    log_to_tensorboard,
    log_to_wandb,
    scalars,
    trainer_callback,
)
from probe.models import he, mlp

STRICT = Thresholds(angle=(180.0, 179.0))


def _data(samples: int = 16) -> Tensor:
    return torch.randn(samples, 32, generator=torch.Generator().manual_seed(0))


def test_scalar_names_are_stable_and_follow_the_execution_order() -> None:
    torch.manual_seed(0)
    report = check(he(mlp(2)), _data(), seeds=1)
    found = scalars(report)
    assert found["initscope/verdict"] == 0.0
    assert found["initscope/layers/001/angle_deg"] == report.layers[1].angle_deg
    assert {name.split("/")[2] for name in found if name.startswith("initscope/layers/")} == {
        "000",
        "001",
        "002",
        "003",
    }


def test_tensorboard_reads_back_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    report = check(mlp(2), _data(), seeds=1)
    with SummaryWriter(tmp_path) as writer:
        log_to_tensorboard(report, writer)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    wanted = scalars(report)
    assert set(events.Tags()["scalars"]) == set(wanted)
    name = "initscope/layers/000/norm_ratio"
    assert events.Scalars(name)[0].value == pytest.approx(wanted[name], rel=1e-6)


def test_wandb_gets_one_call() -> None:
    calls: list[tuple[dict[str, float], int | None]] = []

    class Run:
        def log(self, values: dict[str, float], step: int | None = None) -> None:
            calls.append((values, step))

    report = check(mlp(2), _data(), seeds=1)
    log_to_wandb(report, Run(), step=3)
    assert calls == [(scalars(report), 3)]


def test_the_helper_passes_healthy_models_and_fails_others() -> None:
    torch.manual_seed(0)
    assert assert_healthy(he(mlp(2)), _data(), seeds=1).verdict == "healthy"
    with pytest.raises(AssertionError, match=r"end up \d+° apart"):
        assert_healthy(mlp(2), _data(), seeds=1, thresholds=STRICT)


def test_the_fixture_is_the_helper(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch
        from torch import nn

        def test_good(healthy_initialization):
            torch.manual_seed(0)
            healthy_initialization(nn.Sequential(nn.Linear(8, 64), nn.ReLU()), torch.randn(8, 8), seeds=1)

        def test_dead(healthy_initialization):
            layer = nn.Linear(8, 64)
            torch.nn.init.constant_(layer.bias, -1e6)
            healthy_initialization(nn.Sequential(layer, nn.ReLU(), nn.Linear(64, 2)), torch.randn(8, 8), seeds=1)
        """
    )
    result = pytester.runpytest_inprocess(
        "-p", "no:initscope", "-p", "initscope.pytest_plugin", "-p", "no:cacheprovider"
    )
    result.assert_outcomes(passed=1, failed=1)


def _lightning_fit(module: Any, data: Any, tmp_path: Path, callbacks: list[Any]) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    trainer = lightning.Trainer(
        max_epochs=2, callbacks=callbacks, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, data)


def _lightning_module(kind: str = "plain") -> Any:
    """`kind`: how the training step calls the net, which is not always through the module's forward."""
    lightning = pytest.importorskip("lightning.pytorch")

    class Base(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(2)
            if kind == "compiled":
                self.net = torch.compile(self.net, backend="eager")

        def training_step(self, batch: Any, index: int) -> Tensor:
            rows = batch["x"] if isinstance(batch, dict) else batch[0]
            while not isinstance(rows, Tensor):
                rows = rows[0]
            out: Tensor = self.net(rows)
            return out.square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    class Plain(Base):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.net(x)
            return out

    class Whole(Base):
        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            out: Tensor = self.net(batch["x"])
            return out

    torch.manual_seed(0)
    return {"no forward": Base, "whole batch": Whole}.get(kind, Plain)()


def _loader(**options: Any) -> Any:
    rows = torch.utils.data.TensorDataset(_data(), torch.zeros(16).long())
    return torch.utils.data.DataLoader(rows, batch_size=8, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stop", ["never", "fail"])
def test_lightning_checks_at_the_start_of_fit(stop: Any, tmp_path: Path) -> None:
    module = _lightning_module()
    callback = lightning_callback(stop=stop, thresholds=STRICT)
    if stop == "fail":
        with pytest.raises(Unhealthy):
            _lightning_fit(module, _loader(), tmp_path, [callback])
    else:
        _lightning_fit(module, _loader(), tmp_path, [callback])
    assert callback.report is not None
    assert callback.report.samples == 8
    assert [layer.name for layer in callback.report.layers] == ["net.0", "net.1", "net.2", "net.3"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["no forward", "whole batch", "several loaders", "one sample"])
def test_what_lightning_trains_and_check_does_not_take_is_a_warning(kind: str, tmp_path: Path) -> None:
    module, data = _lightning_module(kind), _loader()
    if kind == "whole batch":
        data = torch.utils.data.DataLoader([{"x": row} for row in _data()], batch_size=8)
    elif kind == "several loaders":
        data = {"x": _loader(), "y": _loader()}
    elif kind == "one sample":
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(_data(2)), batch_size=1)
    callback = lightning_callback()
    before = [p.detach().clone() for p in module.parameters()]
    with pytest.warns(UserWarning, match="initscope did not check the model, the training goes on: ") as caught:
        _lightning_fit(module, data, tmp_path, [callback])
    assert sum("initscope" in str(one.message) for one in caught) == 1
    assert callback.report is None
    assert not any(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    if kind in ("no forward", "one sample"):
        with pytest.raises(BadInput):
            _lightning_fit(_lightning_module(kind), data, tmp_path, [lightning_callback(stop="fail")])


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_net_is_trained(tmp_path: Path) -> None:
    module = _lightning_module("compiled")
    before = [p.detach().clone() for p in module.parameters()]
    _lightning_fit(module, _loader(), tmp_path, [lightning_callback()])
    assert not any(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("own", [False, True], ids=["global generator", "its own generator"])
def test_lightning_ends_where_it_would_without_the_callback(own: bool, tmp_path: Path) -> None:
    ends = []
    for used in ([], [lightning_callback()]):
        module = _lightning_module()
        loader = _loader(shuffle=True, generator=torch.Generator().manual_seed(3) if own else None)
        torch.manual_seed(1)
        _lightning_fit(module, loader, tmp_path, used)
        ends.append([*(p.detach() for p in module.parameters()), torch.rand(3)])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def _hugging_face(tmp_path: Path, callbacks: list[Any], size: int = 4) -> Any:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    rows = [{"input_ids": torch.randint(50, (6,)), "labels": torch.tensor(i % 2)} for i in range(8)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=size, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows, callbacks=callbacks)
    trainer.train()
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_trainer_checks_when_training_begins(tmp_path: Path) -> None:
    callback = trainer_callback()
    trainer = _hugging_face(tmp_path, [callback])
    assert callback.report is not None
    assert callback.report.loss == "the model's own"
    assert any("initscope/verdict" in entry for entry in trainer.state.log_history)


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_ends_where_it_would_without_the_callback(tmp_path: Path) -> None:
    plain, checked = (_hugging_face(tmp_path, calls) for calls in ([], [trainer_callback()]))
    for a, b in zip(plain.model.parameters(), checked.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_with_batches_of_one_sample_is_a_warning(tmp_path: Path) -> None:
    callback = trainer_callback()
    with pytest.warns(UserWarning, match="at least 2 samples"):
        trainer = _hugging_face(tmp_path, [callback], size=1)
    assert callback.report is None
    assert trainer.state.global_step == 3


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(callbacks, "import_module", missing)
    with pytest.raises(MissingExtra, match="pip install lightning"):
        lightning_callback()
    with pytest.raises(MissingExtra, match="pip install transformers"):
        trainer_callback()


def test_an_unknown_rule_for_stopping_is_refused() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(BadInput, match="'never'"):
        trainer_callback(stop="always")  # type: ignore[arg-type]
