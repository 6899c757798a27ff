"""The page of `report`: a table and its curves in one HTML file that needs no network and no script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from distadmm.commands.report_kinds import KINDS, Curve
from distadmm.commands.report_runs import Group, common
from distadmm.graphs import figures as plotting

if TYPE_CHECKING:
    from distadmm.commands.report import Told

STYLE = """
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
_LOWEST = 1e-16  # a smaller gap is rounding, and is drawn here


def page(mark: str, told: Sequence[Told]) -> str:
    """The whole file."""
    groups = [group for one in told for group in one.runs]
    runs = sum(len(group.traces) for group in groups)
    title = f"{runs} run{'s' * (runs > 1)}, {len(groups)} setting{'s' * (len(groups) > 1)}"
    parts = [
        f'<!doctype html>\n{mark}\n<html lang="en">\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>",
    ]
    for one in told:
        parts += [
            *([f"<h2>{one.kind}</h2>"] if len(told) > 1 else []),
            *(f'<p class="note">{escape(note)}</p>' for note in one.notes),
            '<div class="wide">' + table(one.header, one.rows) + "</div>",
            f"<p>{escape(KINDS[one.kind].reading)}</p>",
            f"<details><summary>common to all</summary>{table(['setting', 'value'], common(one.runs))}</details>",
            *(f"<figure>{svg}</figure>" for svg in figures(one.runs)),
        ]
    sources = table(["setting", "directory", "seed", "data"], _sources(groups))
    parts.append(f"<h2>Where it comes from</h2>\n{sources}")
    return "\n".join(parts) + "\n</html>\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
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
    if not plotting.possible():
        return [f"<p>no curves: {plotting.MISSING}</p>"]
    kind = KINDS[found[0].traces[0].kind]
    drawn = [*(_curves(found, curve) for curve in kind.curves), _spent(found, *kind.spent)]
    drawn.append(_by_trust(found, *kind.spent))
    return [svg for svg in drawn if svg]


def _curves(found: Sequence[Group], curve: Curve) -> str:
    """Median and range over the seeds of each group; nothing where no run has measured it."""
    measured = [
        (at, group.label, [t.history for t in group.traces if not np.isnan(t.history[curve.y]).all()])
        for at, group in enumerate(found)
    ]
    measured = [(at, label, histories) for at, label, histories in measured if histories]
    if not measured:
        return ""
    plt = plotting.pyplot(f"{curve.y} over {curve.x_label}")
    figure, axis = plt.subplots(figsize=(6.0, 3.8))
    for at, label, histories in measured:
        length = min(len(history[curve.y]) for history in histories)
        y = curve.y_unit * np.array([history[curve.y][:length] for history in histories])
        y = np.maximum(y, _LOWEST) if curve.logarithmic else y
        x = curve.x_unit * np.median([history[curve.x][:length] for history in histories], axis=0)
        style = {"color": f"C{at % 10}", "ls": ("-", "--", ":", "-.")[at // 10 % 4]}
        style |= {"marker": "o"} if length < 3 else {}
        axis.plot(x, np.median(y, axis=0), lw=1.3, label=label, **style)
        if len(histories) > 1:
            axis.fill_between(x, y.min(axis=0), y.max(axis=0), color=style["color"], alpha=0.15, lw=0)
    if curve.logarithmic:
        axis.set_yscale("log")
    rounds = curve.x == "iteration" and {group.steps for group in found} == {"rounds"}
    axis.set(xlabel="round" if rounds else curve.x_label, ylabel=curve.y_label)
    return _svg(figure, axis)


def _spent(found: Sequence[Group], label: str, name: str) -> str:
    """A final quantity over epsilon, a point a run; nothing where no run has spent a finite one."""
    points = []
    for at, group in enumerate(found):
        spent = [t for t in group.traces if math.isfinite(t.epsilon)]
        some = [(t.epsilon, t.last(name)) for t in spent]
        if some and not np.isnan(np.array(some)).any():
            points.append((at, group.label, some))
    if not points:
        return ""
    plt = plotting.pyplot(f"{name} over epsilon")
    figure, axis = plt.subplots(figsize=(6.0, 3.8))
    for at, setting, some in points:
        axis.plot(
            *zip(*some), "o", color=f"C{at % 10}", mfc=f"C{at % 10}" if at < 10 else "none", label=setting
        )
    axis.set(xlabel="epsilon spent", ylabel=label)
    return _svg(figure, axis)


def _by_trust(found: Sequence[Group], label: str, name: str) -> str:
    """The same over what others make of it: a point for each trust that is told; nothing where none differ."""
    lines = []
    for at, group in enumerate(found):
        spent = [t.summary["epsilons"] for t in group.traces if t.summary and t.summary.get("epsilons")]
        loss = float(np.median([t.last(name) for t in group.traces]))
        if spent and not math.isnan(loss):
            worst = {trust: max(float(each[trust]) for each in spent) for trust in spent[0]}
            lines.append((at, group.label, {t: e for t, e in worst.items() if math.isfinite(e)}, loss))
    if all(len(set(worst.values())) < 2 for _, _, worst, _ in lines):
        return ""
    plt = plotting.pyplot(f"{name} over epsilon by trust")
    figure, axis = plt.subplots(figsize=(6.0, 3.8))
    for at, setting, worst, loss in lines:
        axis.plot(list(worst.values()), [loss] * len(worst), "|-", color=f"C{at % 10}", label=setting)
        for trust, epsilon in worst.items() if len(set(worst.values())) > 1 else ():
            axis.annotate(
                trust, (epsilon, loss), rotation=60, fontsize=6, xytext=(0, 4), textcoords="offset points"
            )
    axis.set(xlabel="epsilon against each trust", ylabel=label)
    return _svg(figure, axis)


def _wide(axis: Any) -> bool:
    """Whether names of settings are too long for two columns."""
    return max(map(len, axis.get_legend_handles_labels()[1]), default=0) > 40


def _svg(figure: Any, axis: Any) -> str:
    axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.18), fontsize=8, ncols=1 if _wide(axis) else 2)
    text = plotting.drawn(figure).decode()
    return text[text.index("<svg") :]
