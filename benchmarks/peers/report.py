"""The records as a table in Markdown and as a figure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from matplotlib.ticker import LogLocator, NullFormatter
from own_report import sections
from works import WORKS

from initscope.figures.style import BLUE, ORANGE, Picture, finish, house_style, new_figure

Record = dict[str, Any]
MOST_ERROR = 1e-5


def seconds(values: list[float]) -> str:
    median = statistics.median(values)
    return f"{median:.3f} s" if median < 10 else f"{median:.1f} s"


def times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"


def setting(record: Record) -> str:
    best = record["best_setting"]
    mode = "its own batching" if best["mode"] == "batched" else "each pair once"
    return f"{best['dtype']}, {mode}, blocks of {best['block']}"


def kernel_table(records: dict[str, Record]) -> Iterator[str]:
    yield "| | what | peer, best setting | peer | ours, f32 | ratio (rounds) | aim | error | peak memory, ours / peer |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, r in records.items():
        if "best_setting" not in r:
            continue
        aim = "" if r["target"] is None else f"{r['target']:g} {'met' if r['ratio'] >= r['target'] else 'missed'}"
        yield (
            f"| {name} | {r['what']} | {r['peer']}: {setting(r)} | {seconds(r['peer_seconds'])} "
            f"| {seconds(r['ours_seconds'])} | {times(r['ratio'])} ({times(r['ratio_low'])} to {times(r['ratio_high'])}) | {aim} "
            f"| {r['relative_error']:.0e} | {r['ours_mb']:.0f} / {r['peer_mb']:.0f} MB |"
        )


def bound_table(records: dict[str, Record]) -> Iterator[str]:
    yield "| | share of the matmul rate | share of the copy rate | what stops it |"
    yield "| --- | --- | --- | --- |"
    stated = {work.name: work.stops for work in WORKS}
    for name, r in records.items():
        if "best_setting" not in r:
            continue
        stops = stated.get(name) or r["stops"]
        if "share_of_matmul" in r:
            yield f"| {name} | {r['share_of_matmul']:.0%} | {r['share_of_copy']:.2%} | {stops} |"
        elif stops:
            yield f"| {name} | | | {stops} |"


def pair_table(records: dict[str, Record]) -> Iterator[str]:
    yield "| what; beside it | ours | peer | peer / ours (rounds) | peak memory, ours / peer |"
    yield "| --- | --- | --- | --- | --- |"
    for r in records.values():
        if "best_setting" not in r and "kind" not in r:
            yield (
                f"| {r['what']} | {seconds(r['ours_seconds'])} | {seconds(r['peer_seconds'])} "
                f"| {r['ratio']:.2f} ({r['ratio_low']:.2f} to {r['ratio_high']:.2f}) "
                f"| {r['ours_mb']:.0f} / {r['peer_mb']:.0f} MB |"
            )


def limits_line(records: dict[str, Record]) -> str:
    """Which rows miss what is asked of all: the error, and no more memory than the peer."""
    rows = {name: r for name, r in records.items() if "best_setting" in r}
    if not rows:
        return ""
    inexact = [name for name, r in rows.items() if r["relative_error"] > MOST_ERROR]
    larger = [name for name, r in rows.items() if r["ours_mb"] > r["peer_mb"]]
    return (
        f"Errors above {MOST_ERROR:g}: {', '.join(inexact) or 'none'}. "
        f"More memory than the peer: {', '.join(larger) or 'none'}."
    )


def machine_line(records: dict[str, Record]) -> str:
    rows = [r["machine"] for r in records.values() if "machine" in r]
    versions: dict[str, str] = {}
    for r in records.values():
        versions |= r.get("versions", {})
    words = ", ".join(f"{key} {value}" for key, value in sorted(versions.items()))
    if not rows:
        return f"Versions: {words}." if words else ""
    best = {key: max(row[key] for row in rows) for key in rows[0]}
    return (
        f"Matmul {best['f32_gflops']:.0f} GFLOP/s in float32 and {best['f64_gflops']:.0f} in float64, copy "
        f"{best['copy_gbs']:.0f} GB/s, the best seen between the workloads. Versions: {words}."
    )


def page(records: dict[str, Record]) -> str:
    parts = [list(part) for part in (kernel_table(records), bound_table(records), pair_table(records))]
    tables = ["\n".join(part) for part in parts if len(part) > 2]  # more than a heading
    tables.insert(1, limits_line(records))
    compared = any("best_setting" in r for r in records.values())
    figure = "![Seconds of initscope and of its peers](figures/peers.svg)" if compared else ""
    patches = [
        r["on_patches_seconds"] / statistics.median(r["ours_seconds"])
        for r in records.values()
        if r.get("on_patches_seconds")
    ]
    aside = (
        "One convolution with pooling is a dense kernel on patches. Who knows that can call neural-tangents' dense kernel on "
        f"them, by hand: then W3 16 takes it {patches[0]:.0f} times as long as ours."
        if patches
        else ""
    )
    where = "All numbers, every setting that was tried included: [peers.json](peers.json)."
    below = [aside, *sections(records), machine_line(records), where]
    return "\n\n".join(part for part in [figure, *tables, *below] if part) + "\n"


def picture(records: dict[str, Record]) -> Picture:
    """Seconds of both sides on a logarithmic axis, the aim as a mark."""
    rows = {name: r for name, r in records.items() if "best_setting" in r}
    with house_style():
        figure, axes = new_figure(width=7.2, height=0.45 * len(rows) + 1.2)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color="#dddddd", linewidth=0.7)
        for place, r in enumerate(rows.values()):
            ours, peer = (statistics.median(r[key]) for key in ("ours_seconds", "peer_seconds"))
            axes.plot([ours, peer], [place, place], color="#bbbbbb", linewidth=2, zorder=1)
            axes.plot(ours, place, "o", color=BLUE, markersize=8, label="initscope, f32" if place == 0 else None)
            axes.plot(peer, place, "s", color=ORANGE, markersize=7, label="peer, best setting" if place == 0 else None)
            if r["target"]:
                axes.plot(
                    peer / r["target"], place, "|", color="black", markersize=14, label="aim" if place == 0 else None
                )
            axes.annotate(
                f"{r['ratio']:.0f} times" if r["ratio"] >= 10 else f"{times(r['ratio'])} times",
                (peer, place), (8, 0), textcoords="offset points", va="center", fontsize=8.5,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.margins(x=0.15)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(range(len(rows)), [f"{name}: {r['what']}" for name, r in rows.items()], fontsize=8.5)
        axes.invert_yaxis()
        axes.set_ylim(len(rows) - 0.5, -0.8)
        axes.set_xlabel("seconds, median of rounds in turns")
        title = "Kernel matrices beside the peers"
        figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold")
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
        listed = ", ".join(f"{name} {r['ratio']:.1f}" for name, r in rows.items())
        return finish(
            figure, title, f"Seconds of initscope and of the best setting of the peer. Peer by ours: {listed}."
        )
