"""The processes of a comparison: environments of the peers, made on first use, and turns between them."""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build"
TURN, MOST = 1.0, 15  # seconds of a turn, unless one run takes longer; runs in it
PACKAGES = {
    "peer-nt": ("jax==0.5.3", "jaxlib==0.5.3", "tf2jax==0.3.6", "neural-tangents==0.6.5"),
    "peer-anyinit": ("torch==2.13.0", "numpy", "anyinit==0.4.0"),
}
SCRIPTS = {
    "initscope": ("side_initscope.py", None),
    "neural-tangents": ("side_neural_tangents.py", "peer-nt"),
    "cnn-gp's method": ("side_cnn_gp.py", None),
    "anyinit": ("side_anyinit.py", "peer-anyinit"),
    "plain torch": ("side_torch.py", None),
}


def interpreter(folder: str | None) -> str:
    """The Python of a peer's own environment, made if it is not there; without a folder the one that runs this."""
    if folder is None:
        return sys.executable
    place = BUILD / folder
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        print(f"setting up {folder}: {' '.join(PACKAGES[folder])}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES[folder]], check=True)
        (place / "ready").touch()
    return str(python)


class Side:
    """One process that is ready to run, and does so when asked."""

    def __init__(
        self,
        who: str,
        setting: dict[str, Any],
        script: str | None = None,
        limit: float | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Ready when it returns. An answer that takes longer than `limit` seconds ends the process: TimeoutError."""
        own, folder = SCRIPTS[who]
        self._limit = limit
        environment = {
            **os.environ, "OMP_WAIT_POLICY": "passive", "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {}),
        }  # fmt: skip
        if folder is not None:
            environment.pop("PYTHONPATH", None)
        self._process = subprocess.Popen(
            [interpreter(folder), str(HERE / (script or own))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        try:
            self.versions: dict[str, str] = self._ask(setting)["versions"]
        except BaseException:
            self._end()
            raise

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], self._limit)[0]:
            raise TimeoutError(f"no answer in {self._limit:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args}: {self._process.stderr.read()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, save: Path | None = None) -> dict[str, float]:
        """Seconds on the wall and on all cores, and the peak of memory above what was held when ready, in MB."""
        return self._ask({} if save is None else {"save": str(save)})

    def part(self) -> float:
        """Seconds of what was called once before, now that it is compiled: the first blocks of a peer."""
        return float(self._ask({"part": True})["seconds"])

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end() if kind is not None else self._process.communicate()


def in_turns(sides: Sequence[Side], rounds: int) -> list[list[float]]:
    """Seconds of each side, one list each, in rounds in which every side has a turn: the median of what it runs in a second."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for side, list_ in zip(sides, times, strict=True):
            turn = [side.run()["seconds"]]
            while sum(turn) < TURN and len(turn) < MOST:
                turn.append(side.run()["seconds"])
            list_.append(statistics.median(turn))
    return times


def peak_mb(who: str, setting: dict[str, Any], script: str | None = None, limit: float | None = None) -> float:
    """Of a fresh process that runs once: its peak less what it held with libraries and inputs loaded; compiling included."""
    with Side(who, {**setting, "cold": True}, script, limit) as side:
        return side.run()["peak_mb"]
