"""CSV files with a header line, and what else holds cells in named columns."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.mapping import ColumnMapping, Replaced, replace, symbol_names
from distadmm.data.records import PIECE, Piece, Records
from distadmm.data.schema import MARKS, MISSING, Category, Number, Schema, instead, is_number
from distadmm.data.table import Array, Matrix, collected
from distadmm.errors import InputError, require

LARGE = 32 << 20  # bytes of a file from which on it is worth the start of pyarrow, where that is installed
_AT_ONCE = 1 << 20  # bytes that pyarrow is given
MEND = "mend it or leave the row out"
_DISTINCT = 10_000  # target cells of which equal ones are kept once

Cells = Sequence[str] | Array  # of one column: texts, or numbers where they are known to be


class Some(NamedTuple):
    places: Array  # where they stand among the rows that were asked for
    rows: Array  # their numbers in the file
    columns: Mapping[str, Cells]


class CsvFile:
    """Cells are split when rows are read, and only of these rows, a piece of the file at a time."""

    feature_names: tuple[str, ...]
    schema_word = "--schema"
    # Rows of bad cells, which become zeros, and why; None: the first one is an error.
    refused: dict[int, str] | None = None

    def __init__(
        self,
        path: Path,
        *,
        target: str | None = None,
        schema: Schema | None = None,
        drop: Sequence[str] = (),
        targetless: bool = False,
        featureless: bool = False,
        known: tuple[Piece, ...] | None = None,
    ):
        """`known`: where its records stand, from `pieces` of a reader of the same file."""
        self._same: dict[str, str] = {}
        self._symbols: dict[str, Replaced] = {}  # what columns hold in place of their categories
        self._take(path, known)
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

    def _take(self, path: Path, known: tuple[Piece, ...] | None) -> None:
        self.path, self._records = path, Records(path, quotes=True, known=known)
        self.pieces = self._records.pieces  # for whoever opens it again
        self._arrow = arrow() if path.stat().st_size >= LARGE else None
        require(self._records.count > 0, f"{path} has no cell with anything in it; needed: a header line")
        for _, number, first in self._records.batches(np.zeros(1, dtype=np.int64)):
            self.header = [cell.strip() for cell in self._records.cells(number, first)[0]]
        self.n_rows = self._records.count - 1

    def _check_header(self) -> None:
        if all(is_number(name) for name in self.header):
            raise InputError(
                f"{self.path} line 1 holds numbers, not names; needed: a header line such as x1,x2,y"
            )
        where = f"{self.path} line 1"
        pandas = "leave row numbers out, in pandas by to_csv(..., index=False)"
        way = "give it one" if self.header[0] else pandas
        require(all(self.header), f"{where}: column {[*self.header, ''].index('') + 1} has no name; {way}")
        for name in self.header:
            once = self.header.count(name) == 1
            require(once, f"{where} has two columns named {name!r}; give each column its own name")

    def _find(self, name: str) -> str:
        if name not in self.header:
            raise InputError(f"{self.path} has no column {name!r}; {instead(name, self.header)}")
        return name

    def place(self, row: int) -> str:
        return f"line {self._records.line(row + 1)}"

    def some(self, names: Sequence[str], rows: Array | None = None, *, texts: bool = False) -> Iterator[Some]:
        """Columns of these rows (all when None) in the file's order, some rows at a time; as `texts`, or as is best."""
        rows = np.arange(self.n_rows) if rows is None else np.asarray(rows)
        sure = [c.name for c in self.schema.columns if isinstance(c, Number) and c.missing is None]
        exact = set() if texts else set(sure)
        for places, numbers, found in self._records.batches(rows + 1, _AT_ONCE if self._arrow else PIECE):
            yield Some(places, numbers - 1, self._split(names, exact, numbers, found))

    def _split(self, names: Sequence[str], exact: set[str], numbers: Array, found: Any) -> dict[str, Cells]:
        """The columns `names` of these records; those of `exact` as numbers, where that can be.

        By pyarrow where that is quicker, else cell by cell; what pyarrow refuses, too.  Both round numbers correctly,
        so the bits are the same; the second is the one that says what is wrong with a cell.
        """
        width = len(self.header)
        if self._arrow and not isinstance(found[0], list):
            columns = _by_arrow(self._arrow, self._records.delimiter, self.header, exact, names, found)
            if columns is not None:
                return columns
        records = self._records.cells(numbers, found)
        for i, record in enumerate(records):
            if len(record) != width:
                said = f"has {len(record)} cells, the header has {width}"
                if self.refused is None:
                    raise InputError(f"{self.path} {self.place(int(numbers[i]) - 1)} {said}; mend that line")
                self.refused[int(numbers[i]) - 1] = f"the line {said}"
                records[i] = [*record, *[""] * width][:width]
        wanted = {name: j for j, name in enumerate(self.header) if name in names}
        return {name: [record[j] for record in records] for name, j in wanted.items()}

    def column(self, name: str) -> list[str]:
        """One column of all rows, as text."""
        self._find(name)
        return self.texts([name])[name]

    def texts(self, names: Sequence[str] = ()) -> dict[str, list[str]]:
        """All cells of these columns, or of all, as text."""
        found: dict[str, list[str]] = {name: [] for name in names or self.header}
        for some in self.some(list(found), texts=True):
            for name, cells in found.items():
                cells += _texts(some.columns[name])
        return found

    def read(self, rows: Array | None = None) -> tuple[Matrix, Array]:
        return collected(self, rows)

    def sanitise(self, mappings: Mapping[str, ColumnMapping], seed: int, node: int) -> None:
        """Put symbols in place of the categories of these columns, in all rows: a draw belongs to its row."""
        names: list[str] = []
        for column in self.schema.columns:
            if isinstance(column, Category) and column.name in mappings:
                parts = [self.codes(column, s.rows, s.columns[column.name]) for s in self.some([column.name])]
                how = np.concatenate(parts), column.domain, column.name, seed, node
                self._symbols[column.name] = new = replace(mappings[column.name], *how)
                names += symbol_names(column.name, new.size)
            else:
                names += column.labels
        self.feature_names = tuple(names)

    def blocks(self, rows: Array | None = None) -> Iterator[tuple[Array, Array, Array]]:
        """Places among `rows`, X and the target cells, some rows at a time."""
        wanted = [column.name for column in self.schema.columns if column.name not in self._symbols]
        for places, numbers, cells in self.some([*wanted, *([self.target] if self.target else [])], rows):
            X = np.empty((len(numbers), len(self.feature_names)))
            at = 0
            for column in self.schema.columns:
                block = self._bearing(column, numbers, cells.get(column.name, ()))
                X[:, at : at + block.shape[1]] = block
                at += block.shape[1]
            yield places, X, self._targets(cells[self.target] if self.target else [""] * len(numbers))

    def _bearing(self, column: Number | Category, rows: Array, cells: Cells) -> Array:
        """`_block`; where bad cells do not end it, rows are halved until each one that has some stands alone."""
        try:
            return self._block(column, rows, cells)
        except InputError as error:
            if self.refused is None:
                raise
            if len(rows) == 1:
                self.refused.setdefault(int(rows[0]), str(error).removesuffix(f"; {MEND}"))
                return np.zeros((1, len(column.labels)))
        halves = (slice(len(rows) // 2), slice(len(rows) // 2, None))
        return np.concatenate([self._bearing(column, rows[half], cells[half]) for half in halves])

    def _block(self, column: Number | Category, rows: Array, cells: Cells) -> Array:
        """The columns of X that a column of the file becomes."""
        if isinstance(column, Number):
            return self._numbers(column, rows, cells)
        new = self._symbols.get(column.name)
        codes = self.codes(column, rows, cells) if new is None else new.codes[rows]
        return (codes[:, None] == np.arange(len(column.domain) if new is None else new.size)).astype(float)

    def _targets(self, cells: Cells) -> Array:
        """Target cells as they stand, equal texts once: there are few classes and many rows."""
        texts, same = _texts(cells), self._same
        if len(same) < _DISTINCT:
            texts = [same.setdefault(text, text) for text in texts]
        return np.array(texts, dtype=object)

    def codes(self, column: Category, rows: Array, cells: Sequence[str] | Array) -> Array:
        """The number of each cell within the domain; -1 for a missing one that stands for nothing."""
        code = {value: number for number, value in enumerate(column.domain)}
        if {*column.domain} - {MISSING} == {"False", "True"}:  # a DataFrame's truth values come as 0 and 1
            code |= {"0": code["False"], "1": code["True"]}
        gone = -1 if column.missing is None else code[column.missing]
        listed = self.schema.missing if column.missing is None else {*self.schema.missing, ""}
        code |= {value: gone for value in listed if value not in code}
        texts = _texts(cells)
        try:
            return np.array([code[cell] for cell in texts], dtype=np.int64)
        except KeyError:
            bad, cell = next((i, cell) for i, cell in enumerate(texts) if cell not in code)
            where = self._cell(rows[bad], column.name)
            domain = ", ".join(map(repr, [*code][:8])) + ", ..." * (len(code) > 8)
            if self.schema.trained:
                found = f"{cell!r} is not in its domain" if cell else "the cell is empty"
                raise InputError(f"{where}: {found}; the model knows {domain}; {MEND}") from None
            require(
                cell,
                f"{where}: the cell is empty; fill it in, or write {toml_key(column.name)} = {{ values = [...], "
                f"missing_indicator = true }}, or one of the values as missing, in the {self.schema_word}",
            )
            raise InputError(
                f"{where}: {cell!r} is not in the domain that the {self.schema_word} gives ({domain}); "
                "mend the cell, or add the value to the domain"
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
            bad = next(i for i, cell in enumerate(cells) if not is_number(cell))
            raise InputError(self._not_a_number(rows[bad], column, _texts(cells)[bad])) from None
        finite = np.isfinite(values)
        if not finite.all():
            bad = int(np.argmin(finite))
            cell = self._said(rows[bad], column.name, cells[bad])
            require(cell not in MARKS, self._not_a_number(rows[bad], column, cell))
            raise InputError(
                f"{self._cell(rows[bad], column.name)}: the value is {cell}; "
                "needed: a finite number; fill it in or leave the row out"
            )
        if column.high is None:
            return values[:, None]
        outside = (values < column.low) | (values > column.high)
        if outside.any():
            bad = int(np.argmax(outside))
            said = self._said(rows[bad], column.name, cells[bad])
            trained = self.schema.trained
            whose = "that the model was trained with" if trained else f"of the {self.schema_word}"
            raise InputError(
                f"{self._cell(rows[bad], column.name)}: {said} is outside the bounds {column.low:g} to {column.high:g} "
                f"{whose}; {MEND if trained else 'mend the cell, or widen the bounds'}"
            )
        scaled = (values - column.low) / (column.high - column.low)
        return np.column_stack([scaled, gone.astype(float)] if column.indicator else [scaled])

    def _said(self, row: int, name: str, cell: Any) -> str:
        """A cell as the file has it, where only its number was read."""
        if not isinstance(cell, str) and self.refused is None:
            for some in self.some([name], np.array([row]), texts=True):
                cell = some.columns[name][0]
        return str(cell).strip()

    def _cell(self, row: int, name: str) -> str:
        where = f"{self.path} {self.place(int(row))}, " if self.refused is None else ""
        return f"{where}column {name!r}"

    @property
    def _a_schema(self) -> str:
        return f"a {self.schema_word}{' file' if self.schema_word.startswith('-') else ''}"

    def _not_a_number(self, row: int, column: Number, cell: str) -> str:
        where = self._cell(row, column.name)
        if not cell or cell in (*self.schema.missing, *MARKS):
            found = f"{cell!r} stands for no number" if cell else "the cell is empty"
            if self.schema.trained:
                return f"{where}: {found}, and the model has no value for such a cell; {MEND}"
            listed = (
                f"missing = [{json.dumps(cell)}] and " if cell and cell not in self.schema.missing else ""
            )
            bounds = "max = MAX" if column.high is None else f"min = {column.low:g}, max = {column.high:g}"
            name = toml_key(column.name)
            written = f"{listed}{name} = {{ {bounds}, missing = VALUE }}, numbers known without the rows,"
            return f"{where}: {found}; fill it in, leave out the row, or write {written} in {self._a_schema}"
        if self.schema.trained:
            return f"{where}: {cell!r} is not a number; {MEND}"
        point = " (a point before decimals, no other mark)" if re.match(r"-?[0-9.,' ]+$", cell) else ""
        return (
            f"{where}: {cell!r} is not a number; mend it{point}, or describe a text column by its public domain in "
            f"{self._a_schema}"
        )


def toml_key(name: str) -> str:
    """A column as the key of a TOML table."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def arrow() -> Any:
    """pyarrow.csv, where it is installed (`distadmm[arrow]`)."""
    try:
        import pyarrow.csv
    except ImportError:
        return None
    return pyarrow


def numbers_of(parts: Sequence[Any]) -> Array:
    """Numbers of pyarrow, none of them missing, as they lie in memory: `to_numpy` would load pandas on every rank."""
    found = []
    for part in parts:
        whole = np.frombuffer(part.buffers()[1], part.type.to_pandas_dtype())
        found.append(whole[part.offset : part.offset + len(part)])
    return found[0] if len(found) == 1 else np.concatenate([*found, np.empty(0)])


def _by_arrow(
    pyarrow: Any, delimiter: str, header: list[str], exact: set[str], names: Sequence[str], lines: Any
) -> dict[str, Cells] | None:
    """The columns as pyarrow reads them; None where it refuses a cell, of which somebody else says what it is."""
    csv, size = pyarrow.csv, sum(map(len, lines)) + len(lines)
    number, text = pyarrow.float64(), pyarrow.string()
    try:
        table = csv.read_csv(
            pyarrow.BufferReader(b"\n".join(lines)),
            read_options=csv.ReadOptions(use_threads=False, block_size=size + 1, column_names=header),
            parse_options=csv.ParseOptions(delimiter=delimiter, quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types={name: number if name in exact else text for name in names},
                include_columns=list(names),
                null_values=[],
                strings_can_be_null=False,
            ),
            memory_pool=pyarrow.system_memory_pool(),  # which gives back what it no longer needs
        )
    except pyarrow.ArrowInvalid:
        return None
    columns = {name: table.column(name) for name in names}
    found = {n: numbers_of(c.chunks) if n in exact else c.to_pylist() for n, c in columns.items()}
    whole = all(len(cells) == len(lines) for cells in found.values())
    finite = all(np.isfinite(cells).all() for name, cells in found.items() if name in exact)
    return found if whole and finite else None


def _texts(cells: Sequence[str] | Array) -> list[str]:
    return [str(cell).strip() for cell in cells]
