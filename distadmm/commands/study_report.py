"""What a study says and leaves: tables, CSV, Markdown and the list of its figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from distadmm.commands import report, study_figures
from distadmm.commands import study_numbers as numbers
from distadmm.files import write_csv, write_text

if TYPE_CHECKING:
    from distadmm.commands.study import Options


def cell(one: numbers.Pooled, show: str) -> str:
    """Mean and interval; of a gap that not every run reached, by how many."""
    if not math.isfinite(one.mean):
        return f"in {numbers.reached(one)} of {len(one.values)}" if numbers.reached(one) else "-"
    return show.format(one.mean) + ("" if math.isnan(one.half) else " ±" + show.format(one.half))


class Table(NamedTuple):
    title: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def tables(lines: Sequence[numbers.Line], options: Options) -> list[Table]:
    """One for each algorithm and number of nodes."""
    found = []
    for (algorithm, nodes), mine in numbers.by(lines, "algorithm", "nodes").items():
        ranked = {m: numbers.ranking(numbers.pooled(mine, m)) for m in numbers.measures(mine, options)}
        ranked = {m: places for m, places in ranked.items() if places}
        found.append(Table(f"{algorithm}, {nodes} nodes", *_table(ranked), _correlations(ranked)))
    return found


def _table(ranked: dict[numbers.Measure, list[numbers.Ranked]]) -> tuple[list[str], list[list[str]]]:
    first = next(iter(ranked.values()))
    columns: dict[str, list[str]] = {
        "network": [place.pooled.family for place in first],
        "runs": [str(len(place.pooled.values)) for place in first],
    }
    for name, label in numbers.PROPERTIES.items():
        columns[label] = [f"{place.pooled.of_graph(name):.3g}" for place in first]
    for measure, places in ranked.items():
        named = {place.pooled.family: place for place in places}
        mine = [named.get(place.pooled.family) for place in first]
        columns[measure.label] = ["-" if p is None else cell(p.pooled, measure.show) for p in mine]
        ranks = ["-" if p is None else numbers.rank(p) for p in mine]
        columns["rank" + " " * list(ranked).index(measure)] = ranks
    for name, label in (("measured_rate", "rate"), ("predicted_rate", "predicted")):
        told = [[getattr(one, name) for one in place.pooled.lines] for place in first]
        rates = [[rate for rate in some if rate is not None and not math.isnan(rate)] for some in told]
        if any(rates):
            columns[label] = [f"{np.mean(some):.4f}" if some else "-" for some in rates]
    return [head.strip() for head in columns], [list(row) for row in zip(*columns.values())]


def _correlations(ranked: dict[numbers.Measure, list[numbers.Ranked]]) -> list[str]:
    """Spearman's rho of what is measured with what the graph is like."""
    said = []
    for measure, places in ranked.items():
        known = [place.pooled for place in places if math.isfinite(place.pooled.mean)]
        if len(known) > 3:
            means, told = [one.mean for one in known], []
            for name, label in numbers.PROPERTIES.items():
                told.append(f"{_spearman(means, [one.of_graph(name) for one in known]):+.2f} with {label}")
            said.append(f"{measure.label}, Spearman over {len(known)} networks: {', '.join(told)}")
    return said


def _spearman(x: Sequence[float], y: Sequence[float]) -> float:
    from scipy.stats import rankdata

    a, b = rankdata(x), rankdata(y)
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else math.nan


def reading(options: Options) -> list[str]:
    """What must be known to read the tables."""
    said = [
        "mean over graphs and deals ±95 % (t, both factors); rank (range): the ranks that comparisons deal by deal do "
        "not tell apart, each at 95 %, not adjusted for their number; 'in a of b': the other runs ended before the gap",
        "rate: factor an iteration by which the models' movement shrinks in the second half of a run without noise; "
        "predicted: check's spectral radius at the optimum, where it applies: an asymptote, which a run may not reach",
    ]
    if options.epsilon:
        said.append("private runs: loss of the nodes' own models on public test rows, mean over the nodes; "
                    f"epsilon for {options.adjacency}, noise as study.csv says under statement")  # fmt: skip
    if options.quick:
        said.append("a sketch (--quick): two seeds at most, each graph with a deal of its own")
    return said


def written(out: Path, lines: Sequence[numbers.Line], options: Options) -> list[str]:
    """Write everything that a study leaves besides its runs; what is to be said of it."""
    write_csv(out / "study.csv", numbers.Line._fields, ([_plain(v) for v in one] for one in lines))
    head = (
        *("algorithm", "measure", "nodes", "network", "rank", "lowest_rank", "highest_rank"),
        *("mean", "half_95", "reached", "runs"),
    )
    rows = [
        [
            *(algorithm, measure.label, nodes, p.family, *ranks),
            *(_plain(p.mean), _plain(p.half), numbers.reached(p), len(p.values)),
        ]
        for (algorithm, nodes), mine in numbers.by(lines, "algorithm", "nodes").items()
        for measure in numbers.measures(mine, options)
        for p, *ranks in numbers.ranking(numbers.pooled(mine, measure))
    ]
    write_csv(out / "ranking.csv", head, rows)
    said, page = [], ["# A study of networks"]
    for title, header, body, notes in tables(lines, options):
        said += [f"{title}:", *report.aligned(header, body), *notes, ""]
        page += ["", f"## {title}", "", report.markdown(header, body), "", *notes]
    said += reading(options)
    drawn = study_figures.draw(out, lines, options)
    page += ["", *reading(options), "", *(f"![{what}]({name}.svg)" for name, what in drawn.items())]
    write_text(out / "study.md", "\n".join(page) + "\n")
    files = ["study.csv", "ranking.csv", "study.md", *(f"{name}.pdf" for name in drawn)]
    return [*said, "", f"written to {out}: {', '.join(files)} (and .svg)"]


def _plain(value: object) -> object:
    """A cell of a CSV: nothing for what is not known, inf for what was not reached."""
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
