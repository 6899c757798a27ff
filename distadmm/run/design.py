"""What the programmes that design mappings, `ias` and `funnel`, have in common: no ledgers, no iterations to resume."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from distadmm.flags import table_of
from distadmm.graphs import figures
from distadmm.run import model
from distadmm.run.ends import End
from distadmm.run.running import Running
from distadmm.run.shell import Outcome, Programme

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
