"""What the centre and the parties of one rank hold: checked before anything is sent."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.targets import shown
from distadmm.errors import InputError, require
from distadmm.problems.loss_check import require_true
from distadmm.problems.losses import Array, Loss, foreign
from distadmm.ranks.star import Star


class Parts(NamedTuple):
    """The columns of the parties hosted here; labels are empty where the centre is not."""

    train: dict[int, Any]  # party -> N x d_m matrix, dense or scipy sparse
    names: dict[int, tuple[str, ...]]  # party -> names of its columns
    labels: Array | None
    test: dict[int, Any]  # party -> its columns of the test rows; empty when there are none
    test_labels: Array | None
    rows: int
    dataset: dict[int, str] | None = None  # a keyed name of each party's data, for its ledger
    content: Any = None  # (party, key) -> which rows it has (`data.content`)
    public: bool = False  # a bundled table
    owners: bool = False  # each party has a file of its own
    encoding: Any = None  # how raw rows become these columns (`Source.encoding`)
    classes: tuple[Any, ...] = ()  # what the target calls them; known where the labels are
    leakage: dict[int, tuple[Any, ...]] | None = None  # of sanitised columns of each party, for its ledger


def cut(widths: Sequence[int], columns: int, parties: int) -> list[slice]:
    """Consecutive column ranges: of the given widths, or as equal as they can be."""
    if not widths:
        require(
            columns >= parties,
            f"{columns} columns cannot be split over {parties} parties; give a table with more, or fewer parties",
        )
        edges = np.linspace(0, columns, parties + 1).round().astype(int)
    else:
        require(
            sum(widths) == columns and min(widths) > 0,
            f"--split {','.join(map(str, widths))} adds up to {sum(widths)} columns; the table has {columns}; "
            "give widths above 0 that add up to it",
        )
        edges = np.concatenate([[0], np.cumsum(widths)])
    return [slice(int(low), int(high)) for low, high in pairwise(edges)]


def split(
    star: Star,
    widths: Sequence[int],
    train: tuple[Any, Array],
    test: tuple[Any, Array] | None,
    names: Sequence[str],
) -> Parts:
    """The parts of this rank of a table whose columns are dealt to the parties in order."""
    ranges = cut(widths, train[0].shape[1], star.parties)
    own = {m: ranges[m - 1] for m in star.hosted}
    centre = star.is_centre
    return Parts(
        {m: train[0][:, columns] for m, columns in own.items()},
        {m: tuple(names[columns]) for m, columns in own.items()},
        train[1] if centre else None,
        {m: test[0][:, columns] for m, columns in own.items()} if test else {},
        test[1] if test and centre else None,
        train[0].shape[0],
    )


def check(star: Star, parts: Parts, loss: Loss, *, private: bool = False) -> None:
    """Refuse, on all ranks with one line, what cannot be trained on.

    A `private` run is not refused for a column without spread or a class without a record: one record decides these.
    """
    with star.world.together():
        if foreign(loss):
            require_true(f"the loss {type(loss).__name__}", loss)
        require(
            star.parties >= 2, f"{star.parties} party; sharing needs at least 2: give --split or --parties"
        )
        for m, matrix in parts.train.items():
            rows, columns = matrix.shape
            values = matrix.data if hasattr(matrix, "tocsr") else matrix
            require(columns > 0, f"party {m} holds no columns; give it at least one, or leave the party out")
            require(rows > 1, f"party {m} holds {rows} rows; needed: at least 2")
            require(
                np.isfinite(values).all(),
                f"party {m} holds values that are not finite (NaN or infinite); fill them in or leave the rows out",
            )
            require(
                private or _spread(matrix).max() > 0,
                f"party {m}: all {columns} columns are constant and can explain nothing; leave the party out",
            )
        if star.is_centre:
            _check_labels(parts.labels, loss, private)
    counts = star.world.gather({m: int(matrix.shape[0]) for m, matrix in parts.train.items()})

    def compare() -> None:
        rows = {m: n for part in counts or [] for m, n in part.items()}
        rows_at_centre = parts.labels.size if parts.labels is not None else parts.rows
        for m, n in sorted(rows.items()):
            require(
                n == rows_at_centre,
                f"party {m} holds {n} rows, the labels are {rows_at_centre}; needed: the same records in the "
                "same order; give files with a shared --key and they are aligned by it",
            )

    star.world.on_root(compare)


def _spread(matrix: Any) -> Array:
    """max - min of every column."""
    high, low = matrix.max(axis=0), matrix.min(axis=0)
    if hasattr(high, "toarray"):
        high, low = high.toarray(), low.toarray()
    return np.asarray(high).ravel() - np.asarray(low).ravel()


def _check_labels(labels: Array | None, loss: Loss, private: bool) -> None:
    if labels is None:
        raise InputError("the centre holds no labels; needed: a target for every record; give --target")
    require(np.isfinite(labels).all(), "the labels are not all finite; fill them in or leave the rows out")
    if loss.labels:
        found = np.unique(labels)
        require(
            set(found.tolist()) <= {-1.0, 1.0} and (private or found.size == 2),
            f"the labels are {shown(found.tolist())}; the loss needs exactly -1 and +1, both present",
        )


def sparse_or_dense(matrix: Any) -> Any:
    """scipy CSR when few entries differ from zero, else a dense array: both are exact, one is faster."""
    from scipy.sparse import csr_matrix, issparse

    filled = matrix.nnz if issparse(matrix) else int(np.count_nonzero(matrix))
    if filled <= 0.25 * matrix.shape[0] * matrix.shape[1]:
        return csr_matrix(matrix)
    return matrix.toarray() if issparse(matrix) else np.asarray(matrix, dtype=float)


def pooled(star: Star, matrices: Mapping[int, Any]) -> dict[int, Any] | None:
    """All parties' matrices at the centre's rank, for an observer: never part of the protocol."""
    gathered = star.world.gather(dict(matrices))
    if gathered is None:
        return None
    return {m: part[m] for part in gathered for m in sorted(part)}
