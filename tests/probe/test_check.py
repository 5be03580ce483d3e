"""`check` on small models: what it measures, what it says, what it refuses."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from initscope.errors import BadInput
from initscope.probe import Thresholds, Unhealthy, check
from initscope.probe.findings import Note
from probe.models import Functional, Residual, Stops, cnn, he, mlp


def _batch(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_rows_are_in_execution_order_and_hold_the_measured_values() -> None:
    model, x = mlp(2, 64, 32), _batch(8, 32)
    report = check(model, x, seeds=1)
    assert [(r.name, r.op, r.kind, r.shape) for r in report.layers] == [
        ("0", "linear", "dense", (64,)),
        ("1", "relu", "activation", (64,)),
        ("2", "linear", "dense", (64,)),
        ("3", "relu", "activation", (64,)),
    ]
    h = model[:2](x).detach().double()
    cosines = torch.nn.functional.cosine_similarity(h[:, None], h, dim=-1)[tuple(torch.triu_indices(8, 8, 1))]
    row = report.layers[1]
    assert row.cosine_mean == pytest.approx(float(cosines.mean()), rel=1e-6)
    assert row.cosine_std == pytest.approx(float(cosines.std(correction=0)), rel=1e-5)
    assert row.angle_deg == pytest.approx(math.degrees(float(cosines.acos().mean())), rel=1e-6)
    assert row.norm_ratio == pytest.approx(
        float(h.square().mean().sqrt() / x.double().square().mean().sqrt()), rel=1e-6
    )
    assert row.dead_fraction == pytest.approx(float((h == 0).all(0).double().mean()))


def test_gradients_are_those_of_autograd() -> None:
    model, x = mlp(2, 16, 8), _batch(6, 8)
    y = torch.randint(16, (6,), generator=torch.Generator().manual_seed(1))
    report = check(model, (x, y), seeds=1)
    assert report.loss == "cross-entropy"
    hidden = model[:2](x)
    output = model[2:](hidden)
    loss = torch.nn.functional.cross_entropy(output, y, reduction="sum")
    inner, outer, weight = torch.autograd.grad(loss, [hidden, output, model[0].weight], retain_graph=True)
    bias = torch.autograd.grad(loss, model[0].bias)[0]
    expected = float(inner.norm(dim=1).mean() / outer.norm(dim=1).mean())
    assert report.layers[1].grad_norm_ratio == pytest.approx(expected, rel=1e-5)
    assert report.layers[0].weight_grad_norm == pytest.approx(
        math.hypot(float(weight.norm()), float(bias.norm())), rel=1e-5
    )


def test_blame_adds_up_to_the_whole_contraction() -> None:
    torch.manual_seed(0)
    report = check(he(Residual(64, 4)), _batch(12, 64), seeds=1)
    assert report.data["angle_deg"] is not None
    assert report.layers[-1].angle_deg is not None
    total = math.log(report.data["angle_deg"] / report.layers[-1].angle_deg)
    assert sum(r.contraction for r in report.layers) == pytest.approx(total, rel=1e-9)


def test_pytorch_default_initialization_shrinks_relu_layers_by_sqrt_6() -> None:
    """Var(w) = 1/(3 fan-in) against He's 2/fan-in; biases off."""
    torch.manual_seed(0)
    model = mlp(4, 1000, 1000)
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    report = check(model, _batch(16, 1000), seeds=1)
    rms = [r.norm_ratio for r in report.layers if r.kind == "activation"]
    ratios = [a / b for a, b in zip([1.0, *rms], rms, strict=False)]  # type: ignore[operator]
    # One layer's ratio of 1000 units has a relative spread of √(5/1000)/2 in the root mean square, less over 16 samples.
    assert ratios == pytest.approx([math.sqrt(6)] * 4, rel=4 * math.sqrt(5 / 1000) / 2)


def test_a_deep_he_mlp_collapses_angles_and_says_where() -> None:
    torch.manual_seed(0)
    report = check(lambda: he(mlp(50, 256, 64)), _batch(16, 64), seeds=2)
    assert report.verdict in ("warn", "fail")
    bad = next(r for r in report.layers if r.name == report.first_bad_layer)
    assert "degrees apart" in bad.reason
    assert report.leading is not None
    assert (report.leading.kind, report.leading.evidence["shape"]) == ("collapse", "drift")
    assert next(iter(report.blame)) == "activation"
    healthy = check(lambda: he(mlp(2, 256, 64)), _batch(16, 64), seeds=2)
    assert healthy.verdict == "healthy"


def test_glorot_drifts_the_norms_of_relu_networks() -> None:
    torch.manual_seed(0)
    report = check(he(mlp(10, 512, 512), gain=1.0), _batch(8, 512), seeds=1)
    assert report.layers[-1].norm_ratio == pytest.approx(2**-5, rel=0.5)


def test_a_factory_draws_every_seed_and_shows_their_spread() -> None:
    report = check(lambda: he(mlp(3, 32, 16)), _batch(8, 16), seeds=4)
    assert report.seeds == 4
    assert len(set(report.layers[-1].cosine_seeds.values)) == 4
    assert report.notes[-1] == Note("draws", "built again by the factory")
    assert [draw.seed for draw in report.draws] == [1, 2, 3]
    assert {draw.verdict for draw in report.draws} == {"healthy"}


def test_weights_set_by_hand_are_reordered_for_other_seeds() -> None:
    torch.manual_seed(0)
    report = check(he(mlp(2, 64, 64)), _batch(8, 64), seeds=2)
    how = "drawn again by reset_parameters, or with inputs reordered (2 weights set by hand)"
    assert report.notes[-1] == Note("draws", how)


def test_other_draws_never_change_the_verdict() -> None:
    """Every draw but the given one is dead, or the other way round: the report is of the given weights."""
    built = itertools.count()

    def lucky() -> nn.Module:
        model = he(mlp(2, 32, 16))
        if next(built) % 3:
            nn.init.constant_(model[0].bias, -100.0)
        return model

    report = check(lucky, _batch(8, 16), seeds=3)
    assert report.verdict == "healthy"
    assert [draw.verdict for draw in report.draws] == ["fail", "fail"]
    assert [draw.step for draw in report.draws] == ["0", "0"]
    assert "2 other draws of the weights would get: fail, fail." in report.summary()
    next(built)
    alone = check(lucky, _batch(8, 16), seeds=1)
    assert alone.verdict == "fail"
    assert alone.draws == ()


@pytest.mark.parametrize("seeds", [1, 3])
def test_normalizations_set_by_hand_are_judged_as_they_are(seeds: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
    nn.init.constant_(model[1].bias, -10.0)
    report = check(model, _batch(8, 16), seeds=seeds)
    assert (report.verdict, report.first_bad_layer) == ("fail", "1")
    assert report.leading is not None
    assert report.leading.kind == "dead-units"
    assert [draw.verdict for draw in report.draws] == ["fail"] * (seeds - 1)


@pytest.mark.parametrize("seeds", [1, 3])
def test_identities_are_judged_alike_with_any_seeds(seeds: int) -> None:
    model = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(60)))
    for layer in model:
        nn.init.eye_(layer.weight)
    report = check(model, _batch(8, 16), seeds=seeds)
    assert report.verdict == "healthy"
    assert [draw.score for draw in report.draws] == [report.score] * (seeds - 1)


def test_a_model_that_raises_gives_the_partial_table_and_the_place() -> None:
    report = check(Stops(), _batch(4, 8))
    assert [r.name for r in report.layers] == ["good"]
    assert report.verdict == "fail"
    assert report.failure is not None
    assert report.failure.startswith("bad: RuntimeError")


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param({"x": _batch(4, 8)}, id="dict"),
        pytest.param((_batch(4, 8),), id="tuple"),
        pytest.param((_batch(4, 8), torch.zeros(4)), id="inputs and targets"),
        pytest.param(DataLoader(TensorDataset(_batch(4, 8), torch.zeros(4)), batch_size=4), id="loader"),
    ],
)
def test_batches_come_as_users_have_them(batch: object) -> None:
    assert check(Functional(), batch, seeds=1).samples == 4


def test_json_follows_the_contract() -> None:
    found = json.loads(json.dumps(check(cnn(3, 8, norm=True), _batch(4, 3, 8, 8)).to_dict(), allow_nan=False))
    assert {"schema", "verdict", "first_bad_layer", "layers", "blame", "remedies", "seeds", "seconds", "notes"} <= set(
        found
    )
    assert found["schema"] == "initscope.check/2"
    assert {"score", "score_parts", "findings", "draws", "initial_loss"} <= set(found)
    wanted = {"name", "op", "shape", "norm_ratio", "grad_norm_ratio", "cosine_mean", "cosine_predicted", "angle_deg",
              "effective_rank", "dead_fraction", "status", "reason"}  # fmt: skip
    assert all(wanted <= set(layer) for layer in found["layers"])


def test_unhealthy_models_raise_in_tests() -> None:
    strict = Thresholds(angle=(180.0, 179.0))
    report = check(mlp(2), _batch(4, 32), seeds=1, thresholds=strict)
    with pytest.raises(Unhealthy, match=r"they end up \d+° apart"):
        report.assert_healthy()
    torch.manual_seed(0)
    doubtful = check(
        mlp(16, 32, 32), _batch(8, 32), seeds=1, thresholds=Thresholds(angle=(8.0, 0.0), gradient=(100.0, 1e9))
    )
    assert doubtful.verdict == "warn"
    doubtful.assert_healthy()
    with pytest.raises(Unhealthy, match=r"warn, score 0\.2"):
        doubtful.assert_healthy(allow_warnings=False)


def test_dead_networks_are_named() -> None:
    model = mlp(2, 16, 8)
    with torch.no_grad():
        model[0].bias.fill_(-100)
    report = check(model, _batch(4, 8), seeds=1)
    assert report.verdict == "fail"
    assert "dead" in report.layers[1].reason
    assert report.first_bad_layer == "0"


class _NoParameters(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


@pytest.mark.parametrize(
    ("model", "batch", "message"),
    [
        (mlp(1), torch.full((4, 32), math.nan), "NaN"),
        (mlp(1), _batch(1, 32), "at least 2 samples"),
        (mlp(1), "photos", "holds no tensor|expected|got a"),
        (_NoParameters(), _batch(4, 32), "no parameters"),
        (nn.Sequential(nn.LazyLinear(3)), _batch(4, 32), "no shape yet"),
        (lambda: 1 / 0, _batch(4, 32), "ZeroDivisionError"),
        (lambda: 3, _batch(4, 32), "gave a int"),
        (3, _batch(4, 32), "expected an nn.Module"),
    ],
)
def test_bad_input_gets_one_clear_error(model: nn.Module, batch: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check(model, batch)


def test_nan_weights_are_named() -> None:
    model = mlp(2)
    with torch.no_grad():
        model[2].weight[0, 0] = math.nan
    with pytest.raises(BadInput, match=r"2\.weight"):
        check(model, _batch(4, 32))


def test_a_wrong_batch_shape_gives_the_place() -> None:
    with pytest.raises(BadInput, match="0: RuntimeError"):
        check(mlp(2), _batch(4, 31))
