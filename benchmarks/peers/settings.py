"""The settings that a peer is tried with, what came of each, and the peer's answer in float64; all of it is kept."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sides import BUILD, Side
from works import Work

Record = dict[str, Any]
SLOWER = 1.5  # a setting is not run to its end when a part says that it takes so many times as long as the best
NEAR, MOST_NEAR = 2.0, 4  # times the best; settings that are compared once more before the turns
SHORT = 2.0  # seconds that are never worth an estimate
REFERENCES = BUILD / "peers"


def load(path: Path) -> dict[str, Record]:
    return json.loads(path.read_text()) if path.exists() else {}


def store(path: Path, records: dict[str, Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(records, indent=1) + "\n")
    part.replace(path)


def parts(inputs: int, setting: Record) -> float:
    """How many times the part that is called first, one block or (its own batching) two along each side, all inputs are."""

    def blocks(count: int) -> int:
        sides = -(-count // setting["block"])
        return sides * sides if setting["mode"] == "batched" else sides * (sides + 1) // 2

    few = 1 if setting["mode"] == "once" else 2
    return blocks(inputs) / blocks(min(inputs, few * setting["block"]))


def cost(tried: Record) -> float:
    """Seconds, or an estimate of them; infinite for what was stopped or failed."""
    return float(tried.get("seconds", tried.get("estimated_seconds", float("inf"))))


def bare(tried: Record) -> Record:
    return {key: tried[key] for key in ("dtype", "mode", "block")}


def hopeless(setting: Record, found: list[Record], best: float) -> Record | None:
    """The peer's own batching computes every pair twice: it is not tried where each pair once is far from the best."""
    once = {**setting, "mode": "once"}
    if setting["mode"] == "batched" and any(bare(entry) == once and cost(entry) > NEAR * best for entry in found):
        return {**setting, "not_tried": f"each pair once takes more than {NEAR:g} times the best"}
    return None


@dataclass(frozen=True)
class Peer:
    """One peer at one workload: `given` is the question without a setting, `path` the file of what was tried."""

    work: Work
    given: Record
    path: Path
    limit: float

    @property
    def reference(self) -> Path:
        """The file of its float64 answer, which depends on nothing but the question and the inputs."""
        question = {key: self.given[key] for key in ("layers", "get")}
        whole = json.dumps(question).encode() + Path(self.given["inputs"]).read_bytes()
        return REFERENCES / f"{hashlib.sha256(whole).hexdigest()[:16]}.npy"

    def kept(self) -> list[Record]:
        return list(load(self.path).get(self.work.name, {}).get("settings", []))

    def keep(self, **what: Any) -> None:
        records = load(self.path)
        records[self.work.name] = {**records.get(self.work.name, {}), **what}
        store(self.path, records)

    def try_one(self, setting: Record, best: float) -> Record:
        """The setting with its seconds, or with an estimate if that is much more than the best so far."""
        try:
            with Side(self.work.peer, {**self.given, **setting}, limit=self.limit) as side:
                estimate = side.part() * parts(self.work.inputs, setting)
                if estimate > SLOWER * max(best, SHORT) or estimate > self.limit:
                    return {**setting, "estimated_seconds": estimate}
                save = self.reference if setting["dtype"] == "f64" else None
                return {**setting, "seconds": side.run(save)["seconds"]}
        except TimeoutError:
            return {**setting, "stopped_after_seconds": self.limit}
        except RuntimeError as error:  # out of memory, as a rule
            said = str(error).partition("]: ")[2].strip().splitlines()
            return {**setting, "failed": said[-1][-200:] if said else "the process ended"}

    def tried(self) -> list[Record]:
        """All modes with one block size, then the other sizes of the fastest; what is on record is not tried again."""
        found = self.kept()

        def one(setting: Record) -> None:
            if any(bare(entry) == setting for entry in found):
                return
            best = min(map(cost, found), default=float("inf"))
            found.append(hopeless(setting, found, best) or self.try_one(setting, best))
            print(f"  {self.work.peer} {found[-1]}", file=sys.stderr, flush=True)
            self.keep(settings=found)

        REFERENCES.mkdir(parents=True, exist_ok=True)
        for setting in self.work.settings:
            one(setting)
        best = min(found, key=cost)
        for block in self.work.blocks:
            one({**bare(best), "block": block})
        return found

    def best(self, found: list[Record]) -> Record:
        """The fastest setting; those that came near are run once more now, since they may be of a run on a busier machine."""
        least = min(map(cost, found))
        near = sorted((entry for entry in found if cost(entry) <= NEAR * least), key=cost)[:MOST_NEAR]
        if len(near) < 2:
            return bare(near[0])
        now = []
        for entry in near:
            try:
                with Side(self.work.peer, {**self.given, **bare(entry)}, limit=self.limit) as side:
                    now.append(side.run()["seconds"])
            except (TimeoutError, RuntimeError):
                now.append(float("inf"))
            print(f"  again {bare(entry)}: {now[-1]:.3f} s", file=sys.stderr, flush=True)
        return bare(near[now.index(min(now))])

    def exact(self, found: list[Record]) -> Any:
        """Its answer in float64: from the file, or in its fastest setting of that precision."""
        if not self.reference.exists():
            REFERENCES.mkdir(parents=True, exist_ok=True)
            setting = bare(min((entry for entry in found if entry["dtype"] == "f64"), key=cost))
            with Side(self.work.peer, {**self.given, **setting}) as side:
                side.run(self.reference)
        return np.load(self.reference)
