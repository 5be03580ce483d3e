"""The page in a real browser: silent, alone, sortable by mouse and keyboard, readable for a screen reader."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from initscope.probe.report import SeedSpread
from initscope.probe.theory import Predicted
from initscope.report import write_check_page, write_fix_page
from report.chromium import PROGRAM, Browser
from report.reports import bad, layer, relu, remedy, report
from report.test_page import EVIL, repaired

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="chromium is not installed; on Debian: apt-get install chromium"
)
ANGLES = [60.0, 30.5, 0.001, None, 100.0, 7.0, 7.0]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        (bad if i == 2 else relu if i % 2 else layer)(f"block.{i}.{EVIL}", angle_deg=a) for i, a in enumerate(ANGLES)
    ]
    remedies = tuple(remedy(f"remedy-{i}") for i in range(7))
    return write_check_page(
        report(rows, remedies=remedies), tmp_path_factory.mktemp("page") / "report.html", title=EVIL
    )


def order(browser: Browser) -> list[int]:
    """The places of the rows that are shown, from top to bottom."""
    script = "[...document.querySelector('table').tBodies[0].rows].filter(r => !r.hidden).map(r => +r.cells[0].textContent - 1)"
    found: list[int] = browser.run(script)
    return found


def head(name: str) -> str:
    return f"[...document.querySelectorAll('thead button')].find(b => b.textContent === '{name}')"


def test_no_complaint_and_no_request(browser: Browser, page: Path, tmp_path: Path) -> None:
    for path in (page, write_fix_page(repaired(), tmp_path / "fix.html")):
        browser.open(path.as_uri())
        browser.run("document.querySelectorAll('thead button').forEach(b => b.click())")
        assert browser.complaints() == []
        assert [address for address in browser.requests() if not address.startswith("data:")] == [path.as_uri()]


def test_the_page_may_not_ask_for_anything(browser: Browser, page: Path) -> None:
    asked: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/"
        fetch = f"fetch('{address}', {{mode: 'no-cors'}}).then(() => 'sent', () => 'refused')"
        image = f"new Promise(r => {{ const i = new Image(); i.onload = i.onerror = e => r(e.type); i.src = '{address}i'; }})"
        lax = page.with_name("lax.html")
        lax.write_text(page.read_text().replace("Content-Security-Policy", "X-Nothing"))
        browser.open(lax.as_uri())
        assert browser.run(fetch) == "sent"  # without the policy it would
        assert len(asked) == 1
        browser.open(page.as_uri())
        assert browser.run(fetch) == "refused"
        assert browser.run(image) == "error"
        assert browser.complaints() != []  # the browser says that it refused: silence elsewhere means something
        assert len(asked) == 1
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_click_sorts_by_number_and_a_second_one_turns_it(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri())
    assert order(browser) == [0, 1, 2, 3, 4, 5, 6]
    browser.run(f"{head('angle')}.click()")
    assert order(browser) == [2, 5, 6, 1, 0, 4, 3]  # numbers, not words; what is missing comes last
    sorts = "[...document.querySelectorAll('thead th')].map(h => h.getAttribute('aria-sort')).filter(s => s !== 'none')"
    assert browser.run(sorts) == ["ascending"]
    browser.run(f"{head('angle')}.click()")
    assert order(browser) == [4, 0, 1, 5, 6, 2, 3]
    assert browser.run(sorts) == ["descending"]
    assert "sorted by angle" in browser.run("document.querySelector('[role=status]').textContent")
    browser.run(f"{head('status')}.click()")
    assert order(browser)[0] == 2
    browser.run(f"{head('#')}.click()")
    assert order(browser) == [0, 1, 2, 3, 4, 5, 6]


def test_the_keyboard_sorts_too(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri())
    browser.run(f"{head('gradient')}.focus()")
    browser.press("Tab", 9)
    assert browser.run("document.activeElement.textContent") == "angle"
    browser.press("Enter", 13)
    assert order(browser) == [2, 5, 6, 1, 0, 4, 3]


def test_filters_by_status_and_by_word(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri())
    browser.run("document.querySelector('input[value=healthy]').click()")
    assert order(browser) == [2]
    browser.run("document.querySelector('input[value=healthy]').click()")
    search = "document.querySelector('input[type=search]')"
    browser.run(f"{search}.value = 'RELU'; {search}.dispatchEvent(new Event('input'))")
    assert order(browser) == [1, 3, 5]
    assert browser.run("document.querySelector('[role=status]').textContent") == "3 of 7 steps shown"


def test_figures_table_and_buttons_have_names(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri())
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]

    def named(role: str) -> list[str]:
        return [
            n.get("name", {}).get("value", "")
            for n in nodes
            if n.get("role", {}).get("value") == role and not n["ignored"]
        ]

    assert len(named("image")) == 5
    assert named("image")[0].startswith("Angle between samples degrees over 7 layers")
    assert all(named("image"))
    assert all(named("button"))
    assert {"angle", "gradient", "norm"} <= set(named("button"))
    assert all(named("columnheader"))


def test_names_of_layers_run_nothing(browser: Browser, page: Path) -> None:
    browser.open(page.as_uri())
    assert browser.run("document.title").startswith(EVIL)
    assert browser.run("document.querySelectorAll('script, img').length") == 1
    assert not [event for event in browser.events if event["method"] == "Page.javascriptDialogOpening"]


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_nothing_hangs_over_the_edge(browser: Browser, page: Path, width: int) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(page.as_uri())
    assert browser.run("document.documentElement.scrollWidth") <= width
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_reasons_are_read_without_scrolling_at_1100_pixels(browser: Browser, tmp_path: Path) -> None:
    marks = (("collapse", "fail"), ("gradient-scale", "warn"), ("dead-units", "warn"))
    names = [f"encoder.layer.{i}.attention_output.dense" for i in range(9)]
    rows = [bad(name, 8.2, marks=marks, grad_norm_ratio=0.00077, dead_fraction=0.4) for name in names]
    assert len(rows[0].reason) > 100
    browser.call("Emulation.setDeviceMetricsOverride", width=1100, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(write_check_page(report(rows), tmp_path / "report.html").as_uri())
    inside = "document.querySelector('.scroll').getBoundingClientRect().right"
    cells = "[...document.querySelectorAll('td.reason, tbody th')].map(c => c.getBoundingClientRect())"
    assert browser.run(f"Math.max(...{cells}.map(box => box.right))") < browser.run(inside)
    assert browser.run(f"Math.min(...{cells}.map(box => box.width))") >= 120  # not a letter to a line
    last = "[...document.querySelectorAll('thead th')].find(h => h.textContent.includes('dead')).getBoundingClientRect().right"
    assert browser.run(last) < browser.run(inside)
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_no_column_is_cut_at_1200_pixels(browser: Browser, tmp_path: Path) -> None:
    close = Predicted(defect=2.5e-06, most=1.25e-05, least=5.25e-07, measured=2.5e-06, rms=1.0, given="")
    wide = {"op": "adaptive_avg_pool2d", "shape": (128, 112, 112), "angle_deg": 0.00449, "predicted": close}
    wide |= {"norm_ratio": 1.2e-05, "grad_norm_ratio": 2.5e-05, "cosine_seeds": SeedSpread((1.0, 1.0 - 1e-07))}
    rows = [bad(f"encoder.layer.{i}.attention_output.dense", dead_fraction=0.4, **wide) for i in range(9)]
    browser.call("Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(write_check_page(report(rows), tmp_path / "report.html").as_uri())
    table = "document.querySelector('.scroll')"
    assert browser.run(f"{table}.scrollWidth - {table}.clientWidth") <= 0
    browser.call("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_both_schemes(browser: Browser, page: Path, scheme: str) -> None:
    """Contrast of at least 4.5 to 1 for text on what lies behind it, the ratio that WCAG 2 asks for."""
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(page.as_uri())
    script = """
    (() => {
      const parse = (c) => c.match(/[\\d.]+/g).map(Number);
      const light = (c) => { const [r, g, b] = parse(c).map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const back = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (parse(c).length < 4 || parse(c)[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
      const low = [];
      for (const e of document.querySelectorAll('p, span, th, td, li, code, button, strong, h1, h2, h3, svg text')) {
        const ink = e.closest('svg') ? getComputedStyle(e).fill : getComputedStyle(e).color;
        const [a, b] = [light(ink), light(back(e))].sort((x, y) => y - x);
        if (e.textContent.trim() && (a + 0.05) / (b + 0.05) < 4.5) low.push([e.tagName, e.className, ink, back(e)].join(' '));
      }
      return [...new Set(low)];
    })()"""
    assert browser.run(script) == []
    browser.call("Emulation.setEmulatedMedia", features=[])
