"""The ledger of one node: what it released, written down before it happened.

    filter check -> intent -> fdatasync -> draw noise -> compute -> keep the bytes -> send

`commit(events)` reserves a schedule that does not depend on data in one synced record; what is reserved
counts as spent, and the line of each release under it follows unsynced.  `charge(event, iteration=k)` is
that line when the event is reserved, and a synced record of its own cost when it is not.

Invariants that guard privacy
-----------------------------
* `charge` returns only when the release is durable: its own record, or the reservation that covers it.
* After a crash of the process every line that was written is there.  After a crash of the machine (the
  last line is torn, or another boot than this one wrote it) unsynced lines may be lost; so what is left of
  a reservation is given up, as far as it may have been used.
* A ledger with a line that was edited, lost or moved is not taken up again; neither is one shorter than
  its neighbours, or its own store of sent messages, show it to have been.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Self

from distadmm.errors import InputError, require, told
from distadmm.files import lock_file, make_folder, read_bytes, sync_folder
from distadmm.privacy.ledger import chain, replay
from distadmm.privacy.ledger.rules import MODES, SCOPES, MemoryLedger, Receipt, boot_id, now, process
from distadmm.privacy.ledger.tally import Tally
from distadmm.privacy.ledger.witness import Sighting, all_sightings, missing

__all__ = ["MODES", "SCOPES", "Ledger", "MemoryLedger", "Receipt", "path_of"]

_sync = getattr(os, "fdatasync", os.fsync)


def path_of(folder: str | Path, node: int, suffix: str = "jsonl") -> Path:
    """The file of a node's ledger, or beside it its store of sent messages and the heads it saw."""
    return Path(folder) / f"node-{node:04d}.{suffix}"


def _in_use(path: Path) -> str:
    return f"the ledger {path} is in use; wait for the process that has it open to end, or give another --out"


def require_free(path: Path) -> None:
    """Refuse what another process is writing; several may go on from one file."""
    if not path.is_file():
        return
    with open(path, "rb") as file, suppress(OSError):  # a file system without locks
        require(lock_file(file.fileno(), shared=True), _in_use(path))


class LineFile:
    """A file that lines are added to, for one process at a time, for as long as it is open."""

    def __init__(self, path: Path, *, entered: bool = False):
        self.path = path
        self._entered = entered  # the folder's own record of the file is on disk
        self._file = -1
        self._broken = ""

    def open(self) -> int:
        if self._file < 0:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with suppress(OSError):  # a file system without locks
                if not lock_file(self._file):
                    self.shut()
                    raise InputError(_in_use(self.path))
        return self._file

    def shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def write(self, lines: bytes, sync: bool) -> None:
        require(not self._broken, self._broken)
        try:
            chain.write_all(self.open(), lines)
        except OSError as error:
            self._never_again(error)
        if sync:
            self.make_durable()

    def make_durable(self) -> None:
        require(not self._broken, self._broken)
        try:
            _sync(self.open())
            if not self._entered:
                sync_folder(self.path.parent)
                self._entered = True
        except OSError as error:
            self._never_again(error)

    def _never_again(self, error: OSError) -> NoReturn:
        """After a write or a sync that failed nothing tells which lines are on disk, not even a sync that does not."""
        self._broken = (
            f"cannot write the ledger {self.path}: {error.strerror}; nothing more is released; "
            "make room and take the run up again with --resume"
        )
        raise InputError(self._broken) from None


class Written(MemoryLedger):
    """A ledger that lies in a file, and how an earlier process's is taken up again."""

    path: Path
    _pending: tuple[chain.Chain, bool, list[str], str] | None = None  # taken up, and not yet written so

    def take_up(
        self,
        found: chain.Chain,
        *,
        mode: str | None,
        adjacency: str | None = None,
        dataset: str | None = None,
        source: str = "",
        seen: Iterable[Sighting],
        stored: dict[tuple[int, int], replay.Sent],
    ) -> None:
        """Be what was `found`, after all checks and without a line written: then it must `go_on`."""
        if found.fault:
            raise InputError(f"{found.fault}; restore the file from a backup, or start a new run")
        require(
            found.entries,
            f"the ledger {self.path} holds no whole entry{self._whose}, so nothing was released; start the run anew "
            "with --force",
        )
        tally = Tally.of(found.entries)
        self._matches(tally, mode, adjacency, dataset)
        holds = {bytes.fromhex(entry["h"]) for entry in found.entries}
        _refuse_shorter(self.path, self._whose, tally, missing(seen, self.node, holds))
        lost = bool(found.torn) or not (tally.closed or tally.boot == boot_id() is not None)
        orphans = self._orphans(stored, holds, tally, lost)
        self._adopt(found, tally, {k: s for k, s in self._own(stored) if s.head in holds})
        self._pending = found, lost, orphans, source

    @property
    def _whose(self) -> str:
        """Which ledger of a file of many it is."""
        return ""

    @property
    def content(self) -> bytes:
        return read_bytes(self.path)

    def go_on(self) -> None:
        """Write down that it is taken up again; before anything else is."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._continue(*pending)

    def _matches(self, tally: Tally, mode: str | None, adjacency: str | None, dataset: str | None) -> None:
        of = tally.header
        require(
            of["node"] == self.node,
            f"the ledger {self.path} is that of node {of['node']}, in another's place; restore what belongs there",
        )
        for what, value, written in (
            ("rng mode", mode, of["rng"]["mode"]),
            ("adjacency", adjacency, of["adj"]),
            ("dataset", dataset, of["dataset"]),
        ):
            require(
                value in (None, written),
                f"the ledger {self.path} has {what} {written!r}, this run {value!r}; resume with what the ledger has, "
                "or start a new run",
            )

    def _own(self, stored: dict[tuple[int, int], replay.Sent]) -> list[tuple[int, replay.Sent]]:
        return [(iteration, sent) for (node, iteration), sent in stored.items() if node == self.node]

    def _orphans(
        self, stored: dict[tuple[int, int], replay.Sent], holds: set[bytes], tally: Tally, lost: bool
    ) -> list[str]:
        """The heads of kept messages whose entries are gone; only a crash may have taken them."""
        orphans = {s.head.hex(): k for k, s in self._own(stored) if s.head not in holds}
        orphans = {head: k for head, k in orphans.items() if head not in tally.lost_heads}
        require(
            lost or not orphans,
            f"the ledger {self.path}{self._whose} lacks the entry of iteration {min(orphans.values(), default=0)} "
            "that its own store of sent messages names: it was cut or replaced; restore it from a backup, or start a "
            "new run",
        )
        return sorted(orphans)

    def _adopt(self, found: chain.Chain, tally: Tally, sent: dict[int, replay.Sent]) -> None:
        self._begin()
        self._sent = sent
        self.run = tally.header["run"]
        self.head = bytes.fromhex(found.head)
        self._seq = len(found.entries)
        self._take(tally)

    def _continue(self, found: chain.Chain, lost: bool, orphans: list[str], source: str) -> None:
        """Account for a torn tail, give up what may have been used unseen, and go on."""
        given_up = [  # drawn and sent, maybe, and their lines lost
            [of, item, int(slot.left)]
            for (of, item), slot in self.tally.places.items()
            if lost and 0 < slot.left < float("inf")
        ]
        rng = {"mode": self.mode, "source": source}
        entry = {
            "kind": "resume",
            "forfeited": given_up,
            "lost": orphans,
            "rng": rng,
            "boot": boot_id(),
            "process": process(os.getpid()),
            "t": now(),
        }
        torn = [chain.fragment_entry(found.torn)] if found.torn else []
        self._append_entries([*torn, entry], sync=True, before=self._after(found))

    def _after(self, found: chain.Chain) -> bytes:
        """What ends a line that a crash left open."""
        return b"\n" if found.torn or found.unended else b""


class Ledger(Written):
    """`Ledger(folder, node, adjacency=..., mode=...)` opens a new file; `Ledger.resume` takes one up again."""

    def __init__(self, folder: str | Path, node: int = 0, **header: Any):
        self._place(folder, node)
        if self.path.exists():
            raise InputError(
                f"the ledger {self.path} exists; take the run up again with --resume, or give a new --out"
            )
        with told(f"cannot make {self.path.parent}: REASON; give another --out"):
            make_folder(self.path.parent)
        super().__init__(node, **header)

    def _place(self, folder: str | Path, node: int, *, entered: bool = False) -> None:
        self.path = path_of(folder, node)
        self.node = node
        self._lines_of = LineFile(self.path, entered=entered)
        self._replay: replay.Replay | None = None
        self._last_stored = -1

    @classmethod
    def resume(cls, folder: str | Path, node: int = 0, **how: Any) -> Self:
        """The ledger of an earlier process, after all checks (`checked`); nothing is written unless they pass."""
        ledger = cls.checked(folder, node, **how)
        ledger.go_on()
        return ledger

    @classmethod
    def checked(
        cls,
        folder: str | Path,
        node: int = 0,
        *,
        seen: Iterable[Sighting] | None = None,
        sent: dict[tuple[int, int], replay.Sent] | None = None,
        **expected: Any,
    ) -> Self:
        """`resume` without a line written, for whoever takes up several: all, or none.  Then each must `go_on`.

        `seen` are the heads that neighbours hold, `sent` what was sent since the last checkpoint; by
        default the files of this folder, which is all there is when every node shares it.  `expected`: its mode,
        adjacency and dataset, and the source of noise from now on.
        """
        ledger = cls.__new__(cls)
        ledger._place(folder, node, entered=True)
        if ledger.path.exists():
            with told(f"cannot take up the ledger {ledger.path}: REASON; it is to be written on"):
                ledger._lines_of.open()  # the lock comes before the first look
        found = chain.read(ledger.path)
        seen = all_sightings(folder) if seen is None else list(seen)
        stored = replay.read_all(folder) if sent is None else sent
        ledger.take_up(found, seen=seen, stored=stored, **expected)
        return ledger

    def _adopt(self, found: chain.Chain, tally: Tally, sent: dict[int, replay.Sent]) -> None:
        super()._adopt(found, tally, sent)
        self._last_stored = max(sent, default=-1)

    def _write(self, line: bytes, sync: bool) -> None:
        self._lines_of.write(line, sync)

    # -- what was sent ----------------------------------------------------------------------------------

    def store_release(self, iteration: int, payload: bytes) -> None:
        """Keep what is about to be sent, to the byte, until the next checkpoint; readable by its owner alone."""
        self._store().store(self.node, iteration, self.head, payload)
        self._last_stored = max(self._last_stored, iteration)

    def _store(self) -> replay.Replay:
        if self._replay is None:
            self._replay = replay.Replay(path_of(self.path.parent, self.node, "replay"))
        return self._replay

    def checkpoint(self, iteration: int) -> None:
        super().checkpoint(iteration)
        self._lines_of.make_durable()
        if 0 <= self._last_stored <= iteration:
            self._store().forget()
            self._last_stored = -1

    def close(self) -> None:
        super().close()
        self.let_go()

    def let_go(self) -> None:
        if self._replay is not None:
            self._replay.close()
            self._replay = None
        self._lines_of.shut()

    def __del__(self) -> None:
        if hasattr(self, "_replay"):  # placed, at least
            self.let_go()


def _refuse_shorter(path: Path, whose: str, tally: Tally, unheld: list[Sighting]) -> None:
    if not unheld:
        return
    seen = max(unheld, key=lambda s: s.iteration)
    ends = (
        "before its first release" if tally.last_iteration is None else f"at iteration {tally.last_iteration}"
    )
    raise InputError(
        f"the ledger {path}{whose} ends {ends}, but {seen.observer} holds a head of iteration {seen.iteration} that is "
        "not in it: it was cut or replaced; restore it from a backup, or start a new run"
    )
