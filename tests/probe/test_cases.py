"""Models as people write them: what they do to their inputs, attributes and axes must not lead a check astray."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from initscope.errors import BadInput
from initscope.probe import check
from initscope.probe.findings import Note
from initscope.probe.report import LayerReport, Report
from initscope.report.wording import finding_text, note_texts
from probe.models import noise


def run(model: nn.Module, batch: Any, **options: Any) -> Report:
    torch.manual_seed(0)
    return check(model, batch, **({"seeds": 1} | options))


def row(report: Report, name: str) -> LayerReport:
    return next(layer for layer in report.layers if layer.name == name)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        x -= 3.0
        x *= 10.0
        return self.a(x)  # type: ignore[no-any-return]


def test_a_model_that_writes_to_its_input_gets_a_copy_every_time() -> None:
    x = 3 + 0.1 * noise(16, 32)
    kept = x.clone()
    report = run(InPlace(), x, seeds=3)
    assert torch.equal(x, kept)
    cosines = row(report, "a").cosine_seeds.values
    assert max(map(abs, cosines)) < 0.2  # centred data stay so under every seed


class Sums(nn.Module):
    """Tokens, and positions that are larger and the same for all samples."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(12, 32)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.03)
        self.head = nn.Linear(32, 32)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1]) + 0 * ids  # computed from the data, yet the same for all
        return self.head(self.tokens(ids) + self.places(places))  # type: ignore[no-any-return]


def test_what_is_the_same_for_all_samples_is_not_the_trunk() -> None:
    report = run(Sums(), torch.randint(0, 50, (8, 12), generator=torch.Generator().manual_seed(0)))
    assert row(report, "places").angle_deg == pytest.approx(0, abs=1e-6)
    assert row(report, "places").status == "healthy"
    assert report.verdict != "fail"


class WrittenNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(16, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        return self.head(h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))  # type: ignore[no-any-return]


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def test_a_normalization_written_out_is_no_pooling() -> None:
    report = run(WrittenNorm(), noise(8, 16))
    assert report.verdict == "healthy"
    assert report.blame.get("pooling", 0.0) < 1e-6
    merged = run(nn.Sequential(nn.Linear(16, 64), RMSNorm(64), nn.Linear(64, 8)), noise(8, 16))
    assert [(layer.name, layer.kind) for layer in merged.layers] == [("0", "dense"), ("1", "norm"), ("2", "dense")]
    assert merged.layers[1].parameters == ("1.weight",)


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = nn.Linear(16, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.a(x).relu()
        return self.c(h), (h**2).mean(1)


def test_the_output_is_what_the_model_returns_first() -> None:
    report = run(TwoOutputs(), noise(16, 16))
    assert report.verdict == "healthy"
    assert [layer.name for layer in report.layers if layer.output] == ["c"]
    assert "pooling" not in report.blame


@pytest.mark.parametrize(
    ("units", "end"), [(1, nn.Identity()), (1, nn.Sigmoid()), (5, nn.LogSoftmax(1)), (5, nn.Softmax(1))]
)
def test_heads_of_one_unit_and_of_probabilities_are_judged_before_them(units: int, end: nn.Module) -> None:
    torch.manual_seed(1)
    head = nn.Linear(64, units)
    nn.init.constant_(head.bias, 0.0 if units > 1 else 3.0)
    report = check(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), head, end), noise(16, 8), seeds=1)
    assert report.verdict == "healthy", report.first_bad_layer
    assert (row(report, "2").angle_deg is None) == (units == 1)


@pytest.mark.parametrize("length", [5, 8, 16])
def test_samples_are_followed_through_transposed_axes(length: int) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.3)
    report = run(layer, noise(8, length, 16))
    attention = row(report, "self_attn:multi_head_attention_forward").angle_deg
    assert row(report, "dropout1").angle_deg == pytest.approx(attention, rel=1e-5)


class BatchMean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        return h - h.mean(0)  # type: ignore[no-any-return]


def test_a_mean_over_the_batch_has_no_samples() -> None:
    report = run(BatchMean(), noise(16, 8))
    assert next(layer for layer in report.layers if layer.op == "mean").angle_deg is None


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        return self.a(u) + self.b(v)  # type: ignore[no-any-return]


def test_the_second_input_does_not_get_the_theory_of_the_first() -> None:
    report = run(TwoInputs(), (noise(8, 256), 1 + 0.1 * noise(8, 256, seed=1)))
    assert row(report, "a").predicted is not None
    assert row(report, "b").predicted is None
    assert Note("no-theory", "linear", ("b",)) in report.notes
    assert "Measured only, there is no theory for: linear (b)." in note_texts(report.notes)


class Collapsing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(*(m for _ in range(30) for m in (nn.Linear(16, 16), nn.ReLU())))

    def forward(self, grid: Tensor, feats: Tensor) -> Tensor:
        return self.net(feats) * grid.sum()  # type: ignore[no-any-return]


def test_samples_are_counted_on_the_tensor_with_features() -> None:
    report = run(Collapsing(), {"grid": torch.ones(3), "feats": noise(8, 16)})
    assert report.samples == 8
    assert report.verdict == "fail"


class Total(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x.sum(0, keepdim=True).T.reshape(1, 4)).reshape(3)  # type: ignore[no-any-return]


def test_a_score_is_not_given_where_nothing_was_measured() -> None:
    report = run(Total(), noise(5, 4))
    assert math.isnan(report.score)
    assert report.to_dict()["score"] is None
    assert report.verdict == "warn"
    assert report.leading is not None
    assert (report.leading.kind, report.leading.evidence["measured"]) == ("not-followed", False)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 512), nn.Linear(512, 512)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.dropout(self.a(x).relu(), 0.5, training=self.training))  # type: ignore[no-any-return]


def test_dropped_units_are_kept_unless_they_are_asked_for_and_have_no_theory() -> None:
    kept = run(Dropping(), noise(16, 64))
    drop, relu = (next(layer for layer in kept.layers if layer.op == op) for op in ("dropout", "relu"))
    assert drop.angle_deg == relu.angle_deg
    assert drop.predicted is not None
    active = next(layer for layer in run(Dropping(), noise(16, 64), dropout=True).layers if layer.op == "dropout")
    assert active.predicted is None
    assert active.angle_deg is not None
    assert active.angle_deg > relu.angle_deg + 5  # type: ignore[operator]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x)  # type: ignore[no-any-return]


class MCDropoutNet(Net):
    """A name with "dropout" in it, and nothing that drops."""


def test_a_name_does_not_switch_a_whole_net_to_evaluation() -> None:
    x = 5 + noise(16, 8)
    named, plain = (row(run(net, x), "bn").angle_deg for net in (MCDropoutNet(), Net()))
    assert named == plain
    assert named is not None
    assert named > 90  # centred by the batch: on average samples point away from each other


def test_options_that_theory_does_not_know_have_no_prediction() -> None:
    for options, known in (({}, True), ({"beta": 5}, True), ({"threshold": 11}, False)):
        wide = nn.Sequential(nn.Linear(64, 256), nn.Softplus(**options))
        assert (run(wide, noise(8, 64)).layers[1].predicted is not None) == known


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.a(x)
        self.seen.append(self.last)
        return self.last


def test_what_a_model_keeps_of_a_pass_is_not_kept_of_ours() -> None:
    model = Keeping()
    report = run(model, noise(8, 8), seeds=3)
    assert report.seeds == 3
    assert not hasattr(model, "last")
    assert model.seen == []


def test_a_model_that_cannot_be_copied_is_checked_with_one_seed() -> None:
    model = Keeping()
    model.lock = threading.Lock()  # type: ignore[assignment]
    model(noise(8, 8))
    report = run(model, noise(8, 8), seeds=3)
    assert report.seeds == 1
    assert report.draws == ()
    assert any(
        note.startswith("Other draws were not made, the model cannot be copied") for note in note_texts(report.notes)
    )
    assert len(model.seen) == 1


def test_compiled_models_run_as_they_were_written() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    report = run(torch.compile(net, backend="eager"), noise(8, 8))  # type: ignore[arg-type]
    assert [layer.op for layer in report.layers] == ["linear", "relu", "linear"]


def test_weights_that_the_forward_pass_renormalises_are_put_back() -> None:
    model = nn.Sequential(nn.Embedding(20, 16, max_norm=0.5), nn.Linear(16, 4))
    before = model[0].weight.detach().clone()
    run(model, torch.arange(16).reshape(8, 2))
    assert torch.equal(model[0].weight, before)


class Clamping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.a.weight.clamp_(-0.1, 0.1)
        return self.a(x)  # type: ignore[no-any-return]


def test_a_forward_pass_that_changes_weights_is_named() -> None:
    report = run(Clamping(), noise(8, 8))
    assert Note("written", steps=("a.weight",)) in report.notes
    assert any("writes to a.weight" in note for note in note_texts(report.notes))


def test_a_loader_that_shuffles_leaves_the_random_numbers_alone() -> None:
    generator, model = torch.Generator().manual_seed(3), nn.Linear(8, 4)
    for loader in (
        DataLoader(TensorDataset(noise(32, 8)), batch_size=8, shuffle=True),
        DataLoader(TensorDataset(noise(32, 8)), batch_size=8, shuffle=True, generator=generator),
    ):
        states = torch.get_rng_state(), generator.get_state()
        check(model, loader, seeds=1)
        assert torch.equal(torch.get_rng_state(), states[0])
        assert torch.equal(generator.get_state(), states[1])


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x) @ self.weight


def test_complex_values_are_measured_as_pairs_of_numbers() -> None:
    x = noise(6, 8)
    report = check(Complex(), x, seeds=1, loss=lambda output, target: output.abs().square().sum())
    spectrum = next(layer for layer in report.layers if "fft" in layer.op)
    assert spectrum.cosine_mean == pytest.approx(check(nn.Linear(8, 4), x, seeds=1).data["cosine_mean"], abs=1e-6)


def test_a_model_without_values_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Linear(4, 4)
    with pytest.raises(BadInput, match="meta device"):
        check(model, noise(4, 4))


class Buffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = x.new_empty(len(x), 16)
        out[:, :8] = self.a(x)
        out[:, 8:] = self.b(x)
        return self.c(out.relu())  # type: ignore[no-any-return]


def test_what_is_written_into_a_buffer_is_followed() -> None:
    report = run(Buffer(), noise(8, 8))
    assert [layer.op for layer in report.layers] == ["linear", "setitem", "linear", "setitem", "relu", "linear"]
    assert report.layers[3].inputs == (1, 2)


def test_zero_heads_and_numbers_beyond_float32_squares() -> None:
    head = nn.Linear(64, 10)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    report = run(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), head), noise(8, 16))
    assert (report.verdict, report.first_bad_layer) == ("healthy", None)  # standard practice: it is told, no more
    assert [(f.kind, f.status, f.step) for f in report.findings] == [("zero-weights", "note", "2")]
    assert "all weights of the last layer are zero" in finding_text(report.findings[0])
    for scale in (1e20, 1e-24):
        found = run(nn.Sequential(nn.Linear(16, 64, bias=False)), noise(8, 16) * scale)
        assert found.layers[0].finite
        assert found.layers[0].angle_deg == pytest.approx(
            run(nn.Sequential(nn.Linear(16, 64, bias=False)), noise(8, 16)).layers[0].angle_deg, rel=1e-5
        )


def test_targets_of_pixels_and_of_tokens_are_classes() -> None:
    pixels = torch.randint(0, 3, (4, 6, 6), generator=torch.Generator().manual_seed(0))
    assert run(nn.Conv2d(2, 3, 3, padding=1), (noise(4, 2, 6, 6), pixels)).loss == "cross-entropy"
    tokens = torch.randint(0, 7, (4, 5), generator=torch.Generator().manual_seed(0))
    report = run(nn.Linear(8, 7), (noise(4, 5, 8), tokens))
    assert report.loss == "cross-entropy"
    assert any("(inputs, targets)" in note for note in note_texts(report.notes))


class Waves(nn.Module):
    """Tokens that are mixed by a Fourier transform, with complex weights."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(16, 16, dtype=torch.cfloat), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.a(torch.fft.fft(x, dim=1)).real)  # type: ignore[no-any-return]


def test_complex_tokens_and_weights_are_measured() -> None:
    found = run(Waves(), noise(8, 6, 16), seeds=2)
    assert found.failure is None
    assert found.verdict == "healthy"
    assert all(layer.sensitivity_ratio is not None for layer in found.layers if layer.has_gradient)
