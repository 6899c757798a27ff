"""The ledgers of all nodes of one rank.

Each node has its own ledger: in a file of its own, or, where a rank has many nodes, in one of that rank (`shelf`).
What was sent goes into one store a rank and the heads of neighbours into one file a rank, so that an iteration costs
one write of each, however many nodes there are.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.errors import InputError, require
from distadmm.privacy.accounting.events import Adjacency, Array, Event
from distadmm.privacy.ledger import filter, replay, shelves
from distadmm.privacy.ledger.file import Ledger, path_of, require_free
from distadmm.privacy.ledger.rules import MemoryLedger, exposed
from distadmm.privacy.ledger.shelf import Shelf
from distadmm.privacy.ledger.witness import Sighting, Witness, all_sightings

_FILES = 200  # ledgers of a rank in a file each; more share one


def open_ledger(
    folder: str | Path | None,
    node: int,
    *,
    mode: str | None,
    adjacency: Adjacency,
    resume: bool | None = False,
    held: bool = False,
    dataset: str | None = None,
    source: str = "",
    **header: Any,
) -> MemoryLedger:
    """The one way to a ledger: in memory without a folder, else a new file or that of an earlier run.

    `resume` True: the file must be there; None: it is taken up if it is there.  `mode` None: whatever it has.
    `header` holds what a new one is told (see `MemoryLedger`): scope, run, claim, trust and budget, which one that is
    taken up keeps as it has them.  `held`: of one that is taken up nothing is written before its `go_on`.
    """
    known: dict[str, Any] = {"mode": mode, "adjacency": adjacency, "dataset": dataset, "source": source}
    if folder is None:
        return MemoryLedger(node, **known, **header)
    if resume or (resume is None and path_of(folder, node).exists()):
        return (Ledger.checked if held else Ledger.resume)(folder, node, **known)
    return Ledger(folder, node, **known, **header)


def _on_shelf(
    folder: Path,
    nodes: Sequence[int],
    seen: Mapping[int, Any],
    kept: Mapping[int, Any],
    expected: dict[str, Any],
) -> tuple[Shelf, list[MemoryLedger]]:
    """The ledgers of these nodes on a new shelf, taken up and nothing written of it; no file is left of a refusal."""
    found = shelves.of_nodes(folder, nodes)
    for path in {shelves.file_of(each) for each in found.values()}:
        require_free(path)
    shelf = Shelf(folder, nodes)
    ledgers = list(shelf)
    try:
        for ledger in ledgers:
            i = ledger.node
            ledger.take_up(found[i], seen=seen[i], stored=kept[i], **expected)  # type: ignore[attr-defined]
    except InputError:
        shelf.give_up()
        raise
    return shelf, ledgers


class Replayed(NamedTuple):
    """What an earlier process sent in one iteration."""

    rows: Array  # (n, d); rows that are not known hold zeros
    known: Array  # (n,), whether the row was sent: if not, it takes fresh noise and a new charge


class Books:
    """`Books.open(folder, nodes, ...)` or `Books.resume(folder, nodes, ...)`; `Books(ledgers)` in memory.

    `neighbours` are the nodes elsewhere whose heads arrive here, in the order in which they arrive.
    """

    def __init__(
        self,
        ledgers: Sequence[MemoryLedger],
        folder: str | Path | None = None,
        neighbours: Sequence[int] = (),
        sent: dict[tuple[int, int], replay.Sent] | None = None,
    ):
        self.ledgers: Sequence[MemoryLedger] = ledgers if isinstance(ledgers, Shelf) else list(ledgers)
        self.nodes = ledgers.nodes if isinstance(ledgers, Shelf) else [ledger.node for ledger in ledgers]
        require(len(self.nodes), "a rank without nodes keeps no books")
        self._sent = sent or {}
        self._last_stored = max((k for _, k in self._sent), default=-1)
        self._replay: replay.Replay | None = None
        self._witness: Witness | None = None
        if folder is not None:
            stem = Path(folder) / f"nodes-{self.nodes[0]:04d}"
            self._replay = replay.Replay(stem.with_suffix(".replay"))
            if len(neighbours):
                self._witness = Witness(stem.with_suffix(".witness"), neighbours)

    @classmethod
    def open(
        cls,
        folder: str | Path | None,
        nodes: Iterable[int],
        neighbours: Sequence[int] = (),
        *,
        budgets: Sequence[filter.Filter | None] | None = None,
        rows: Mapping[int, tuple[str, ...]] | None = None,
        **header: Any,
    ) -> Self:
        """New ledgers, each with its budget and the names of its rows; `header` as for `open_ledger`."""
        nodes = [int(node) for node in nodes]
        limits = [header.pop("budget", None)] * len(nodes) if budgets is None else budgets
        names = rows or {}
        if folder is not None and len(nodes) > _FILES:
            header["run"] = header.get("run") or os.urandom(8).hex()
            shelf = Shelf(folder, nodes)
            shelf.names = names
            shelf.each(lambda ledger, budget: ledger.begin(budget=budget, **header), limits)
            return cls(shelf, folder, neighbours)
        ledgers = [
            open_ledger(folder, i, budget=limit, rows=names.get(i, ()), **header)
            for i, limit in zip(nodes, limits)
        ]
        return cls(ledgers, folder, neighbours)

    @classmethod
    def resume(
        cls,
        folder: str | Path,
        nodes: Iterable[int],
        neighbours: Sequence[int] = (),
        *,
        seen: Iterable[Sighting] | None = None,
        agreed: Callable[[], AbstractContextManager[Any]] = nullcontext,
        look: Callable[[Sequence[MemoryLedger]], None] = lambda ledgers: None,
        **expected: Any,
    ) -> Self:
        """The ledgers of an earlier run, which any ranks may have kept; `expected` as for `Ledger.resume`.

        Not a line is written if one of them is refused, here, by `look` at all of this rank, or, by `agreed`, on
        another rank.  All ranks must have resumed before any of them takes a checkpoint, which forgets what was sent.
        """
        nodes = [int(node) for node in nodes]
        sent = {place: s for place, s in replay.read_all(folder).items() if place[0] in set(nodes)}
        seen = all_sightings(folder) if seen is None else list(seen)
        of: dict[int, list[Sighting]] = {i: [] for i in nodes}
        for sighting in seen:
            of.get(sighting.node, []).append(sighting)
        kept: dict[int, dict[tuple[int, int], replay.Sent]] = {i: {} for i in nodes}
        for place, message in sent.items():
            kept[place[0]][place] = message
        if len(nodes) > _FILES or any(map(shelves.is_shelf, Path(folder).glob("nodes-*.jsonl"))):
            with agreed():
                shelf, ledgers = _on_shelf(Path(folder), nodes, of, kept, expected)
            try:
                look(ledgers)
            except InputError:
                shelf.give_up()
                raise
            with shelf.at_once():
                for ledger in ledgers:
                    ledger.go_on()
            return cls(shelf, folder, neighbours, sent)
        with agreed():
            ledgers = [Ledger.checked(folder, i, seen=of[i], sent=kept[i], **expected) for i in nodes]
        look(ledgers)
        for ledger in ledgers:
            ledger.go_on()
        return cls(ledgers, folder, neighbours, sent)

    def __len__(self) -> int:
        return len(self.ledgers)

    @property
    def different(self) -> Sequence[MemoryLedger]:
        """One ledger of those of which all that was spent reads alike."""
        return self.ledgers.different if isinstance(self.ledgers, Shelf) else self.ledgers

    @property
    def heads(self) -> Array:
        """The heads to send with this iteration's rows: (n, 32) bytes."""
        shelf = self.ledgers
        heads = shelf.heads if isinstance(shelf, Shelf) else b"".join(ledger.head for ledger in shelf)
        return np.frombuffer(heads, dtype=np.uint8).reshape(-1, 32)

    def _each(
        self,
        work: Callable[[Any, Any], Any],
        given: Sequence[Any] | None = None,
        *,
        apart: bool = False,
        sent: bool = False,
    ) -> None:
        """work(ledger, given of that node) for every ledger; of those on a shelf that read alike, once."""
        if isinstance(self.ledgers, Shelf):
            self.ledgers.each(work, given, apart=apart, sent=sent)
        else:
            for at, ledger in enumerate(self.ledgers):
                work(ledger, None if given is None else given[at])

    def commit(self, plans: Sequence[Sequence[Event]]) -> None:
        """Reserve the schedule of each node that has one."""
        require(len(plans) == len(self.ledgers), f"{len(plans)} schedules for {len(self.ledgers)} nodes")
        same: dict[tuple[int, ...], Sequence[Event]] = {}
        self._each(
            lambda ledger, plan: plan and ledger.commit(plan),
            [same.setdefault(tuple(map(id, plan)), plan) for plan in plans],
        )

    def charge(self, events: Sequence[Event | None], *, iteration: int) -> None:
        """Pay for one release of each node that has one, durably."""
        shelf = self.ledgers
        apart = isinstance(shelf, Shelf) and shelf.account is not None and not shelf.reserved(events)
        self._each(
            lambda ledger, event: event is not None and ledger.charge(event, iteration=iteration),
            events,
            apart=apart,
            sent=True,
        )

    def post(self, *, iteration: int) -> None:
        """Every node sends what depends on earlier releases alone."""
        self._each(lambda ledger, _: ledger.post(iteration=iteration), sent=True)

    def expose(self, reason: str, *, iteration: int) -> None:
        """Every node sends what depends on its data and carries no noise."""
        shelf = self.ledgers
        if not isinstance(shelf, Shelf):  # few nodes, in every iteration: no more calls than it takes
            for ledger in shelf:
                ledger.expose(reason, iteration=iteration)
            return
        apart = shelf[0].account is not None
        once = apart and not any(ledger.budget for ledger in shelf.different)
        with self._entered(exposed(reason)) if once else nullcontext():
            alone = apart and not once
            self._each(lambda ledger, _: ledger.expose(reason, iteration=iteration), apart=alone, sent=True)

    @contextmanager
    def _entered(self, event: Event) -> Iterator[None]:
        """What a shelf charges meanwhile without a reservation is entered in the account once for all, before."""
        shelf: Any = self.ledgers
        purse, shelf.account = shelf.account, None
        try:
            new = {id(ledger.tally) for ledger in shelf.different if ledger.tally.slot(event) is None}
            if new:
                purse.all([ledger for ledger in shelf if id(ledger.tally) in new], event)
            yield
        finally:
            shelf.account = purse

    def store(self, iteration: int, rows: Array) -> None:
        """Keep the rows that are about to be sent, to the byte."""
        if self._replay is None:
            return
        self._replay.store_rows(self.nodes, iteration, [*map(bytes, self.heads)], rows)
        self._last_stored = max(self._last_stored, iteration)

    def stored(self, iteration: int, width: int) -> Replayed | None:
        """The rows that an earlier process sent in `iteration`; None when not one of them is known."""
        if isinstance(self.ledgers, Shelf) and not self.ledgers.sent:
            return None
        found = [ledger.stored(iteration) for ledger in self.ledgers]
        known = np.array([row is not None and len(row) == 8 * width for row in found])
        if not known.any():
            return None
        rows = np.zeros((len(found), width))
        for at, row in enumerate(found):
            if row is not None and known[at]:
                rows[at] = np.frombuffer(row, dtype=np.float64)
        return Replayed(rows, known)

    def witness(self, heads: Array, iteration: int) -> None:
        """Keep the heads, (m, 4) numbers, that came from `neighbours` with this iteration's messages."""
        if self._witness is not None:
            self._witness.note_all(heads, iteration)

    def checkpoint(self, iteration: int) -> None:
        """A durable checkpoint holds everything up to `iteration`."""
        if isinstance(self.ledgers, Shelf):
            self.ledgers.checkpoint(iteration)
        else:
            for ledger in self.ledgers:
                ledger.checkpoint(iteration)
        if self._replay is not None and self._last_stored <= iteration:
            self._replay.forget()
            self._last_stored = -1

    def close(self) -> None:
        """A clean end."""
        self._each(lambda ledger, _: ledger.close(), sent=True)
        if isinstance(self.ledgers, Shelf):
            self.ledgers.let_go()
        for file in (self._replay, self._witness):
            if file is not None:
                file.close()
