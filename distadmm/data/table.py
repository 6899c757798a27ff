"""Tables of records: features X, targets y, one row a record; shards, clipping, nothing pooled.

A privacy theorem needs |x| <= 1 for every row, and a row that is a function of its own record and of public
constants alone.  So rows are clipped one by one, and nothing here looks at a column as a whole.

The name of data (`data_id`) says whether it changed, and to nobody else what it holds.  A plain hash of private data
leaks: who guesses the rows can confirm the guess.  So the hash is keyed (HMAC-SHA256) with 32 random bytes that stay
on this machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.errors import InputError, require, told
from distadmm.structs import struct

Array = np.ndarray

PUBLIC_KEY = b"distadmm: this table is public"  # for bundled tables, whose hash tells nothing
SHARDING = 0x5348415244  # purpose of the seeded permutation of a user's rows


class Sparse(NamedTuple):
    """A matrix in compressed sparse rows: row i holds data[indptr[i]:indptr[i+1]] in columns indices[...]."""

    indptr: Array
    indices: Array
    data: Array
    shape: tuple[int, int]

    def toarray(self) -> Array:
        """The dense matrix; entries given twice are added up."""
        dense = np.zeros(self.shape)
        np.add.at(dense, (self.row_of_entry(), self.indices), self.data)
        return dense

    def row_of_entry(self) -> Array:
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def take(self, rows: Array) -> Sparse:
        rows = np.asarray(rows)
        counts = (self.indptr[1:] - self.indptr[:-1])[rows]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        entry = np.arange(indptr[-1]) + np.repeat(self.indptr[:-1][rows] - indptr[:-1], counts)
        return Sparse(indptr, self.indices[entry], self.data[entry], (rows.size, self.shape[1]))

    def norms(self) -> Array:
        """|x_i|_2 of every row."""
        return np.sqrt(np.bincount(self.row_of_entry(), self.data**2, minlength=self.shape[0]))

    def scaled(self, factor: Array) -> Sparse:
        """Row i multiplied by factor[i]."""
        return self._replace(data=self.data * factor[self.row_of_entry()])

    def to_scipy(self) -> Any:
        from scipy.sparse import csr_matrix

        return csr_matrix((self.data, self.indices, self.indptr), shape=self.shape)

    @classmethod
    def from_dense(cls, dense: Array) -> Sparse:
        row, column = np.nonzero(dense)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=dense.shape[0]))])
        return cls(
            indptr, column, dense[row, column].astype(float), (int(dense.shape[0]), int(dense.shape[1]))
        )

    @classmethod
    def below(cls, parts: Sequence[Sparse]) -> Sparse:
        """The rows of the first, then those of the second, and so on."""
        ends = np.cumsum([0, *(part.indptr[-1] for part in parts)])
        indptr = np.concatenate([[0], *(part.indptr[1:] + end for part, end in zip(parts, ends))])
        indices, data = (np.concatenate([part[at] for part in parts]) for at in (1, 2))
        return cls(indptr, indices, data, (len(indptr) - 1, max(part.shape[1] for part in parts)))


Matrix = Array | Sparse


def take(X: Matrix, rows: Array) -> Matrix:
    return X.take(rows) if isinstance(X, Sparse) else X[rows]


WIDE = 1000  # columns above which rows of a sparse format stay sparse, where that can be
MOST_DENSE = 1 << 28  # entries of a sparse table that is written out


def dense(X: Matrix) -> Array:
    if not isinstance(X, Sparse):
        return X
    rows, columns = X.shape
    require(
        rows * columns <= MOST_DENSE,
        f"{rows} sparse rows of {columns} columns are {8e-9 * rows * columns:.3g} GB when written out, which is needed "
        "here; the methods of radmm and sharing keep them sparse, or take fewer columns",
    )
    return X.toarray()


def blocks_of(file: Any, rows: Array | None = None) -> Iterator[tuple[Array, Matrix, Array]]:
    """Places among `rows`, X and the target cells, some rows at a time where the reader can, else all at once."""
    if hasattr(file, "blocks"):
        yield from file.blocks(rows)
    else:
        X, cells = file.read(rows)
        yield np.arange(len(cells)), X, np.asarray(cells)


def collected(file: Any, rows: Array | None) -> tuple[Matrix, Array]:
    """X and the target cells of these rows (all when None) of a file that gives them in blocks, in their order."""
    count = file.n_rows if rows is None else len(rows)
    X, cells = np.empty((0, len(file.feature_names))), np.empty(0, dtype=object)
    pieces: list[tuple[Array, Sparse]] = []
    begun = False
    for places, block, targets in blocks_of(file, rows):
        if not begun:
            cells, begun = np.empty(count, targets.dtype), True
            X = np.empty((0 if isinstance(block, Sparse) else count, block.shape[1]))
        if isinstance(block, Sparse):
            pieces.append((places, block))
        else:
            X[places] = block
        cells[places] = targets
    if pieces:
        order = np.concatenate([places for places, _ in pieces])
        return Sparse.below([block for _, block in pieces]).take(np.argsort(order)), cells
    return X, cells


class ClipReport(NamedTuple):
    """By how much rows were shortened.  It describes private rows: show it to their owner only."""

    rows: int  # rows looked at
    clipped: int  # rows longer than the bound
    largest: float  # largest norm before clipping
    total_factor: float  # sum over the clipped rows of the factor they were multiplied by

    @property
    def mean_factor(self) -> float:
        """Mean factor of the clipped rows; 1 when none was clipped."""
        return self.total_factor / self.clipped if self.clipped else 1.0

    def merge(self, other: ClipReport) -> ClipReport:
        return ClipReport(
            self.rows + other.rows,
            self.clipped + other.clipped,
            max(self.largest, other.largest),
            self.total_factor + other.total_factor,
        )

    def sentence(self) -> str:
        if not self.clipped:
            return f"no row of {self.rows} clipped (largest norm {self.largest:.4g})"
        text = f"{self.clipped} of {self.rows} rows clipped to norm 1, largest norm {self.largest:.4g}, "
        text += f"mean factor {self.mean_factor:.3g}"
        if self.mean_factor < 0.05:
            text += "; columns of large numbers drown the others: give their public bounds in a --schema"
        return text


NOTHING_CLIPPED = ClipReport(0, 0, 0.0, 0.0)


def clip_rows(X: Matrix, bound: float = 1.0, *, own: bool = False) -> tuple[Matrix, ClipReport]:
    """x_i / max(1, |x_i|/bound) for every row, and by how much; where the array is the caller's `own`, in its place."""
    norms = X.norms() if isinstance(X, Sparse) else np.sqrt(np.einsum("ij,ij->i", X, X))
    divisor = np.maximum(1.0, norms / bound)
    long = divisor > 1.0
    report = ClipReport(
        len(norms), int(long.sum()), float(norms.max(initial=0.0)), float((1.0 / divisor[long]).sum())
    )
    if not report.clipped:
        return X, report
    if isinstance(X, Sparse):
        return X.scaled(1.0 / divisor), report
    return np.divide(X, divisor[:, None], out=X if own else None), report


def with_intercept(X: Matrix) -> Matrix:
    """A last column of ones; added before clipping, so that the norm includes it."""
    if not isinstance(X, Sparse):
        return np.hstack([X, np.ones((X.shape[0], 1))])
    rows, width = X.shape
    ends = X.indptr[1:]
    return Sparse(
        X.indptr + np.arange(rows + 1),
        np.insert(X.indices, ends, width),
        np.insert(X.data, ends, 1.0),
        (rows, width + 1),
    )


@struct
class Table:
    """Records with their origin.  `y` is -1/+1, a class number, or a real target."""

    X: Matrix
    y: Array
    feature_names: tuple[str, ...]
    name: str
    licence: str = "not stated"
    source: str = "not stated"
    rows_dropped: int = 0  # rows of the source left out, for missing values
    duplicates: int = 0  # rows equal to an earlier row; kept

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])


def permutation(n_rows: int, seed: int) -> Array:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(SHARDING, 0))).permutation(n_rows)


def shares(n_rows: int, n_nodes: int) -> Array:
    """How many rows each node has where they have even parts."""
    require(n_nodes >= 1, f"the number of nodes is {n_nodes}; needed: at least 1")
    if n_nodes > n_rows:
        raise InputError(
            f"{n_nodes} nodes but only {n_rows} rows to share; use at most {n_rows} nodes or a larger table"
        )
    return n_rows // n_nodes + (np.arange(n_nodes) < n_rows % n_nodes)


def local_key(path: str | Path | None = None) -> bytes:
    """The key of this machine; made on first use, readable by its owner only."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    path = Path(path) if path is not None else config / "distadmm" / "data-id.key"
    with told(f"cannot keep the data-id key {path}: REASON; set XDG_CONFIG_HOME to a writable directory"):
        if not path.exists():
            import tempfile

            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # mode 0600
                file.write(os.urandom(32))
                file.flush()
                with contextlib.suppress(FileExistsError):  # of several ranks the first wins
                    os.link(file.name, path)
        key = path.read_bytes()
    if len(key) < 16:
        raise InputError(
            f"{path} holds {len(key)} bytes; needed: a key of 16 or more; delete it to get a new one"
        )
    return key


def data_id(content: Mapping[str, object], key: bytes) -> str:
    """HMAC-SHA256 of named arrays, sparse tables, bytes or texts; the order of names is irrelevant."""
    import hashlib
    import hmac

    code = hmac.new(key, digestmod=hashlib.sha256)
    for name in sorted(content):
        _absorb(code, name, content[name])
    return code.hexdigest()


def _absorb(code: Any, name: str, value: object) -> None:
    if isinstance(value, Sparse):
        for part, member in value._asdict().items():
            _absorb(code, f"{name}.{part}", np.asarray(member))
        return
    if isinstance(value, (bytes, str)):
        kind, body = type(value).__name__, value if isinstance(value, bytes) else value.encode()
    else:
        array = np.ascontiguousarray(value)
        array = array.astype(array.dtype.newbyteorder("<"))
        kind, body = f"{array.dtype.str}{array.shape}", array.tobytes()
    code.update(f"{name}\0{kind}\0{len(body)}\0".encode())
    code.update(body)
