"""How a user's file is read: by its suffix, and by what is publicly known of its columns and classes."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from distadmm.data import arrays, session
from distadmm.data import mapping as mappings
from distadmm.data.csvfile import CsvFile
from distadmm.data.formats import LibsvmFile, kind
from distadmm.data.public import ROWS, Fact, PublicFacts, mappings_of
from distadmm.data.schema import Category, Schema
from distadmm.data.table import Array, Matrix, blocks_of, collected
from distadmm.data.targets import TASKS, conventional, find_classes, given_classes, to_targets
from distadmm.errors import InputError, require, require_members

if TYPE_CHECKING:
    from distadmm.data.content import Content, Sums

LIBSVM = (".libsvm", ".svm", ".txt")
CELLS = (".csv", ".tsv", ".parquet")


class TableFile(Protocol):
    """What a data format's reader has; it is made by `reader(path, reading)` and registered for a suffix.

    `n_rows` and `feature_names` are known when it is made.  `read` gives X (an array, or `data.table.Sparse`) and the
    target cells as they stand, of these rows or of all; `place` says where a row stands, for errors.
    """

    path: Path
    n_rows: int
    feature_names: tuple[str, ...]

    def place(self, row: int) -> str: ...

    def read(self, rows: Array | None = None) -> tuple[Matrix, Array]: ...


LINES = {
    "path": "self.path = path",
    "n_rows": "self.n_rows = ...",
    "feature_names": "self.feature_names = (...)",
    "place": "def place(self, row): return f'line {row + 1}'",
    "read": "def read(self, rows=None): return X, target",
}
FORMATS: dict[str, Callable[[Path, Reading], TableFile]] = {}  # of the user's own, by suffix


def register_format(suffix: str) -> Callable[[Any], Any]:
    """`@register_format(".fixed")` over a `TableFile`: files of that suffix are read by it."""
    require(
        suffix[:1] == ".", f"the suffix of a format is {suffix!r}; needed: a dot and a name, as in '.fixed'"
    )

    def keep(reader: Any) -> Any:
        methods = {name: LINES[name] for name in ("place", "read")}
        require_members(f"the reader of {suffix} files", reader, methods)
        FORMATS[suffix] = reader
        return reader

    return keep


def file_of(reader: Any) -> str:
    """Where a reader of the user's own comes from."""
    return str(getattr(sys.modules.get(reader.__module__), "__file__", None) or reader.__module__)


@dataclass(frozen=True)
class Reading:
    """How a file is read: what is public about it, none of it computed from its rows.

    A `private` reading learns no name of a class from the rows.
    """

    target: str | None = None
    task: str = "binary"
    labels: tuple[str, ...] = ()
    schema: Schema | None = None
    features: int | None = None
    sanitise: Mapping[str, mappings.ColumnMapping] = field(default_factory=dict)
    seed: int = 0
    private: bool = False
    stated: tuple[str, ...] = ()  # facts that are stated to be public

    def __post_init__(self) -> None:
        require(self.task in TASKS, f"task is {self.task!r}; choose one of: {', '.join(TASKS)}")
        require(
            self.features is None or self.features >= 1,
            f"--features is {self.features}; needed: the number of columns, at least 1",
        )
        if self.labels:
            given_classes(self.labels, self.task)
        categorical = {
            c.name: c for c in (self.schema.columns if self.schema else ()) if isinstance(c, Category)
        }
        mappings.check_columns(self.sanitise, categorical)

    def open(
        self,
        path: Path,
        *,
        drop: Sequence[str] = (),
        targetless: bool = False,
        featureless: bool = False,
        known: Any = None,
    ) -> TableFile:
        """The file, by its suffix: without the columns `drop`, and, where allowed, without target or features.

        `known`: the `pieces` of a file that was opened before, so that it is not searched again.
        """
        suffix = kind(path)
        if suffix in CELLS:
            how = {"targetless": targetless, "featureless": featureless, "known": known}
            return session.cell_file(path, target=self.target, schema=self.schema, drop=drop, **how)
        require(
            not path.is_dir(),
            f"{path} is a folder; give a file, or one for each node, as in NAME-{{rank}}.csv",
        )
        what = "libsvm" if suffix in LIBSVM else suffix
        require(
            self.schema is None,
            f"{path}: a --schema describes columns of CSV and Parquet; leave it out for {what}",
        )
        if suffix in LIBSVM:
            require(
                self.target is None,
                f"{path}: a libsvm file begins each row with its label; leave out --target",
            )
            return LibsvmFile(path, features=self.features, known=known)
        if suffix in (".npz", ".npy"):
            reader = arrays.ArrayFile if suffix == ".npz" else arrays.PlainArray
            return reader(path, target=self.target, targetless=targetless, known=known)
        if suffix in FORMATS:
            file = FORMATS[suffix](path, self)
            require_members(f"{path}: the reader of {suffix} files", file, LINES)
            width = len(file.feature_names)
            require(
                self.features in (None, width),
                f"{path} has {width} columns, --features is {self.features}; make them agree",
            )
            return file
        raise InputError(
            f"{path}: what is {suffix or 'a file without suffix'}? Known: {', '.join(CELLS)}, .npz, .npy, "
            f"{', '.join(LIBSVM)}, the texts also as .gz, .bz2, .xz"
        )

    def given(self) -> Fact | None:
        """The classes where they are stated, not found."""
        if self.task == "regression":
            return Fact((), "flag")
        labels, source = (
            (self.labels, "flag") if self.labels else (self.schema and self.schema.labels, "schema")
        )
        return Fact(given_classes(labels, self.task), source) if labels else None

    def known(self, *, whole: bool = True) -> Fact | None:
        """The classes where they are not to be found in rows."""
        learnt = whole and not (self.private and self.task == "binary")
        return self.given() or (None if learnt else Fact((-1.0, 1.0), "convention"))

    def found(self, cells: Array, where: str, count: int, place: Any = None) -> Fact:
        """The classes of `count` rows, among the targets of which these are all different ones."""
        wanted = "NEGATIVE,POSITIVE" if self.task == "binary" else "A,B,C"
        why = f"the classes are those found in the rows; give --labels {wanted}"
        return Fact(find_classes(cells, self.task, where, count, place), ROWS, why)

    def targets(
        self, cells: Array, where: str, place: Any, classes: Fact | None = None, *, whole: bool = True
    ) -> tuple[Array, Fact]:
        """y and the classes; `whole` says that these are the cells of every row there is."""
        classes = classes or self.known(whole=whole) or self.found(cells, where, len(cells), place)
        if classes.source == "convention":
            return conventional(cells, self.task, where, place), classes
        return to_targets(cells, classes.value, self.task, where, place), classes

    def facts(self, path: Path, names: Sequence[str], classes: Fact, norm: float | None) -> PublicFacts:
        """What is known of a file beside its rows."""
        columns = Fact(len(names), "schema" if self.schema else "header")
        if kind(path) in LIBSVM or kind(path) in FORMATS:
            which = (
                "the largest index in the rows" if kind(path) in LIBSVM else "what a reader of your own found"
            )
            why = f"the number of columns is {which}; give --features N"
            columns = Fact(len(names), "flag") if self.features else Fact(len(names), ROWS, why)
        bounds = Fact(self.schema.columns, "schema") if self.schema else Fact(None, "header")
        reader = Fact("", "flag")
        if kind(path) in FORMATS:
            own = file_of(FORMATS[kind(path)])
            why = f"the reader of {own} is unchecked code and may make a row of other rows too; write its table as .npz"
            reader = Fact(own, ROWS, why)
        found = PublicFacts(
            classes, columns, bounds, Fact(norm, "flag"), mappings_of(self.sanitise), reader=reader
        )
        return found.stating(self.stated)

    def sanitised(self, file: TableFile, node: int = 0) -> TableFile:
        """The file with symbols in its sanitised columns, in all rows."""
        if self.sanitise:
            assert isinstance(file, CsvFile)
            file.sanitise(self.sanitise, self.seed, node)
        return file

    def read(self, file: TableFile, node: int = 0) -> tuple[Matrix, Array, tuple[str, ...]]:
        """All of X with its sanitised columns in place, the target cells, and the names of the columns."""
        file = self.sanitised(file, node)
        return (*collected(file, None), file.feature_names)

    def content(self, file: TableFile, rows: Array | None, key: bytes) -> Content:
        """Which rows these are, whatever is made of them."""
        return self.sums(file, rows, key).content(key)

    def sums(self, file: TableFile, rows: Array | None, key: bytes) -> Sums:
        """What the contents of these rows are made of, in their order."""
        from distadmm.data.content import Sums, sums_of_columns, sums_of_matrix

        parts: Iterator[tuple[Array, Sums]]
        if isinstance(file, CsvFile):
            target, names = None if file.target is None else file.header.index(file.target), file.header
            parts = (
                (at, sums_of_columns([columns[name] for name in names], target, key))
                for at, _, columns in file.some(names, rows)
            )
        else:
            parts = ((at, sums_of_matrix(X, cells, key)) for at, X, cells in blocks_of(file, rows))
        return Sums.of(file.n_rows if rows is None else len(rows), parts)

    def as_json(self) -> dict[str, Any]:
        """What a file of new rows is to be read by, too."""
        schema = None if self.schema is None else self.schema.as_json()
        names = {"target": self.target, "features": self.features, "sanitised": sorted(self.sanitise)}
        return {"schema": schema, **names}

    def as_text(self) -> str:
        told = (self.target, self.task, self.labels, self.schema, self.features, sorted(self.sanitise))
        # What a schema does not say of missing cells is not named, as before it could be said.
        return repr(told).replace(", missing=None, indicator=False)", ")").replace(", missing=None)", ")")


def file_digest(path: Path | session.Held) -> str:
    if isinstance(path, session.Held):
        return path.digest()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
