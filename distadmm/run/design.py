"""What `ias` and `funnel`, which design mappings, have in common: no ledgers, no iterations; and their figures."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.flags import table_of
from distadmm.graphs import figures
from distadmm.graphs.figures import pyplot, save
from distadmm.run import model
from distadmm.run.ends import End
from distadmm.run.running import Running
from distadmm.run.shell import Array, Outcome, Programme

Files = dict[str, Callable[[Path], Any]]


class Options(NamedTuple):
    """The groups of flags: which tables, what is wanted, how hard to try, and the run's own."""

    data: Any
    goal: Any
    how: Any
    run: Any

    def table(self) -> dict[str, Any]:
        return table_of(*self)


class Design(Programme):
    beats, form = False, Options

    def describe(self, prepared: Any, price: None) -> dict[str, Any]:
        return {}

    def solve(self, prepared: Any, price: None, run: Running) -> Outcome:
        outcome = self.designed(prepared, run) or Outcome()
        outcome.ended, outcome.strict = run.world.broadcast((outcome.ended, outcome.strict))
        return outcome

    def designed(self, prepared: Any, run: Running) -> Outcome | None:
        """What was found, on rank 0; None on the others."""
        raise NotImplementedError

    def outcome(
        self, run: Running, summary: Mapping[str, Any], said: Sequence[str], files: Files, unsettled: str = ""
    ) -> Outcome:
        """`unsettled`: why it is not as good as was asked for, if so."""
        ended = (End.ITERATIONS if unsettled else End.CONVERGED).word
        if unsettled and run.flags.strict:
            print(unsettled, file=sys.stderr)
        summary = {"ended": ended, **summary}
        return Outcome(ended, files=files, summary=summary, said=list(said), strict=run.flags.strict)


def drawn(wanted: bool, name: str, draw: Callable[[Path], Any]) -> Files:
    """The figure, where one is wanted and can be made."""
    if wanted and not figures.possible():
        print(f"no figure: {figures.MISSING}", file=sys.stderr)
    return {name: draw} if wanted and figures.possible() else {}


def described(stems: Sequence[str], column: str, values: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """The mappings of one column's `values` as models: no row of anybody's is protected by them, or spent."""
    arrays = {stem: [f"{stem}.npz", "matrix"] for stem in stems}
    said = model.privacy({"statement": "an average leakage, not an epsilon"}, "")
    told = {"features": [column], "encoding": {"values": list(map(str, values))}, "arrays": arrays}
    return {model.FILE: {**told, **said}}


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


def draw_pareto(path: Path, I: Array, E: Array, certified: Array, title: str) -> None:
    """I(S;U) against E[d]; filled marks are proved to be optimal."""
    figure, axes = pyplot().subplots(figsize=(5.6, 3.8))
    order = np.argsort(E, kind="stable")
    axes.plot(E[order], I[order], color="0.6", lw=1, zorder=1)
    for mask, face, label in ((certified, "tab:blue", "certified"), (~certified, "white", "not certified")):
        if mask.any():
            axes.scatter(E[mask], I[mask], s=22, facecolor=face, edgecolor="tab:blue", label=label, zorder=2)
    axes.set(xlabel="privacy leakage E[d(y,u)]", ylabel="accuracy I(S;U) (nats)", title=title)
    axes.margins(0.04)
    axes.legend(loc="lower right")
    save(figure, path)


def draw_funnel(
    path: Path, curve: Array, method: str, whole: tuple[float, float], perfect: tuple[float, bool] | None
) -> None:
    """I(S;Y) against R, the proven lower bound below it, and how far perfect privacy reaches.

    A row of `curve` is R, what leaks and what is proved to; `whole` is H(X), I(S;X) of releasing X itself; `perfect`
    is R0 and whether it is exact.
    """
    figure, axes = pyplot().subplots(figsize=(5.6, 3.8))
    R, leak, low = curve[np.argsort(curve[:, 0], kind="stable")].T
    axes.fill_between(R, low, leak, color="tab:blue", alpha=0.2, lw=0, label="not excluded by proof")
    axes.plot(R, leak, "o-", color="tab:blue", ms=4, lw=1.2, label=f"{method}: attained")
    axes.plot(*([value] for value in whole), "k*", ms=8, label="release X itself")
    if perfect is not None and perfect[0] > 0:
        words = "R0: perfect privacy up to here" if perfect[1] else "perfect privacy at least up to here"
        axes.axvline(perfect[0], color="tab:green", ls="--", lw=1, label=words)
    axes.set(xlabel="R, the least I(X;Y) asked for (nats)", ylabel="I(S;Y) (nats)")
    axes.set_xlim(0, whole[0] * 1.03 or 1)
    axes.set_ylim(-0.02 * (whole[1] or 1), None)
    axes.legend(loc="upper left")
    save(figure, path)
