"""Readers of small tables of texts, and of LIBSVM's `label index:value ...`."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from distadmm.data.records import PACKED, Piece, Records
from distadmm.data.table import Array, Matrix, Sparse, collected
from distadmm.errors import InputError, require, told

WIDEST = 10_000_000  # a larger index is more likely an error than a column


def kind(path: Path) -> str:
    """The suffix that says how a file is read: of `rows.csv.gz` it is `.csv`."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_cells(path: str | Path, *, ragged: bool = False) -> list[list[str]]:
    """All cells of a CSV file without the blanks around them, the header first; lines are as wide as it."""
    records = Records(Path(path), quotes=True)
    rows = [
        [cell.strip() for cell in cells]
        for _, at, found in records.batches()
        for cells in records.cells(at, found)
    ]
    require(ragged or len(rows) >= 2, f"{path} has a header and no rows; needed: a header and rows")
    odd = next((i for i, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if odd is not None and not ragged:
        raise InputError(
            f"line {records.line(odd)} of {path} has {len(rows[odd])} cells; needed: {len(rows[0])}, as in the header"
        )
    return rows


def read_numbers(path: str | Path, instead: str) -> tuple[Array, tuple[str, ...], tuple[str, ...]]:
    """A CSV table of numbers with names down and across; `instead` says what to do with a file that is none."""
    rows = read_cells(path)
    with told(f"{path}: REASON; needed: numbers after the first cell of each line; {instead}", ValueError):
        numbers = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
    return numbers, tuple(row[0] for row in rows[1:]), tuple(rows[0][1:])


class LibsvmFile:
    """`features` is the number of columns; without it the largest index in the file, seen when all is read."""

    def __init__(self, path: Path, *, features: int | None = None, known: tuple[Piece, ...] | None = None):
        self.path = path
        self._records = Records(path, comments=True, known=known)
        self.n_rows, self.pieces = self._records.count, self._records.pieces
        require(self.n_rows, f"{path} holds comments alone; needed: libsvm rows such as +1 3:0.5 7:1")
        if features is None:
            features = max(int(X.indices.max(initial=-1)) + 1 for _, X, _ in self._parsed(None, None))
        require(features > 0, f"{path} holds no index:value pair; needed: libsvm rows such as +1 3:0.5 7:1")
        self.features = features
        self.feature_names = tuple(f"x{index}" for index in range(1, features + 1))

    def place(self, row: int) -> str:
        return f"line {self._records.line(row)}"

    def read(self, rows: Array | None = None) -> tuple[Matrix, Array]:
        return collected(self, rows)

    def blocks(self, rows: Array | None = None) -> Iterator[tuple[Array, Matrix, Array]]:
        """Places among `rows`, X and the labels, some rows at a time."""
        return self._parsed(rows, self.features)

    def _parsed(self, rows: Array | None, features: int | None) -> Iterator[tuple[Array, Sparse, Array]]:
        for places, numbers, lines in self._records.batches(rows):
            texts = self._records.text(b"\n".join(lines), None, numbers).split("\n")  # type: ignore[arg-type]
            yield places, *_parse(self, numbers, texts, features)


def _parse(file: LibsvmFile, rows: Array, lines: list[str], features: int | None) -> tuple[Sparse, Array]:
    """The rows at once: the text with every colon a blank is a list of numbers, label first in each row."""
    pairs = np.array([line.count(":") for line in lines], dtype=np.int64)
    try:
        numbers = np.array(" ".join(lines).replace(":", " ").split(), dtype=float)
    except ValueError:
        raise _diagnose(file, rows, lines) from None
    start = np.concatenate([[0], np.cumsum(1 + 2 * pairs)])
    if start[-1] != len(numbers) or not np.isfinite(numbers).all():
        raise _diagnose(file, rows, lines)
    is_label = np.zeros(len(numbers), bool)
    is_label[start[:-1]] = True
    rest = numbers[~is_label].reshape(-1, 2)
    index = rest[:, 0].astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(pairs)])
    step = np.diff(index)
    inside = np.ones(max(len(index) - 1, 0), bool)  # between two entries of one row
    inside[indptr[1:-1][(indptr[1:-1] > 0) & (indptr[1:-1] < len(index))] - 1] = False
    if (index != rest[:, 0]).any() or (index < 1).any() or (step[inside] <= 0).any():
        raise _diagnose(file, rows, lines)
    width = int(index.max(initial=0)) if features is None else features
    if features is None and width > WIDEST:
        raise InputError(f"{file.path}: index {width} is very large; if it is right, give --features {width}")
    if (index > width).any():
        row = int(rows[np.searchsorted(indptr, int(np.argmax(index > width)), side="right") - 1])
        raise InputError(
            f"{file.path} {file.place(row)}: index {index.max()} is above the number of features {width}; "
            "give a larger --features"
        )
    return Sparse(indptr, (index - 1).astype(np.int32), rest[:, 1].copy(), (len(rows), width)), numbers[
        start[:-1]
    ]


def _diagnose(file: LibsvmFile, rows: Array, lines: list[str]) -> InputError:
    """The first bad line, in words."""
    for row, line in zip(rows.tolist(), lines):
        if why := _wrong(line):
            return InputError(f"{file.path} {file.place(row)}: {why}")
    return InputError(f"{file.path} is not in libsvm format; needed: rows such as +1 3:0.5 7:1")


def _wrong(line: str) -> str:
    """What is wrong with a row; empty where nothing is."""
    label, *entries = line.split() or [""]  # str.split knows more blanks than a line of bytes does
    try:
        if not np.isfinite(float(label)):
            return f"the label is {label}; needed: a finite number"
    except ValueError:
        return f"the label {label!r} is not a number; needed: label index:value ..."
    last = 0
    for entry in entries:
        left, _, right = entry.partition(":")
        try:
            index, value = int(left), float(right)
        except ValueError:
            return f"{entry!r} is not index:value with two numbers; mend that line"
        if index < 1:
            return f"index {index}; indices start at 1; renumber the columns"
        if index <= last:
            return f"index {index} comes after {last}; indices must ascend; sort that line"
        if not np.isfinite(value):
            return f"the value of index {index} is {right}; needed: a finite number"
        last = index
    return ""
