"""A checked model in the terminal: nothing cut at 80 and 120 columns, long stretches folded, the verdict first."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from rich.console import Console, RenderableType
from torch import nn

from initscope.probe import Effect, Fixed, check
from initscope.probe.diagnosis import Case, judge
from initscope.probe.findings import KINDS, Finding, Note
from initscope.probe.report import LayerReport
from initscope.probe.trunk import Trunk
from initscope.report import check_page, check_view, fix_view, remedies_table
from initscope.report.finding_words import SHORT, advice_text, finding_text
from initscope.report.wording import angle_of, note_texts, number_text, resolution_text, tags
from probe.models import cnn
from report.reports import HEALTH, bad, layer, relu, remedy, report


def lines_of(view: RenderableType, width: int) -> list[str]:
    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        console.print(view)
    return captured.get().splitlines()


def deep(count: int) -> list[Any]:
    healthy = [layer(f"stage.{i}.conv") if i % 2 == 0 else relu(f"stage.{i}.act") for i in range(count)]
    return [*healthy, bad("late.1", 0.7), bad("late.2", 0.001)]


def test_the_verdict_comes_first_and_names_the_first_bad_layer() -> None:
    lines = lines_of(check_view(report(deep(20)), width=120, title="net"), 120)
    assert lines[0].startswith("FAIL  net: late.1: samples merge here: they end up 0.7° apart (70° in the batch)")
    assert lines[1].startswith("score 0.20, held there by collapse; the geometry alone gives 0.9")
    assert any("contraction by █ conv 75 %, ▓ activation 25 %" in line for line in lines)
    assert any(line.startswith("> late.1") for line in lines)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_numbers_are_never_cut(width: int) -> None:
    rows = [
        layer("0", angle_deg=1.2345e-5, norm_ratio=1.5e-10, grad_norm_ratio=2.5e-14, effective_rank=12.3),
        bad("encoder.layer.11.attention.output.dense", marks=(("collapse", "fail"), ("gradient-scale", "warn"))),
        relu("x", op="scaled_dot_product_attention"),
    ]  # fmt: skip
    lines = lines_of(check_view(report(rows), width=width), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    for number in ("1.2e-05°", "1.5e-10", "2.5e-14", "25 %", "fail angle grad"):
        assert number in text, number
    assert ("8x4x4" in text) == (width >= 110)
    assert ("12.3" in text) == (width >= 110)
    assert ("0.400..0.600" in text) == (width >= 110)
    assert any("dense" in line and line.startswith("> enc") for line in lines)


def test_long_stretches_are_folded_unless_all_is_asked_for() -> None:
    short = lines_of(check_view(report(deep(23)), width=80), 80)
    assert any(line.startswith("… 20 more ") and line.split()[-1] == "healthy" for line in short)
    for name in ("stage.0.conv", "stage.1.act", "stage.22.conv"):
        assert any(name in line for line in short)
    full = lines_of(check_view(report(deep(23)), width=80, everything=True), 80)
    assert sum("stage." in line for line in full) == 23
    assert not any(" more " in line for line in full)


def test_a_stretch_is_one_kind_of_trouble() -> None:
    """What is found besides the worst does not break it."""
    deaf = (("collapse", "fail"), ("dead-units", "warn"), ("gradient-scale", "warn"))
    rows = [bad(f"a{i}", marks=deaf) if i % 3 else bad(f"a{i}") for i in range(12)]
    lines = lines_of(check_view(report(rows), width=80), 80)
    assert any(line.startswith("… 9 more ") for line in lines)
    assert any(line.startswith("a1 ") and line.endswith("fail angle dead") for line in lines)
    wide = lines_of(check_view(report(rows), width=120), 120)
    assert any(line.startswith("a1 ") and line.endswith("fail angle dead grad") for line in wide)


def test_what_this_width_does_not_explain_is_marked() -> None:
    normal = layer("a")
    assert normal.predicted is not None
    odd = layer("b", predicted=replace(normal.predicted, measured=0.9))
    plain, marked = (lines_of(check_view(report([row]), width=80), 80) for row in (normal, odd))
    assert not any("!" in line for line in plain)
    assert any(line.startswith("b") and "0.500!" in line for line in marked)
    assert "!: this width does not explain the difference" in " ".join(" ".join(marked).split())


def test_theory_stands_beside_the_measured_cosine_of_its_own_pairs() -> None:
    """Not beside the mean over all pairs, which is another number."""
    normal = layer("a")
    assert normal.predicted is not None
    row = replace(normal, cosine_mean=0.123, predicted=replace(normal.predicted, measured=0.456))
    assert (row.cosine_followed, row.to_dict()["cosine_followed"]) == (1 - 0.456, 1 - 0.456)
    for width in (80, 120):
        lines = lines_of(check_view(report([row]), width=width), width)
        heads = next(line.split() for line in lines if line.startswith("layer "))
        cells = next(line.split() for line in lines if line.startswith("a "))
        assert heads[heads.index("theory") - 1] == "cosine"
        assert cells[heads.index("cosine")] == "0.544"
        assert not any("0.123" in line for line in lines)


def test_no_angle_is_no_prediction() -> None:
    theory = layer("a").predicted
    assert theory is not None
    none = layer("a", angle_deg=None, predicted=replace(theory, defect=math.nan, most=math.nan, least=math.nan))
    for width in (80, 120):
        text = "\n".join(lines_of(check_view(report([none]), width=width), width))
        assert "nan" not in text
        assert "!" not in text
    assert ">nan" not in check_page(report([none]))


def judged(row: LayerReport) -> LayerReport:
    """The only step of a network, with what is beyond a limit there."""
    found, _ = judge(Case(Trunk.of([replace(row, output=True)])))
    return replace(row, marks=found.marks_of(0))


def test_every_finding_at_a_step_has_its_word() -> None:
    finding: dict[str, dict[str, Any]] = {
        "angle": {"angle_deg": 0.01},
        "norm": {"norm_ratio": 1e9},
        "gradient": {"grad_norm_ratio": 1e-9},
        "dead": {"dead_fraction": 1.0, "op": "relu", "kind": "activation"},
        "statistics": {"fit": 1e9, "kind": "norm", "op": "batch_norm"},
        "dropout": {"drop_rate": 0.99, "kind": "dropout"},
        "NaN": {"broken": "NaN"},
        "not followed": {"followed": False},
    }
    for word, change in finding.items():
        assert tags(judged(layer("x", **change))) == (word,)
        assert judged(layer("x", **change)).reason
    both = judged(layer("x", angle_deg=0.1, norm_ratio=2000.0))
    assert tags(both) == ("angle", "norm")
    assert both.reason == "samples are 0.1 degrees apart; activations are 2,000 times larger than the data"
    assert tags(layer("x")) == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", ["a.b", None])
def test_every_kind_of_finding_has_words(kind: Any, step: str | None) -> None:
    evidence = {"shape": "jump", "factor": 0.5, "pass": "forward", "what": "NaN", "op": "sqrt", "sums": 20}
    if kind == "stopped":
        evidence = {"error": "RuntimeError: no"}
    found = Finding(kind, "warn", step, 0.5, 1.0, evidence)
    text, advice = finding_text(found), advice_text(found)
    assert SHORT[kind]
    assert not text.endswith(".")
    assert text.startswith("a.b: ") if step else text[0] == text[0].upper()
    assert advice.endswith(".")
    assert not advice.endswith("..")
    if step is not None:
        assert "None" not in text + advice


def test_small_numbers() -> None:
    assert [number_text(v) for v in (0.0, 1e-3, 9.99e-4, 999.4, 1000.0, float("nan"))] == [
        "0", "0.001", "1.0e-03", "999", "1.0e+03", "-",
    ]  # fmt: skip
    assert angle_of(2.0) == pytest.approx(180)
    assert angle_of(5e-19) == pytest.approx(5.72957795e-8, rel=1e-8)


def test_resolution_is_told_only_where_it_is_lost() -> None:
    assert resolution_text(report([layer()])) is None
    lost = report([layer()], resolution={"bfloat16": "a", "float16": None, "float32": "b"})
    assert resolution_text(lost) == "samples cannot be told apart in bfloat16 from a, in float32 from b on"


def test_like_notes_are_told_once() -> None:
    gelu = Note("no-theory", "gelu", tuple(f"layer{i}" for i in range(9)))
    notes = [gelu, Note("no-theory", "softmax", ("head",)), Note("draws", "built again by the factory")]
    assert note_texts(notes) == [
        "Measured only, there is no theory for: gelu (9 steps, first layer0), softmax (head).",
        "Other draws were built again by the factory.",
    ]
    many = [Note("layout", f"op{i}", ("a",)) for i in range(11)]
    assert note_texts(many)[0].endswith("op7 (a) and 3 more.")
    assert note_texts([Note("written", steps=("a.weight", "b"))]) == [
        "The model writes to a.weight, b as it runs; they were put back."
    ]
    assert "they stay changed" in note_texts([Note("written", "stay", ("a.weight",))])[0]


def test_brackets_in_names_are_not_markup() -> None:
    rows = [layer("[bold]x[/bold]"), bad("[/red]")]
    text = "\n".join(lines_of(check_view(report(rows), width=120), 120))
    assert "[bold]x[/bold]" in text
    assert "FAIL  [/red]: samples merge here" in text


def test_the_remedies_show_before_and_after() -> None:
    unmeasured = remedy(
        "leaky-slope", changes="architecture", effect=Effect(HEALTH, None), note="not measured: function"
    )
    text = "\n".join(lines_of(remedies_table([remedy(), unmeasured]), 80))
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows["as"][-4:] == ["0.5°", "0.01", "1.0e-06", "fail"]
    assert rows["he-fan-in"][-4:] == ["40°", "1.5", "0.8", "healthy"]
    assert rows["leaky-slope"][-2:] == ["not", "measured"]


def test_fixed_models_stand_side_by_side() -> None:
    names = [f"layer{i}" for i in range(9)]
    before = report([bad(name) for name in names], remedies=(remedy(applied=True),))
    after = report([layer(name) for name in names])
    fixed = Fixed(nn.Identity(), before, after, before.remedies, "he-fan-in: fail -> healthy", None, 1.0)
    for width in (80, 120):
        lines = lines_of(fix_view(fixed, width=width, title="net"), width)
        assert lines[0].startswith("FAIL  net before:")
        assert any(line.startswith("HEALTHY  after:") for line in lines)
        assert max(map(len, lines)) <= width
        first = next(line for line in lines if line.startswith("layer0")).split()
        assert first == ["layer0", "conv2d", "1.25", "1.25", "0.5", "0.5", "0.5°", "60°", "fail", "healthy"]
        assert any(line.startswith("… 6 more ") for line in lines)
    none = Fixed(nn.Identity(), before, before, (), "nothing helps", None, 1.0)
    assert lines_of(fix_view(none, width=80), 80)[-1] == "Nothing helps."
    told = "1 of 9 weight layers stay as they are: a (it is frozen)"
    for one in (fixed, none):
        assert told in lines_of(fix_view(replace(one, note=told), width=80), 80)


def test_a_real_model_fits_into_80_columns() -> None:
    batch = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    found = check(cnn(6, channels=8), batch, seeds=1)
    lines = lines_of(check_view(found, width=80), 80)
    assert max(map(len, lines)) <= 80
    rows = [line.removeprefix("> ") for line in lines if line.removeprefix("> ")[:1].isdigit()]
    assert len(rows) >= 5
    for row in rows:
        assert "…" not in row.split(maxsplit=2)[2]  # behind the names of the layer and the operation
