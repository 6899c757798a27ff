"""The rules of a ledger, apart from where its lines go: `MemoryLedger` keeps them, `Ledger` writes a file.

Invariants that guard privacy
-----------------------------
* `charge` returns only when the release is covered: by its own record, or by a reservation made earlier.
* What would overspend is refused before anything is written as spent, drawn or sent.
* Every entry goes through `_append`, which seals it to the one before.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.errors import BudgetExhausted, InputError, require
from distadmm.privacy.accounting.cost import cost_of, counted, nothing, priced
from distadmm.privacy.accounting.events import Adjacency, Event, Unbounded, check_adjacency
from distadmm.privacy.accounting.rdp import ORDERS
from distadmm.privacy.accounting.trust import Trust
from distadmm.privacy.ledger import chain, replay
from distadmm.privacy.ledger.filter import Filter, Proposal, filter_from_json
from distadmm.privacy.ledger.tally import Tally, named, statement_kind

#: What the adjacency's one record may touch, and so how nodes compose: see `compose.py`.
SCOPES = ("record", "feature", "person", "unknown")
MODES = ("simulation", "secure")
exposed = lru_cache(64)(Unbounded)  # the same few in every iteration

_POST_HOLES = {"k": "%d", "node": "%d", "of": "%d", "prev": '"%s"', "seq": "%d"}
_RELEASE_HOLES = {"item": "%d", **_POST_HOLES}


def boot_id() -> str | None:
    """Names the boot of this machine: unsynced lines survive a process, not a power cut."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


@lru_cache(maxsize=1)
def process(number: int) -> str:
    """A name that no other process has, of this one's number: who takes up copies of a ledger writes no equal lines."""
    return os.urandom(8).hex()


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _event_line(event: Event) -> dict[str, Any]:
    """An event as an entry shows it: its mechanism and that mechanism's parameters."""
    params = event.to_json()
    return {"mech": params.pop("mech"), "params": params}


def _exact(events: Iterable[Event]) -> bool:
    """Whether the proof covers the arithmetic: integer noise on a grid, and no floats after it."""
    return all(event.exact for event in events)


class Receipt(NamedTuple):
    """What a charge returns: the entry that pays for the release."""

    seq: int
    kind: str
    iteration: int
    head: bytes  # hash of that entry


class MemoryLedger:
    """A ledger without a file, for notebooks and tests; `Ledger` is the same on disk.

    `adjacency` is what neighbouring data are, `scope` who may hold a record (how nodes compose), `dataset` the
    keyed name of the data.  `claim` is what may be said of the run: {"scope": of `statements.SCOPES`,
    "verified": the hypotheses that code has checked, "tolerance": of certified solves}; without it nothing is.
    `trust` is against whom costs are counted (`trust.Trust`), `rows` are the keyed names of the rows themselves
    (`data.content`).  `account` is asked before anything is charged that was not reserved.
    """

    version = chain.VERSION
    account: Callable[[MemoryLedger, Event], None] | None = None

    def __init__(
        self,
        node: int = 0,
        *,
        adjacency: Adjacency,
        mode: str,
        scope: str = "unknown",
        dataset: str | None = None,
        run: str | None = None,
        source: str = "",
        claim: Mapping[str, Any] | None = None,
        trust: str = "any",
        budget: Filter | None = None,
        rows: Iterable[str] = (),
        orders: Sequence[float] | np.ndarray = ORDERS,
    ):
        check_adjacency(adjacency)
        require(scope in SCOPES, f"scope is {scope!r}; choose one of: {', '.join(SCOPES)}")
        require(mode in MODES, f"noise mode is {mode!r}; choose one of: {', '.join(MODES)}")
        self.node = node
        self._begin()
        header = {
            "kind": "open",
            "adj": adjacency,
            "scope": scope,
            "dataset": dataset,
            "rows": list(rows),
            "rng": {"mode": mode, "source": source},
            "claim": claim,
            "trust": str(Trust.parse(trust)),
            "orders": list(orders),
            "budget": budget.to_json() if budget else None,
            "boot": boot_id(),
            "t": now(),
        }
        self.run = run or os.urandom(8).hex()
        self._append_entries([header], sync=True)

    # -- where lines go; `Ledger` puts them into a file -------------------------------------------------

    def _begin(self) -> None:
        self.head = bytes(32)  # hash of the last entry
        self._seq = 0
        self._release_texts: dict[str, str] = {}  # by mechanism; of posts by no name
        self._lines: list[bytes] = []
        self._sent: dict[int, replay.Sent] = {}

    def _write(self, line: bytes, sync: bool) -> None:
        self._lines.append(line)

    @property
    def content(self) -> bytes:
        """The ledger as it stands in its file."""
        return b"".join(self._lines)

    def _append(self, text: str, *, sync: bool) -> int:
        """Seal the canonical text of an entry, write its line; the entry's number."""
        line, digest = chain.sealed(text)
        self._write(line, sync)
        self.head = digest
        self._seq += 1
        return self._seq - 1

    def _append_entries(self, entries: Sequence[dict[str, Any]], *, sync: bool, before: bytes = b"") -> int:
        """Write `entries` after `before` in one go, so that a kill leaves all or a torn tail; the last one's number.

        What is held in memory is read from them, as it will be from the file.
        """
        lines = [before]
        for entry in entries:
            own = {"v": self.version, "run": self.run, "node": self.node}
            whole = {**own, "seq": self._seq, "prev": self.head.hex(), **entry}
            line, self.head = chain.sealed(self._text(whole))
            lines.append(line)
            self._seq += 1
            if entry["kind"] == "open":
                self._take(Tally.start(whole))
            else:
                self.tally.apply(whole)
        self._write(b"".join(lines), sync)
        return self._seq - 1

    def _text(self, entry: dict[str, Any]) -> str:
        """What is sealed of an entry."""
        return chain.canonical(entry)

    def _take(self, tally: Tally) -> None:
        self.tally = tally
        self.budget: Filter | None = filter_from_json(tally.header["budget"])

    # -- what the ledger is about -----------------------------------------------------------------------

    @property
    def adjacency(self) -> Adjacency:
        return self.tally.adjacency

    @property
    def rows(self) -> tuple[str, ...]:
        """The keyed names of its rows; none where they are not told, or it is older than these names."""
        return tuple(self.tally.header.get("rows", ()))

    @property
    def mode(self) -> str:
        return self.tally.header["rng"]["mode"]

    @property
    def events(self) -> list[Event]:
        """What is spent, as events for the accountant."""
        return self.tally.seen

    @property
    def statement_kind(self) -> str:
        """What a number computed from this ledger is; see `tally.statement_kind`."""
        return statement_kind(self.tally)

    def _common(self) -> dict[str, Any]:
        return {name: self.tally.header[name] for name in ("adj", "scope", "dataset", "rng")}

    # -- spending ---------------------------------------------------------------------------------------

    def commit(self, events: Iterable[Event], adjacency: Adjacency | None = None) -> Receipt:
        """Reserve a schedule that does not depend on data, in one synced record."""
        require(
            adjacency in (None, self.adjacency),
            f"the schedule is priced for adjacency {adjacency!r}, the ledger for {self.adjacency!r}; use one",
        )
        planned = counted(events)
        require(planned, "the schedule to commit is empty; give at least one event")
        tally, cost = self.tally, nothing(self.tally.orders)
        for event in planned:
            found, own = priced(event, tally.orders, self.adjacency, tally.trust)
            require(
                not found.unbounded,
                f"a schedule with {event} cannot be committed: it has no proved price; charge it when it happens",
            )
            cost = cost.plus(own)
        self._admit(
            Proposal(tally.spent.plus(cost), planned, self._untouched), planned[0], tally.last_iteration
        )
        lines = [event.to_json() for event in planned]
        entry = {
            "kind": "commit",
            "events": lines,
            "schedule": named(lines),
            "block": False,  # these two are what version 0.1.0 looks for
            "sync_every": 0,
            "float_exact": _exact(planned),
            "t": now(),
            **self._common(),
            **cost.to_json(),
        }
        return Receipt(self._append_entries([entry], sync=True), "commit", 0, self.head)

    @property
    def _untouched(self) -> bool:
        return not self.tally.events

    def affords(self, events: Iterable[Event]) -> bool:
        """Whether the budget admits `events` now; nothing is written.

        It depends on no data, so all ranks can ask it together before an iteration and leave together.
        """
        if self.budget is None:
            return True
        wanted = counted(events)
        unpaid = []
        for event in wanted:
            paid = sum(slot.left for slot in self.tally.slots.get(event.single(), ()))
            if paid < event.releases:
                unpaid.append(event.times(int(event.releases - paid)))
        if not unpaid:
            return True
        cost = cost_of(unpaid, self.tally.orders, self.adjacency, self.tally.trust)
        return self.budget.admits(Proposal(self.tally.spent.plus(cost), wanted, self._untouched))

    def charge(self, event: Event, *, iteration: int) -> Receipt:
        """Pay for one release, durably, before its noise is drawn.

        Under a reservation that is one unsynced line.  Otherwise the filter is asked and a synced record
        written, or `BudgetExhausted` raised: then nothing has been drawn, sent or spent.
        """
        slot = self.tally.slot(event)
        if slot is None:
            return self._charge_unreserved(event, iteration)
        text = self._release_texts.get(event.mech) or self._template(event.mech)
        slot.left -= 1
        holes = slot.item, iteration, self.node, slot.of, self.head.hex(), self._seq
        seq = self._append(text % holes, sync=False)
        tally = self.tally
        tally.count(slot)
        tally.last_release, tally.last_iteration = seq, iteration
        tally.closed = False
        return Receipt(seq, "release", iteration, self.head)

    def _template(self, mech: str) -> str:
        """The canonical form of a release under a reservation, with its holes, made once a mechanism; "": of a post."""
        own = {"kind": "release", "mech": mech} if mech else {"kind": "post"}
        whole = {"v": self.version, "run": self.run, **own}
        self._release_texts[mech] = chain.template(whole, _RELEASE_HOLES if mech else _POST_HOLES)
        return self._release_texts[mech]

    def _charge_unreserved(self, event: Event, iteration: int) -> Receipt:
        if isinstance(event, Event) and event.recycles is not None:
            return self.post(of=event.recycles, iteration=iteration)
        event, cost = priced(event, self.tally.orders, self.adjacency, self.tally.trust)
        slot = self.tally.slot(event)
        if slot is not None:  # one more of what is unbounded already
            return self.charge(event, iteration=iteration)
        if event.releases > 1 and self.tally.slot(event.single()) is not None and self.affords([event]):
            return [self.charge(event.single(), iteration=iteration) for _ in range(event.releases)][-1]
        if not event.free:  # no (epsilon, delta) is spent by what is listed only
            self._admit(Proposal(self.tally.spent.plus(cost), None, self._untouched), event, iteration)
            if self.account is not None:
                self.account(self, event)
        entry = {
            "kind": "charge",
            "k": iteration,
            **_event_line(event),
            "schedule": self.tally.schedule,
            "float_exact": _exact([event]),
            **self._common(),
            **cost.to_json(),
        }
        return Receipt(self._append_entries([entry], sync=True), "charge", iteration, self.head)

    def _admit(self, proposal: Proposal, event: Event, iteration: int | None) -> None:
        """Raise `BudgetExhausted`, and note the refusal, unless the filter admits the proposal."""
        if self.budget is None or self.budget.admits(proposal):
            return
        at = -1 if iteration is None else iteration
        what = "the committed schedule" if iteration is None else f"iteration {iteration}"
        self._append_entries([{"kind": "refused", "k": at, **_event_line(event)}], sync=False)
        why = event.words if event.unbounded else f"{self.budget.used(self.tally.spent):.1%} is spent"
        raise BudgetExhausted(
            f"node {self.node}, {what}: {event.mech} would overspend the budget "
            f"{self.budget.describe()} ({why}); nothing of it was drawn or sent; "
            "raise the budget, add noise or plan fewer releases"
        )

    def post(self, *, iteration: int, of: int | str | Receipt | None = None) -> Receipt:
        """Note a message computed from earlier releases alone: it costs nothing and names the one recycled."""
        if isinstance(of, Receipt):
            of = of.seq
        if of is None:
            of = self.tally.last_release
        tally = self.tally
        if not isinstance(of, int) or tally.last_release is None or of > tally.last_release:
            raise InputError(
                f"node {self.node}, iteration {iteration}: no ledger entry {of!r} to recycle; charge a release first"
            )
        text = self._release_texts.get("") or self._template("")
        seq = self._append(text % (iteration, self.node, of, self.head.hex(), self._seq), sync=False)
        tally.posts += 1
        tally.closed = False
        return Receipt(seq, "post", iteration, self.head)

    def expose(self, reason: str, *, iteration: int, **claim: Any) -> Receipt:
        """Note a message that depends on data and has no bound; `claim`: what a paper says of it (`Unbounded`)."""
        return self.charge(exposed(reason, **claim), iteration=iteration)

    # -- what was sent ----------------------------------------------------------------------------------

    def store_release(self, iteration: int, payload: bytes) -> None:
        """Keep what is about to be sent, to the byte, until the next checkpoint."""
        self._sent[iteration] = replay.Sent(self.head, bytes(payload))

    def stored(self, iteration: int) -> bytes | None:
        """What was sent in `iteration`; None if that is not known, and then it takes fresh noise and a charge."""
        sent = self._sent.get(iteration)
        return sent.payload if sent else None

    def checkpoint(self, iteration: int) -> None:
        """A durable checkpoint holds everything up to `iteration`: forget what was sent before."""
        self._sent = {k: sent for k, sent in self._sent.items() if k > iteration}

    def holds(self) -> set[bytes]:
        """The hashes of all entries, which were looked at when the ledger was taken up."""
        ends = re.findall(rb'"h":"([0-9a-f]{64})"\}$', self.content, re.M)
        return {bytes.fromhex(end.decode()) for end in ends}

    def let_go(self) -> None:
        """Hold no file any more; what is written stays as it is."""

    def go_on(self) -> None:
        """Of a file that is taken up, write so."""

    def close(self) -> None:
        """A clean end: everything is on disk, nothing reserved is in doubt."""
        if not self.tally.closed:
            self._append_entries([{"kind": "close", "t": now()}], sync=True)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
