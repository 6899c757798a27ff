"""How many rows and columns there are, where no row is to be read: flags and public numbers."""

import sys
from typing import Any

from distadmm.data import public
from distadmm.data.source import BUNDLED, Source, open_source
from distadmm.errors import InputError, require
from distadmm.flags import again, flag, flag_group
from distadmm.graphs.topology import load_changing
from distadmm.run.config import Problem as Data
from distadmm.run.groups import Budget


@flag_group("shape")
class Shape:
    """Of a table that a plan is made for."""

    epsilon: float = flag(help="privacy budget of each run", above=0)
    delta: float = again(Budget, "delta")
    data: str | None = flag(None, help="take rows and columns from this data set's public shape")
    rows: int | None = flag(
        None, help="rows (of a graph: a node), without --data, or where their number is protected", at_least=1
    )
    columns: int | None = flag(None, help="columns, without --data", at_least=1)

    def __post_init__(self) -> None:
        known = self.data is not None or (self.rows is not None and self.columns is not None)
        require(known, "the shape is needed: give --data NAME, or --rows and --columns")


@flag_group("shape")
class ShapeOfNodes(Shape):
    topology: str = again(Data, "topology")
    rows_per_node: int | None = again(Data, "rows_per_node")


def require_public_count(options: Any) -> None:
    """Where the number of rows is what is protected, nothing that is printed may follow from it."""
    require(
        options.adjacency not in ("add-remove", "node") or options.rows or options.data in BUNDLED,
        f"--adjacency {options.adjacency} protects how many rows there are, and a plan made from their number tells "
        "it; give --rows, a number known without them",
    )


def shape(options: Any) -> tuple[int, int]:
    """Rows a node and columns; public numbers."""
    require_public_count(options)
    most = getattr(options, "rows_per_node", None) or sys.maxsize
    rows, columns = options.rows, options.columns
    if rows is None or columns is None:
        source = open_source(str(options.data))
        if source.n_rows is None:
            raise InputError(
                f"--data {options.data}: each node holds its own file; give --rows and --columns instead"
            )
        columns = columns or width_of(source)
        rows = rows or source.n_rows // load_changing(options.topology).union.n
    return min(rows, most), columns


def width_of(source: Source) -> int:
    """How many columns a table has, if that is not read off its rows."""
    require(
        source.facts.columns.source != public.ROWS,
        f"--data {source.name}: how many columns it has is the largest index in its rows, which one record can change; "
        "give --columns, a number known without them",
    )
    return source.n_features
