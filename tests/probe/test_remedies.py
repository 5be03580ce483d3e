"""Each remedy does what it says: gains, orthogonality, sums, variances, modules; and what it must not touch stays."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from scipy.integrate import quad
from torch import Tensor, nn

from initscope import activations, probe
from initscope.errors import BadInput
from initscope.probe import Conditions, Health, Remedy, apply_remedy, check, prescribe
from initscope.probe.batches import as_batch
from initscope.probe.remedies import widening
from initscope.probe.remedies.places import Plan, plan_of
from probe.models import Functional, Residual, Stops, WrittenOut, cnn, he, mlp, noise


def _plan(model: nn.Module, batch: object) -> Plan:
    return plan_of(model, as_batch(batch, model), Conditions())


def _named(remedies: tuple[Remedy, ...], name: str) -> Remedy:
    return next(r for r in remedies if r.name == name)


def _square(f: object) -> float:
    """E f(z)² of a standard normal z by SciPy's adaptive quadrature."""

    def integrand(z: float) -> float:
        value = float(f(torch.tensor(z, dtype=torch.float64)))  # type: ignore[operator]
        return value * value * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    return float(quad(integrand, -10, 10, points=[0.0], limit=200)[0])


class _Conv1D(nn.Module):
    """A dense layer whose weight is (in, out)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.ones(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


class _Tied(nn.Module):
    """An embedding that is also the last weight, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.inner, self.frozen, self.blank = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.frozen.weight.requires_grad_(False)
        nn.init.zeros_(self.blank.weight)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(torch.relu(self.inner(self.words(ids))))
        out: Tensor = self.head(x + self.blank(torch.relu(self.frozen(x))))
        return out


@pytest.mark.parametrize(
    ("activation", "f"),
    [
        (nn.ReLU(), torch.relu),
        (nn.Tanh(), torch.tanh),
        (nn.GELU(), F.gelu),
        (nn.LeakyReLU(0.3), lambda z: F.leaky_relu(z, 0.3)),
        (nn.PReLU(init=0.25), lambda z: F.leaky_relu(z, 0.25)),
        (nn.Softsign(), F.softsign),
        (WrittenOut(), WrittenOut()),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_gains_keep_the_second_moment_of_the_activation_that_follows(activation: nn.Module, f: object) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), activation, nn.Linear(8, 4))
    first, last = _plan(model, noise(4, 8)).sites
    assert first.gain == pytest.approx(1 / _square(f), rel=1e-6)
    assert last.gain == 1.0


def test_weights_are_found_in_every_layout() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=2), nn.ReLU(), nn.ConvTranspose2d(8, 6, 4, stride=2, groups=2), nn.ReLU(),
        nn.Flatten(), _Conv1D(6 * 14 * 14, 5),
    )  # fmt: skip
    sites = _plan(model, noise(3, 4, 8, 8)).sites
    assert [(s.name, s.shape, s.groups, s.stride) for s in sites] == [
        ("0.weight", (8, 2, 3, 3), 2, 1),
        ("2.weight", (6, 4, 4, 4), 2, 4),
        ("5.weight", (5, 6 * 14 * 14), 1, 1),
    ]
    assert [(s.fans.fan_in, s.fans.fan_out) for s in sites] == [(18, 36), (64, 48), (1176, 5)]


@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("he-fan-in", lambda i, o: 2 / i),
        ("he-fan-out", lambda i, o: 2 / o),
        ("he-geometric", lambda i, o: 2 / math.sqrt(i * o)),
        ("orthogonal", lambda i, o: 2 / i),
        ("zero-sum", lambda i, o: 2 / i * (1 - 1 / i)),
    ],
)
def test_laws_have_the_variance_they_promise(name: str, variance: object) -> None:
    model = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 10))
    new = apply_remedy(model, noise(4, 300), name)
    expected = variance(300, 200)  # type: ignore[operator]
    # The sample variance of 60 000 normal weights spreads by √(2/60000).
    assert float(new[0].weight.detach().square().mean()) == pytest.approx(expected, rel=5 * math.sqrt(2 / 60000))
    assert not bool(new[0].bias.any())
    assert not bool(new[2].bias.any())


@pytest.mark.parametrize("sizes", [(40, 30), (30, 40), (32, 32)])
def test_orthogonal_weights_are_orthogonal_and_keep_the_size_of_units(sizes: tuple[int, int]) -> None:
    inputs, outputs = sizes
    model = nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU())
    weight = apply_remedy(model, noise(4, inputs), "orthogonal")[0].weight.detach().double()
    gram = weight @ weight.T if outputs <= inputs else weight.T @ weight
    expected = 2.0 * max(inputs, outputs) / inputs  # so that fan-in · Var(w) is 2
    torch.testing.assert_close(gram, expected * torch.eye(len(gram)).double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("convolution", [nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d])
def test_delta_orthogonal_filters_act_at_their_centre_alone(convolution: type[nn.Module]) -> None:
    axes = int(convolution.__name__[-2])
    model = nn.Sequential(convolution(6, 6, 3, padding=1), nn.ReLU())
    weight = apply_remedy(model, noise(4, 6, *(5,) * axes), "delta-orthogonal")[0].weight.detach().double()
    centre = weight[(slice(None), slice(None), *(1,) * axes)]
    torch.testing.assert_close(centre @ centre.T, 2 * torch.eye(6).double(), rtol=0, atol=1e-5)
    assert int(weight.count_nonzero()) == 36


def test_zero_sum_filters_sum_to_zero_and_make_up_for_the_mean_they_lose() -> None:
    model = mlp(3, 2000, 500)
    new = apply_remedy(model, noise(8, 500), "zero-sum")
    for module in new:
        if isinstance(module, nn.Linear):
            assert float(module.weight.detach().sum(1).abs().max()) < 1e-5
    report = check(new, noise(8, 500), seeds=1, theory=False)
    # E relu² - (E relu)² is 1 - 1/π of E relu²; 2000 units, three layers: 4 standard errors of the root mean square.
    assert report.layers[-1].norm_ratio == pytest.approx(1.0, rel=4 * math.sqrt(3 * 5 / 2000) / 2)


@pytest.mark.parametrize("name", ["he-fan-in", "orthogonal"])
def test_transposed_convolutions_keep_the_size_of_their_input(name: str) -> None:
    model = nn.Sequential(nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1), nn.Identity())
    new = apply_remedy(model, noise(4, 64, 16, 16), name)
    out = new(noise(4, 64, 16, 16))[..., 4:-4, 4:-4].detach()
    # 64 · 64 · 16 weights and 4 · 64 · 16² values: four standard errors of both variances.
    assert float(out.square().mean()) == pytest.approx(1.0, rel=4 * math.sqrt(2 / 65536 + 2 / 65536))


def test_a_transposed_layout_is_drawn_by_its_own_fans() -> None:
    model = nn.Sequential(_Conv1D(400, 100), nn.ReLU())
    new = apply_remedy(model, noise(4, 400), "he-fan-in")
    assert float(new[0].weight.detach().square().mean()) == pytest.approx(2 / 400, rel=5 * math.sqrt(2 / 40000))
    rows = apply_remedy(model, noise(4, 400), "zero-sum")[0].weight.detach().sum(0)
    assert float(rows.abs().max()) < 1e-5


def test_data_scaling_gives_unit_variance_to_every_weight_layer() -> None:
    torch.manual_seed(0)
    model = cnn(6, 8)
    x = 3 + noise(8, 3, 10, 10)
    new = apply_remedy(model, x, "data-scaling")
    h = x
    for module, old in zip(new, model, strict=True):
        h = module(h).detach()
        if isinstance(module, nn.Conv2d | nn.Linear):
            assert float(h.double().std(correction=0)) == pytest.approx(1.0, rel=1e-4)
            ratio = (module.weight / old.weight).detach()
            torch.testing.assert_close(ratio, ratio.flatten()[0].expand_as(ratio), rtol=1e-4, atol=0)


def test_a_shared_weight_is_scaled_once_and_stays_shared() -> None:
    torch.manual_seed(0)
    new = apply_remedy(Functional(), noise(16, 8), "data-scaling")
    found = [r for r in check(new, noise(16, 8), seeds=1, theory=False).layers if r.op == "linear"]
    assert [r.name for r in found] == ["first", "shared", "shared#2"]
    x = noise(16, 8)
    hidden = new.shared(F.relu(new.first(x))).detach()
    assert float(hidden.std(correction=0)) == pytest.approx(1.0, rel=1e-4)
    shared = nn.Linear(8, 8)
    twice = apply_remedy(nn.Sequential(shared, nn.ReLU(), shared), x, "orthogonal")
    assert twice[0].weight is twice[2].weight


def test_residual_scaling_divides_the_last_weight_of_each_branch() -> None:
    torch.manual_seed(0)
    model = he(Residual(16, 4))
    new = apply_remedy(model, noise(8, 16), "residual-scaling")
    for old, made in zip(model.blocks, new.blocks, strict=True):
        torch.testing.assert_close(made[2].weight, old[2].weight / 2)  # 1/√4
        assert torch.equal(made[0].weight, old[0].weight)
    assert torch.equal(new.enter.weight, model.enter.weight)


def test_residual_scaling_behind_a_norm_scales_the_norm() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.branch(x)

    new = apply_remedy(nn.Sequential(*(Block() for _ in range(9))), noise(16, 8), "residual-scaling")
    assert [float(block.branch[1].weight[0].detach()) for block in new] == pytest.approx([1 / 3] * 9)


def test_embeddings_frozen_weights_zeros_and_norms_stay() -> None:
    torch.manual_seed(0)
    model, ids = _Tied(), torch.randint(20, (6, 5), generator=torch.Generator().manual_seed(0))
    plan = _plan(model, ids)
    assert [s.name for s in plan.sites] == ["inner.weight"]
    assert plan.left_alone == {
        "frozen.weight": "it is frozen",
        "blank.weight": "initialized to zero on purpose",
        "head.weight": "it is also an embedding",
    }
    new = apply_remedy(model, ids, "orthogonal")
    changed = [k for k, v in new.state_dict().items() if not torch.equal(v, model.state_dict()[k])]
    assert changed == ["inner.weight", "inner.bias"]
    assert new.head.weight is new.words.weight


def test_leaky_slopes_replace_modules_and_say_when_there_are_none() -> None:
    new = apply_remedy(cnn(3, 4), noise(4, 3, 8, 8), "leaky-slope")
    assert [m.negative_slope for m in new.modules() if isinstance(m, nn.LeakyReLU)] == [0.2] * 3
    assert not any(isinstance(m, nn.ReLU) for m in new.modules())
    found = _named(prescribe(Functional(), noise(8, 8)), "leaky-slope")
    assert found.effect.after is None
    assert found.improvement is None
    assert found.note.startswith("not measured: every ReLU is called as a function")
    with pytest.raises(BadInput, match="called as a function"):
        apply_remedy(Functional(), noise(8, 8), "leaky-slope")


def test_batch_norm_goes_behind_every_hidden_weight() -> None:
    x = noise(8, 3, 8, 8)
    new = apply_remedy(cnn(3, 4).eval(), x, "batch-norm")
    norms = [r.name for r in check(new, x, seeds=1).layers if r.kind == "norm"]
    assert norms == ["0.1", "2.1", "4.1"]
    assert type(new[8]) is nn.Linear
    assert not any(m.training for m in new.modules())
    assert "batch-norm" not in [r.name for r in prescribe(cnn(3, 4, norm=True), x)]


def test_without_average_pools_the_next_layer_sees_all_positions() -> None:
    torch.manual_seed(0)
    model = he(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), *cnn(2, 8)[2:]))
    model[3] = nn.Conv2d(8, 8, 3, padding=1)
    x = noise(8, 3, 8, 8)
    new = apply_remedy(model, x, "no-average-pool")
    torch.testing.assert_close(new[2](x), x[..., ::2, ::2])
    assert type(new[5]) is nn.Identity
    assert new[7].in_features == 8 * 4 * 4
    found = _named(prescribe(model, x), "no-average-pool")
    assert found.improvement is not None
    assert found.improvement > 0
    assert "degrees apart in front of" in found.note


def test_a_mean_in_the_code_is_named_but_not_measured() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(torch.relu(self.conv(x)).mean((2, 3)))
            return out

    found = _named(prescribe(Mean(), noise(6, 3, 8, 8)), "no-average-pool")
    assert found.effect.after is None
    assert "by a function" in found.note
    assert "degrees apart" in found.note


def test_centring_is_measured_on_centred_data() -> None:
    torch.manual_seed(0)
    model = he(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4000), nn.ReLU()))
    x = 5 + noise(8, 3, 16, 16)
    found = prescribe(model, x)
    angles = {}
    for name, axes in (("centre-channels", (0, 2, 3)), ("centre-pixels", (0,))):
        remedy = _named(found, name)
        middle = x - x.mean(axes, keepdim=True)
        assert remedy.effect.after == Health.of(check(model, middle, seeds=1, theory=False))
        given = {"x": x}
        exec(remedy.command, given)
        torch.testing.assert_close(given["x"], middle)
        angles[name] = remedy.effect
    effect = angles["centre-channels"]
    assert effect.after is not None
    one = torch.tensor(1.0, dtype=torch.float64)
    for health, cosine in ((effect.before, 25 / 26), (effect.after, 0.0)):  # of the data
        expected = math.degrees(math.acos(float(activations.RELU.correlation(cosine * one))))
        # E relu⁴ / (E relu²)² - 1 is 5: the relative spread over 4000 units, half of it in the angle, four times.
        assert health.angle_deg == pytest.approx(expected, rel=4 * math.sqrt(5 / 4000) / 2)
    assert [r for r in prescribe(_Tied(), torch.arange(12).reshape(4, 3)) if r.changes == "data"] == []


def test_widening_is_advised_where_the_width_explains_the_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model, x = he(mlp(12, 12, 12)), noise(6, 12)
    report = check(model, x, seeds=1)
    off = widening.drift(report)
    assert off is not None
    assert off > widening.EPSILON
    asked: dict[str, float] = {}

    def width_for(**given: float) -> SimpleNamespace:
        asked.update(given)
        return SimpleNamespace(value=1234)

    monkeypatch.setattr("initscope.bounds.width_for", width_for, raising=False)
    found = _named(prescribe(model, x, report), "widen")
    assert asked == {"depth": 12, "epsilon": 0.5, "delta": 0.05, "samples": 6}
    assert "1234 wide (the narrowest has 12)" in found.description
    assert found.effect.after is None
    assert found.command == "initscope.width_for(depth=12, epsilon=0.5, delta=0.05, samples=6)"
    wide = check(he(mlp(2, 2000, 12)), x, seeds=1)
    assert "widen" not in [r.name for r in prescribe(he(mlp(2, 2000, 12)), x, wide, changes=("architecture",))]


def test_commands_in_python_do_what_they_say() -> None:
    torch.manual_seed(0)
    model, batch = mlp(10, 32, 32), noise(8, 32)
    found = prescribe(model, batch)
    for name in ("he-fan-in", "data-scaling", "batch-norm", "leaky-slope"):
        remedy = _named(found, name)
        given = {"initscope": SimpleNamespace(fix=probe.fix, probe=probe), "model": model, "batch": batch}
        exec(remedy.command, given)
        after = given["model"]
        assert isinstance(after, nn.Module)
        assert Health.of(check(after, batch, seeds=1, theory=False)) == remedy.effect.after


def test_a_model_that_does_not_run_has_no_remedies() -> None:
    assert prescribe(Stops(), noise(4, 8)) == ()
    with pytest.raises(BadInput, match="forward pass fails"):
        apply_remedy(Stops(), noise(4, 8), "orthogonal")


@pytest.mark.parametrize("name", ["magic", "", "orthogonal+magic", "he-fan-in+orthogonal+zero-sum", None])
def test_unknown_names_get_the_list(name: str) -> None:
    with pytest.raises(BadInput, match="choose from he-fan-in, he-fan-out"):
        apply_remedy(mlp(2), noise(4, 32), name)


def test_the_model_and_the_data_stay() -> None:
    model, x = cnn(3, 4, norm=True), noise(4, 3, 8, 8)
    weights, data = copy.deepcopy(model.state_dict()), x.clone()
    state = torch.get_rng_state()
    prescribe(model, x)
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    assert torch.equal(x, data)
    assert torch.equal(torch.get_rng_state(), state)
