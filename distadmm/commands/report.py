"""Runs side by side: what differs between them, how fast each came where, and what it spent.

python -m distadmm report RUN [RUN ...]     a table here, and one offline page with curves (report.html)

RUN is a run directory of the consensus family, or a folder that holds several.  Runs that differ in --seed alone are
one row: its median, and its range in brackets.  Nothing but these directories is read.
"""

from __future__ import annotations

from distadmm.flags import entering

entering(__name__)

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from distadmm.commands import report_runs
from distadmm.commands.report_runs import Group
from distadmm.errors import DONE, require
from distadmm.files import write_text
from distadmm.flags import flag, parse
from distadmm.privacy.accounting.statements import rounded_up
from distadmm.ranks.launch import launch
from distadmm.ranks.world import World
from distadmm.structs import struct

PROG = "distadmm report"
MARK = "<!-- a report of distadmm: replaced when it is made anew -->"


@struct
class Options:
    flags_title = "report"

    out: str = flag("report.html", help="page to write; 'none' for the table alone")
    gaps: tuple[float, ...] = flag(
        (1e-3, 1e-6), help="relative gaps to look for the first iteration at", above=0
    )

    def __post_init__(self) -> None:
        require(self.gaps, "--gaps is empty; give at least one relative gap, like 1e-3")


@dataclass(frozen=True)
class Request:
    paths: tuple[Path, ...]
    options: Options


def read(argv: list[str]) -> Request:
    """The run directories and the flags."""
    end = next((at for at, word in enumerate(argv) if word.startswith("-")), len(argv))
    (options,) = parse(PROG, __doc__ or "", [Options], argv[end:])
    require(end, f"no run is named; give run directories: python -m {PROG} runs")
    return Request(tuple(map(Path, argv[:end])), options)


def work(request: Request, world: World) -> int:
    if not world.is_root:
        return DONE
    options = request.options
    _refuse_foreign(options.out)
    found = report_runs.groups([report_runs.read(folder) for folder in report_runs.find(request.paths)])
    print("\n".join(["", *in_words(found, options.gaps)]))
    if options.out != "none":
        from distadmm.commands import report_page

        page = report_page.page(MARK, found, *table(found, options.gaps), report_runs.warnings(found))
        write_text(Path(options.out), page)
        print(f"\npage  {options.out}")
    return DONE


def _refuse_foreign(out: str) -> None:
    """Only a report is replaced."""
    path = Path(out)
    if out == "none" or not path.exists():
        return
    require(path.is_file(), f"--out {out} is no file; give the name of a page to write")
    with open(path, "rb") as file:
        start = file.read(500).decode(errors="replace")
    require(MARK in start, f"--out {out} exists and is no report; give another name")


def in_words(found: Sequence[Group], gaps: Sequence[float]) -> list[str]:
    """The lines of the table, and what must be known to read it."""
    return [*aligned(*table(found, gaps)), *(f"note: {line}" for line in report_runs.warnings(found))]


def table(found: Sequence[Group], gaps: Sequence[float]) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns, and a row a group; columns in which nothing is known are left out."""
    columns: dict[str, list[str]] = {
        "setting": [group.label for group in found],
        "runs": [str(len(group.traces)) for group in found],
        "iterations": [_range([trace.last("iteration") for trace in group.traces]) for group in found],
    }
    for gap in gaps:
        columns[f"to {gap:g}"] = [_reached(group, gap, "iteration") for group in found]
        columns[f"MB to {gap:g}"] = [_reached(group, gap, "bytes", 1e-6) for group in found]
    columns |= {
        "final gap": [_range([t.last("gap") for t in g.traces], "{:.2e}".format) for g in found],
        "test error %": [
            _range([100 * t.last("test_error") for t in g.traces], "{:.2f}".format) for g in found
        ],
        "epsilon": [_range([t.epsilon for t in g.traces], rounded_up) for g in found],
        "statement": [", ".join(dict.fromkeys(t.statement for t in g.traces if t.statement)) for g in found],
        "MB sent": [_range([1e-6 * t.last("bytes") for t in g.traces], "{:.2f}".format) for g in found],
        "seconds": [_range([t.last("seconds") for t in g.traces], "{:.2f}".format) for g in found],
        "ended": [", ".join(dict.fromkeys(t.ended for t in g.traces)) for g in found],
    }
    if all(len(group.traces) == 1 for group in found):
        del columns["runs"]
    kept = {head: cells for head, cells in columns.items() if any(cell not in ("-", "") for cell in cells)}
    return list(kept), [list(row) for row in zip(*kept.values())]


def _range(values: Sequence[float], show: Callable[[float], str] = "{:.0f}".format) -> str:
    """The median of what is known, and the range if there is one."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "-"
    middle, low, high = (show(float(v)) for v in (np.median(known), min(known), max(known)))
    return middle if low == high else f"{middle} [{low}, {high}]"


def _reached(group: Group, gap: float, column: str, unit: float = 1.0) -> str:
    """`column` where the gap is first reached, and by how many of the runs if not by all."""
    lines = [(trace, trace.first_below(gap)) for trace in group.traces]
    values = [unit * float(trace.history[column][line]) for trace, line in lines if line is not None]
    text = _range(values, "{:.0f}".format if unit == 1.0 else "{:.2f}".format)
    return text if len(values) in (0, len(lines)) else f"{text} ({len(values)} of {len(lines)})"


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
        ).rstrip()
        for row in (header, *rows)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    return launch(PROG, read, work, argv)


if __name__ == "__main__":
    raise SystemExit(main())
