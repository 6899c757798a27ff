"""The ledgers of many nodes of one process in one file: still one chain a node, one sync for all of them.

A line of a ledger here names what it shares with others, in place of saying it:

    {"kind":"text","members":{...},"v":2,"h":HASH}
    {"kind":"open","node":7,"prev":"00...","run":...,"seq":0,"v":2,"with":HASH,"h":...}

The hash of an entry covers the name of its text, which is the hash of that text: what an edited text says is no more
what its entries were sealed with.  A file belongs to one process; the next one begins another (`nodes-0000-1.jsonl`)
and goes on in it with every chain, so nothing is ever written behind a torn line.

Nodes whose ledgers read alike but for their names, such as those of a run without noise, share one `Tally` until one of
them differs, and what is done to all of them is worked out once and written for each.

Invariants that guard privacy
-----------------------------
* What a charge is covered by is on disk before `charge`, `commit` or `expose` returns, for every node.
* A tally that is shared is never changed: a ledger takes a copy before it writes an entry of its own.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distadmm.errors import InputError, told
from distadmm.files import make_folder
from distadmm.privacy.ledger import chain, file, replay, rules
from distadmm.privacy.ledger.filter import Filter, filter_from_json
from distadmm.privacy.ledger.tally import Tally

_OWN = frozenset(("kind", "k", "item", "of", "node", "prev", "run", "seq", "v", "rows", "lost", "forfeited"))
# Stand for what differs between lines that are made together.
_NODE, _PREV = 918_273_645_918_273_645, "?" * 64
_ROWS = "?"
_ROWS_HERE = b'["?"]'
_CHUNK = 1 << 22  # bytes that are written at a time


class Shelf(Sequence[rules.MemoryLedger]):
    """The ledgers of `nodes`, in order; `shelf[i]` is a view of the i-th."""

    def __init__(self, folder: str | Path, nodes: Sequence[int]):
        self.folder, self.nodes = Path(folder), list(nodes)
        # Keyed names, kept apart from tallies that are shared.
        self.rows: list[tuple[str, ...]] = [()] * len(self.nodes)
        self.heads = [bytes(32)] * len(self.nodes)
        self.counts = [0] * len(self.nodes)  # entries of each
        self.tallies: list[Any] = [None] * len(self.nodes)
        self.alone = bytearray(len(self.nodes))  # whose tally no other shares
        self.sent: dict[int, dict[int, replay.Sent]] = {}
        self.held: dict[int, frozenset[bytes]] = {}  # the hashes that were found when it was taken up
        self.run = ""
        self.account: Any = None
        self.templates: dict[str, str] = {}
        self._texts: dict[str, str] = {}  # what was said, by its canonical form
        self._budgets: dict[str, Filter | None] = {}
        self._waiting: list[bytes] | None = None
        self._size, self._due = 0, False
        self._file = self._new_file()

    def _new_file(self) -> file.LineFile:
        """The first name that is free; nobody else takes it at the same moment."""
        with told(f"cannot make {self.folder}: REASON; give another --out"):
            make_folder(self.folder)
        number = 0
        while True:
            again = f"-{number}" if number else ""
            path = self.folder / f"nodes-{self.nodes[0]:04d}{again}.jsonl"
            with told(f"cannot make the ledger {path}: REASON; give another --out", OSError):
                try:
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                    return file.LineFile(path)
                except FileExistsError:
                    number += 1

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, at: Any) -> Any:
        return (
            [Shelved(self, i) for i in range(len(self))[at]]
            if isinstance(at, slice)
            else Shelved(self, range(len(self))[at])
        )

    def __iter__(self) -> Iterator[rules.MemoryLedger]:
        return (Shelved(self, at) for at in range(len(self)))

    @property
    def path(self) -> Path:
        return self._file.path

    # -- lines ------------------------------------------------------------------------------------------

    def write(self, lines: bytes, sync: bool) -> None:
        if self._waiting is None:
            self._file.write(lines, sync)
            return
        self._waiting.append(lines)
        self._size, self._due = self._size + len(lines), self._due or sync
        if self._size > _CHUNK:
            self._flush()

    def _flush(self, sync: bool = False) -> None:
        lines, self._waiting, self._size = b"".join(self._waiting or ()), [], 0
        if lines or sync:
            self._file.write(lines, sync)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is written meanwhile is on disk at the end, by one sync if any of it has to be."""
        self._waiting, self._size, self._due = [], 0, False
        try:
            yield
        finally:
            try:
                self._flush(self._due)
            finally:  # what comes later is written at once, or refused
                self._waiting = None

    def text(self, entry: dict[str, Any]) -> str:
        """The canonical form of an entry that names what it may share with others."""
        shared = chain.canonical({key: value for key, value in entry.items() if key not in _OWN})
        name = self._texts.get(shared)
        if name is None:
            line, digest = chain.sealed(f'{{"kind":"text","members":{shared},"v":{chain.SHELF}}}')
            self.write(line, False)
            name = self._texts[shared] = digest.hex()
        return chain.canonical({**{k: v for k, v in entry.items() if k in _OWN}, "with": name})

    def budget(self, tally: Tally) -> Filter | None:
        told = tally.header["budget"]
        if told is None:
            return None
        key = chain.canonical(told)
        if key not in self._budgets:
            self._budgets[key] = filter_from_json(told)
        return self._budgets[key]

    # -- all of them ------------------------------------------------------------------------------------

    def each(
        self, work: Callable[[Any, Any], Any], given: Sequence[Any] | None = None, *, apart: bool = False
    ) -> None:
        """work(ledger, given of that node) for all: once for those that read alike and are given the same.

        `apart`: for each by itself, as where its account is asked.
        """
        alike: dict[Any, list[int]] = {}
        for at in range(len(self)):
            thing = None if given is None else id(given[at])
            alike.setdefault((id(self.tallies[at]), self.counts[at], thing), []).append(at)
        with self.at_once():
            for members in alike.values():
                what = None if given is None else given[members[0]]
                if len(members) == 1 or apart:
                    for at in members:
                        work(Shelved(self, at), what)
                else:
                    self._together(members, work, what)

    def _together(self, members: list[int], work: Callable[[Any, Any], Any], what: Any) -> None:
        pattern = _Pattern(self, members)
        try:
            work(pattern, what)
        except InputError:
            work(Shelved(self, members[0]), what)  # refused: in the words and in the ledger of the first
            raise
        for body in pattern.bodies:
            self._write_for(members, body)
        if pattern.bodies and pattern.sync:
            self._due = True
        for at in members:
            self.tallies[at], self.alone[at] = pattern.tally, 0
            self.counts[at] += len(pattern.bodies)

    def _write_for(self, members: list[int], body: str) -> None:
        """The line of each, which differ in node and in the hash of the line before."""
        before, _, rest = body.encode().partition(b"%d" % _NODE)
        between, _, after = rest.partition(_PREV.encode())
        after, opening, end = after.partition(_ROWS_HERE)
        assert body.count(_PREV) == body.count(str(_NODE)) == 1
        lines, heads, nodes, sha256 = [], self.heads, self.nodes, chain.sha256
        for at in members:
            text = b"%b%d%b%b%b" % (before, nodes[at], between, heads[at].hex().encode(), after)
            if opening:
                text += json.dumps(self.rows[at], separators=(",", ":")).encode() + end
            heads[at] = digest = sha256(text).digest()
            lines.append(b'%b,"h":"%b"}\n' % (text[:-1], digest.hex().encode()))
            if len(lines) == 4096:
                self.write(b"".join(lines), False)
                lines = []
        self.write(b"".join(lines), False)

    def checkpoint(self, iteration: int) -> None:
        self._file.make_durable()
        self.sent = {
            at: kept
            for at, of in self.sent.items()
            if (kept := {k: s for k, s in of.items() if k > iteration})
        }

    def let_go(self) -> None:
        self._file.shut()

    def give_up(self) -> None:
        """Nothing was written on it: no trace is left."""
        self._file.shut()
        if not self.path.stat().st_size:
            self.path.unlink()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.shut()


def _of_one(name: str) -> Any:
    """An attribute of a ledger that its shelf keeps, in a list of all nodes."""
    return property(
        lambda self: getattr(self.shelf, name)[self.at],
        lambda self, value: getattr(self.shelf, name).__setitem__(self.at, value),
    )


def _of_all(name: str) -> Any:
    """One that all ledgers of a shelf share."""
    return property(
        lambda self: getattr(self.shelf, name), lambda self, value: setattr(self.shelf, name, value)
    )


class Shelved(file.Written):
    """The ledger of one node on a shelf, which holds all that it is at."""

    version = chain.SHELF

    def __init__(self, shelf: Shelf, at: int):
        self.shelf, self.at = shelf, at
        self.node = shelf.nodes[self.at]

    def begin(self, **header: Any) -> None:
        """Write its opening entry; the names of its rows stand on the shelf."""
        rules.MemoryLedger.__init__(self, self.node, rows=self.rows, **header)

    def _begin(self) -> None:
        """The shelf has begun."""

    def _adopt(self, found: chain.Chain, tally: Tally, sent: dict[int, replay.Sent]) -> None:
        super()._adopt(found, tally, sent)
        self.shelf.alone[self.at], self.shelf.rows[self.at] = 1, tuple(tally.header.get("rows", ()))
        self.shelf.held[self.at] = frozenset(bytes.fromhex(entry["h"]) for entry in found.entries)

    def _after(self, found: chain.Chain) -> bytes:
        return b""  # the line stays open in its own file

    @property
    def _whose(self) -> str:
        return f" of node {self.node}"

    path, run, account, _release_texts = map(_of_all, ("path", "run", "account", "templates"))
    head, tally, rows, _seq = map(_of_one, ("heads", "tallies", "rows", "counts"))

    @property
    def budget(self) -> Filter | None:  # type: ignore[override]
        return self.shelf.budget(self.tally)

    @budget.setter
    def budget(self, budget: Filter | None) -> None:
        """It stands in the header."""

    @property
    def _sent(self) -> dict[int, replay.Sent]:  # type: ignore[override]
        return self.shelf.sent.get(self.at, {})

    @_sent.setter
    def _sent(self, sent: dict[int, replay.Sent]) -> None:
        self.shelf.sent.pop(self.at, None)
        if sent:
            self.shelf.sent[self.at] = sent

    def store_release(self, iteration: int, payload: bytes) -> None:
        raise NotImplementedError("what nodes on a shelf send is kept by their books: Books.store")

    def _own_tally(self) -> None:
        if not self.shelf.alone[self.at] and self.tally is not None:
            self.tally, self.shelf.alone[self.at] = self.tally.copy(), 1

    def charge(self, event: Any, *, iteration: int) -> Any:
        self._own_tally()
        return super().charge(event, iteration=iteration)

    def post(self, *, iteration: int, of: Any = None) -> Any:
        self._own_tally()
        return super().post(iteration=iteration, of=of)

    def _append_entries(self, entries: Any, *, sync: bool, before: bytes = b"") -> int:
        self._own_tally()
        return super()._append_entries(entries, sync=sync, before=before)

    def _text(self, entry: dict[str, Any]) -> str:
        return self.shelf.text(entry)

    def _write(self, line: bytes, sync: bool) -> None:
        self.shelf.write(line, sync)

    def holds(self) -> set[bytes]:
        """The hashes of what was found when it was taken up, and of what it ends with."""
        return {*self.shelf.held.get(self.at, ()), self.head}

    def let_go(self) -> None:
        self.shelf.let_go()


class _Pattern(Shelved):
    """Writes nothing: notes what is to be written for each of `members`, which read alike."""

    def __init__(self, shelf: Shelf, members: list[int]):
        super().__init__(shelf, members[0])
        first = shelf.tallies[members[0]]
        self._tally = None if first is None else first.copy()
        self._count, self.node = shelf.counts[members[0]], _NODE
        self.bodies: list[str] = []
        self.sync = False

    head = property(lambda self: _Previous(), lambda self, head: None)  # type: ignore[assignment]
    tally = property(lambda self: self._tally, lambda self, tally: setattr(self, "_tally", tally))  # type: ignore[assignment]
    _seq = property(lambda self: self._count, lambda self, count: setattr(self, "_count", count))  # type: ignore[assignment]

    @property
    def rows(self) -> tuple[str, ...]:
        return (_ROWS,)

    def _own_tally(self) -> None:
        """It is a copy."""

    def _append(self, text: str, *, sync: bool) -> int:
        self.bodies.append(text)
        self.sync = self.sync or sync
        self._count += 1
        return self._count - 1

    def _text(self, entry: dict[str, Any]) -> str:
        self.bodies.append(self.shelf.text(entry))
        return "{}"

    def _write(self, line: bytes, sync: bool) -> None:
        self.sync = self.sync or sync


class _Previous:
    """In the place of the hash of the line before."""

    def hex(self) -> str:
        return _PREV
