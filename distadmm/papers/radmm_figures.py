"""The SVGs of `reproduce radmm`; the same bytes for the same curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from distadmm.graphs.figures import pyplot, save
from distadmm.papers.radmm_text import Curve


def draw(figure: str, curves: list[Curve], path: Path) -> None:
    plt = pyplot()
    if figure == "2":
        drawn = _errors(plt, curves)
    else:
        tags = sorted({_tag(c) for c in curves}, key=lambda tag: [_tag(c) for c in curves].index(tag))
        drawn, axes = plt.subplots(1, len(tags), figsize=(4.2 * len(tags), 3.6), squeeze=False)
        for axis, tag in zip(axes[0], tags):
            _curves(axis, [c for c in curves if _tag(c) == tag], tag)
        lines, labels = axes[0, 0].get_legend_handles_labels()
        drawn.tight_layout()
        drawn.legend(lines, labels, ncols=4, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 0.0))
    save(drawn, path)


def _tag(curve: Curve) -> str:
    """What a panel has in common: the noise, or the number of nodes."""
    first = curve.label.split(" ", 1)[0]
    return first if first.startswith("alpha=") else f"N={curve.nodes}"


def _curves(axis: Any, curves: list[Curve], tag: str) -> None:
    # What happens in the first iterations would squeeze the rest: leave it above the frame.
    top = 1.05 * max(float((curve.mean + curve.spread / 2)[len(curve.mean) // 4 :].max()) for curve in curves)
    for at, curve in enumerate(curves):
        t = np.arange(len(curve.mean))
        label = curve.label.removeprefix(tag + " ").removesuffix(f", {tag}")
        axis.plot(t, curve.mean, color=f"C{at}", label=label, lw=1.2)
        if curve.runs > 1:
            axis.fill_between(
                t,
                curve.mean - curve.spread / 2,
                curve.mean + curve.spread / 2,
                color=f"C{at}",
                alpha=0.15,
                lw=0,
            )
    axis.set(xlabel="iteration", ylabel="mean loss L(t)", title=tag, ylim=(0.32, top))


def _errors(plt: Any, curves: list[Curve]) -> Any:
    drawn, axis = plt.subplots(figsize=(4.6, 3.2))
    axis.semilogx([float(c.label) for c in curves], [100 * c.error for c in curves], "o-")
    axis.axvline(0.22, color="0.6", lw=0.8, ls="--")
    axis.annotate(
        "0.22, the paper's choice", (0.24, 0.92), xycoords=("data", "axes fraction"), fontsize=8, color="0.3"
    )
    axis.set(xlabel="rho", ylabel="test error after 50 iterations, %")
    return drawn
