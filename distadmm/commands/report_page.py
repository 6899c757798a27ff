"""The page of `report`: a table and its curves in one HTML file that needs no network and no script."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any

import numpy as np

from distadmm.commands.report_runs import Group, Trace, common

Array = np.ndarray

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222;
       background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
div.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 0.85rem }
th, td { padding: 0.25rem 0.5rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
figure { display: inline-block; margin: 0 1.5rem 1rem 0; max-width: 100% }
figure svg { max-width: 100%; height: auto }
p.note { border-left: 4px solid #c60; padding-left: 0.75rem }
"""
_READING = (
    "gap: objective of the mean model over the optimum of all rows together, minus 1. Bytes are those of the protocol, "
    "of all nodes. epsilon is that of the node that has spent most. Brackets: the range over seeds; bands likewise."
)
_LOWEST = 1e-16  # a smaller gap is rounding, and is drawn here


def page(
    mark: str,
    found: Sequence[Group],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
) -> str:
    """The whole file."""
    runs = sum(len(group.traces) for group in found)
    title = f"{runs} run{'s' * (runs > 1)}, {len(found)} setting{'s' * (len(found) > 1)}"
    parts = [
        f'<!doctype html>\n{mark}\n<html lang="en">\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n<h1>{title}</h1>",
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        '<div class="wide">' + _table(header, rows) + "</div>",
        f"<p>{escape(_READING)}</p>",
        "<details><summary>common to all</summary>"
        + _table(["setting", "value"], common(found))
        + "</details>",
        *(f"<figure>{svg}</figure>" for svg in figures(found)),
        "<h2>Where it comes from</h2>\n" + _table(["setting", "directory", "seed", "data"], _sources(found)),
    ]
    return "\n".join(parts) + "\n</html>\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["<table>", "<tr>" + "".join(f"<th>{escape(head)}</th>" for head in header) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _sources(found: Sequence[Group]) -> list[list[str]]:
    return [
        [group.label, str(trace.folder), str(trace.config.get("seed")), trace.data_id[:12]]
        for group in found
        for trace in group.traces
    ]


def figures(found: Sequence[Group]) -> list[str]:
    """The curves as SVG; a line that says why where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        return ["<p>no curves: matplotlib is missing; pip install 'distadmm[plot]'</p>"]
    drawn = [
        _curves(found, "iteration", lambda t: t.history["iteration"], "gap"),
        _curves(found, "MB sent by all nodes", lambda t: 1e-6 * t.history["bytes"], "gap"),
        _curves(found, "iteration", lambda t: t.history["iteration"], "test_error"),
        _spent(found),
    ]
    return [svg for svg in drawn if svg]


def _pyplot(salt: str) -> Any:
    import matplotlib as mpl

    mpl.use("svg")
    # Text stays text; a salt a figure keeps their names apart on one page, and the bytes the same from run to run.
    mpl.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9, "legend.frameon": False}
    )
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot

    return pyplot


def _curves(found: Sequence[Group], x_label: str, x_of: Callable[[Trace], Array], column: str) -> str:
    """Median and range over the seeds of each group; nothing where no run has measured `column`."""
    pyplot = _pyplot(f"{column} over {x_label}")
    figure, axis = pyplot.subplots(figsize=(6.0, 3.8))
    logarithmic = column == "gap"
    some = False
    for at, group in enumerate(found):
        traces = [t for t in group.traces if not np.isnan(t.history[column]).all() and len(t.history[column])]
        if not traces:
            continue
        some, length = True, min(len(t.history[column]) for t in traces)
        y = np.array([t.history[column][:length] for t in traces])
        y = np.maximum(y, _LOWEST) if logarithmic else 100 * y
        x = np.median([x_of(t)[:length] for t in traces], axis=0)
        style = {"color": f"C{at % 10}", "ls": ("-", "--", ":", "-.")[at // 10 % 4]}
        axis.plot(x, np.median(y, axis=0), lw=1.3, label=group.label, **style)
        if len(traces) > 1:
            axis.fill_between(x, y.min(axis=0), y.max(axis=0), color=style["color"], alpha=0.15, lw=0)
    if logarithmic and some:
        axis.set_yscale("log")
    axis.set(xlabel=x_label, ylabel="relative gap" if logarithmic else "test error, %")
    return _svg(pyplot, figure, axis) if some else ""


def _spent(found: Sequence[Group]) -> str:
    """Final gap over epsilon, a point a run; nothing where no run has spent a finite one."""
    points = [
        (
            at,
            group.label,
            [(t.epsilon, max(t.last("gap"), _LOWEST)) for t in group.traces if math.isfinite(t.epsilon)],
        )
        for at, group in enumerate(found)
    ]
    points = [(at, label, some) for at, label, some in points if some and not np.isnan(np.array(some)).any()]
    if not points:
        return ""
    pyplot = _pyplot("gap over epsilon")
    figure, axis = pyplot.subplots(figsize=(6.0, 3.8))
    for at, label, some in points:
        axis.plot(
            *zip(*some), "o", color=f"C{at % 10}", mfc=f"C{at % 10}" if at < 10 else "none", label=label
        )
    axis.set_yscale("log")
    axis.set(xlabel="epsilon spent", ylabel="final relative gap")
    return _svg(pyplot, figure, axis)


def _svg(pyplot: Any, figure: Any, axis: Any) -> str:
    axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.18), fontsize=8, ncols=2)
    file = io.StringIO()
    figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    text = file.getvalue()
    return text[text.index("<svg") :]
