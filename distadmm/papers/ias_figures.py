"""The figures of Jin and Lai's Section IV, drawn from their rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.graphs.figures import grouped, pyplot, save
from distadmm.papers.ias_runs import Row

COLOURS = {"euclidean": "tab:blue", "renormalise": "tab:orange"}


def column(rows: Iterable[Row], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows])


def draw(figure: str, rows: list[Row], path: Path) -> None:
    save(_DRAW[figure](pyplot(), rows), path)


def _panels(plt: Any, betas: Iterable[float], note: str = "") -> tuple[Any, dict[float, Any]]:
    betas = list(dict.fromkeys(betas))
    figure, axes = plt.subplots(1, len(betas), figsize=(4.1 * len(betas), 3.3), layout="constrained")
    panels = dict(zip(betas, np.atleast_1d(axes)))
    for beta, axis in panels.items():
        trivial = " (nothing can be gained)" if beta >= 1.76 else ""
        axis.set_title(f"{note}beta = {beta:g}{trivial}")
    return figure, panels


def _inner(plt: Any, rows: list[Row]) -> Any:
    figure, panels = _panels(plt, column(rows, "beta"))
    for (beta, sign), part in grouped(rows, "beta", "sign").items():
        axis, style = panels[beta], "-" if sign == "corrected" else ":"
        for name, colour, label in (
            ("F", "tab:blue", "F of the mapping"),
            ("F_admm", "tab:green", "F with the ADMM's own P_U"),
            ("delta_l1", "tab:red", "|delta|_1"),
        ):
            axis.plot(
                column(part, "step"),
                column(part, name),
                style,
                color=colour,
                lw=1.3,
                label=f"{label}, {sign}",
            )
    for axis in panels.values():
        axis.set(xlabel="inner iteration", yscale="symlog")
        axis.set_yscale("symlog", linthresh=0.1)
    first = next(iter(panels.values()))
    first.set_ylabel("value (linear below 0.1, then logarithmic)")
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _outer(plt: Any, rows: list[Row]) -> Any:
    figure, panels = _panels(plt, column(rows, "beta"))
    colours = {"js": "tab:blue", "lc": "tab:orange"}
    for (measure, beta), part in grouped(rows, "measure", "beta").items():
        axis, colour = panels[beta], colours[measure]
        axis.plot(
            column(part, "step"), column(part, "F"), "o-", ms=3, color=colour, label=f"Algorithm 1, {measure}"
        )
        axis.axhline(part[0]["optimum"], color=colour, ls="--", lw=1, label=f"optimum, {measure}")
    for axis in panels.values():
        axis.set_xlabel("outer iteration")
        axis.set_xticks(range(0, int(column(rows, "step").max()) + 1, 5))
        axis.legend(frameon=False)
    next(iter(panels.values())).set_ylabel("F")
    return figure


def _gradient(plt: Any, rows: list[Row]) -> Any:
    figure, panels = _panels(plt, column(rows, "beta"))
    alphas = list(dict.fromkeys(column(rows, "alpha")))
    styles = dict(zip(alphas, ("-", "--", "-.", ":")))
    for (beta, alpha, projection), part in grouped(rows, "beta", "alpha", "projection").items():
        panels[beta].plot(
            column(part, "iteration"),
            column(part, "F"),
            styles[alpha],
            color=COLOURS[projection],
            lw=1.3,
            label=f"step {alpha:g}, {projection}",
        )
    for axis in panels.values():
        axis.axhline(next(r["optimum"] for r in rows if panels[r["beta"]] is axis), color="0.3", lw=0.8)
        axis.set_xlabel("iteration (line: the optimum)")
    first = next(iter(panels.values()))
    first.set_ylabel("F")
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _leakage(plt: Any, rows: list[Row]) -> Any:
    figure, axes = plt.subplots(1, 2, figsize=(8.2, 3.4), layout="constrained", sharey=True)
    marks = dict(zip(dict.fromkeys(column(rows, "method")), ("o-", "s-", "^-", "x--")))
    for (method,), part in grouped(rows, "method").items():
        beta = column(part, "beta")
        axes[0].plot(beta, column(part, "E_mean"), marks[method], ms=4, lw=1.2, label=method)
        axes[1].plot(beta, column(part, "E_as_counted_in_the_paper"), marks[method], ms=4, lw=1.2)
        axes[0].fill_between(beta, column(part, "E_least"), column(part, "E_most"), alpha=0.12)
    axes[0].set(title="E[d] where the run ended", ylabel="mean E[d(y,u)]", xlabel="beta")
    axes[1].set(title="a run that did not settle counted as 1", xlabel="beta")
    axes[0].legend(frameon=False)
    return figure


def _alphabet(plt: Any, rows: list[Row]) -> Any:
    figure, axes = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
    for (beta, n_y), part in grouped(rows, "beta", "Y").items():
        F = column(part, "F")
        axes.plot(column(part, "U"), F, "o-", ms=3.5, lw=1.2, label=f"beta {beta:g}, |Y| {n_y}")
    axes.set(xlabel="|U|", ylabel="best F found", title="|U| beyond a handful brings little")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _table(plt: Any, rows: list[Row]) -> Any:
    figure, panels = _panels(plt, column(rows, "beta"), "Le Cam, ")
    for (beta, method), part in grouped(rows, "beta", "method").items():
        axis = panels[beta]
        if method.startswith("GA"):
            colour = COLOURS[method.split()[1]]
            axis.plot(column(part, "alpha"), column(part, "F"), "o-", ms=4, color=colour, label=method)
        else:
            style = "-" if method == "gba" else "--"
            axis.axhline(part[0]["F"], color="0.3", ls=style, lw=1, label=method)
    for axis in panels.values():
        axis.set_xlabel("step size alpha")
    first = next(iter(panels.values()))
    first.set_ylabel("F at the end")
    first.legend(frameon=False)
    return figure


_DRAW = {
    "2": _inner,
    "3": _outer,
    "4": _gradient,
    "5": _gradient,
    "6": _leakage,
    "7": _outer,
    "8": _alphabet,
    "table1": _table,
}
