"""Figures on the information plane.  matplotlib is needed only when one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.errors import InputError
from distadmm.methods.funnel.model import Joint, Solution
from distadmm.methods.funnel.perfect import Perfect


def possible() -> bool:
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def demand() -> None:
    """One clear line when figures cannot be drawn."""
    if not possible():
        raise InputError("figures need matplotlib; install it with: pip install 'distadmm[plot]'")


def pyplot() -> Any:
    """matplotlib's drawing functions, without a display and with text kept as text in SVG."""
    demand()
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "distadmm", "font.size": 9})
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
    from matplotlib import pyplot as plt

    return plt


def save(figure: Any, path: Path) -> None:
    """Write the figure; an SVG carries no date, so the same numbers give the same file."""
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, bbox_inches="tight")
    pyplot().close(figure)


def draw_curve(path: Path, joint: Joint, solutions: Sequence[Solution], known: Perfect | None) -> None:
    """I(S;Y) against R, the proven lower bound below it, and how far perfect privacy reaches."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(5.6, 3.8))
    order = np.argsort([one.R for one in solutions], kind="stable")
    R, leak, low = (
        np.array([getattr(solutions[i], name) for i in order]) for name in ("R", "leakage", "lower")
    )
    axes.fill_between(R, low, leak, color="tab:blue", alpha=0.2, lw=0, label="not excluded by proof")
    axes.plot(R, leak, "o-", color="tab:blue", ms=4, lw=1.2, label=f"{solutions[0].method}: attained")
    axes.plot([joint.HX], [joint.ISX], "k*", ms=8, label="release X itself")
    if known is not None and known.R0 > 0:
        words = "R0: perfect privacy up to here" if known.exact else "perfect privacy at least up to here"
        axes.axvline(known.R0, color="tab:green", ls="--", lw=1, label=words)
    axes.set_xlabel("R, the least I(X;Y) asked for (nats)")
    axes.set_ylabel("I(S;Y) (nats)")
    axes.set_xlim(0, joint.HX * 1.03 or 1)
    axes.set_ylim(-0.02 * (joint.ISX or 1), None)
    axes.legend(loc="upper left")
    save(figure, path)
