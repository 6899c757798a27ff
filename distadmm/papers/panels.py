"""What a figure is: panels of lines, and what the paper says of them, both made of the rows that go into its CSV.

A paper's module declares; everything that matplotlib is asked for is asked for here.  One legend stands for all
panels, a label has one colour and one mark in all of them, and a figure made with --quick says so on itself.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.files import write_csv, write_text
from distadmm.graphs.figures import grouped, in_plain_numbers, ink, pyplot, save

_FEW, _SHORT = 8, 100.0  # places on an axis that all get a tick; what a short logarithmic axis spans
Row = dict[str, Any]
Numbers = Sequence[float] | np.ndarray
QUICK = "--quick: fewer runs, steps or points than the paper's; to see that it works"


class Line(NamedTuple):
    label: str
    x: Numbers
    y: Numbers
    style: str = "-"
    low: Numbers | None = None  # with `high`: the range over seeds, as a band or as bars
    high: Numbers | None = None
    hue: str = ""  # lines of one hue have one colour and mark; the label unless given
    bars: bool = False
    more: tuple[tuple[str, Any], ...] = ()  # for Axes.plot


def level(label: str, value: float, style: str = "--") -> Line:
    """A line across the panel."""
    return Line(label, (), (value,), style)


class Panel(NamedTuple):
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    xscale: str = "linear"
    yscale: str = "linear"
    ticks: Sequence[str] = ()  # names of x = 0, 1, ...
    whole: bool = False  # x counts iterations or epochs
    settled: bool = False  # the first quarter may leave the frame: it would squeeze the rest


class Verdict(NamedTuple):
    """A statement, of the paper unless said, and whether the curves bear it out; computed from nothing else."""

    says: str
    holds: bool
    seen: str
    open: str = ""  # why nothing can be concluded from these curves, if so
    by: str = "The paper"

    def text(self) -> str:
        word = f"OPEN, {self.open}" if self.open else "agrees" if self.holds else "does not agree"
        return f"- {self.by}: {self.says}.  Here: {word} ({self.seen})."


@dataclass(frozen=True)
class Figure:
    panels: Callable[[list[Row]], Sequence[Panel]]
    verdicts: Callable[[list[Row]], Iterable[Verdict]]
    words: Callable[[list[Row]], Iterable[str]] = lambda rows: ()

    def text(self, title: str, rows: list[Row], note: str = "") -> str:
        said = [verdict.text() for verdict in self.verdicts(rows)]
        parts = [f"# {title}", *([f"*{note}*"] if note else []), "\n".join(said), "\n".join(self.words(rows))]
        return "\n\n".join(part for part in parts if part) + "\n"


def publish(stem: Path, title: str, figure: Figure, rows: list[Row], note: str = "") -> None:
    """The numbers as CSV, the figure as SVG, what agrees as text: the same bytes for the same rows."""
    write_csv(stem.with_name(f"{stem.name}.csv"), list(rows[0]), (list(row.values()) for row in rows))
    save(drawn(figure.panels(rows), note), stem.with_name(f"{stem.name}.svg"))
    text = figure.text(title, rows, note)
    write_text(stem.with_name(f"{stem.name}.md"), text)
    print(text)


# -- what verdicts are made of --------------------------------------------------------------------------------


def column(rows: Iterable[Row], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows])


def falls(values: Iterable[float], slack: float = 0.0) -> bool:
    """Never up by more than `slack`, and down in all."""
    listed = np.asarray(list(values), dtype=float)
    never_up = np.isfinite(listed).all() and (np.diff(listed) <= slack).all()
    return bool(never_up and listed[0] - listed[-1] > 1e-9)


def rises(values: Iterable[float], slack: float = 0.0) -> bool:
    return falls([-value for value in values], slack)


def settles(values: Iterable[float], at: int, within: float) -> bool:
    """From place `at` on nothing is further from the end than that share of the whole change, and there is one."""
    listed = np.asarray(list(values), dtype=float)
    change = abs(listed[-1] - listed[0])
    near = np.abs(listed[min(at, len(listed) - 1) :] - listed[-1]) <= within * change
    return bool(np.isfinite(listed).all() and change > 1e-9 and near.all())


def summarised(rows: list[Row], x: str, *values: str) -> list[Row]:
    """Rows that differ in their seed alone as one at each x: means, and least and most of each value."""
    found = []
    for (at,), same in sorted(grouped(rows, x).items()):
        row = {x: at}
        for name in values:
            kept = column(same, name)
            row |= {name: float(kept.mean())}
            row |= {f"{name} low": float(kept.min()), f"{name} high": float(kept.max())}
        found.append(row)
    return found


def band(label: str, rows: list[Row], x: str, y: str, style: str = "-", **how: Any) -> Line:
    """Mean over the seeds against x, with their range."""
    shown = summarised(rows, x, y)
    low, high = (column(shown, f"{y} {end}") for end in ("low", "high"))
    return Line(label, column(shown, x), column(shown, y), style, low, high, **how)


# -- drawing --------------------------------------------------------------------------------------------------


def drawn(panels: Sequence[Panel], note: str = "") -> Any:
    plt = pyplot()
    columns = min(len(panels), 3 if len(panels) != 4 else 2)
    width, depth = 4.1 * columns, -(-len(panels) // columns)
    size = max(width, 5.6), 3.2 * depth + 0.4
    figure, axes = plt.subplots(depth, columns, figsize=size, layout="constrained", squeeze=False)
    hues = list(dict.fromkeys(line.hue or line.label for panel in panels for line in panel.lines))
    handles: dict[str, Any] = {}
    for axis, panel in zip(axes.flat, panels):
        for line in panel.lines:
            handles.setdefault(line.label, _line(axis, line, hues.index(line.hue or line.label)))
        _frame(axis, panel)
    handles.pop("", None)
    _legend(figure, axes.flat[len(panels) :], handles)
    if note:
        figure.suptitle(note, fontsize=8, color="tab:red")
    return figure


def _legend(figure: Any, spare: Sequence[Any], handles: dict[str, Any]) -> None:
    """In the places that panels leave free in the last row, if it fits, else below."""
    for axis in spare:
        axis.set_axis_off()
    longest = 0.6 + 0.068 * max(map(len, handles), default=1)  # inches
    inside = int(4.1 * len(spare) // longest)
    if inside and len(handles) <= 12 * inside:
        how = {"loc": "upper left", "bbox_to_anchor": (0.0, 1.0), "ncols": min(inside, 2)}
        spare[0].legend(handles.values(), handles, fontsize=9, **how).set_in_layout(False)
        return
    ncols = int(np.clip(figure.get_figwidth() // longest, 1, 5))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=ncols, fontsize=8)


def _line(axis: Any, line: Line, at: int) -> Any:
    """Of the at-th hue.  Its mark stands at every point where the style has an `o`, else at a few."""
    told = ink(at)
    if not len(line.x):
        return axis.axhline(line.y[0], ls=line.style, color=told["color"], lw=1.2)
    few = {} if "o" in line.style else {"markevery": (0.03 * (at % 8), 0.24)}  # not all at one place
    told |= {"ls": line.style.replace("o", "") or "none", "lw": 1.2, "ms": 4, **few, **dict(line.more)}
    x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
    if line.low is None or line.high is None:
        return axis.plot(x, y, **told)[0]
    low, high = np.asarray(line.low, dtype=float), np.asarray(line.high, dtype=float)
    if line.bars:
        return axis.errorbar(x, y, (y - low, high - y), capsize=3, **told)
    axis.fill_between(x, low, high, color=told["color"], alpha=0.15, lw=0)
    return axis.plot(x, y, **told)[0]


def _frame(axis: Any, panel: Panel) -> None:
    axis.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, xscale=panel.xscale)
    if panel.yscale == "symlog":
        axis.set_yscale("symlog", linthresh=0.1)
    else:
        axis.set_yscale(panel.yscale)
    if panel.whole:
        axis.xaxis.get_major_locator().set_params(integer=True)
    axis.yaxis.get_offset_text().set_horizontalalignment("right")  # beside the title, not in it
    _plain_numbers(axis, panel)
    if panel.ticks:
        wide = sum(map(len, panel.ticks)) > 40
        turned = {"rotation": 30, "ha": "right"} if wide else {}
        axis.set_xticks(range(len(panel.ticks)), panel.ticks, fontsize=8, **turned)
    if panel.settled:
        ends = [(line.y if line.low is None else line.low, line.y if line.high is None else line.high)
                for line in panel.lines]  # fmt: skip
        least = min(float(np.min(low)) for low, _ in ends)
        most = max(float(np.max(high[len(high) // 4 :])) for _, high in ends)
        axis.set_ylim(least - 0.05 * (most - least), most + 0.05 * (most - least))


def _plain_numbers(axis: Any, panel: Panel) -> None:
    """On logarithmic axes numbers as they are written: at the few places that there are, or where powers collide."""
    places = sorted({float(x) for line in panel.lines for x in line.x})
    if panel.xscale == "log" and len(places) <= _FEW:
        axis.set_xticks(places, [f"{x:g}" for x in places])
        axis.set_xticks([], minor=True)
    low, high = axis.get_ylim()
    if panel.yscale == "log" and high < _SHORT * low:
        in_plain_numbers(axis.yaxis)


def in_order(values: Sequence[float], slack: float = 0.0) -> bool:
    """Each is above the one before it by more than `slack`."""
    return all(high - low > slack for low, high in pairwise(values))
