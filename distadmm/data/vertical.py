"""Columns of the same people at different parties: one table cut by columns, or one file a party.

    X1, X2 = split_columns(X, (66, 57))
    parties = align_parties(["centre.csv", "bank.csv", "shop.csv"], key="id")

Each rank can do its part alone: it calls `read_party` on its own file, sends its keys (and nothing else) to the
centre, which calls `common_keys`, and takes its rows in the order it gets back with `positions`.  Keys say who is
in a party's file: this is known to the centre afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.reading import Reading
from distadmm.data.table import Array, Matrix, Sparse, take
from distadmm.errors import InputError, require

JOINS = ("refuse", "inner")


def split_columns(X: Matrix, sizes: Sequence[int]) -> list[Matrix]:
    """Blocks of columns, in order; the sizes add up to the width of X."""
    width = X.shape[1]
    shown = ",".join(map(str, sizes))
    require(
        len(sizes) >= 2, f"--split {shown} makes one party; needed: two or more sizes, as in --split 66,57"
    )
    require(all(size >= 1 for size in sizes), f"--split {shown}: every party needs at least one column")
    require(
        sum(sizes) == width,
        f"--split {shown} adds up to {sum(sizes)}, the table has {width} columns; make the sizes add up",
    )
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [columns(X, end - size, end) for size, end in zip(sizes, ends)]


def columns(X: Matrix, first: int, last: int) -> Matrix:
    """X[:, first:last]."""
    if not isinstance(X, Sparse):
        return np.ascontiguousarray(X[:, first:last])
    inside = (X.indices >= first) & (X.indices < last)
    before = np.concatenate([[0], np.cumsum(inside)])
    return Sparse(before[X.indptr], X.indices[inside] - first, X.data[inside], (X.shape[0], last - first))


def check_block(X: Matrix, party: str) -> None:
    """A party whose columns are all constant (or that has none) has nothing to contribute."""
    require(X.shape[1] >= 1, f"{party} has no feature column; give every party at least one")
    if isinstance(X, Sparse):
        full = np.bincount(X.indices, minlength=X.shape[1]) == X.shape[0]
        low, high = np.where(full, np.inf, 0.0), np.where(full, -np.inf, 0.0)  # the others hold zeros too
        np.minimum.at(low, X.indices, X.data)
        np.maximum.at(high, X.indices, X.data)
        varies = bool((high > low).any())
    else:
        varies = bool((np.ptp(X, axis=0) > 0).any())
    require(
        varies, f"{party}: no column varies from row to row; give columns that do, or leave the party out"
    )


class Party(NamedTuple):
    """What one party reads from its own file."""

    file: str
    keys: list[str]  # one a row, in file order
    X: Matrix
    y: Array | None  # where the file has the target
    feature_names: tuple[str, ...]
    classes: tuple[Any, ...]


def read_party(path: str | Path, key: str, reading: Reading | None = None, *, target: bool = False) -> Party:
    """One party's file.  `target` says that its target column (reading.target, or the last) holds the labels.

    A file with the labels may hold no features: it belongs to a centre without columns of its own.
    """
    path, reading = Path(path), reading or Reading()
    file = reading.open(path, drop=(key,), targetless=not target, featureless=target)
    if not hasattr(file, "column"):
        raise InputError(
            f"{path}: a libsvm file has no key column {key!r}; give CSV, or .npz with an array {key!r}"
        )
    keys = file.column(key)
    for row, name in enumerate(keys):
        require(name, f"{path} {file.place(row)}: the key {key!r} is empty; give every row its key")
    X, cells, names = reading.read(file)
    if not target:
        return Party(str(path), keys, X, None, names, ())
    y, classes = reading.targets(cells, f"{path}: the target", file.place)
    return Party(str(path), keys, X, y, names, classes.value)


def common_keys(keys: Sequence[Sequence[str]], join: str = "refuse", files: Sequence[str] = ()) -> list[str]:
    """The keys that all parties hold, in the order of the first; all of them must agree unless `join` is inner.

    Duplicates are refused either way: no rule says which of two rows belongs to a person.
    """
    require(join in JOINS, f"--join is {join!r}; choose one of: {', '.join(JOINS)}")
    names = list(files) or [f"party {number}" for number in range(len(keys))]
    for name, own in zip(names, keys):
        repeated = sum(count - 1 for count in Counter(own).values())
        require(
            not repeated,
            f"{name}: {repeated} of {len(own)} keys occur again further down; keep one row for each key",
        )
    shared = set(keys[0]).intersection(*keys[1:])
    order = [name for name in keys[0] if name in shared]
    if join == "refuse" and any(len(own) != len(shared) for own in keys):
        union = set().union(*keys)
        held = ", ".join(f"{name} lacks {len(union) - len(own)}" for name, own in zip(names, keys))
        raise InputError(
            f"the parties do not hold the same rows: {len(shared)} of {len(union)} keys are common to all "
            f"({held}); complete the files, or take the common rows with --join inner"
        )
    require(order, "no key is common to all parties; check that --key names the same thing in every file")
    return order


def positions(keys: Sequence[str], order: Sequence[str]) -> Array:
    """Where a party's rows stand, in the order the centre asks for."""
    place = {name: row for row, name in enumerate(keys)}
    return np.array([place[name] for name in order], dtype=np.int64)


def align_parties(
    files: Sequence[str | Path],
    key: str,
    join: str = "refuse",
    reading: Reading | None = None,
    *,
    labels_at: int = 0,
) -> list[Party]:
    """All parties' files read in one process, their rows in one order; party `labels_at` has the target."""
    parties = [read_party(file, key, reading, target=i == labels_at) for i, file in enumerate(files)]
    order = common_keys([party.keys for party in parties], join, [party.file for party in parties])
    return [in_order(party, order) for party in parties]


def in_order(party: Party, order: Sequence[str]) -> Party:
    rows = positions(party.keys, order)
    y = None if party.y is None else party.y[rows]
    return party._replace(keys=list(order), X=take(party.X, rows), y=y)
