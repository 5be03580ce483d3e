"""The page: well-formed, alone, small, escaped, with a name for every figure."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from torch import nn

from initscope.errors import BadInput
from initscope.probe import Fixed, LossCurve, Report, Training
from initscope.probe.findings import Finding, Note
from initscope.report import check_page, fix_page, write_check_page, write_fix_page
from initscope.report.page import COLUMNS
from report.reports import bad, layer, relu, remedy, report

EVIL = "<script>alert(1)</script>\"'&{{ 7*191 }}</style><img src=x onerror=alert(2)>"
VOID = {"meta", "link", "br", "input", "img"}


class Reader(HTMLParser):
    """Elements with their attributes, and a complaint wherever a tag does not close what was opened last."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def example() -> Report:
    rows = [layer("features.0"), relu("features.1"), bad("features.2", 0.4), relu("features.3", predicted=None)]
    return report(rows, remedies=(remedy(), remedy("orthogonal")))


def repaired() -> Fixed:
    before, after = example(), report([layer(row.name) for row in example().layers], remedies=(remedy("batch-norm"),))
    training = Training(LossCurve(0.1, (2.0, 1.9)), LossCurve(0.1, (2.0, 0.5)), 2, (0.1,))
    return Fixed(nn.Identity(), before, after, (remedy(applied=True),), "he-fan-in: fail -> healthy", training, 1.0)


PAGES = {
    "check": cache(lambda: check_page(example(), title="A net")),
    "fix": cache(lambda: fix_page(repaired(), title="A net")),
}


@pytest.mark.parametrize("kind", PAGES)
def test_well_formed_with_unique_identifiers(kind: str) -> None:
    text = PAGES[kind]()
    assert text.startswith("<!DOCTYPE html>")
    page = Reader(text)
    assert page.wrong == []
    assert page.open == []
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    wanted = [n for _, a in page.elements for n in (a.get("aria-labelledby") or "").split()]
    wanted += re.findall(r'(?:url\(#|href="#)([^")]+)', text)
    assert wanted
    assert set(wanted) <= set(names)


@pytest.mark.parametrize("kind", PAGES)
def test_nothing_outside_is_asked_for(kind: str) -> None:
    text = PAGES[kind]()
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text).replace("http-equiv", "")
    assert "@import" not in text
    for _, attributes in Reader(text).elements:
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))


def test_the_policy_allows_this_script_and_nothing_else() -> None:
    text = PAGES["check"]()
    policy = next(m["content"] for m in Reader(text).all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert len(Reader(text).all("script")) == 1


@pytest.mark.parametrize("kind", PAGES)
def test_every_figure_has_a_name_and_words(kind: str) -> None:
    text = PAGES[kind]()
    page = Reader(text)
    figures = page.all("svg")
    assert len(figures) == (5 if kind == "check" else 6)
    for figure in figures:
        assert figure["role"] == "img"
        for name in (figure["aria-labelledby"] or "").split():
            words = re.search(rf'<(title|desc) id="{name}">([^<]+)<', text)
            assert words is not None
            assert words[2].strip()


def test_the_table_has_every_layer_and_sorts_by_numbers() -> None:
    page = Reader(PAGES["check"]())
    heads = [th for th in page.all("th") if th.get("scope") == "col"]
    assert len(heads) == len(COLUMNS)
    assert [th["aria-sort"] for th in heads] == ["ascending"] + ["none"] * (len(COLUMNS) - 1)
    assert all(th["title"] for th in heads)
    rows = [tr for tr in page.all("tr") if "data-status" in tr]
    assert [tr["data-status"] for tr in rows] == ["healthy", "healthy", "fail", "healthy"]
    cells = [attributes.get("data-v") for tag, attributes in page.elements if "data-v" in attributes]
    angle = next(i for i, column in enumerate(COLUMNS) if column.heading == "angle")
    assert cells[angle :: len(COLUMNS)] == ["60", "60", "0.4", "60"]
    theory = next(i for i, column in enumerate(COLUMNS) if column.heading == "theory")
    assert cells[theory :: len(COLUMNS)] == ["-0.5", "-0.5", "-0.5", ""]  # sorted by cosine: minus the defect


def test_names_are_escaped() -> None:
    rows = [layer(EVIL, op=EVIL), bad(EVIL)]
    evil = remedy(EVIL, description=EVIL, command=EVIL, note=EVIL, code=EVIL)
    stopped = Finding("stopped", "fail", EVIL, evidence={"error": EVIL})
    notes = (Note("batch", EVIL), Note("no-theory", EVIL, (EVIL,)), Note("written", steps=(EVIL,)))
    found = report(rows, findings=(stopped,), notes=notes, loss=EVIL, remedies=(evil,), blame={EVIL: 1.0})
    text = check_page(found, title=EVIL)
    page = Reader(text)
    assert page.wrong == []
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "1337" not in text
    assert "".join(page.text).count(EVIL) >= 12
    failed = check_page(report(rows, failure=EVIL))
    assert len(Reader(failed).all("script")) == 1


def test_numbers_that_are_none_or_infinite_are_shown() -> None:
    nothing = dict.fromkeys(
        (
            "norm_ratio",
            "grad_norm_ratio",
            "angle_deg",
            "defect",
            "cosine_mean",
            "effective_rank",
            "norm_ratio_predicted",
        )
    )
    rows = [layer("none", **nothing, predicted=None), layer("inf", norm_ratio=float("inf"), broken="infinite")]
    page = Reader(check_page(report(rows, blame={})))
    assert page.wrong == []
    assert "Infinity" in [attributes.get("data-v") for _, attributes in page.elements]
    only = Reader(check_page(report(rows[:1], blame={})))
    assert only.all("svg") == []


def test_the_page_of_200_layers_is_below_a_megabyte() -> None:
    marks = (("collapse", "fail"), ("gradient-scale", "warn"))
    rows = [bad(f"encoder.layer.{i}.attention.output.dense", marks=marks) for i in range(200)]
    assert len(check_page(report(rows)).encode()) < 1_000_000


def test_before_and_after_of_other_networks_have_no_common_axis() -> None:
    fixed = repaired()
    other = Fixed(nn.Identity(), fixed.before, report([layer("one")]), fixed.applied, "m", None, 1.0)
    words = "".join(Reader(fix_page(other)).text)
    assert "before: " in words
    assert words.count("nothing to show") == 0


def test_the_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = write_check_page(example(), tmp_path / "report.html")
    assert Reader(path.read_text()).open == []
    assert example().to_html(tmp_path / "other.html").exists()
    write_fix_page(repaired(), str(path))
    assert "before" in path.read_text()
    with pytest.raises(BadInput, match="does not exist"):
        write_check_page(example(), tmp_path / "no" / "report.html")
    with pytest.raises(BadInput, match="is a folder"):
        write_check_page(example(), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.html", "report.html"]


def test_the_same_report_gives_the_same_page() -> None:
    assert PAGES["check"]() == check_page(example(), title="A net")
