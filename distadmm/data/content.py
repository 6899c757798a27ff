"""What rows are the same: names of the rows that a ledger is about, whichever file, packing or flags brought them.

A row is its cells: numbers as numbers, texts without the blanks around them.  It is marked twice by a keyed hash of
64 bits: with all its cells, at their places in the file, so that --target and --labels make no difference; and without
its target, so that what the classes are called makes none.  Rows in another order are the same rows.

    names   HMAC of all marks of either kind: two tables that share a name hold the same rows
    marks   the smallest marks of either kind: tables that share one have a row in common; of a table and a piece that
            holds a fiftieth of its rows this is seen with probability .99, of larger pieces practically always

Without the key neither tells anything; with it guesses of rows can be confirmed, so who has the key is the rows' owner.
"""

import hashlib
import hmac
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np

from distadmm.data.table import Array, Matrix, Sparse

KEPT = 256  # marks of either kind
_SMALL = 1 << 16  # cells of a matrix that is hashed in one go
_AT_ONCE = 1 << 13  # nodes whose rows are named together


class Content(NamedTuple):
    """Of the rows of one node, or of one table."""

    names: tuple[str, ...]
    marks: frozenset[int]

    def columns(self, which: str, key: bytes) -> Self:
        """Of one party's columns of these rows."""
        names = (hmac.digest(key, f"{name} columns {which}".encode(), "sha256").hex() for name in self.names)
        return self._replace(names=tuple(names))


class Names(Mapping[int, tuple[str, ...]]):
    """The names of the rows of many nodes, 32 bytes each: texts take four times as much."""

    def __init__(self, nodes: Sequence[int], packed: Array):
        """`packed`: (nodes, names, 32) bytes."""
        order = np.argsort(nodes, kind="stable")
        self._nodes, self._packed = array("q", np.asarray(nodes)[order].tobytes()), packed[order]

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __getitem__(self, node: int) -> tuple[str, ...]:
        at = bisect_left(self._nodes, node)
        if at == len(self) or self._nodes[at] != node:
            raise KeyError(node)
        text = self._packed[at].tobytes().hex()
        return tuple(text[first : first + 64] for first in range(0, len(text), 64))


class Contents(NamedTuple):
    """Of the rows of several nodes of one table."""

    names: Mapping[int, tuple[str, ...]]
    marks: frozenset[int]  # of all together

    @classmethod
    def of(cls, parts: Mapping[int, Content]) -> Self:
        names = {node: content.names for node, content in parts.items()}
        return cls(names, smallest(content.marks for content in parts.values()))


NO_CONTENTS = Contents({}, frozenset())


def smallest(parts: Iterable[frozenset[int]]) -> frozenset[int]:
    """The marks of several parts of one table together, as many as are kept of one."""
    return frozenset(sorted(frozenset().union(*parts))[: 2 * KEPT])


def of_public(name: str, rows: Array, key: bytes) -> Content:
    """Of rows of a bundled table, which are named and not read."""
    mark = int.from_bytes(hmac.digest(key, b"table " + name.encode(), "sha256")[:8], "little")
    positions = np.ascontiguousarray(rows, dtype="<i8").tobytes()
    return Content((hmac.digest(key, name.encode() + b"\0" + positions, "sha256").hex(),), frozenset([mark]))


class Sums(NamedTuple):
    """What the names and marks of some rows are made of: a sum a row, with its target and without."""

    kinds: tuple[Array, ...]

    @classmethod
    def of(cls, count: int, parts: Iterable[tuple[Array, Self]]) -> Self:
        """Of `count` rows, by parts: the places of some, and what these are made of."""
        kinds: tuple[Array, ...] = ()
        for places, part in parts:
            kinds = kinds or tuple(np.empty(count, np.uint64) for _ in part.kinds)
            for sums, some in zip(kinds, part.kinds):
                sums[places] = some
        return cls(kinds)

    def content(self, key: bytes) -> Content:
        marked = [np.sort(_hashes(sums, key)) for sums in self.kinds]
        names = tuple(hmac.digest(key, marks.tobytes(), "sha256").hex() for marks in marked)
        return Content(names, frozenset(np.concatenate([*map(_smallest, marked)]).tolist()))

    def contents(self, nodes: Sequence[int], ends: Array, key: bytes) -> Contents:
        """`content` of rows ends[i] to ends[i + 1], for each i; many small nodes at once."""
        named, packed, kept = (
            _hmac(key),
            np.empty((len(nodes), len(self.kinds), 32), np.uint8),
            np.empty(0, "<u8"),
        )
        for first in range(0, len(nodes), _AT_ONCE):
            here = ends[first : first + _AT_ONCE + 1]
            sizes, places = np.diff(here), (8 * (here - here[0])).tolist()
            of = np.repeat(np.arange(len(sizes)), sizes)
            for kind, sums in enumerate(self.kinds):
                marked = _hashes(sums[here[0] : here[-1]], key)
                marked = marked[np.lexsort((marked, of))]
                content = marked.tobytes()
                names = b"".join([named(content[low:high]) for low, high in pairwise(places)])
                packed[first : first + len(sizes), kind] = np.frombuffer(names, np.uint8).reshape(-1, 32)
                if sizes.max(initial=0) > KEPT:
                    parts = [_smallest(marked[low // 8 : high // 8]) for low, high in pairwise(places)]
                    marked = np.concatenate(parts)
                kept = np.unique(np.concatenate((kept, marked)))[: 2 * KEPT]
        return Contents(Names(nodes, packed), frozenset(kept.tolist()))


def of_matrix(X: Matrix, y: Array | None, key: bytes) -> Content:
    """Of rows that are numbers already, and their targets, which stand behind the last column."""
    return sums_of_matrix(X, y, key).content(key)


def sums_of_matrix(X: Matrix, y: Array | None, key: bytes) -> Sums:
    if isinstance(X, Sparse):
        features = _sums(X._replace(data=_bits(X.data)), key)
    else:
        features = _sums(_bits(X), key)
    if y is None:
        return Sums((features,))
    return Sums((features + _terms(_column(y, key), X.shape[1], key), features))


def sums_of_columns(columns: Sequence[Sequence[str] | Array], target: int | None, key: bytes) -> Sums:
    """Of the cells of a table, column by column; `target` is the place of the one that is predicted."""
    whole, without = np.zeros(len(columns[0]), np.uint64), None
    for place, column in enumerate(columns):
        terms = _terms(_column(column, key), place, key)
        whole += terms
        if place == target:
            without = terms
    return Sums((whole,) if without is None else (whole, whole - without))


def _smallest(marks: Array) -> Array:
    """Those that are kept of one kind, which is sorted."""
    return marks if len(marks) <= KEPT else np.unique(marks)[:KEPT]


def _hashes(sums: Array, key: bytes) -> Array:
    """The keyed hash of each row's sum."""
    content, key = sums.astype("<u8").tobytes(), key[:64]
    keyed, hashes = hashlib.blake2b(key=key, digest_size=8).copy, []
    for at in range(0, len(content), 8):
        code = keyed()
        code.update(content[at : at + 8])
        hashes.append(code.digest())
    return np.frombuffer(b"".join(hashes), dtype="<u8")


def _hmac(key: bytes) -> Callable[[bytes], bytes]:
    """hmac.digest(key, ..., "sha256") for many short messages: the key is hashed once."""
    key = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    begun, ended = (hashlib.sha256(bytes(byte ^ pad for byte in key)).copy for pad in (0x36, 0x5C))

    def named(message: bytes) -> bytes:
        inner, outer = begun(), ended()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()

    return named


def _column(cells: Sequence[str] | Array, key: bytes) -> Array:
    """The cells of a column as 64 bits each: a number's own, or the keyed hash of a text."""
    try:
        return _bits(np.fromiter(map(float, cells), float, len(cells)))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        code = {cell: _cell(str(cell).strip(), key) for cell in set(cells)}
        return np.array([code[cell] for cell in cells], dtype=np.uint64)


def _bits(values: Array) -> Array:
    return (np.asarray(values, dtype=float) + 0.0).view(np.uint64)  # -0 is 0


def _cell(text: str, key: bytes) -> int:
    try:
        return int(_bits(np.array([float(text)]))[0])
    except ValueError:
        return _hash(b"cell " + text.encode(errors="surrogateescape"), key)


def _hash(content: bytes, key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, key=key[:64], digest_size=8).digest(), "little")


def _terms(cells: Array, place: int | Array, key: bytes) -> Array:
    """What a cell adds to the sum of its row: a secret function of its place and content; a zero adds nothing.

    Sums are told to nobody: a row's mark is the keyed hash of its sum.
    """
    places = np.atleast_1d(np.asarray(place, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    found = _mixed(cells ^ _mixed(places ^ np.uint64(_hash(b"places", key))))
    return np.where(cells == 0, np.uint64(0), found)


def _mixed(z: Array) -> Array:
    """A permutation of 64 bits (the finaliser of SplitMix64)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _sums(cells: Array | Sparse, key: bytes) -> Array:
    """The sum of each row."""
    if isinstance(cells, Sparse):
        upto = np.concatenate(
            [np.zeros(1, np.uint64), np.cumsum(_terms(cells.data, cells.indices, key), dtype=np.uint64)]
        )
        return upto[cells.indptr[1:]] - upto[cells.indptr[:-1]]
    if cells.size <= _SMALL:
        return _terms(cells, np.arange(cells.shape[1]), key).sum(axis=1, dtype=np.uint64)
    total = np.zeros(len(cells), dtype=np.uint64)
    for place, column in enumerate(np.ascontiguousarray(cells.T)):
        total += _terms(column, place, key)
    return total
