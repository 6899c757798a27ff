"""The figures of `reproduce istdp`; matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.graphs.figures import grouped, pyplot, save

Row = dict[str, Any]


def mean(rows: Iterable[Row], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def spread(rows: Iterable[Row], name: str) -> float:
    return float(np.std([row[name] for row in rows]))


def draw(figure: str, rows: list[Row], path: Path) -> None:
    """One SVG, the same bytes for the same rows."""
    save(_DRAW[figure](pyplot(), rows), path)


def _accounting(pyplot: Any, rows: list[Row]) -> Any:
    drawn, axes = pyplot.subplots(figsize=(4.6, 3.2))
    epsilon = [row["epsilon"] for row in rows]
    axes.loglog(epsilon, [row["paper"] for row in rows], "s-", label="Theorem 3.3", color="C3")
    axes.loglog(epsilon, [row["exact"] for row in rows], "o-", label="exact composition", color="C0")
    axes.set(
        xlabel="epsilon (delta = 1e-5)", ylabel="sigma / sensitivity", title="Noise for T = 50 gradients"
    )
    axes.set_xticks(epsilon, [f"{e:g}" for e in epsilon])
    axes.minorticks_off()
    axes.legend()
    return drawn


def _attack(pyplot: Any, rows: list[Row]) -> Any:
    drawn, axes = pyplot.subplots(figsize=(4.6, 3.2))
    for (leak, longest), group in grouped(rows, "leak", "alpha_max").items():
        name = f"exact step, alpha_max = {longest:.0e}" if leak == "step" else "exact line search"
        axes.loglog(
            [r["rows"] for r in group], [r["delta_at_least"] or np.nan for r in group], "o-", label=name
        )
    axes.axhline(1e-5, color="0.4", linestyle="--")
    axes.annotate("claimed", (rows[0]["rows"], 1.3e-5), color="0.4")
    axes.set(
        xlabel="rows",
        ylabel="true delta is at least",
        title="Algorithm 1 as printed, epsilon = 1, T = 2",
        ylim=(5e-6, 2),
    )
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.12))
    return drawn


_PENALTIES = ("mcp", "scad", "capped-l1", "l1")


def _nonprivate(pyplot: Any, rows: list[Row]) -> Any:
    drawn, (left, right) = pyplot.subplots(1, 2, figsize=(7.6, 3.0))
    groups = grouped(rows, "loss", "rows")
    places = np.arange(len(groups))
    for number, name in enumerate(_PENALTIES):
        shift = places + 0.2 * (number - 1.5)
        for axes, what in ((left, "f1"), (right, "error")):
            values = [mean(group, f"{name} {what}") for group in groups.values()]
            axes.bar(shift, values, 0.18, label=name, color=f"C{number}")
    labels = [f"{loss}\nn = {n}" for loss, n in groups]
    for axes in (left, right):
        axes.set_xticks(places, labels, fontsize=7)
    left.set(ylabel="F1 of the support", ylim=(0, 1.1))
    right.set(ylabel="excess error | wrong signs", yscale="log")
    drawn.subplots_adjust(wspace=0.3)
    left.legend(ncols=4, fontsize=7, loc="upper center", bbox_to_anchor=(1.1, 1.15))
    return drawn


def _curves(axes: Any, groups: dict[tuple[Any, ...], list[Row]], what: str) -> None:
    """A line a variant: mean and standard deviation over the seeds against epsilon."""
    for number, ((variant,), group) in enumerate(groups.items()):
        by = grouped(group, "epsilon")
        epsilon = [key[0] for key in by]
        means = [mean(g, what) for g in by.values()]
        deviations = [spread(g, what) for g in by.values()]
        axes.errorbar(
            epsilon, means, deviations, marker="o", markersize=3, capsize=2, label=variant, color=f"C{number}"
        )
    axes.set_xscale("log")
    axes.set_xticks(epsilon, [f"{e:g}" for e in epsilon])
    axes.minorticks_off()
    axes.set_xlabel("epsilon (delta = 1e-5)")


def _budget(pyplot: Any, rows: list[Row]) -> Any:
    drawn, all_axes = pyplot.subplots(2, 2, figsize=(7.6, 5.6), sharex=True)
    sound = [row for row in rows if row["variant"] != "as printed"]
    for column, ((n,), group) in enumerate(grouped(sound, "rows").items()):
        top, bottom = all_axes[0, column], all_axes[1, column]
        _curves(top, grouped(group, "variant"), "f1")
        _curves(bottom, grouped(group, "variant"), "accuracy")
        bottom.axhline(mean(group, "bayes"), color="0.4", linestyle="--")
        bottom.annotate("best possible", (0.5, mean(group, "bayes") + 0.006), color="0.4", fontsize=7)
        top.set(title=f"n = {n}", ylim=(0, 1.08), xlabel="")
        bottom.set(ylim=(0.45, 0.95))
    all_axes[0, 0].set_ylabel("F1 of the support")
    all_axes[1, 0].set_ylabel("accuracy")
    drawn.legend(*all_axes[0, 0].get_legend_handles_labels(), fontsize=8, ncols=3, loc="upper center")
    return drawn


def _adult(pyplot: Any, rows: list[Row]) -> Any:
    drawn, axes = pyplot.subplots(figsize=(5.6, 3.6))
    curves = [row for row in rows if np.isfinite(row["epsilon"]) and row["variant"] != "as printed"]
    _curves(axes, grouped(curves, "variant"), "accuracy")
    for row, style in zip([row for row in rows if not np.isfinite(row["epsilon"])], ("--", ":")):
        axes.axhline(row["accuracy"], color="0.4", linestyle=style)
        axes.annotate(row["variant"], (0.5, row["accuracy"] + 0.0015), color="0.4", fontsize=7)
    axes.set(ylabel="test accuracy", title="Adult, T = 50")
    axes.legend(fontsize=7, loc="lower right")
    return drawn


_DRAW: dict[str, Callable[[Any, list[Row]], Any]] = {
    "accounting": _accounting,
    "attack": _attack,
    "nonprivate": _nonprivate,
    "budget": _budget,
    "adult": _adult,
}
