"""What a report draws of the runs of one kind: a title, what is to be seen in words, and how it is drawn."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from distadmm.commands.report_kinds import KINDS, Column, Curve
from distadmm.commands.report_runs import Array, Group, Trace, file_name
from distadmm.errors import InputError, sense_of
from distadmm.files import read_npz
from distadmm.graphs import draw as drawing
from distadmm.graphs.figures import column, ink, logarithmic, save_for_paper
from distadmm.graphs.topology import Topology, load_changing
from distadmm.privacy.accounting.statements import rounded_up
from distadmm.privacy.accounting.trust import Trust

LOWEST = 1e-16  # a smaller gap is rounding, and is drawn here
GRAPHS_MOST, NODES_MOST = 6, 200
WIDE = 46  # characters of a legend that fit below axes of a column


class Picture(NamedTuple):
    title: str
    text: str  # for who does not see it
    draw: Callable[[Any], None]  # on axes
    legend: bool = True


def pictures(found: Sequence[Group]) -> list[Picture]:
    kind = KINDS[found[0].traces[0].kind]
    drawn = [*(_curves(found, curve) for curve in kind.curves), _spent(found, kind.spent)]
    drawn += [_by_trust(found), *_graphs(found)]
    return [picture for picture in drawn if picture is not None]


def for_paper(found: Sequence[Picture], path: Path, mark: str) -> None:
    """All of them below one another, as wide as a column of a paper."""
    drawn, axes = column(len(found), 1)
    height = 0.0
    for picture, axis in zip(found, axes[:, 0]):
        picture.draw(axis)
        axis.set_title(picture.title, fontsize=7)
        height += 2.4
        if picture.legend:  # below, where it hides nothing
            handles, labels = axis.get_legend_handles_labels()
            labels = [fill(label, WIDE) for label in labels]
            axis.legend(
                handles, labels, loc="upper left", bbox_to_anchor=(0.0, -0.2), fontsize=6, borderaxespad=0
            )
            height += 0.12 * sum(1 + label.count("\n") for label in labels)
    drawn.set_figheight(height)
    save_for_paper(drawn, path, mark)


def _curves(found: Sequence[Group], curve: Curve) -> Picture | None:
    """Median and range over the seeds of each group; nothing where no run has measured it."""
    measured = []
    for at, group in enumerate(found):
        if some := [trace for trace in group.traces if not np.isnan(trace.history[curve.y]).all()]:
            measured.append((at, group.label, some))
    if sum(len(trace.history[curve.y]) for _, _, some in measured for trace in some) < 2:
        return None  # a point alone says no more than the table
    rounds = curve.x == "iteration" and {group.steps for group in found} == {"rounds"}
    x_label = "round" if rounds else curve.x_label
    ends = [(label, np.median([trace.last(curve.y) for trace in some])) for _, label, some in measured]
    counted = curve.y == "nonzeros"
    show = "{:.4g}" if counted else "{:#.4g}"
    last = [f"{label}: {show.format(end * curve.y_unit)}" for label, end in ends]
    text = f"In the end: {'; '.join(last)}."
    text += " Bands: the range over seeds." * any(len(some) > 1 for _, _, some in measured)
    text += " Thin: the worst node." * bool(curve.worst)

    def draw(axis: Any) -> None:
        for at, label, some in measured:
            histories = [trace.history for trace in some]
            length = min(len(history[curve.y]) for history in histories)
            y, worst = (
                curve.y_unit * np.array([history[name][:length] for history in histories])
                for name in (curve.y, curve.worst or curve.y)
            )
            y = np.maximum(y, LOWEST) if curve.logarithmic else y
            x = curve.x_unit * np.median([history[curve.x][:length] for history in histories], axis=0)
            style = {**ink(at), "ms": 4, "markevery": (at % 5 * length // 40, max(length // 8, 1))}
            axis.plot(x, np.median(y, axis=0), lw=1.3, label=label, **style)
            if curve.worst:
                axis.plot(x, np.median(worst, axis=0), lw=0.5, color=style["color"], ls=style["ls"])
            if len(histories) > 1:
                axis.fill_between(x, y.min(axis=0), y.max(axis=0), color=style["color"], alpha=0.15, lw=0)
        for limits, (low, high) in (
            (axis.set_xlim, axis.dataLim.intervalx),
            (axis.set_ylim, axis.dataLim.intervaly),
        ):
            if 0 < high - low < 1e-6 * abs(high):  # rounding
                limits(sorted((0.9 * low, 1.1 * high)))
        if curve.logarithmic:
            logarithmic(axis, "y")
        for one in [axis.xaxis] * (curve.x == "iteration") + [axis.yaxis] * (
            counted and not curve.logarithmic
        ):
            one.get_major_locator().set_params(integer=True)
        axis.set(xlabel=x_label, ylabel=curve.y_label)

    return Picture(f"{curve.y_label} over {x_label}", text, draw)


def _spent(found: Sequence[Group], what: Column) -> Picture | None:
    """A final quantity over epsilon, a point a run; settings that differ in the budget alone are one line."""
    lines: dict[str, list[tuple[float, float]]] = {}
    inks: dict[str, dict[str, Any]] = {}
    for at, group in enumerate(found):
        some = [(t.epsilon, what.unit * t.last(what.name)) for t in group.traces if math.isfinite(t.epsilon)]
        if some and not np.isnan(np.array(some)).any():
            other = tuple((key, value) for key, value in group.settings if key != "epsilon")
            setting = Group(other, group.traces, group.unsaid).label
            lines.setdefault(setting, []).extend(some)
            # As in the curves, where settings differ in more than the budget.
            inks.setdefault(setting, ink(at))
    if sum(map(len, lines.values())) < 2:
        return None
    least, most = (edge(e for points in lines.values() for e, _ in points) for edge in (min, max))

    def draw(axis: Any) -> None:
        for setting, points in lines.items():
            spent = sorted({epsilon for epsilon, _ in points})
            near = [[p for p in points if abs(p[0] / e - 1) < 0.05] for e in spent]
            middle = [np.median([p[1] for p in some]) for some in near]
            style = inks[setting]
            axis.plot(spent, middle, lw=1, color=style["color"], ls=style["ls"])
            axis.plot(*zip(*points), **{**style, "ls": "none", "label": setting})
        if most > 8 * least > 0:
            logarithmic(axis, "x")
        elif most < 1.1 * least:  # one budget: no difference that can be seen is to be seen
            axis.set_xlim(0.8 * least, 1.2 * most)
        axis.set(xlabel="epsilon spent", ylabel=what.head)

    ends = {
        setting: ", ".join(f"{what.show.format(y)} at {rounded_up(e)}" for e, y in sorted(points))
        for setting, points in lines.items()
    }
    told = [f"{setting}: {each}" for setting, each in ends.items()]
    return Picture(f"{what.head} against epsilon", f"A mark a run. {'; '.join(told)}.", draw)


def _by_trust(found: Sequence[Group]) -> Picture | None:
    """What others make of each setting's epsilon: a row for each trust; nothing where none differ by 1 %."""
    lines = []
    for at, group in enumerate(found):
        spent = [trace.epsilons for trace in group.traces if trace.epsilons]
        told_of_all = [trust for trust in spent[0] if all(trust in each for each in spent)] if spent else []
        worst = {trust: max(each[trust] for each in spent) for trust in told_of_all}
        finite = {trust: epsilon for trust, epsilon in worst.items() if math.isfinite(epsilon)}
        if finite:
            lines.append((ink(at), group.label, finite))
    if all(max(worst.values()) <= 1.01 * min(worst.values()) for _, _, worst in lines):
        return None
    trusts = sorted({trust for *_, worst in lines for trust in worst}, key=lambda t: Trust.parse(t).colluding)
    every = [epsilon for *_, worst in lines for epsilon in worst.values()]

    def draw(axis: Any) -> None:
        for at, (style, setting, worst) in enumerate(lines):
            below = 0.9 * ((at + 0.5) / len(lines) - 0.5)  # settings of one epsilon do not hide each other
            rows = [trusts.index(trust) - below for trust in worst]
            how = {**style, "ls": "none", "ms": min(6, max(3, 50 / len(lines)))}
            axis.plot(list(worst.values()), rows, **how, label=setting)
        for between in range(1, len(trusts)):
            axis.axhline(between - 0.5, color="#999999", lw=0.5)
        if max(every) > 8 * min(every) > 0:
            logarithmic(axis, "x")
        axis.set(xlabel="epsilon", yticks=range(len(trusts)), yticklabels=trusts, ylabel="against")
        axis.set_ylim(-0.5, len(trusts) - 0.5)

    told = []
    for _, setting, worst in lines:
        each = [f"{trust} {rounded_up(e)}" for trust, e in sorted(worst.items(), key=lambda item: item[1])]
        alike = [f"{rounded_up(epsilon)} against all" for epsilon in set(worst.values())]
        told.append(f"{setting}: {', '.join(alike if len(alike) == 1 else each)}")
    return Picture(
        "epsilon by trust", f"What the same noise is worth against each trust. {'; '.join(told)}.", draw
    )


def _graphs(found: Sequence[Group]) -> list[Picture]:
    """Of the first run of each setting, what its edges carried: one picture for all that share it alike."""
    made: dict[tuple[str, bytes], tuple[Topology, Array, dict[str, str]]] = {}
    for group in found:
        trace = group.traces[0]
        network, algorithm = str(trace.config.get("topology")), file_name(trace.config.get("algorithm"))
        carried = _carried(trace, network)
        if carried is None:
            continue
        graph, each = carried
        parts = each / each.max()
        alike = made.setdefault((network, np.round(parts, 2).tobytes()), (graph, parts, {}))
        least, most = (f"{value:.3g}" for value in (each[each > 0].min(), each.max()))
        megabytes = least if least == most else f"{least} to {most}"
        alike[2].setdefault(algorithm, f"{megabytes} MB, {each.sum():.3g} in all")
    return [_graph(network, *alike) for (network, _), alike in [*made.items()][:GRAPHS_MOST]]


def _carried(trace: Trace, network: str) -> tuple[Topology, Array] | None:
    """Megabytes on each edge, both ways; nothing where none are known."""
    if not (trace.folder / "traffic.npz").is_file() or trace.nodes > NODES_MOST:
        return None
    try:
        graph = load_changing(network).union
    except InputError:  # a file that is no more
        return None
    kept = read_npz(trace.folder / "traffic.npz")
    both = np.zeros((graph.n, graph.n))
    with sense_of(trace.folder / "traffic.npz"):
        np.add.at(both, (kept["sender"], kept["receiver"]), kept["bytes"])
        if not (both < np.inf).all() or (both < 0).any():
            raise ValueError("bytes that are no numbers")
    carried = 1e-6 * (both + both.T)[graph.edges[:, 0], graph.edges[:, 1]]
    return (graph, carried) if carried.max(initial=0) > 0 else None


def _graph(network: str, graph: Topology, parts: Array, told: dict[str, str]) -> Picture:
    text = (
        f"An edge's width is what it carried, both ways: {'; '.join(f'{a} {mb}' for a, mb in told.items())}."
    )
    if idle := int((parts == 0).sum()):
        text += f" {idle} of {len(parts)} edges, dotted, carried nothing."

    def draw(axis: Any) -> None:
        scale = min(0.6, axis.figure.get_figwidth() / 8)  # a column's axes are narrower
        drawing.draw_on(axis, graph, drawing.placed(graph), "#444444", scale, parts)

    methods = ", ".join(told) if len(told) < 4 else f"{len(told)} methods"
    return Picture(f"bytes on the edges: {methods} on {network}", text, draw, legend=False)
