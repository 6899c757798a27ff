"""The account of rows: what all runs on them spent together, and the most they may spend.

python -m distadmm ledger account                                     every table, and who spent what on it
python -m distadmm ledger account RUN                                 the rows of one run
python -m distadmm ledger account --limit 3 --adjacency replace       no table of this account may be spent more on
python -m distadmm ledger account RUN --limit 3 --adjacency replace   nor the rows of that run
python -m distadmm ledger account --limit off                         no limit

Without --account it is this user's own file, under XDG_STATE_HOME; DISTADMM_ACCOUNT or --account FILE names another,
which hosts may share.  The key by which rows are named lies beside it (FILE.key): carry both.
"""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast, get_args

from distadmm.commands.ledger_report import cell
from distadmm.errors import DONE, number, require
from distadmm.flags import again, flag, positional
from distadmm.privacy.accounting.events import Adjacency
from distadmm.privacy.accounting.statements import exactly
from distadmm.privacy.accounting.trust import Trust
from distadmm.privacy.ledger.account import Account, Entered, Limit, State, standing
from distadmm.run.directory import earlier_name
from distadmm.run.groups import Budget
from distadmm.structs import struct

_OWN = "the runs of this account"


@struct
class Asked:
    run: tuple[str, ...] = positional(
        "RUN", help="run directories whose rows are meant (default: all)", default=()
    )
    account: str | None = again(Budget, "account")
    limit: str | None = flag(None, help="most that may be spent on the rows: an epsilon, or off")
    delta: float = flag(1e-5, help="delta of the limit, and of what is shown", at_least=0, below=1)
    adjacency: str | None = flag(
        None,
        help="the change that the limit is about; runs for a lesser one are refused",
        choices=get_args(Adjacency),
    )
    trust: str = flag("any", help="against whom the limit holds: any, coalition:C or centre")
    json: bool = flag(False, help="print JSON instead of text")

    def __post_init__(self) -> None:
        if self.limit in (None, "off"):
            return
        require(
            0 < number(self.limit) < math.inf, f"--limit is {self.limit!r}; needed: a number above 0, or off"
        )
        require(
            self.adjacency is not None,
            "--limit needs --adjacency and there is no default: add-remove, replace or label",
        )
        Trust.parse(self.trust)


def work(asked: Asked) -> int:
    account = Account(asked.account)
    state = account.read()
    names = [earlier_name(Path(place)) if Path(place).is_dir() else place for place in asked.run]
    for place, name in zip(asked.run, names):
        unknown = f"{place} is no run that this account knows; leave RUN out to see those it knows"
        require(name in state.runs, unknown)
    if asked.limit is not None:
        most = math.inf if asked.limit == "off" else float(asked.limit)
        adjacency = cast("Adjacency", asked.adjacency or "replace")
        for name in names or [None]:  # type: ignore[list-item]
            account.limit(Limit(most, asked.delta, adjacency, Trust.parse(asked.trust), name))
        state = account.read()
    tables = [t for t in state.tables() if not names or any(run.run in names for run in t)]
    report = {
        "account": str(account.path),
        "tables": [_table(state, runs, asked.delta) for runs in tables],
        "limits": [_limit(limit) for limit in state.limits if limit.run is None],
    }
    print(json.dumps(report, indent=2) if asked.json else "\n".join(_text(report)))
    return DONE


def _table(state: State, runs: list[Entered], delta: float) -> dict[str, Any]:
    whole, told = standing(runs, delta, exact=True), []
    for run in runs:
        spent = math.inf if run.unbounded else run.tight(run.adjacency, delta)
        which = {"run": run.run, "where": run.where, "nodes": len(run.nodes), "adjacency": run.adjacency}
        told.append({**which, "epsilon": spent, "why": run.unbounded})
    return {
        "runs": told,
        "epsilon": math.inf if whole.unbounded else whole.epsilon,
        "words": whole.words,
        "limits": [{**_limit(limit), "left": not limit.refuses(runs)} for limit in state.limits_of(runs)],
    }


def _limit(limit: Limit) -> dict[str, Any]:
    return {
        "epsilon": limit.epsilon, "delta": limit.delta, "adjacency": limit.adjacency, "trust": str(limit.trust),
        "of": limit.run or _OWN,
    }  # fmt: skip


def _text(report: dict[str, Any]) -> Iterable[str]:
    yield f"account {report['account']}"
    for limit in report["limits"]:
        yield f"limit of each table: {_words(limit)}"
    if not report["tables"]:
        yield "no run was entered"
    for place, table in enumerate(report["tables"], 1):
        yield ""
        yield f"table {place}: {table['words']}"
        for run in table["runs"]:
            spent = f"epsilon {cell(run['epsilon'])} ({run['adjacency']})"
            spent = f"no bound: {run['why']}" if run["why"] else spent
            yield f"  run {run['run']}: {spent}; {run['where'] or 'kept no directory'}"
        for limit in table["limits"]:
            yield f"  limit {_words(limit)}: {'kept' if limit['left'] else 'exceeded'}"


def _words(limit: dict[str, Any]) -> str:
    against = "" if limit["trust"] == "any" else f", {limit['trust']}"
    return f"epsilon {exactly(limit['epsilon'])} at delta {exactly(limit['delta'])} ({limit['adjacency']}{against})"
