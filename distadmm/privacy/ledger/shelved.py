"""The ledger of one node on a shelf (`shelf`), and the pattern of what is written for many of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distadmm.privacy.ledger import chain, file, replay, rules
from distadmm.privacy.ledger.filter import Filter
from distadmm.privacy.ledger.tally import Tally

if TYPE_CHECKING:
    from distadmm.privacy.ledger.shelf import Shelf

# Stand for what differs between lines that are made together.
NODE, PREVIOUS, ROWS = 918_273_645_918_273_645, "?" * 64, "?"


def _of_one(name: str) -> Any:
    """An attribute of a ledger that its shelf keeps, in a list of all nodes."""

    def keep(self: Any, value: Any) -> None:
        getattr(self.shelf, name)[self.at], self.shelf.alike = value, False

    return property(lambda self: getattr(self.shelf, name)[self.at], keep)


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
        self.shelf.alone[self.at] = 1
        self.shelf.names[self.node] = tuple(tally.header.get("rows", ()))
        self.shelf.held[self.at] = frozenset(bytes.fromhex(entry["h"]) for entry in found.entries)

    def _after(self, found: chain.Chain) -> bytes:
        return b""  # the line stays open in its own file

    @property
    def _whose(self) -> str:
        return f" of node {self.node}"

    path, run, account, _release_texts = map(_of_all, ("path", "run", "account", "templates"))
    tally = _of_one("tallies")
    _seq = property(lambda self: int(self.shelf.counts[self.at]), _of_one("counts").fset)
    head = property(
        lambda self: self.shelf.head(self.at), lambda self, head: self.shelf.set_head(self.at, head)
    )

    @property
    def rows(self) -> tuple[str, ...]:
        return self.shelf.names.get(self.node, ())  # type: ignore[no-any-return]

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


class Pattern(Shelved):
    """Writes nothing: notes what is to be written for each of `members`, which read alike."""

    def __init__(self, shelf: Shelf, members: Sequence[int]):
        super().__init__(shelf, members[0])
        first = shelf.tallies[members[0]]
        self._tally = None if first is None else first.copy()
        self._count, self.node = int(shelf.counts[members[0]]), NODE
        self.entries: list[str | dict[str, Any]] = []  # canonical, or to be put into canonical form
        self.sync = False

    head = property(lambda self: _Previous(), lambda self, head: None)
    tally = property(lambda self: self._tally, lambda self, tally: setattr(self, "_tally", tally))  # type: ignore[assignment]
    _seq = property(lambda self: self._count, lambda self, count: setattr(self, "_count", count))  # type: ignore[assignment]

    @property
    def rows(self) -> tuple[str, ...]:
        return (ROWS,)

    def _own_tally(self) -> None:
        """It is a copy."""

    def _append(self, text: str, *, sync: bool) -> int:
        self.entries.append(text)
        self.sync = self.sync or sync
        self._count += 1
        return self._count - 1

    def _text(self, entry: dict[str, Any]) -> str:
        self.entries.append(entry)
        return "{}"

    def _write(self, line: bytes, sync: bool) -> None:
        self.sync = self.sync or sync


class _Previous:
    """In the place of the hash of the line before."""

    def hex(self) -> str:
        return PREVIOUS
