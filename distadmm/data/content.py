"""What rows are the same: names of the rows that a ledger is about, whichever file, packing or flags brought them.

A row is its cells: numbers as numbers, texts without the blanks around them.  It is marked twice by a keyed hash of
64 bits: with all its cells, in the order of the file, so that --target and --labels make no difference; and without
its target, so that what the classes are called makes none.  Rows in another order are the same rows.

    names   HMAC of all marks of either kind: two tables that share a name hold the same rows
    marks   the smallest marks of either kind: tables that share one have a row in common; of a table and a piece that
            holds a fiftieth of its rows this is seen with probability .99, of larger pieces practically always

Without the key neither tells anything; with it guesses of rows can be confirmed, so who has the key is the rows' owner.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from distadmm.data.table import Array, Matrix, Sparse

KEPT = 256  # marks of either kind


class Content(NamedTuple):
    """Of the rows of one node, or of one table."""

    names: tuple[str, ...]
    marks: frozenset[int]

    def columns(self, which: str, key: bytes) -> Content:
        """Of one party's columns of these rows."""
        names = (hmac.digest(key, f"{name} columns {which}".encode(), "sha256").hex() for name in self.names)
        return self._replace(names=tuple(names))


def smallest(parts: Iterable[frozenset[int]]) -> frozenset[int]:
    """The marks of several parts of one table together, as many as are kept of one."""
    return frozenset(sorted(frozenset().union(*parts))[: 2 * KEPT])


def of_public(name: str, rows: Array, key: bytes) -> Content:
    """Of rows of a bundled table, which are named and not read."""
    mark = int.from_bytes(hmac.digest(key, b"table " + name.encode(), "sha256")[:8], "little")
    positions = np.ascontiguousarray(rows, dtype="<i8").tobytes()
    return Content((hmac.digest(key, name.encode() + b"\0" + positions, "sha256").hex(),), frozenset([mark]))


def of_matrix(X: Matrix, y: Array | None, key: bytes) -> Content:
    """Of rows that are numbers already, and their targets."""
    if isinstance(X, Sparse):
        cells = X._replace(data=_bits(X.data))
        bare = _marks(cells, key)
        if y is None:
            return _content([bare], key)
        return _content([bare, _marked_on(bare, _column(y, key), key)], key)
    return of_columns(
        [*np.asarray(X, dtype=float).T, *([] if y is None else [y])], None if y is None else -1, key
    )


def of_columns(columns: Sequence[Sequence[str] | Array], target: int | None, key: bytes) -> Content:
    """Of the cells of a table, column by column; `target` is the place of the one that is predicted."""
    cells = np.ascontiguousarray(np.stack([_column(column, key) for column in columns], axis=1))
    kinds = [_marks(cells, key)]
    if target is not None:
        kinds.append(_marks(np.ascontiguousarray(np.delete(cells, target, axis=1)), key))
    return _content(kinds, key)


def _content(kinds: Sequence[Array], key: bytes) -> Content:
    names = [hmac.digest(key, np.sort(marks).astype("<u8").tobytes(), "sha256").hex() for marks in kinds]
    kept = {int(mark) for marks in kinds for mark in np.unique(marks)[:KEPT]}
    return Content(tuple(names), frozenset(kept))


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


def _marks(cells: Array | Sparse, key: bytes) -> Array:
    """A keyed number a row; zeros do not count, so that a sparse row is a dense one."""
    if not isinstance(cells, Sparse):
        row, column = np.nonzero(cells)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(cells)))])
        cells = Sparse(indptr, column, cells[row, column], cells.shape)
    full = cells.data != 0
    pairs = np.stack([cells.indices.astype(np.uint64), cells.data], axis=1)[full]
    ends = np.concatenate([[0], np.cumsum(full)])[cells.indptr].tolist()
    content, begin = pairs.astype("<u8").tobytes(), 16 * ends[0]
    found = np.empty(len(ends) - 1, dtype=np.uint64)
    for i, end in enumerate(ends[1:]):
        found[i] = _hash(content[begin : 16 * end], key)
        begin = 16 * end
    return found


def _marked_on(marks: Array, column: Array, key: bytes) -> Array:
    """Marks of rows with one cell more."""
    both = np.stack([marks, column], axis=1)
    return _marks(both, key)
