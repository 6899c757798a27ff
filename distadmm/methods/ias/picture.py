"""Figures of a mapping, of its ascent and of the Pareto curve.  matplotlib is needed only when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.errors import InputError

Array = np.ndarray


def pyplot() -> Any:
    """matplotlib's drawing functions, without a display and with text kept as text in SVG."""
    try:
        import matplotlib
    except ImportError:
        raise InputError("figures need matplotlib; install it with: pip install 'distadmm[plot]'") from None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "distadmm", "font.size": 9})
    from matplotlib import pyplot as plt

    return plt


def save(figure: Any, path: Path) -> None:
    """Write the figure; an SVG carries no date, so the same numbers give the same file."""
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, metadata=metadata, bbox_inches="tight")
    pyplot().close(figure)


def draw_mapping(path: Path, P: Array, values: Sequence[str], a: Array, title: str) -> None:
    """p(u|y) as a table of greys, and p(u) below."""
    plt = pyplot()
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(6.4, 0.9 + 0.28 * len(values) + 1.1), height_ratios=[len(values), 3], sharex=True
    )
    drawn = top.imshow(P, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    top.set_yticks(range(len(values)), values)
    top.set_ylabel("y")
    top.set_title(title)
    figure.colorbar(drawn, ax=[top, bottom], label="p(u|y)", fraction=0.05)
    bottom.bar(range(len(a)), a, color="0.35")
    bottom.set_xticks(range(len(a)))
    bottom.set_xlabel("u")
    bottom.set_ylabel("p(u)")
    save(figure, path)


def draw_curve(path: Path, I: Array, E: Array, certified: Array, title: str) -> None:
    """I(S;U) against E[d]; filled marks are proved to be optimal."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.6, 3.8))
    order = np.argsort(E, kind="stable")
    axes.plot(E[order], I[order], color="0.6", lw=1, zorder=1)
    for mask, face, label in ((certified, "tab:blue", "certified"), (~certified, "white", "not certified")):
        if mask.any():
            axes.scatter(E[mask], I[mask], s=22, facecolor=face, edgecolor="tab:blue", label=label, zorder=2)
    axes.set_xlabel("privacy leakage E[d(y,u)]")
    axes.set_ylabel("accuracy I(S;U) (nats)")
    axes.margins(0.04)
    axes.set_title(title)
    axes.legend(frameon=False, loc="lower right")
    save(figure, path)
