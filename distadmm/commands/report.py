"""Runs side by side: what differs between them, how fast each came where, and what it spent.

python -m distadmm report RUN [RUN ...]     a table here, and one offline page with curves (report.html)
python -m distadmm report RUN ... --out x.pdf       or .svg: the curves as wide as a column of a paper
python -m distadmm report RUN ... --out x.csv       a line a run; .json: that and the tables; .md: the tables

RUN is a run directory of any programme, or a folder that holds several.  Runs that differ in --seed alone are one row:
its median, and its range in brackets; each kind of run has a table of its own.  Nothing but these directories is read.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.commands import report_notes, report_page, report_runs
from distadmm.commands.report_figures import for_paper, pictures
from distadmm.commands.report_kinds import KINDS, Column
from distadmm.errors import DONE, require, sense_of
from distadmm.files import finite, write_csv, write_json, write_text
from distadmm.flags import flag, flag_group, positional
from distadmm.privacy.accounting.statements import rounded_up
from distadmm.ranks.launch import with_flags
from distadmm.ranks.world import World

PROG = "distadmm report"
GAPS = (1e-3, 1e-6)
ENDINGS = (".html", ".pdf", ".svg", ".csv", ".json", ".md")
MARK = "<!-- a report of distadmm: replaced when it is made anew -->"


@flag_group("report")
class Options:
    paths: tuple[str, ...] = positional("RUN", help="give run directories, or folders of them, such as: runs")
    out: str = flag(
        "report.html", help="what to write: .html, .pdf, .svg, .csv, .json or .md; 'none' for the table alone"
    )
    gaps: tuple[float, ...] = flag(
        GAPS, help="relative gaps of the mean model to look for the first iteration at", above=0
    )

    def __post_init__(self) -> None:
        require(self.gaps, "--gaps is empty; give at least one relative gap, like 1e-3")
        require(
            self.out == "none" or Path(self.out).suffix in ENDINGS or Path(self.out).is_dir(),
            f"--out {self.out}: its ending says what is written; needed: one of {', '.join(ENDINGS)}, or none",
        )


class Told(NamedTuple):
    kind: str
    runs: list[report_runs.Group]
    header: list[str]
    rows: list[list[str]]
    notes: list[str]
    same: list[tuple[str, str]]  # columns that would say this in every row


def work(options: Options, world: World) -> int:
    if not world.is_root:
        return DONE
    out = Path(options.out)
    if options.out != "none" and out.exists():  # only a report is replaced
        require(out.is_file(), f"--out {out} is no file; give the name of a page to write")
        content = out.read_bytes().decode(errors="replace")
        ours = "a report of distadmm" in content or content.startswith("kind,setting,directory,")
        require(ours, f"--out {out} exists and is no report; give another name")
    folders = report_runs.find(tuple(map(Path, options.paths)))
    traces = [report_runs.read(folder) for folder in folders]
    with sense_of(folders[0] if len(folders) == 1 else f"one of these {len(folders)} runs"):
        told = sections(traces, options.gaps)
        print("\n".join(["", *in_words(told)]))
        if options.out != "none":
            _write(out, told)
            print(f"\nwritten to {options.out}")
    return DONE


def _write(path: Path, told: Sequence[Told]) -> None:
    if path.suffix == ".html":
        write_text(path, report_page.page(MARK, told))
    elif path.suffix in (".pdf", ".svg"):
        drawn = [picture for one in told for picture in pictures(one.runs)]
        require(drawn, f"--out {path}: these runs measured nothing that could be drawn; give a .csv or .md")
        for_paper(drawn, path, MARK)
    elif path.suffix == ".md":
        lines = [MARK]
        for one in told:
            same = [f"In every row: {_listed(one.same)}."] if one.same else []
            lines += ["", f"## Runs of {one.kind}", "", markdown(one.header, one.rows), "", *same]
            lines += [f"> {note}" for note in one.notes]
        write_text(path, "\n".join(lines) + "\n")
    else:
        runs = {one.kind: [line for group in one.runs for line in _raw(one.kind, group)] for one in told}
        if path.suffix == ".json":
            tables = [{**one._asdict(), "runs": runs[one.kind]} for one in told]
            write_json(path, finite({"made": MARK, "kinds": tables}))
        else:
            each = [line for some in runs.values() for line in some]
            heads = list(dict.fromkeys(name for line in each for name in line))
            write_csv(path, heads, ([line.get(name, "") for name in heads] for line in each))


def _raw(kind: str, group: report_runs.Group) -> list[dict[str, Any]]:
    """A run a line, numbers as they are; nothing where nothing is known."""
    names = [column.name for column in KINDS[kind].columns] + ["bytes", "seconds"]
    found = []
    for run in group.traces:
        at: dict[str, Any] = {"kind": kind, "setting": group.label, "directory": str(run.folder)}
        at |= {name: run.config.get(name) for name in report_runs.SEEDS} | {"ended": run.ended}
        numbers = {"iterations": run.iterations, "epsilon": run.epsilon, **{n: run.last(n) for n in names}}
        known: dict[str, Any] = {name: "" if math.isnan(value) else value for name, value in numbers.items()}
        found.append(at | {"statement": run.statement} | known)
    return found


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def _listed(same: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{head} = {value}" for head, value in same)


def sections(traces: Sequence[report_runs.Trace], gaps: Sequence[float] = GAPS) -> list[Told]:
    """The runs by their kind, each with its table and its notes."""
    found = []
    for kind in KINDS:
        some = [trace for trace in traces if trace.kind == kind]
        if some:
            runs = report_runs.groups(some)
            rows = report_runs.groups([point for trace in some for point in trace.points()])
            header, body, same = report_runs.shared(*table(rows, gaps))
            found.append(Told(kind, runs, header, body, report_notes.warnings(runs), same))
    if together := report_notes.add_up(traces):  # among those that have spent something
        spent = [one for one in found if any(math.isfinite(t.epsilon) for g in one.runs for t in g.traces)]
        spent[-1].notes.extend(together)
    return found


def in_words(told: Sequence[Told]) -> list[str]:
    """The lines of the tables, and what must be known to read them."""
    lines: list[str] = []
    for one in told:
        lines += [*([f"{one.kind}:"] if len(told) > 1 else []), *aligned(one.header, one.rows)]
        lines += [f"in every row: {_listed(one.same)}"] if one.same else []
        lines += [f"note: {note}" for note in one.notes]
    return lines


def table(found: Sequence[report_runs.Group], gaps: Sequence[float]) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns, and a row a group; columns in which nothing is known are left out."""
    kind = KINDS[found[0].traces[0].kind]

    def measured(column: Column) -> list[str]:
        values = [[column.unit * trace.last(column.name) for trace in group.traces] for group in found]
        return [_range(each, column.show.format) for each in values]

    columns: dict[str, list[str]] = {
        "setting": [group.label for group in found],
        "runs": [str(len(group.traces)) for group in found],
    }
    if not kind.point:
        steps = {group.steps for group in found}
        head = steps.pop() if len(steps) == 1 else "iterations"
        columns[head] = [_range([trace.iterations for trace in group.traces]) for group in found]
    for gap in gaps if kind.gaps else ():
        columns[f"to gap {gap:g}"] = [_reached(group, gap, "iteration") for group in found]
        columns[f"MB to gap {gap:g}"] = [_reached(group, gap, "bytes", 1e-6) for group in found]
    columns |= {column.head: measured(column) for column in kind.columns}
    columns |= {
        "epsilon": [_range([t.epsilon for t in g.traces], rounded_up) for g in found],
        "statement": [", ".join(dict.fromkeys(t.in_short for t in g.traces if t.statement)) for g in found],
        "MB sent": [_range([1e-6 * t.last("bytes") for t in g.traces], _megabytes) for g in found],
        "seconds": measured(Column("", "seconds", "{:.2f}")),
        "ended": [", ".join(dict.fromkeys(t.ended for t in g.traces)) for g in found],
    }
    if all(len(group.traces) == 1 for group in found):
        del columns["runs"]
    kept = {head: cells for head, cells in columns.items() if any(cell not in ("-", "") for cell in cells)}
    return list(kept), [list(row) for row in zip(*kept.values())]


def _megabytes(value: float) -> str:
    """Two decimals, or two digits of what these would round away."""
    return f"{value:.2f}" if value == 0 or value >= 0.1 else f"{value:.2g}"


def _range(values: Sequence[float], show: Callable[[float], str] = "{:.0f}".format) -> str:
    """The median of what is known, and the range if there is one."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "-"
    middle, low, high = (show(float(v)) for v in (np.median(known), min(known), max(known)))
    return middle if low == high else f"{middle} [{low}, {high}]"


def _reached(group: report_runs.Group, gap: float, column: str, unit: float = 1.0) -> str:
    """`column` where the gap is first reached, and by how many of the runs if not by all."""
    lines = [(trace, trace.first_below(gap)) for trace in group.traces]
    values = [unit * float(trace.history[column][line]) for trace, line in lines if line is not None]
    text = _range(values, "{:.0f}".format if unit == 1.0 else _megabytes)
    return text if len(values) in (0, len(lines)) else f"{text} ({len(values)} of {len(lines)})"


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    first, *widths = [max(map(len, column)) for column in zip(header, *rows)]
    lines = [[row[0].ljust(first), *map(str.rjust, row[1:], widths)] for row in (header, *rows)]
    return ["  ".join(line).rstrip() for line in lines]


main = with_flags(PROG, __doc__, Options, work)
