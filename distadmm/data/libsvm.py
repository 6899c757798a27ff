"""Files in the format of LIBSVM: `label index:value index:value ...`, indices from 1 and ascending."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from distadmm.data.table import Array, Matrix, Sparse
from distadmm.data.textfile import numbered_lines, read_text
from distadmm.errors import InputError, require

WIDEST = 10_000_000  # a larger index is more likely an error than a column


class LibsvmFile:
    """`features` is the number of columns; without it the largest index in the file, seen when all is read."""

    def __init__(self, path: Path, *, features: int | None = None):
        self.path = path
        lines = [line.partition("#")[0] for line in read_text(path).splitlines()]
        self._lines, self.line_numbers = numbered_lines(lines)
        self.n_rows = len(self._lines)
        require(self._lines, f"{path} holds comments alone; needed: libsvm rows such as +1 3:0.5 7:1")
        if features is None:
            features = _parse(self, np.arange(self.n_rows), None)[0].shape[1]
        require(features > 0, f"{path} holds no index:value pair; needed: libsvm rows such as +1 3:0.5 7:1")
        self.features = features
        self.feature_names = tuple(f"x{index}" for index in range(1, features + 1))

    def place(self, row: int) -> str:
        return f"line {self.line_numbers[row]}"

    def read(self, rows: Array | None = None) -> tuple[Matrix, Array]:
        return _parse(self, np.arange(self.n_rows) if rows is None else np.asarray(rows), self.features)

    def lines(self, rows: Array) -> list[str]:
        return [self._lines[row] for row in rows.tolist()]


def _parse(file: LibsvmFile, rows: Array, features: int | None) -> tuple[Sparse, Array]:
    """The rows at once: the text with every colon a blank is a list of numbers, label first in each row."""
    lines = file.lines(rows)
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
    return Sparse(indptr, index - 1, rest[:, 1], (len(rows), width)), numbers[start[:-1]]


def _diagnose(file: LibsvmFile, rows: Array, lines: list[str]) -> InputError:
    """The first bad line, in words."""
    for row, line in zip(rows.tolist(), lines):
        where = f"{file.path} {file.place(row)}"
        label, *entries = line.split()
        try:
            if not np.isfinite(float(label)):
                return InputError(f"{where}: the label is {label}; needed: a finite number")
        except ValueError:
            return InputError(f"{where}: the label {label!r} is not a number; needed: label index:value ...")
        last = 0
        for entry in entries:
            left, _, right = entry.partition(":")
            try:
                index, value = int(left), float(right)
            except ValueError:
                return InputError(f"{where}: {entry!r} is not index:value with two numbers; mend that line")
            if index < 1:
                return InputError(f"{where}: index {index}; indices start at 1; renumber the columns")
            if index <= last:
                return InputError(
                    f"{where}: index {index} comes after {last}; indices must ascend; sort that line"
                )
            if not np.isfinite(value):
                return InputError(f"{where}: the value of index {index} is {right}; needed: a finite number")
            last = index
    return InputError(f"{file.path} is not in libsvm format; needed: rows such as +1 3:0.5 7:1")
