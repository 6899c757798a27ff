"""The ledgers of all nodes of one rank.

Each node has its own ledger.  What was sent goes into one store a rank and the heads of neighbours into one
file a rank, so that an iteration costs one write of each, however many nodes there are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting.events import Adjacency, Array, Event
from distadmm.privacy.ledger import replay
from distadmm.privacy.ledger.file import Ledger, path_of
from distadmm.privacy.ledger.filter import Filter
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.ledger.witness import Sighting, Witness, all_sightings

_FILES = 200  # ledgers that a rank keeps open and locked; of more all but the first are opened for each line


def _kept(node: int, nodes: Sequence[int]) -> bool:
    return len(nodes) <= _FILES or node == nodes[0]


def open_ledger(
    folder: str | Path | None,
    node: int,
    *,
    mode: str,
    adjacency: Adjacency,
    resume: bool | None = False,
    keep_open: bool = True,
    held: bool = False,
    dataset: str | None = None,
    source: str = "",
    **header: Any,
) -> MemoryLedger:
    """The one way to a ledger: in memory without a folder, else a new file or that of an earlier run.

    `resume` True: the file must be there; None: it is taken up if it is there.  `header` holds what a new one is
    told (see `MemoryLedger`): scope, run, claim, trust and budget, which one that is taken up keeps as it has them.
    `held`: of one that is taken up nothing is written before its `go_on`.
    """
    known: dict[str, Any] = {"mode": mode, "adjacency": adjacency, "dataset": dataset, "source": source}
    if folder is None:
        return MemoryLedger(node, **known, **header)
    if resume or (resume is None and path_of(folder, node).exists()):
        return (Ledger.checked if held else Ledger.resume)(folder, node, keep_open=keep_open, **known)
    return Ledger(folder, node, keep_open=keep_open, **known, **header)


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
        self.ledgers = list(ledgers)
        self.nodes = [ledger.node for ledger in self.ledgers]
        require(self.nodes, "a rank without nodes keeps no books")
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
        budgets: Sequence[Filter | None] | None = None,
        rows: Mapping[int, Sequence[str]] | None = None,
        **header: Any,
    ) -> Self:
        """New ledgers, each with its budget and the names of its rows; `header` as for `open_ledger`."""
        nodes = [int(node) for node in nodes]
        limits = [header.pop("budget", None)] * len(nodes) if budgets is None else budgets
        names = rows or {}
        ledgers = [
            open_ledger(folder, i, keep_open=_kept(i, nodes), budget=limit, rows=names.get(i, ()), **header)
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
        **expected: Any,
    ) -> Self:
        """The ledgers of an earlier run, which any ranks may have kept; `expected` as for `Ledger.resume`.

        Not a line is written if one of them is refused, here or, by `agreed`, on another rank.  All ranks must have
        resumed before any of them takes a checkpoint, which forgets what was sent.
        """
        nodes = [int(node) for node in nodes]
        sent = {place: s for place, s in replay.read_all(folder).items() if place[0] in set(nodes)}
        seen = all_sightings(folder) if seen is None else list(seen)
        of = {i: [sighting for sighting in seen if sighting.node == i] for i in nodes}
        with agreed():
            ledgers = [
                Ledger.checked(folder, i, seen=of[i], sent=sent, keep_open=_kept(i, nodes), **expected)
                for i in nodes
            ]
        for ledger in ledgers:
            ledger.go_on()
        return cls(ledgers, folder, neighbours, sent)

    def __len__(self) -> int:
        return len(self.ledgers)

    @property
    def heads(self) -> Array:
        """The heads to send with this iteration's rows: (n, 32) bytes."""
        return np.frombuffer(b"".join(ledger.head for ledger in self.ledgers), dtype=np.uint8).reshape(-1, 32)

    def commit(self, plans: Sequence[Sequence[Event]]) -> None:
        """Reserve the schedule of each node."""
        require(len(plans) == len(self.ledgers), f"{len(plans)} schedules for {len(self.ledgers)} nodes")
        for ledger, plan in zip(self.ledgers, plans):
            ledger.commit(plan)

    def post(self, *, iteration: int) -> None:
        """Every node sends what depends on earlier releases alone."""
        for ledger in self.ledgers:
            ledger.post(iteration=iteration)

    def expose(self, reason: str, *, iteration: int) -> None:
        """Every node sends what depends on its data and carries no noise."""
        for ledger in self.ledgers:
            ledger.expose(reason, iteration=iteration)

    def store(self, iteration: int, rows: Array) -> None:
        """Keep the rows that are about to be sent, to the byte."""
        if self._replay is None:
            return
        self._replay.store_rows(self.nodes, iteration, [ledger.head for ledger in self.ledgers], rows)
        self._last_stored = max(self._last_stored, iteration)

    def stored(self, iteration: int, width: int) -> Replayed | None:
        """The rows that an earlier process sent in `iteration`; None when not one of them is known."""
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
        for ledger in self.ledgers:
            ledger.checkpoint(iteration)
        if self._replay is not None and self._last_stored <= iteration:
            self._replay.forget()
            self._last_stored = -1

    def close(self) -> None:
        """A clean end."""
        for ledger in self.ledgers:
            ledger.close()
        for file in (self._replay, self._witness):
            if file is not None:
                file.close()
