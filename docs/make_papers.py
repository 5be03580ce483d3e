"""Writes the results in docs/papers.md and the page docs/errata.md: `python docs/make_papers.py [RUN]`.

RUN is a folder that `initscope papers run all --out RUN` filled; its checks are kept in docs/papers.json, from which both pages
are made. Without RUN they are made again from there. A test fails when a page is out of date.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from initscope.papers import PAPERS, Check, Erratum, Record, Sampled, errata, items, read_record
from initscope.report import tally
from initscope.report.papers_table import exact_text, sampled_text, verdict_word

DOCS = Path(__file__).parent
STORE, PAPERS_PAGE, ERRATA_PAGE = DOCS / "papers.json", DOCS / "papers.md", DOCS / "errata.md"
MARK = "<!-- what follows is made by docs/make_papers.py -->\n"
HEAD = """# Errata of the papers

Slips that matter for anyone who computes with the formulas, each with the evidence in this repository: tests, and statements of
the [runs](papers.md) that do not agree with what is printed. Made by `python docs/make_papers.py`.
"""
READINGS = """
## JL §4.1: relative norm difference

On 400 ImageNet images `benchmarks/accuracy.py` prints an angle between channels of 11.6 ± 0.4 degrees (JL: about 12.5). JL's
9.2 % depends on what is compared with what: the mean deviation from the mean norm of the three channels is 8.7 ± 0.4 %, the
difference within pairs of channels 15.7 ± 0.8 %. More readings are possible (standard deviations, the range). The first was
kept because it comes near the printed figure, after several had been tried, so its agreement confirms nothing.
"""

Run = dict[str, Any]


def collect(folder: Path) -> Run:
    """The checks of every finished item in the folder, without data and figures."""
    kept = {}
    for item in items():
        record = read_record(folder, item.key)
        if record is not None:
            content = record.to_dict()
            kept[item.key] = {
                name: content[name] for name in ("title", "checks", "notes", "given", "size", "seed", "seconds")
            }
    return kept


def results(run: Run) -> str:
    """The tables of docs/papers.md, one for each paper."""
    seconds = sum(found["seconds"] for found in run.values())
    lines = [
        "## Results\n",
        f"{tally([Record(key, '', '', '', 0, checks=tuple(checks_of(found))) for key, found in run.items()])}; "
        f"{seconds:,.0f} seconds ({seconds / 60:.0f} minutes) in all, summed over the items.\n",
    ]
    for paper, title in PAPERS.items():
        mine = {key: found for key, found in run.items() if key.partition("/")[0] == paper}
        if mine:
            lines += [f"### {title}\n", "| item | statement | published | exact | sampled, 95 % | agrees? |"]
            lines += ["| --- | --- | --- | --- | --- | --- |"]
            lines += [row for key, found in mine.items() for row in rows(key, found)] + [""]
    return "\n".join(lines)


def rows(key: str, found: Run) -> list[str]:
    lines = []
    for place, check in enumerate(checks_of(found)):
        name = f'<a id="{key.replace("/", "-")}"></a>`{key}`' if place == 0 else ""
        said = cell(check.says) + (f"<br>*{cell(check.why)}*" if check.why else "")
        numbers = (cell(check.published or "-"), exact_text(check.exact), sampled_text(check))
        lines.append(f"| {name} | {said} | {' | '.join(numbers)} | {verdict_word(check)} |")
    return lines


def checks_of(found: Run) -> list[Check]:
    made = []
    for line in found["checks"]:
        content = {name: value for name, value in line.items() if name not in ("interval", "sampled")}
        made.append(Check(**content, sampled=None if line["sampled"] is None else Sampled(**line["sampled"])))
    return made


def errata_page(run: Run) -> str:
    """The table of slips, then what the runs say about them."""
    slips = [named(PAPERS[paper].partition(":")[0], slip) for paper, found in errata().items() for slip in found]
    lines = [HEAD, "| where | printed | should be | evidence |", "| --- | --- | --- | --- |"]
    lines += [f"| {' | '.join((cell(s.where), cell(s.printed), cell(s.should_be), evidence(s)))} |" for s in slips]
    lines += ["\n## What the runs show\n", "Statements of the items named above that do not hold as printed.\n"]
    for key in dict.fromkeys(key for slip in slips for key in slip.items):
        lines += [f"- {link(key)}: {text}" for text in refuted(run.get(key))]
    return "\n".join(lines) + "\n" + READINGS


def named(paper: str, slip: Erratum) -> Erratum:
    """With the paper's letters in front of the place, whether or not they stand there already."""
    return slip if slip.where.startswith(paper) else replace(slip, where=f"{paper} {slip.where}")


def refuted(found: Run | None) -> list[str]:
    """Each check that does not agree, with its numbers and why."""
    texts = []
    for check in checks_of(found) if found is not None else ():
        if check.agrees is not True:
            numbers = {"printed": check.published, "exact": exact_text(check.exact), "sampled": sampled_text(check)}
            shown = ", ".join(f"{name} {text}" for name, text in numbers.items() if text not in (None, "-"))
            texts.append(
                cell(check.says) + (f" ({shown})" if shown else "") + (f". {cell(check.why)}" if check.why else "")
            )
    return texts


def evidence(slip: Erratum) -> str:
    shown = ", ".join(link(key) for key in slip.items)
    return "; ".join(part for part in (cell(slip.evidence), f"run: {shown}" if shown else "") if part)


def link(key: str) -> str:
    return f"[{key}](papers.md#{key.replace('/', '-')})"


def cell(text: str) -> str:
    """Text that does not end a cell of a table."""
    return text.replace("|", "\\|").replace("\\\\|", "\\|").replace("\n", " ")


def pages(run: Run) -> dict[Path, str]:
    """Both pages as they should be."""
    head = PAPERS_PAGE.read_text().partition(MARK)[0]
    return {PAPERS_PAGE: f"{head}{MARK}\n{results(run)}", ERRATA_PAGE: errata_page(run)}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        STORE.write_text(json.dumps(collect(Path(sys.argv[1])), indent=1, ensure_ascii=False) + "\n")
    for path, text in pages(json.loads(STORE.read_text())).items():
        path.write_text(text)
