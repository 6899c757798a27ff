"""Parquet files, whose columns have names and types: read row group by row group, by pyarrow (`distadmm[arrow]`)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.csvfile import Cells, CsvFile, Some, arrow, numbers_of
from distadmm.data.table import Array
from distadmm.errors import InputError, require
from distadmm.files import require_an_end

_AT_ONCE = 1 << 19  # cells
_BUFFER = 1 << 16  # bytes of a column that are read ahead


class ParquetFile(CsvFile):
    """What `CsvFile` makes of a file of texts, of one of typed columns; a null is an empty cell."""

    def _take(self, path: Path, known: object) -> None:
        require_an_end(path)
        require(arrow() is not None, f"{path}: Parquet is read by pyarrow; pip install 'distadmm[arrow]'")
        self.path = path
        with self._opened() as file:
            columns = file.schema_arrow
            self.header = [name.strip() for name in columns.names]
            groups = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
            for field in columns:
                self._check_type(field)
        self._ends = np.concatenate([[0], np.cumsum(groups, dtype=np.int64)])
        self.n_rows = int(self._ends[-1])

    def _opened(self) -> Any:
        import pyarrow
        import pyarrow.parquet

        try:
            return pyarrow.parquet.ParquetFile(self.path, buffer_size=_BUFFER, pre_buffer=False)
        except FileNotFoundError:
            raise InputError(f"no file {self.path}; give an existing file") from None
        except (OSError, pyarrow.ArrowException) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"{self.path} is not a readable Parquet file ({error}); write it with pyarrow")

    def _check_type(self, field: Any) -> None:
        from pyarrow import types

        kinds = (
            *(types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_large_string),
            *(types.is_dictionary, types.is_decimal, types.is_null),
        )
        require(
            any(is_a(field.type) for is_a in kinds),
            f"{self.path}, column {field.name!r} holds {field.type}; needed: numbers or texts",
        )

    def place(self, row: int) -> str:
        return f"row {row + 1}"

    def some(self, names: Sequence[str], rows: Array | None = None, *, texts: bool = False) -> Iterator[Some]:
        """Only of row groups with any of these rows."""
        import pyarrow

        rows = np.arange(self.n_rows) if rows is None else np.asarray(rows)
        order = np.argsort(rows, kind="stable")
        numbers, size = rows[order], max(_AT_ONCE // max(len(names), 1), 1)
        wanted = np.unique(np.searchsorted(self._ends, numbers, side="right") - 1)
        with self._opened() as file:
            known = dict(zip(self.header, file.schema_arrow.names))
            for group in wanted.tolist():
                at = int(self._ends[group])
                try:
                    columns = [known[name] for name in names]
                    for batch in file.iter_batches(size, [group], columns, use_threads=False):
                        low, high = np.searchsorted(numbers, [at, at + len(batch)])
                        own = numbers[low:high] - at
                        at += len(batch)
                        if low < high:
                            cells = {name: _cells(batch.column(known[name]), own) for name in names}
                            yield Some(order[low:high], numbers[low:high], cells)
                except (OSError, pyarrow.ArrowException) as error:
                    raise self._damaged(error) from None


def _cells(column: Any, rows: Array) -> Cells:
    """Numbers as they are; where a cell is missing, and of texts, the texts."""
    from pyarrow import array, types

    if types.is_boolean(column.type):
        column = column.cast("int8")
    if not column.null_count and (types.is_integer(column.type) or types.is_floating(column.type)):
        return numbers_of([column])[rows]
    return ["" if cell is None else str(cell).strip() for cell in column.take(array(rows)).to_pylist()]
