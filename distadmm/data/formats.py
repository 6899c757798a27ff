"""Readers of whole files: text, plain or packed, and its cells; LIBSVM's `label index:value ...`; numpy archives."""

import csv
import importlib
import io
from pathlib import Path

import numpy as np

from distadmm.data.table import Array, Matrix, Sparse
from distadmm.errors import InputError, require, told
from distadmm.files import read_npz, require_an_end

WIDEST = 10_000_000  # a larger index is more likely an error than a column
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}


def kind(path: Path) -> str:
    """The suffix that says how a file is read: of `rows.csv.gz` it is `.csv`."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked."""
    require_an_end(path)
    try:
        content = path.read_bytes()
        if packer := COMPRESSED.get(path.suffix.lower()):
            content = importlib.import_module(packer).decompress(content)
    except FileNotFoundError:
        raise InputError(f"no file {path}; give an existing file") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; give a readable file") from None
    except Exception as error:  # each packer has an error of its own for a damaged file
        raise InputError(
            f"cannot unpack {path}: {error}; the file is damaged or has the wrong suffix"
        ) from None
    require(content.strip(), f"{path} is empty; needed: a table with at least one row")
    return content


def read_text(path: Path) -> str:
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path} line {line} is not UTF-8 text; save the file as UTF-8") from None


def numbered_lines(lines: list[str]) -> tuple[list[str], list[int]]:
    """The lines that are not blank, and the number of each in the file."""
    numbers = [number for number, line in enumerate(lines, 1) if line and not line.isspace()]
    return [lines[number - 1] for number in numbers], numbers


class Cells:
    """The cells of a CSV file, split when they are asked for; comma, semicolon or tab, as its first line says."""

    def __init__(self, path: Path):
        self.path = path
        text = read_text(path)
        lines, self.line_numbers = numbered_lines(text.splitlines())
        self.delimiter = max(",;\t", key=lines[0].count)
        self._lines: list[str] | list[list[str]] = lines
        if '"' in text:  # a quoted cell may hold the delimiter, even a line break
            reader = csv.reader(
                io.StringIO(text, newline=""), delimiter=self.delimiter, skipinitialspace=True
            )
            parsed = [(row, reader.line_num) for row in reader if any(cell.strip() for cell in row)]
            self._lines, self.line_numbers = [row for row, _ in parsed], [number for _, number in parsed]
        self.n_lines = len(self._lines)

    def split(self, index: int) -> list[str]:
        line = self._lines[index]
        return line.split(self.delimiter) if isinstance(line, str) else line


def read_cells(path: str | Path, *, ragged: bool = False) -> list[list[str]]:
    """All cells of a CSV file without the blanks around them, the header first; lines are as wide as it."""
    cells = Cells(Path(path))
    rows = [[cell.strip() for cell in cells.split(index)] for index in range(cells.n_lines)]
    require(ragged or len(rows) >= 2, f"{path} has a header and no rows; needed: a header and rows")
    for number, row in zip(cells.line_numbers, rows):
        require(
            ragged or len(row) == len(rows[0]),
            f"line {number} of {path} has {len(row)} cells; needed: {len(rows[0])}, as in the header",
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


class NpzFile:
    def __init__(self, path: Path, *, target: str | None = None, targetless: bool = False):
        self.path = path
        self.arrays = read_npz(path)
        self.X = self._matrix()
        self.n_rows, width = self.X.shape
        names = self.arrays.get("feature_names")
        self.feature_names = (
            tuple(map(str, names)) if names is not None else tuple(f"x{j + 1}" for j in range(width))
        )
        require(
            len(self.feature_names) == width,
            f"{path}: {len(self.feature_names)} feature_names for {width} columns of X; needed: one each",
        )
        self.target = np.empty(self.n_rows, dtype=object) if targetless else self._array(target or "y")

    def _named(self, name: str) -> Array:
        if name not in self.arrays:
            held = ", ".join(self.arrays) or "nothing"
            raise InputError(f"{self.path} has no array {name!r}; it holds: {held}; needed: X and y")
        return self.arrays[name]

    def _array(self, name: str) -> Array:
        array = self._named(name)
        if array.shape != (self.n_rows,):
            raise InputError(
                f"{self.path}: {name} has shape {array.shape}, X has {self.n_rows} rows; needed: one entry a row"
            )
        return array

    def _matrix(self) -> Array:
        X = self._named("X")
        if X.ndim != 2 or X.dtype.kind not in "biuf" or 0 in X.shape:
            raise InputError(
                f"{self.path}: X has shape {X.shape} and type {X.dtype}; needed: numbers, rows by columns"
            )
        X = X.astype(float)
        if not np.isfinite(X).all():
            row, column = np.argwhere(~np.isfinite(X))[0]
            raise InputError(f"{self.path}: X[{row}, {column}] is {X[row, column]}; needed: finite numbers")
        return X

    def place(self, row: int) -> str:
        return f"y[{row}]"

    def column(self, name: str) -> list[str]:
        return [str(value).strip() for value in self._array(name)]

    def read(self, rows: Array | None = None) -> tuple[Matrix, Array]:
        rows = np.arange(self.n_rows) if rows is None else np.asarray(rows)
        return self.X[rows], self.target[rows]
