"""How a finished run scores rows and shows itself in a notebook: table, curves and network, as HTML and as a figure.

What it needs is imported when somebody asks: a rank that iterates loads none of it.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from distadmm.algorithm import find, names
from distadmm.errors import InputError, require
from distadmm.files import read_npz
from distadmm.run import model

if TYPE_CHECKING:
    from distadmm.run.scoring import Scorer

Array = np.ndarray
ROUNDING = 1e-13
POINTS = 150  # of a curve that is drawn
STROKES = (("#1b6ca8", "-"), ("#c2571a", "--"), ("#4d4d4d", ":"))  # told apart without colours too
SPENT = "privacy spent"
SUMMED_UP = (  # figures of a run that its summary has under the same names
    *("ended", "iterations", "epsilon", "published_epsilon", "epsilons", "statement", "reason"),
    *("messages", "bytes", "lost", "seconds"),
)
# title, logarithmic, {column of the history: what it is called}
PANELS: tuple[tuple[str, bool, dict[str, str]], ...] = (
    (
        "convergence",
        True,
        {
            "mean_model_gap": "gap of the mean model",
            "primal_residual": "disagreement of the nodes",
            "dual_residual": "movement of the models",
        },
    ),
    ("loss on test rows", False, {"test_loss": "mean of the nodes", "worst_test_loss": "worst node"}),
    (SPENT, False, {"epsilon": "epsilon"}),
)


class Shown:
    """The part of `Run` that answers questions once it is over."""

    def scorer(self: Any, node: int | str | None = None) -> Scorer:
        """What scores rows: a node's own model (0 unless another is named), or the "mean" of all."""
        from distadmm.run.scoring import Scorer

        require(self.models is not None, "this rank holds no model; ask the run of rank 0")
        told = {**model.BLANK, **self.descriptions[model.FILE]}
        return Scorer.of(model.Model(Path("this run"), told, self.arrays), node)

    def predict(self, rows: Any, node: int | str | None = None) -> Array:
        """Classes, or numbers, of new rows: a DataFrame with the training's columns, an array of them, or a file."""
        scorer = self.scorer(node)
        return scorer.predictions(scorer.read(rows))

    def predict_proba(self, rows: Any, node: int | str | None = None) -> Array:
        """A column a class, in the order of `scorer().told["classes"]`."""
        scorer = self.scorer(node)
        return scorer.probabilities(scorer.read(rows))

    def to_pandas(self: Any) -> Any:
        """The history as a DataFrame, a line a measurement."""
        try:
            import pandas
        except ImportError:
            raise InputError(
                "to_pandas needs pandas; install it by: pip install 'distadmm[pandas]'"
            ) from None
        return pandas.DataFrame([tuple(line) for line in self.history], columns=list(self.columns))

    def plot(self, *columns: str) -> Any:
        """A matplotlib figure: curves and network, or a panel for each of these columns of the history."""
        return figure(self, columns)

    def _repr_html_(self: Any) -> str:
        """Table, sentence and, where matplotlib is there, the figure as SVG; text escaped, no script or style sheet."""
        from html import escape

        rows = [*self.closing, *([("run directory", str(self.path))] if self.path else [])]
        cells = "".join(
            f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in rows
        )
        said = f"<p>{escape(self.sentence)}</p>" if self.sentence else ""
        return f'<div class="distadmm-run"><table><tbody>{cells}</tbody></table>{said}{_picture(self)}</div>'

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The finished run in a directory, whoever started it: what it found, not its rows nor its configuration."""
        return _loaded(cls, path)


def _loaded(cls: Any, path: str | Path) -> Any:
    from distadmm.graphs.topology import load_changing
    from distadmm.run import history, kinds
    from distadmm.run.observe import Measurement

    found = kinds.opened(path, "predict")
    told = model.read(found.path).told
    require(
        found.kind == "radmm" and found.summary and told["link"],
        f"{path} is a run of {found.kind}; Run.load takes a finished one of radmm, of this version",
    )
    s = {name: float(v) if v in ("inf", "nan") else v for name, v in (found.summary or {}).items()}
    arrays, folder = read_npz(found.path / "models.npz"), found.path
    run = cls(
        **{name: s[name] for name in SUMMED_UP}, columns=Measurement._fields,
        history=history.read(folder, Measurement), models=arrays["models"], sentence=told["sentence"] or "",
        summary=s, path=folder, arrays={"models.npz": arrays}, descriptions={model.FILE: told},
    )  # fmt: skip
    house = find(s["algorithm"] if s["algorithm"] in names() else "admm").cls.house
    run.closing = importlib.import_module(f"{house}.words").closing(s, None)
    with contextlib.suppress(InputError):  # a file that is no more, or an object of a session
        run.network = load_changing(found.config["topology"]).union
    return run


def figure(run: Any, columns: Sequence[str] = ()) -> Any:
    """The curves that were measured and the network; or a panel for each of these columns of the history."""
    for name in columns:
        require(name in run.columns, f"no column {name!r} in the history; it has: {', '.join(run.columns)}")
    wanted: Sequence[tuple[str, bool, dict[str, str]]]
    wanted = [(name, False, {name: name}) for name in columns] or PANELS
    measured = [
        (title, log, found)
        for title, log, names in wanted
        if (found := {label: points for name, label in names.items() if (points := _points(run, name, log))})
    ]
    if not measured and columns:
        there = [name for name in run.columns if _points(run, name, False)]
        raise InputError(
            f"nothing was measured of {', '.join(columns)} (of private rows observe='all' measures it); measured: "
            f"{', '.join(there) or 'nothing'}"
        )
    from distadmm.graphs import figures

    if not columns:  # what was reserved before the first release does not grow, and the table says it
        measured = [
            each for each in measured if each[0] != SPENT or len({y for _, y in each[2]["epsilon"]}) > 1
        ]
    network = None if columns else run.network
    total = len(measured) + (network is not None)
    require(total, "nothing to draw: the run measured nothing, and its network is not known")
    whole, axes = figures.apart(total, 3.5, 2.8)
    for ax, (title, log, curves) in zip(axes, measured):
        for (colour, dashes), (label, points) in zip(STROKES, curves.items()):
            ax.plot(
                *zip(*points), color=colour, ls=dashes, lw=1.4, label=label, marker="." * (len(points) == 1)
            )
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("iteration", fontsize=8)
        if log:
            figures.logarithmic(ax, "y")
        if len(curves) > 1:
            ax.legend(fontsize=7, frameon=False)
    if network is not None:
        _draw(axes[-1], network)
    return whole


def _draw(ax: Any, network: Any) -> None:
    from distadmm.graphs import draw

    ax.set_title(f"{network.n} nodes, {len(network.edges)} edges", fontsize=9)
    if network.n <= draw.NODES_MOST:
        draw.draw_on(ax, network, draw.placed(network), scale=0.5)
    ax.axis("off")


def _points(run: Any, name: str, log: bool) -> list[tuple[int, float]]:
    """What can be drawn of a column, thinned out; its last point stays."""
    found = [(line.iteration, getattr(line, name)) for line in run.history]
    found = [point for point in found if isinstance(point[1], int | float) and math.isfinite(point[1])]
    if log:  # what is rounding beside the rest would take the axis
        least = ROUNDING * max((value for _, value in found), default=0.0)
        found = [point for point in found if point[1] > least]
    step = max(1, math.ceil(len(found) / POINTS))
    return found[::-1][::step][::-1]


def _picture(run: Any) -> str:
    from html import escape

    from distadmm.graphs import figures

    if not figures.possible():
        return f"<p>{escape(figures.MISSING)}</p>"
    try:
        drawn = figure(run)
    except InputError:
        return ""
    titles = "; ".join(ax.get_title() for ax in drawn.axes)
    svg = figures.inline(drawn, salt=f"{titles}; {run.iterations}; {run.bytes}")  # the same in every process
    svg = svg.replace("<svg ", '<svg style="max-width: 100%; height: auto" ', 1)
    return f'<figure role="img" aria-label="{escape(titles)}">{svg}</figure>'
