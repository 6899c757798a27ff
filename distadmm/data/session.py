"""Rows that are objects of a Python session: read as a CSV's are, cell by cell, and refused in the same words."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.csvfile import CsvFile, Some
from distadmm.data.formats import kind
from distadmm.data.table import Array
from distadmm.errors import require
from distadmm.files import held

_AT_ONCE = 1 << 14  # rows
NEEDED = "give (X, y), a DataFrame, or a list of one of these a node"


class Held(NamedTuple):
    """A table of this session, where a path may stand as well."""

    name: str
    columns: dict[str, Sequence[str] | Array]  # numbers as they are, unless a cell is missing
    target: str | None = None  # of (X, y): what y is called
    suffixes: tuple[str, ...] = (".csv",)  # it is read as such a file
    unit: float = 1.0  # by which features are divided when they are read; rows are named as they come

    def __str__(self) -> str:
        return self.name

    def digest(self) -> str:
        """Of its names and cells."""
        code = hashlib.sha256()
        for name, cells in self.columns.items():
            for part in (name, *map(str, np.asarray(cells).tolist())):
                code.update(f"{len(part)}:{part}".encode(errors="surrogatepass"))
        return code.hexdigest()


class Frame(CsvFile):
    """What `CsvFile` makes of a file, of a table of this session."""

    schema_word = "schema"

    def _take(self, path: Any, known: object) -> None:
        self.path, self._columns, self.header = path, path.columns, list(path.columns)
        self._unit = path.unit
        self.n_rows = len(next(iter(self._columns.values()), ()))

    def place(self, row: int) -> str:
        return f"row {row}"

    def some(self, names: Sequence[str], rows: Array | None = None, *, texts: bool = False) -> Iterator[Some]:
        rows = np.arange(self.n_rows) if rows is None else np.asarray(rows)
        for places in np.array_split(np.argsort(rows, kind="stable"), -(-len(rows) // _AT_ONCE) or 1):
            own = rows[places]
            columns = {
                name: cells[own] if isinstance(cells, np.ndarray) else [cells[row] for row in own.tolist()]
                for name, cells in self._columns.items()
                if name in names
            }
            yield Some(places, own, columns)

    def blocks(self, rows: Array | None = None) -> Iterator[tuple[Array, Array, Array]]:
        for places, X, targets in super().blocks(rows):
            yield places, np.divide(X, self._unit, out=X), targets


def cell_file(path: Path | Held, **how: Any) -> CsvFile:
    """The reader of a CSV or Parquet file, or of a table of this session."""
    if kind(path) == ".parquet":  # type: ignore[arg-type]
        from distadmm.data.parquet import ParquetFile

        return ParquetFile(path, **how)  # type: ignore[arg-type]
    return Frame(path, **how) if isinstance(path, Held) else CsvFile(path, **how)  # type: ignore[arg-type]


def path_of(text: str | Path) -> Any:
    """What a text stands for: a table, a list of one a node, or the path of a file."""
    found = held(text)
    if found is None:
        return Path(text)
    if isinstance(found, list):
        require(found, f"data is an empty list; {NEEDED}")
        return [table(one, f"data of node {node}") for node, one in enumerate(found)]
    return table(found)


def table(given: Any, name: str = "data", *, targetless: bool = False) -> Held:
    """(X, y) or a DataFrame as columns; X alone where no target is needed."""
    if isinstance(given, Held):
        return given
    X, y = (given, None) if targetless or not isinstance(given, tuple) or len(given) != 2 else given
    framed = hasattr(X, "columns") and hasattr(X, "iloc")
    require(framed or targetless or y is not None, f"{name}: found a {type(given).__name__}; {NEEDED}")
    if framed:
        heads = [each if isinstance(each, str) else f"x{j + 1}" for j, each in enumerate(X.columns)]
        found = {head: X.iloc[:, j] for j, head in enumerate(heads)}
        twice = next((head for head in heads if heads.count(head) > 1), None)
        require(twice is None, f"{name}: two columns have the name {twice!r}; give each its own")
    else:
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        require(
            X.ndim == 2 and X.dtype.kind in "biuf",
            f"{name}: X has shape {X.shape} and type {X.dtype}; needed: numbers, rows by columns",
        )
        found = {f"x{j + 1}": X[:, j] for j in range(X.shape[1])}
    target = None
    if y is not None:
        named = getattr(y, "name", None)
        target = named if isinstance(named, str) else "y"
        require(target not in found, f"{name}: X has a column {target!r} too; give y another name")
        shape = np.shape(y)
        require(
            shape == (len(X),),
            f"{name}: X has {len(X)} rows and y has shape {shape}; needed: one target a row",
        )
        found[target] = y
    require(found, f"{name}: no column; needed: features")
    return Held(name, {each: _cells(column) for each, column in found.items()}, target)


def _cells(column: Any) -> Sequence[str] | Array:
    """Numbers, or texts in which a missing cell is empty; True is 1."""
    lost = column.isna().to_numpy() if hasattr(column, "isna") else None
    values, column = np.asarray(column), column if hasattr(column, "tolist") else np.asarray(column)
    if lost is None:
        lost = np.array([cell is None or cell != cell for cell in values.tolist()], dtype=bool)
    if values.dtype.kind == "b":
        return values.astype(np.int64)
    if values.dtype.kind in "iuf" and not lost.any():
        return values
    return ["" if gone else str(cell).strip() for cell, gone in zip(column.tolist(), lost)]
