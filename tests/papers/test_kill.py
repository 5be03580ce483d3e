"""A run that is killed or interrupted keeps what is finished, and the same command goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

# Three items; the second waits for a file before it finishes the first time. Every start is written to a log.
SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from papers.fakes import item, outcome
import initscope.papers.registry as registry
folder = Path({folder!r})

def step(name):
    def run(desk):
        with (folder / "log").open("a") as log:
            log.write(name + "\\n")
        if name == "b" and not (folder / "go").exists():
            print("waiting", file=sys.stderr, flush=True)
            while True:
                time.sleep(0.02)
        return outcome(desk)
    return run

registry._items_of = lambda paper: [item(f"overparam/{{n}}", step(n)) for n in "abc"] if paper == "overparam" else []
from initscope.cli import main
main(prog_name="initscope")
"""


def start(tmp_path: Path, *more: str) -> subprocess.Popen[str]:
    code = SCRIPT.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path))
    arguments = ["papers", "run", "all", "--workers", "0", "--out", str(tmp_path / "out"), *more]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_the_second(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    assert any("waiting" in line for line in lines)


def check_half_way(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert sorted(p.name for p in (out / "overparam").iterdir()) == ["a.json", "a.svg"]
    page = (out / "index.html").read_text()
    assert page.endswith("</html>")
    assert 'id="overparam-a"' in page
    assert "Still to run: 2." in page


def check_goes_on(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    process = start(tmp_path, "--json")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert [one["key"] for one in json.loads(output)["items"]] == ["overparam/a", "overparam/b", "overparam/c"]
    assert (tmp_path / "log").read_text().split() == ["a", "b", "b", "c"]  # a was not run again
    page = (tmp_path / "out/index.html").read_text()
    assert all(f'id="overparam-{name}"' in page for name in "abc")
    assert "Still to run" not in page
    assert not list((tmp_path / "out").glob("**/.*"))


def test_kill_then_the_same_command_goes_on(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_the_second(process)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    check_half_way(tmp_path)
    check_goes_on(tmp_path)


def test_interrupt_is_130_and_says_what_is_kept(tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_the_second(process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "1 of 3 items finished, kept in" in errors
    assert "Traceback" not in errors
    assert output == ""
    check_half_way(tmp_path)
    check_goes_on(tmp_path)
