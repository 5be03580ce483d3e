"""The tables of what needs no peer."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

Record = dict[str, Any]


def of_kind(records: dict[str, Record], kind: str) -> list[Record]:
    return [record for record in records.values() if record.get("kind") == kind]


def short(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.1f} s"


def aim(value: float, target: float) -> str:
    return f"{target:g} {'met' if value <= target else 'missed'}"


def beside_relu(record: Record | None) -> str:
    if record is None:
        return ""
    if "ratio" not in record:
        return f"more than {record['stopped_after_seconds']:g} s"
    missed = "" if record["ratio"] <= record["target"] else ", missed"
    return f"{short(statistics.median(record['ours_seconds']))}, {record['ratio']:.1f}{missed}"


def activation_table(records: dict[str, Record]) -> Iterator[str]:
    """One row for each activation, one column for each network."""
    rows = {tuple(record["work"].split()[1:]): record for record in of_kind(records, "activation")}
    shapes, acts = (list(dict.fromkeys(key[i] for key in rows)) for i in (0, 1))
    if not rows:
        return
    heads = " | ".join(f"{shape}: seconds, times ReLU's" for shape in shapes)
    yield f"| activation | {heads} | error |"
    yield "| --- |" + " --- |" * (len(shapes) + 1)
    for act in acts:
        found = [rows.get((shape, act)) for shape in shapes]
        errors = [record["relative_error"] for record in found if record and "relative_error" in record]
        cells = " | ".join(map(beside_relu, found))
        yield f"| {act} | {cells} | {f'{max(errors):.0e}' if errors else ''} |"


def plain_table(records: dict[str, Record]) -> Iterator[str]:
    yield "| | what | compiled | plain | plain / compiled | aim |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for r in of_kind(records, "plain"):
        head = f"| {r['work']} | {r['what']} |"
        if "ratio" not in r:
            yield f"{head} | more than {r['stopped_after_seconds']:g} s | | |"
            continue
        ours, plain = (short(statistics.median(r[key])) for key in ("ours_seconds", "plain_seconds"))
        yield f"{head} {ours} | {plain} | {r['ratio']:.1f} | {aim(r['ratio'], r['target'])} |"


def first_table(records: dict[str, Record]) -> Iterator[str]:
    yield "| | empty cache | aim | full cache | aim | called again |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for r in of_kind(records, "first"):
        cold, warm = r["cold_seconds"], r["warm_seconds"]
        yield (
            f"| {r['work']} | {short(cold)} | {aim(cold, r['target_cold'])} | {short(warm)} "
            f"| {aim(warm, r['target_warm'])} | {short(r['again_seconds'])} |"
        )


SECTIONS = (
    (
        activation_table,
        "Other activations in the networks of W7, W8 and W9, beside ReLU in the same network, in turns; the aim is at most "
        "4 times as long. SELU has weights of variance 1 / fan-in, the others 2 / fan-in. Error: float32 against quadrature in "
        "float64 that shares no code with initscope, on a few inputs (of images a corner), the largest of the networks.",
    ),
    (plain_table, "The plain torch path (`INITSCOPE_NO_NUMBA=1`) beside the compiled loops, in turns."),
    (
        first_table,
        "The first call in a fresh process, libraries and inputs loaded, four images or 64 vectors: with an empty cache of "
        "compiled code, with the one that this left, and the second call.",
    ),
)


def sections(records: dict[str, Record]) -> list[str]:
    """Words and a table for each kind that has rows."""
    found = []
    for table, words in SECTIONS:
        lines = list(table(records))
        if len(lines) > 2:  # more than a heading
            found += [words, "\n".join(lines)]
    return found
