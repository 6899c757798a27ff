"""The ledgers of many nodes of one process in one file: still one chain a node, one sync for all of them.

A line of a ledger here names what it shares with others, in place of saying it:

    {"kind":"text","members":{...},"v":2,"h":HASH}
    {"kind":"open","node":7,"prev":"00...","run":...,"seq":0,"v":2,"with":HASH,"h":...}

The hash of an entry covers the name of its text, which is the hash of that text: what an edited text says is no more
what its entries were sealed with.  A file belongs to one process; the next one begins another (`nodes-0000-1.jsonl`)
and goes on in it with every chain, so nothing is ever written behind a torn line.

Nodes whose ledgers read alike but for their names, such as those of a run without noise, share one `Tally` until one of
them differs, and what is done to all of them is worked out once and written for each.  What all nodes of a file send
alike is one line for all, an entry of each of their chains:

    {"k":4,"kind":"release",...,"prev":S,"seq":5,"v":3,"with":HASH,"h":T}

Its text names the nodes, S is the hash of the line for all before it in the file.  It costs nothing a node: behind it a
node's head is the hash of (the latest line of its own, T), and the next line of its own holds that head.

Invariants that guard privacy
-----------------------------
* What a charge is covered by is on disk before `charge`, `commit` or `expose` returns, for every node.
* A tally that is shared is never changed: a ledger takes a copy before it writes an entry of its own.
"""

import itertools
import json
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.errors import InputError, told
from distadmm.files import make_folder
from distadmm.privacy.ledger import chain, file, replay, rules
from distadmm.privacy.ledger.filter import Filter, filter_from_json
from distadmm.privacy.ledger.shelved import NODE, PREVIOUS, ROWS, Pattern, Shelved
from distadmm.privacy.ledger.tally import Tally

_OWN = frozenset(("kind", "k", "item", "of", "node", "prev", "run", "seq", "v", "rows", "lost", "forfeited"))
_ROWS_HERE = b'["%b"]' % ROWS.encode()
_CHUNK = 1 << 22  # bytes that are written at a time


class Shelf(Sequence[rules.MemoryLedger]):
    """The ledgers of `nodes`, in order; `shelf[i]` is a view of the i-th."""

    def __init__(self, folder: str | Path, nodes: Sequence[int]):
        self.folder, self.nodes = Path(folder), array("q", nodes)
        # Keyed names, by node, kept apart from tallies that are shared.
        self.names: Any = {}
        self._own = bytearray(32 * len(self.nodes))  # hash of the latest line of each node's own
        self._behind = bytearray(len(self.nodes))  # whether a line for all follows it
        self._all = bytes(32)  # hash of the latest line for all
        self._heads: bytes | None = None  # of all, until one of them changes
        self.counts = np.zeros(len(self.nodes), dtype=np.int64)  # entries of each
        self.tallies = np.full(len(self.nodes), None)
        self.alone = bytearray(len(self.nodes))  # whose tally no other shares
        self.alike = True  # all have the same tally and count
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

    def head(self, at: int) -> bytes:
        own = bytes(self._own[32 * at : 32 * at + 32])
        return chain.joined(own, self._all) if self._behind[at] else own

    def set_head(self, at: int, head: bytes) -> None:
        """A line of its own was written for this node."""
        self._heads = None
        self._own[32 * at : 32 * at + 32], self._behind[at] = head, 0

    @property
    def heads(self) -> bytes:
        """Of all nodes, 32 bytes each."""
        if self._heads is None:
            self._heads = b"".join(map(self.head, range(len(self))))
        return self._heads

    @cached_property
    def _ranges(self) -> list[list[int]]:
        """The nodes: the first and the last of those that follow one another."""
        ends = [at for at in range(1, len(self)) if self.nodes[at] != self.nodes[at - 1] + 1]
        return [[self.nodes[low], self.nodes[high - 1]] for low, high in zip([0, *ends], [*ends, len(self)])]

    @property
    def different(self) -> list[Shelved]:
        """One ledger of each tally."""
        tallies = self.tallies[: 1 if self.alike else None].tolist()
        return [
            Shelved(self, at)
            for at in dict(zip(map(id, reversed(tallies)), range(len(tallies))[::-1])).values()
        ]

    def reserved(self, events: Sequence[Any]) -> bool:
        """Whether these, one of each node or none, need nobody's leave: they are paid for."""
        pairs = {
            (id(tally), id(event)): (tally, event) for tally, event in zip(self.tallies.tolist(), events)
        }
        return all(event is None or tally.slot(event) is not None for tally, event in pairs.values())

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
        self,
        work: Callable[[Any, Any], Any],
        given: Sequence[Any] | None = None,
        *,
        apart: bool = False,
        sent: bool = False,
    ) -> None:
        """work(ledger, given of that node) for all: once for those that read alike and are given the same.

        `apart`: for each by itself, as where its account is asked.  `sent`: one line is enough where all do alike.
        """
        alike: dict[Any, Sequence[int]] = {}
        if self.alike and given is None:
            alike[None] = range(len(self))
        else:
            groups: dict[Any, list[int]] = {}
            things = itertools.repeat(None) if given is None else map(id, given)
            for at, key in enumerate(zip(map(id, self.tallies.tolist()), self.counts.tolist(), things)):
                groups.setdefault(key, []).append(at)
            alike.update(groups)
        with self.at_once():
            for members in alike.values():
                what = None if given is None else given[members[0]]
                if len(members) == 1 or apart:
                    for at in members:
                        work(Shelved(self, at), what)
                else:
                    self._together(members, work, what, sent)

    def _together(
        self, members: Sequence[int], work: Callable[[Any, Any], Any], what: Any, sent: bool
    ) -> None:
        pattern = Pattern(self, members)
        try:
            work(pattern, what)
        except InputError:
            work(Shelved(self, members[0]), what)  # refused: in the words and in the ledger of the first
            raise
        everyone = len(members) == len(self)
        for entry in pattern.entries:
            if everyone and sent:
                self._write_for_all(entry)
            else:
                self._write_for(members, entry if isinstance(entry, str) else self.text(entry))
        if pattern.entries and pattern.sync:
            self._due = True
        self.alike = everyone
        some = slice(None) if everyone else np.array(members)
        self.tallies[some] = pattern.tally
        self.counts[some] += len(pattern.entries)
        np.frombuffer(self.alone, dtype=np.uint8)[some] = 0

    def _write_for_all(self, entry: str | dict[str, Any]) -> None:
        own = json.loads(entry) if isinstance(entry, str) else entry
        whole = {**own, "v": chain.FOR_ALL, "nodes": self._ranges, "prev": self._all.hex()}
        del whole["node"]
        line, self._all = chain.sealed(self.text(whole))
        self._heads = None
        self.write(line, False)
        np.frombuffer(self._behind, dtype=np.uint8)[:] = 1

    def _write_for(self, members: Sequence[int], body: str) -> None:
        """The line of each, which differ in node and in the hash of the line before."""
        before, _, rest = body.encode().partition(b"%d" % NODE)
        between, _, after = rest.partition(PREVIOUS.encode())
        after, opening, end = after.partition(_ROWS_HERE)
        assert body.count(PREVIOUS) == body.count(str(NODE)) == 1
        lines, nodes, names, sha256 = [], self.nodes, self.names, chain.sha256
        for at in members:
            text = b"%b%d%b%b%b" % (before, nodes[at], between, self.head(at).hex().encode(), after)
            if opening:
                text += json.dumps(names.get(nodes[at], ()), separators=(",", ":")).encode() + end
            digest = sha256(text).digest()
            self.set_head(at, digest)
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
