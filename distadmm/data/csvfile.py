"""CSV files with a header line."""

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from distadmm.data.formats import Cells
from distadmm.data.mapping import ColumnMapping, replace, symbol_names
from distadmm.data.schema import MARKS, Category, Number, Schema
from distadmm.data.table import Array, Matrix
from distadmm.errors import InputError, require


class CsvFile(Cells):
    """Cells are split when rows are read, and only of these rows."""

    def __init__(
        self,
        path: Path,
        *,
        target: str | None = None,
        schema: Schema | None = None,
        drop: Sequence[str] = (),
        targetless: bool = False,
        featureless: bool = False,
    ):
        self._take(path)
        self._check_header()
        require(self.n_rows > 0, f"{path} has a header line but no rows; needed: at least one row")
        for name in drop:
            self._find(name)
        last = [name for name in self.header if name not in drop][-1:]
        require(last, f"{path} has no column but {', '.join(drop)}; needed: features or a target")
        target = target or getattr(path, "target", None) or (schema and schema.target) or last[0]
        self.target = None if targetless else self._find(target)
        if schema is None:
            kept = [name for name in self.header if name != self.target and name not in drop]
            self.schema = Schema(tuple(Number(name) for name in kept))
        else:
            schema.match([name for name in self.header if name not in drop], self.target or "", path)
            self.schema = schema
        require(
            featureless or self.schema.columns,
            f"{path} has no column but the target {self.target!r}; needed: feature columns",
        )
        self.feature_names = self.schema.feature_names

    def _take(self, path: Path) -> None:
        super().__init__(path)
        self.header = [cell.strip() for cell in self.split(0)]
        self.n_rows = self.n_lines - 1

    def _check_header(self) -> None:
        if all(_is_number(name) for name in self.header):
            raise InputError(
                f"{self.path} line 1 holds numbers, not names; needed: a header line such as x1,x2,y"
            )
        where = f"{self.path} line 1"
        require(
            all(self.header), f"{where}: a column has no name; needed: a header line with a name for each"
        )
        for name in self.header:
            once = self.header.count(name) == 1
            require(once, f"{where} has two columns named {name!r}; give each column its own name")

    def _find(self, name: str) -> str:
        if name not in self.header:
            near = difflib.get_close_matches(name, self.header, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            shown = ", ".join(self.header[:12]) + (", ..." if len(self.header) > 12 else "")
            raise InputError(f"{self.path} has no column {name!r}; {hint}its columns: {shown}")
        return name

    def place(self, row: int) -> str:
        return f"line {self.line_numbers[row + 1]}"

    def cells(self, rows: Array | None = None) -> tuple[Array, Sequence[Sequence[str] | Array]]:
        """Row numbers and the columns of these rows, as text (numbers where they are known to be)."""
        rows = np.arange(self.n_rows) if rows is None else np.asarray(rows)
        records = [self.split(row + 1) for row in rows.tolist()]
        width = len(self.header)
        for row, record in zip(rows.tolist(), records):
            if len(record) != width:
                raise InputError(
                    f"{self.path} {self.place(row)} has {len(record)} cells, the header has {width}; "
                    "mend that line"
                )
        return rows, list(zip(*records)) if records else [()] * width

    def column(self, name: str) -> list[str]:
        """One column of all rows, as text."""
        position = self.header.index(self._find(name))
        return _texts(self.cells()[1][position])

    def read(self, rows: Array | None = None) -> tuple[Matrix, Array]:
        """X and the target cells of these rows (all when None)."""
        X, target, _ = self.read_sanitised({}, rows=rows)
        return X, target

    def read_sanitised(
        self,
        mappings: Mapping[str, ColumnMapping],
        seed: int = 0,
        node: int = 0,
        *,
        rows: Array | None = None,
    ) -> tuple[Matrix, Array, tuple[str, ...]]:
        """X with the columns of `mappings` randomised, the target cells, and the names of X's columns."""
        rows, columns = self.cells(rows)
        by_name = dict(zip(self.header, columns))
        blocks: list[Array] = []
        names: list[str] = []
        for column in self.schema.columns:
            cells = by_name[column.name]
            if isinstance(column, Number):
                blocks.append(self._numbers(column, rows, cells))
                names += column.labels
                continue
            codes, size = self.codes(column, rows, cells), len(column.domain)
            labels = column.labels
            if column.name in mappings:
                mapping = mappings[column.name]
                codes, size = replace(mapping, codes, column.domain, column.name, seed, node)
                labels = symbol_names(column.name, size)
            blocks.append((codes[:, None] == np.arange(size)).astype(float))
            names += labels
        target = by_name[self.target] if self.target is not None else ()
        X = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(rows), 0))
        return X, np.array(_texts(target), dtype=object), tuple(names)

    def codes(self, column: Category, rows: Array, cells: Sequence[str] | Array) -> Array:
        """The number of each cell within the domain; -1 for a missing one that stands for nothing."""
        code = {value: number for number, value in enumerate(column.domain)}
        gone = -1 if column.missing is None else code[column.missing]
        listed = self.schema.missing if column.missing is None else {*self.schema.missing, ""}
        code |= {value: gone for value in listed if value not in code}
        texts = _texts(cells)
        try:
            return np.array([code[cell] for cell in texts], dtype=np.int64)
        except KeyError:
            bad = next(i for i, cell in enumerate(texts) if cell not in code)
            where, cell = self._cell(rows[bad], column.name), texts[bad]
            require(
                cell,
                f"{where}: the cell is empty; fill it in, or write {column.name} = {{ values = [...], "
                "missing_indicator = true }, or one of the values as missing, in the --schema",
            )
            raise InputError(
                f"{where}: {cell!r} is not in the domain that the --schema gives; mend the cell, or add the value to "
                "the domain"
            ) from None

    def _numbers(self, column: Number, rows: Array, cells: Sequence[str] | Array) -> Array:
        """(rows, 1 or 2): the column in [0, 1] where bounds are known, and where its cells are missing."""
        gone = np.zeros(len(cells), dtype=bool)
        try:
            if column.missing is not None:
                cells = _texts(cells)
                gone = np.array([self.schema.lacks(cell) for cell in cells], dtype=bool)
                cells = [str(column.missing) if lost else cell for lost, cell in zip(gone, cells)]
            known = isinstance(cells, np.ndarray)
            values = np.asarray(cells, float) if known else np.fromiter(map(float, cells), float, len(cells))
        except ValueError:
            bad = next(i for i, cell in enumerate(cells) if not _is_number(cell))
            raise InputError(self._not_a_number(rows[bad], column.name, _texts(cells)[bad])) from None
        finite = np.isfinite(values)
        if not finite.all():
            bad = int(np.argmin(finite))
            cell = _texts(cells)[bad]
            require(cell not in MARKS, self._not_a_number(rows[bad], column.name, cell))
            raise InputError(
                f"{self._cell(rows[bad], column.name)}: the value is {cell}; "
                "needed: a finite number; fill it in or leave the row out"
            )
        if column.high is None:
            return values[:, None]
        outside = (values < column.low) | (values > column.high)
        if outside.any():
            bad = int(np.argmax(outside))
            raise InputError(
                f"{self._cell(rows[bad], column.name)}: {_texts(cells)[bad]} is outside the bounds "
                f"{column.low:g} to {column.high:g} of the --schema; mend the cell, or widen the bounds"
            )
        scaled = (values - column.low) / (column.high - column.low)
        return np.column_stack([scaled, gone.astype(float)] if column.indicator else [scaled])

    def _cell(self, row: int, name: str) -> str:
        return f"{self.path} {self.place(int(row))}, column {name!r}"

    def _not_a_number(self, row: int, name: str, cell: str) -> str:
        where = self._cell(row, name)
        if not cell or cell in (*self.schema.missing, *MARKS):
            found = f"{cell!r} stands for no number" if cell else "the cell is empty"
            listed = (
                f"missing = [{json.dumps(cell)}] and " if cell and cell not in self.schema.missing else ""
            )
            written = f"{listed}{name} = {{ max = MAX, missing = VALUE }}, numbers known without the rows,"
            return f"{where}: {found}; fill it in, leave out the row, or write {written} in a --schema file"
        return (
            f"{where}: {cell!r} is not a number; mend it, or describe a text column by its public domain in a "
            "--schema file"
        )


def _texts(cells: Sequence[str] | Array) -> list[str]:
    return [str(cell).strip() for cell in cells]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
