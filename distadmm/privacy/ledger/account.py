"""The account of rows: what all runs on them spent, kept outside of any run's directory, and never more than its limit.

One file, of lines sealed each to the one before (`chain`), locked while it is read and written:

    open    the file
    alike   what a run is about to release: its nodes' rows (keyed names and marks), events, adjacency, trust, those
            that spend alike together; `run` in files that tell them node by node
    limit   most that may be spent on rows: of one run's, or of all that the file knows
    heads   the last entry of each ledger of a run, when it ended

How spending composes
---------------------
* Runs add up when their rows have a mark in common, directly or through others; in a file that was named, all do.
* Within a run the nodes compose by what their ledgers say (`compose.NODES`), and nodes with the same rows add up.
* Runs for different changes are priced for the one that all cover, against those adversaries that all hold against;
  under a limit for its change and its adversaries, and what was not claimed for these has no bound there.

Invariants that guard privacy
-----------------------------
* `enter` writes durably, under the lock, before it returns; nothing is released before.
* What was entered of a run is never taken back: of two entries of one run the larger count of each event stands.
* What is not established (unbounded, claimed, conditional) is infinite.
* A limit is kept by one Renyi curve, fixed by the first schedule under it; a first schedule that fits by its tight
  price alone is the only one.
"""

from __future__ import annotations

import base64
import fcntl
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from itertools import chain as chained
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.table import local_key
from distadmm.errors import BudgetExhausted, require, sense_of, told
from distadmm.files import make_folder, sync_folder
from distadmm.privacy.accounting.cost import Cost
from distadmm.privacy.accounting.events import Event, event_from_json
from distadmm.privacy.accounting.statements import exactly
from distadmm.privacy.accounting.trust import Trust
from distadmm.privacy.ledger import chain, rules
from distadmm.privacy.ledger.standing import Entered, Limit, Spender, Standing, standing
from distadmm.structs import mutable_struct

ENVIRONMENT = "DISTADMM_ACCOUNT"
__all__ = ["Account", "Entered", "Limit", "Spender", "Standing", "State", "default_path", "standing"]


def default_path() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "distadmm" / "account.jsonl"


class Account:
    """`Account()` is this user's own; `Account(FILE)` one that hosts share, whose runs are all about the same rows."""

    def __init__(self, path: str | Path | None = None):
        named = path or os.environ.get(ENVIRONMENT)
        self.named = bool(named)
        self.path = Path(named) if named else default_path()
        self._known: tuple[int, Any, State] | None = None  # what was read: its length, its hash, its sum
        self._left: tuple[bytes, chain.Entry] | None = (
            None  # the file as it was left: its hash, its last line
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """As an estimator is pickled: the same file, of which nothing was read yet."""
        return Account, (self.path if self.named else None,)

    def key(self) -> bytes:
        """By which rows are named: the owner's own on this machine, or the one that lies beside the named file."""
        return local_key(f"{self.path}.key" if self.named else None)

    # -- reading ----------------------------------------------------------------------------------------

    def read(self) -> State:
        """As it stands; without a file nothing was spent."""
        if not self.path.exists():
            return State(self.named)
        with self._locked(os.O_RDONLY) as file:
            return self._fold(file)

    def _fold(self, file: int) -> State:
        """What all lines say; those read before are not parsed again while they are the same to the byte."""
        os.lseek(file, 0, os.SEEK_SET)
        with open(file, "rb", closefd=False) as whole:
            content = whole.read()
        length, known, state = self._known or (0, chain.sha256(), State(self.named))
        self._known = None
        earlier, later = chain.sha256(content[:length]), content[length:]
        same = earlier.digest() == known.digest()
        found = chain.parse(later, str(self.path), state.last) if same else None
        if length and (found is None or found.fault):
            return self._fold(file)  # from the start, to name the line
        assert found is not None
        require(found.fault is None, f"the account {found.fault}; restore it from a backup")
        with sense_of(self.path):
            state.take(found)
        if not found.torn and not found.unended:
            earlier.update(later)
            self._known = len(content), earlier, state
        return state

    def _as_left(self, file: int) -> State | None:
        """Enough to write behind what was left here, where that is the same to the byte; it is not parsed."""
        (digest, last), self._left, code = self._left or (b"", {}), None, chain.sha256()
        if not digest:
            return None
        os.lseek(file, 0, os.SEEK_SET)
        while part := os.read(file, 1 << 20):
            code.update(part)
        return State(self.named, last=last) if code.digest() == digest else None

    # -- writing ----------------------------------------------------------------------------------------

    def enter(
        self, run: Entered, delta: float, *, more: bool = False, rows_of: str = ""
    ) -> tuple[Standing, Standing]:
        """Write down what `run` is about to release; what was spent before it, and with it.

        `more`: on top of what was entered of it; two continuations of one run both count.  `rows_of`: the run whose
        rows these are.  Where a limit would be exceeded it is refused, and nothing written.
        """
        with self._locked(os.O_RDWR | os.O_CREAT) as file:
            state, fresh = self._fold(file), True
            if rows_of in state.runs:
                run.marks |= state.runs[rows_of].marks
            if known := state.runs.get(run.run):  # it goes on
                whole = replace(
                    known, marks=known.marks | run.marks, nodes={**known.nodes}, began={**known.began}
                )
                for spender in run.nodes.values():
                    whole.add(spender, more=more)
                run, fresh = whole, (whole.nodes, whole.marks) != (known.nodes, known.marks)
            others = state.sharing(run)
            if not run.nodes:  # it spends nothing of what is kept here
                return standing(others, delta), standing(others, delta)
            if found := state.refusal(run, others):
                limit, why = found
                raise BudgetExhausted(
                    f"the account {self.path} allows epsilon {exactly(limit.epsilon)} at delta {exactly(limit.delta)} "
                    f"({limit.adjacency}) on these rows, of which {standing(others, limit.delta).words} are spent: "
                    f"{why}; nothing was drawn or sent; see: python -m distadmm ledger account"
                )
            if fresh:
                self._append(file, state, _line(run, state.runs.values()))
            return standing(others, delta), standing([*others, run], delta)

    def limit(self, limit: Limit) -> None:
        told_of = {"epsilon": limit.epsilon, "delta": limit.delta, "adj": limit.adjacency, "of": limit.run}
        self._note({"kind": "limit", **told_of, "trust": str(limit.trust)})

    def heads(self, run: str, heads: Mapping[int, str], known: Mapping[int, str] | None = None) -> None:
        """Keep the last entry of each ledger of a run that has ended, or goes on; `known`: those that stood here when
        its ledgers were found to hold them."""

        def allow(state: State) -> None:
            stand: Mapping[int, str] = getattr(state.runs.get(run), "heads", {})
            require(
                known is None or all(stand.get(node) == known.get(node) for node in heads),
                f"another copy of this run was taken up at the same moment, as the account {self.path} knows; go on "
                "with that one",
            )

        entry = {"kind": "heads", "of": run, "heads": dict(sorted(heads.items()))}
        self._note(entry, None if known is None else allow)

    def _note(self, entry: dict[str, Any], allow: Callable[[State], None] | None = None) -> None:
        """Write it, where what stands there by then is to `allow` it."""
        with self._locked(os.O_RDWR | os.O_CREAT) as file:
            state = (None if allow else self._as_left(file)) or self._fold(file)
            if allow:
                allow(state)
            self._append(file, state, entry)

    def _append(self, file: int, state: State, entry: dict[str, Any]) -> None:
        entries, last = [entry], state.last
        if state.torn:
            entries.insert(0, chain.fragment_entry(state.torn))
        if last is None:
            os.ftruncate(file, 0)  # what a kill left of the first line
            entries = [{"kind": "open"}, entry]
        head, seq = (last["h"], last["seq"] + 1) if last else (chain.GENESIS, 0)
        lines = [b"\n" if last and (state.torn or state.unended) else b""]
        for each in entries:
            whole = {"v": chain.VERSION, "seq": seq, "prev": head, "t": rules.now(), **each}
            line, digest = chain.sealed(chain.canonical(whole))
            lines.append(line)
            head, seq = digest.hex(), seq + 1
        with told(f"cannot write the account {self.path}: REASON; {_ELSEWHERE}"):
            os.lseek(file, 0, os.SEEK_END)
            written = b"".join(lines)
            chain.write_all(file, written)
            os.fsync(file)
            if last is None:
                sync_folder(self.path.parent)
        if self._known and self._known[2] is state:
            code = self._known[1].copy()
            code.update(written)
            self._left = code.digest(), {"h": head, "seq": seq - 1}

    @contextmanager
    def _locked(self, how: int) -> Iterator[int]:
        """The file, for one process at a time."""
        keeps = not self.path.exists() or self.path.is_file()  # in this order: others may make it meanwhile
        require(keeps, f"the account {self.path} is no file, and would keep nothing; {_ELSEWHERE}")
        with told(f"cannot open the account {self.path}: REASON; {_ELSEWHERE}"):
            if how & os.O_CREAT:
                make_folder(self.path.parent, 0o700)
            file = os.open(self.path, how, 0o600)
        try:
            with told(
                f"cannot lock the account {self.path}: REASON; it needs a file system with locks; {_ELSEWHERE}"
            ):
                fcntl.flock(file, fcntl.LOCK_EX if how & os.O_CREAT else fcntl.LOCK_SH)
            yield file
        finally:
            os.close(file)


_ELSEWHERE = f"make it writable, or name another by --account FILE or {ENVIRONMENT}"


@mutable_struct
class State:
    """What the lines of an account add up to."""

    named: bool
    runs: dict[str, Entered] = field(default_factory=dict)
    limits: list[Limit] = field(default_factory=list)
    last: chain.Entry | None = None  # the last whole line; what follows it:
    torn: bytes = b""
    unended: bool = False

    def take(self, found: chain.Chain) -> None:
        """Add the lines of `found`, which follow the last."""
        for entry in found.entries:
            fold = getattr(self, f"_{entry['kind']}", None)
            require(
                fold is not None,
                f"the account {found.path} has an entry of unknown kind {entry['kind']!r}; update distadmm",
            )
            fold(entry)  # type: ignore[misc]
            self.last = entry
        self.torn, self.unended = found.torn, found.unended

    def _open(self, entry: chain.Entry) -> None: ...

    def _torn(self, entry: chain.Entry) -> None: ...

    def _run(self, entry: chain.Entry) -> None:
        run = self.runs.setdefault(entry["of"], Entered(entry["of"], entry["where"]))
        run.marks |= self.runs[entry["as"]].marks if entry["as"] else _unpacked(entry["marks"])
        plans = [tuple(event_from_json(line) for line in plan) for plan in entry["plans"]]
        for node, names, plan, adjacency, scope, trust in entry.get("nodes", ()):
            run.add(Spender(node, tuple(names), adjacency, scope, Trust.parse(trust), plans[plan]))
        for adjacency, scope, trust, plan, nodes, counts, names in entry.get("alike", ()):
            against, names = Trust.parse(trust), iter(names)
            for node, count in zip(nodes, counts, strict=True):
                run.add(Spender(node, tuple(islice(names, count)), adjacency, scope, against, plans[plan]))
        run.priced = entry["cost"][0], Cost.from_json(entry["cost"][1])

    _alike = _run  # by its own name, so that a version that knows nodes one by one refuses it in one line

    def _limit(self, entry: chain.Entry) -> None:
        new = Limit(
            float(entry["epsilon"]), entry["delta"], entry["adj"], Trust.parse(entry["trust"]), entry["of"]
        )
        self.limits = [limit for limit in self.limits if limit.run != new.run]
        if math.isfinite(new.epsilon):
            self.limits.append(new)

    def _heads(self, entry: chain.Entry) -> None:
        run = self.runs.setdefault(entry["of"], Entered(entry["of"], ""))
        run.heads.update({int(node): head for node, head in entry["heads"].items()})

    def sharing(self, run: Entered) -> list[Entered]:
        """The other runs whose rows are these, directly or through others."""
        rest = [other for other in self.runs.values() if other.run != run.run]
        if self.named:
            return rest
        near = [run]
        for one in near:
            met = [other for other in rest if one.meets(other)]
            near += met
            rest = [other for other in rest if other not in met]
        inside = {other.run for other in near[1:]}
        return [other for other in self.runs.values() if other.run in inside]

    def tables(self) -> list[list[Entered]]:
        """All runs, those on the same rows together."""
        found: list[list[Entered]] = []
        for run in self.runs.values():
            if run.nodes and not any(run is other for table in found for other in table):
                near = {other.run for other in (run, *self.sharing(run))}
                found.append([other for other in self.runs.values() if other.run in near])
        return found

    def limits_of(self, runs: Iterable[Entered]) -> list[Limit]:
        names = {run.run for run in runs}
        return [limit for limit in self.limits if limit.run is None or limit.run in names]

    def refusal(self, run: Entered, others: Sequence[Entered]) -> tuple[Limit, str] | None:
        for limit in self.limits_of([*others, run]):
            if why := limit.refuses([*others, run]):
                return limit, why
        return None


def _line(run: Entered, known: Iterable[Entered]) -> dict[str, Any]:
    plans: dict[tuple[Event, ...], int] = {}
    alike = []
    for some in run.alike:
        first, names = some[0], [s.names for s in some]
        kind = first.adjacency, first.scope, str(first.trust), plans.setdefault(first.events, len(plans))
        alike.append([*kind, [s.node for s in some], [*map(len, names)], [*chained.from_iterable(names)]])
    same = next((other.run for other in known if other.run != run.run and other.marks == run.marks), "")
    run.priced = run.adjacency, run.cost(run.adjacency)
    return {
        "kind": "alike", "of": run.run, "where": run.where, "as": same, "marks": "" if same else _packed(run.marks),
        "alike": alike, "plans": [[event.to_json() for event in plan] for plan in plans],
        "cost": [run.priced[0], run.priced[1].to_json()],
    }  # fmt: skip


def _packed(marks: Iterable[int]) -> str:
    return base64.b64encode(np.array(sorted(marks), dtype="<u8").tobytes()).decode()


def _unpacked(text: str) -> frozenset[int]:
    return frozenset(np.frombuffer(base64.b64decode(text), dtype="<u8").tolist())
