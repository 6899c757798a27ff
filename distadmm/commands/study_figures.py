"""The figures of a study: as wide as a column of a two-column paper, told apart without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distadmm.commands import study_numbers as numbers
from distadmm.graphs.figures import column, in_plain_numbers, ink, save_for_paper

if TYPE_CHECKING:
    from distadmm.commands.study import Options


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
