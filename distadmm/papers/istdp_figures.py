"""The figures of `reproduce istdp`, and what it says in words; matplotlib is imported when one is drawn."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from distadmm.graphs.figures import grouped, pyplot
from distadmm.papers.command import Row, table

_PENALTIES = ("mcp", "scad", "capped-l1", "l1")


def mean(rows: Iterable[Row], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def spread(rows: Iterable[Row], name: str) -> float:
    return float(np.std([row[name] for row in rows]))


def drawn(figure: str, rows: list[Row]) -> Any:
    return _PARTS[figure][0](pyplot(), rows)


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
        bounds = [r["delta_at_least"] or np.nan for r in group]
        axes.loglog([r["rows"] for r in group], bounds, "o-", label=name)
    axes.axhline(1e-5, color="0.4", linestyle="--")
    axes.annotate("claimed", (rows[0]["rows"], 1.3e-5), color="0.4")
    axes.set(xlabel="rows", ylabel="true delta is at least", ylim=(5e-6, 2))
    axes.set_title("Algorithm 1 as printed, epsilon = 1, T = 2")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.12))
    return drawn


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


_HEAD = """# ISTDP (Yuan and Peng 2023): the experiments that the paper leaves for later

The paper proves and does not measure; its last section announces experiments. So there is no figure of it
to match. Problems, clipping norms and steps here are this project's; every bound printed holds for the
schedule that was drawn, in exact arithmetic. All noise here is a simulation: a seed repeats it."""


def text(found: dict[str, list[Row]], seeds: int) -> str:
    parts = [_HEAD]
    for figure, rows in found.items():
        parts.append("\n".join(_PARTS[figure][1](rows, seeds)))
    return "\n\n".join(parts) + "\n"


def _accounting_words(rows: list[Row], seeds: int) -> Iterator[str]:
    yield "## Noise for T = 50 gradients, delta = 1e-5 (sigma / sensitivity)\n"
    yield from table(
        ("epsilon", "Theorem 3.3", "exact", "ratio", "epsilon that Theorem 3.3's noise is worth"),
        ((r["epsilon"], r["paper"], r["exact"], r["ratio"], r["true_epsilon_of_paper"]) for r in rows),
    )
    yield "\nGaussian releases compose exactly. The paper adds them up by the advanced composition theorem, with"
    yield "half of delta on the steps, and so asks for 12 to 16 times the noise that is needed."


def _attack_words(rows: list[Row], seeds: int) -> Iterator[str]:
    yield "## Theorem 3.3 is refuted: lower bounds on the true delta (epsilon = 1, T = 2; claimed: 1e-5)\n"
    yield from table(
        ("what leaks", "rows", "alpha_max", "true delta at least"),
        ((r["leak"], r["rows"], r["alpha_max"], r["delta_at_least"]) for r in rows),
    )
    yield "\n*step*: n rows of zeros against one row more. The exact Barzilai-Borwein step multiplies the noise,"
    yield "so no sigma hides it; nothing leaks when both steps meet alpha_max. *search*: balanced labels at"
    yield "x = 1 against one label more. The edge of what the line search accepts moves with the record, by about"
    yield "1/n. In this example half of the line searches never end."


def _nonprivate_words(rows: list[Row], seeds: int) -> Iterator[str]:
    yield f"## Without privacy: d = 200, 10 columns matter, {seeds} problems each, the same lambda for all\n"
    head = *(f"F1 {n}" for n in _PENALTIES), *(f"error {n}" for n in _PENALTIES), "iterations", "bare"
    lines = []
    for (loss, n), group in grouped(rows, "loss", "rows").items():
        f1 = [round(mean(group, f"{name} f1"), 2) for name in _PENALTIES]
        errors = [mean(group, f"{name} error") for name in _PENALTIES]
        counts = [round(mean(group, name)) for name in ("iterations", "iterations without Newton")]
        lines.append([f"{loss} n = {n}", *f1, *errors, *counts])
    yield from table(("problem", *head), lines)
    apart = max(abs(r["objective"] - r["objective without Newton"]) for r in rows)
    yield "\nError: excess squared prediction error, or the share of wrong signs. The concave penalties pay off"
    yield "where l1 shrinks what it keeps. *bare* is the iteration without Newton steps on the support; its"
    yield f"objective differs by at most {apart:.1e} (another stationary point where that is above 1e-9)."


def _budget_words(rows: list[Row], seeds: int) -> Iterator[str]:
    yield f"## Made-up rows under a budget: logistic, C = 4, steps in [1, 12], {seeds} seeds\n"
    sound = [row for row in rows if row["variant"] != "as printed"]
    variants = list(dict.fromkeys(row["variant"] for row in sound))
    groups = grouped(sound, "rows", "epsilon", "variant")
    yield from table(
        ("n", "epsilon", *(f"{v}: F1 / accuracy" for v in variants)),
        (
            (n, e, *(_pair(groups[n, e, v]) for v in variants))
            for n, e in dict.fromkeys((row["rows"], row["epsilon"]) for row in sound)
        ),
    )
    printed = [row for row in rows if row["variant"] == "as printed"]
    yield f"\nBest possible accuracy: {mean(sound, 'bayes'):.3f}. *lambda by rule* is sigma sqrt(2 ln d), which no"
    yield "record enters. lambda = 0.02 is a constant that suits these problems; nothing private was used to"
    yield "find it, but a user would not know it. *composition of Theorem 3.3*: the same sound algorithm with the"
    yield "noise that the theorem asks for at sensitivity 2C/n, and lambda = 0.02."
    if printed:
        stuck = mean(printed, "stuck") / 49
        yield "Algorithm 1 as printed (no clipping, U = 4, lambda = 0.02; epsilon = 1 claimed, infinite in truth):"
        yield f"F1 {mean(printed, 'f1'):.2f}, accuracy {mean(printed, 'accuracy'):.2f}; in {stuck:.0%} of the"
        yield "iterations the inner loop had accepted no step after 40 halvings and was stopped: the penalty of what"
        yield "the noise moves outweighs the descent."


def _adult_words(rows: list[Row], seeds: int) -> Iterator[str]:
    yield f"## Adult: 40,000 training and 5,222 test rows, 105 columns, rows of norm 1, C = 1, {seeds} seeds\n"
    curves = [row for row in rows if np.isfinite(row["epsilon"]) and row["variant"] != "as printed"]
    groups = grouped(curves, "variant", "epsilon")
    epsilons = list(dict.fromkeys(row["epsilon"] for row in curves))
    lines = []
    for v in dict.fromkeys(row["variant"] for row in curves):
        found = [(mean(groups[v, e], "accuracy"), spread(groups[v, e], "accuracy")) for e in epsilons]
        lines.append([v, *(f"{middle:.4f} ± {apart:.4f}" for middle, apart in found)])
    yield from table(("test accuracy", *(f"epsilon {e:g}" for e in epsilons)), lines)
    single = {row["variant"]: row["accuracy"] for row in rows if row not in curves}
    yield "\n" + "; ".join(f"{name}: {value:.4f}" for name, value in single.items()) + "."
    yield "An accuracy on 5,222 rows has a standard error of 0.005. lambda = 2e-4 and alpha = 2000 are constants"
    yield "fixed beforehand; tuning them, or the steps, on the private rows would cost budget. What T = 50 leaves"
    yield "short of the optimum costs more than the noise does."


def _pair(rows: list[Row]) -> str:
    return f"{mean(rows, 'f1'):.2f} / {mean(rows, 'accuracy'):.3f}"


_PARTS: dict[str, tuple[Any, Any]] = {
    "accounting": (_accounting, _accounting_words),
    "attack": (_attack, _attack_words),
    "nonprivate": (_nonprivate, _nonprivate_words),
    "budget": (_budget, _budget_words),
    "adult": (_adult, _adult_words),
}
