"""What a study says and leaves: tables, CSV, Markdown, and figures.

Figures are as wide as a column of a two-column paper, and told apart without colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distadmm.commands import report
from distadmm.commands import study_numbers as numbers
from distadmm.files import write_csv, write_text
from distadmm.graphs.figures import column, in_plain_numbers, ink, save_for_paper
from distadmm.privacy.accounting.statements import READINGS

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
    from scipy.stats import rankdata

    said = []
    for measure, places in ranked.items():
        known = [place.pooled for place in places if math.isfinite(place.pooled.mean)]
        if len(known) > 3:
            means, told = rankdata([one.mean for one in known]), []
            for name, label in numbers.PROPERTIES.items():
                like = rankdata([one.of_graph(name) for one in known])
                rho = np.corrcoef(means, like)[0, 1] if np.ptp(means) and np.ptp(like) else math.nan
                told.append(f"{rho:+.2f} with {label}")
            said.append(f"{measure.label}, Spearman over {len(known)} networks: {', '.join(told)}")
    return said


def reading(options: Options, lines: Sequence[numbers.Line]) -> list[str]:
    """What must be known to read the tables."""
    said = [
        "mean over graphs and deals ±95 % (t, both factors); rank (range): the ranks that comparisons deal by deal do "
        "not tell apart, each at 95 %, not adjusted for their number; 'in a of b': the other runs ended before the gap",
        f"to {options.gap:g}: until the objective of the nodes' mean model is that near to the optimum of all rows, "
        "relative to it; mu: largest |eigenvalue| below 1 of a random walk on the network: the smaller, the sooner "
        "neighbours agree",
        "rate: factor an iteration by which the models' movement shrinks in the second half of a run without noise; "
        "predicted: check's spectral radius at the optimum, where it applies: an asymptote, which a run may not reach",
    ]
    if options.epsilon:
        simulated = any(one.statement == "simulation" for one in lines)
        said.append(
            "private runs: loss of the nodes' own models on public test rows, mean over the nodes; epsilon for "
            f"{options.adjacency}"
            + f"; {READINGS['simulation']}, its epsilon is what real noise would spend"
            * simulated
        )
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
    said += reading(options, lines)
    drawn = draw(out, lines, options)
    page += ["", *reading(options, lines), "", *(f"![{what}]({name}.svg)" for name, what in drawn.items())]
    write_text(out / "study.md", "\n".join(page) + "\n")
    files = ["study.csv", "ranking.csv", "study.md", *(f"{name}.pdf" for name in drawn)]
    return [*said, "", f"written to {out}: {', '.join(files)} (and .svg)"]


def _plain(value: object) -> object:
    """A cell of a CSV: nothing for what is not known, inf for what was not reached."""
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value


def draw(out: Path, lines: Sequence[numbers.Line], options: Options) -> dict[str, str]:
    """Every figure as PDF and SVG in `out`; name -> what it shows."""
    made: dict[str, tuple[str, Any]] = {}
    several = len({one.algorithm for one in lines}) > 1
    for (algorithm,), mine in numbers.by(lines, "algorithm").items():
        end = f"-{Path(algorithm).stem}" if several else ""
        made["against" + end] = (f"{algorithm}: cost against what the graph is like", _against(mine, options))
        made["ranking" + end] = (f"{algorithm}: networks ranked, with intervals", _ranking(mine, options))
        if any(one.predicted_rate for one in mine):
            made["rates" + end] = (f"{algorithm}: measured rate against the predicted", _rates(mine))
    for name, (_, figure) in made.items():
        if figure is not None:
            for ending in ("svg", "pdf"):
                save_for_paper(figure(), out / f"{name}.{ending}")
    return {name: what for name, (what, figure) in made.items() if figure is not None}


def _families(lines: Sequence[numbers.Line]) -> list[str]:
    return list(dict.fromkeys(one.family for one in lines))


def _mark(at: int, nodes: int, sizes: Sequence[int]) -> dict[str, Any]:
    """A family's mark, the larger the more nodes."""
    size = 3.5 + 2.0 * sizes.index(nodes) / max(len(sizes) - 1, 1)
    return {**ink(at), "ls": "none", "ms": size, "mew": 0.7}


def _against(lines: Sequence[numbers.Line], options: Options) -> Any:
    """Each measure against each property of the graph, a mark a network."""
    found = {
        m: [p for p in numbers.pooled(lines, m) if math.isfinite(p.mean)]
        for m in numbers.measures(lines, options)
    }
    found = {measure: networks for measure, networks in found.items() if networks}
    if not found:
        return None
    families, sizes = _families(lines), sorted({one.nodes for one in lines})

    def figure() -> Any:
        names = numbers.PROPERTIES
        drawn, axes = column(len(found), len(names), 1.25 * len(found) + 0.7, sharey="row", sharex="col")
        for at, (measure, networks) in enumerate(found.items()):
            row = axes[at]
            for axis, (name, label) in zip(row, names.items()):
                for one in networks:
                    half = None if math.isnan(one.half) else [[min(one.half, 0.95 * one.mean)], [one.half]]
                    axis.errorbar(
                        one.of_graph(name), one.mean, half, elinewidth=0.5,
                        **_mark(families.index(one.family), one.nodes, sizes),
                    )  # fmt: skip
                axis.margins(0.12)
                if name != "mu":
                    axis.set_xscale("log")
                if measure.epsilon is None:
                    axis.set_yscale("log")
                if at == len(found) - 1:
                    axis.set_xlabel(label)
            row[0].set_ylabel(measure.label.replace(" at ", "\nat "))
        sides = [side for axis in axes.flat for side in (axis.xaxis, axis.yaxis)]
        in_plain_numbers(*(side for side in sides if side.get_scale() == "log"))
        _legend(drawn, families, sizes)
        return drawn

    return figure


def _legend(drawn: Any, families: Sequence[str], sizes: Sequence[int]) -> None:
    axis = drawn.axes[0]
    handles = [axis.plot([], [], **_mark(at, sizes[0], sizes), label=f)[0] for at, f in enumerate(families)]
    how = {"loc": "outside lower center", "ncols": 4, "fontsize": 6, "handletextpad": 0.2, "columnspacing": 1}
    drawn.legend(handles=handles, **how)


def _ranking(lines: Sequence[numbers.Line], options: Options) -> Any:
    """Each measure a panel: the networks from the best down, with intervals."""
    panels = []
    for measure in numbers.measures(lines, options):
        for (nodes,), some in numbers.by(numbers.pooled(lines, measure), "nodes").items():
            ranked = numbers.ranking(some)
            panels += [(measure, nodes, ranked)] if any(math.isfinite(r.pooled.mean) for r in ranked) else []
    if not panels:
        return None
    heights = [len(ranked) + 2.5 for _, _, ranked in panels]
    several = len({nodes for _, nodes, _ in panels}) > 1

    def figure() -> Any:
        drawn, axes = column(len(panels), 1, 0.14 * sum(heights) + 0.2, height_ratios=heights)
        for axis, (measure, nodes, ranked) in zip(axes[:, 0], panels):
            for place in ranked:
                half = None if math.isnan(place.pooled.half) else place.pooled.half
                how = {"fmt": "o", "color": "black", "ms": 3, "lw": 0.8, "capsize": 2}
                axis.errorbar(place.pooled.mean, place.rank, xerr=half, **how)
            told = [numbers.rank(r) if math.isfinite(r.pooled.mean) else "not reached" for r in ranked]
            names = [f"{r.pooled.family}  {at}" for r, at in zip(ranked, told)]
            axis.set_yticks([r.rank for r in ranked], names)
            axis.set_xlim(left=max(axis.get_xlim()[0], 0))  # an interval of few runs may go below
            axis.set_ylim(len(ranked) + 0.6, 0.4)
            axis.set_xlabel(measure.label + (f", {nodes} nodes" if several else ""), labelpad=1)
            axis.grid(axis="x", color="0.85", lw=0.4)
        return drawn

    return figure


def _rates(lines: Sequence[numbers.Line]) -> Any:
    """Digits that an iteration gains, measured over predicted; on the line they agree."""
    rates = [(one, one.predicted_rate or math.nan, one.measured_rate) for one in lines]
    known = [(one, (x, y)) for one, x, y in rates if 0 < x < 1 and 0 < y < 1]
    if not known:
        return None
    families, sizes = _families(lines), sorted({one.nodes for one in lines})

    def figure() -> Any:
        drawn, axes = column(1, 1, 2.6)
        axis = axes[0, 0]
        digits = -np.log10([both for _, both in known])
        for (one, _), (x, y) in zip(known, digits):
            axis.plot(x, y, **_mark(families.index(one.family), one.nodes, sizes))
        ends = [digits.min() / 1.3, digits.max() * 1.3]
        axis.plot(ends, ends, color="0.5", lw=0.6, zorder=0)
        axis.set(xscale="log", yscale="log")
        axis.set(xlabel="predicted digits an iteration", ylabel="measured digits an iteration")
        in_plain_numbers(axis.xaxis, axis.yaxis)
        _legend(drawn, families, sizes)
        return drawn

    return figure
