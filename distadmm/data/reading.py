"""How a user's file is read: by its suffix, and by what is publicly known of its columns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from distadmm.data import sanitise
from distadmm.data.csvfile import CsvFile
from distadmm.data.libsvm import LibsvmFile
from distadmm.data.npzfile import NpzFile
from distadmm.data.schema import Category, Schema
from distadmm.data.table import Array, Matrix
from distadmm.data.targets import TASKS, given_classes
from distadmm.data.textfile import kind
from distadmm.errors import InputError, require

LIBSVM = (".libsvm", ".svm", ".txt")


class TableFile(Protocol):
    path: Path
    n_rows: int
    feature_names: tuple[str, ...]

    def place(self, row: int) -> str: ...

    def read(self, rows: Array | None = None) -> tuple[Matrix, Array]: ...


@dataclass(frozen=True)
class Reading:
    """How a file is read: what is public about it, none of it computed from its rows."""

    target: str | None = None
    task: str = "binary"
    labels: tuple[str, ...] = ()
    schema: Schema | None = None
    features: int | None = None
    sanitise: Mapping[str, sanitise.ColumnMapping] = field(default_factory=dict)
    seed: int = 0

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
        sanitise.check_columns(self.sanitise, categorical)

    def open(
        self, path: Path, *, drop: Sequence[str] = (), targetless: bool = False, featureless: bool = False
    ) -> TableFile:
        """The file, by its suffix: without the columns `drop`, and, where allowed, without target or features."""
        suffix = kind(path)
        if suffix in LIBSVM:
            require(self.schema is None, f"{path}: a --schema describes CSV columns; leave it out for libsvm")
            require(
                self.target is None,
                f"{path}: a libsvm file begins each row with its label; leave out --target",
            )
            return LibsvmFile(path, features=self.features)
        if suffix == ".npz":
            require(self.schema is None, f"{path}: a --schema describes CSV columns; leave it out for .npz")
            return NpzFile(path, target=self.target, targetless=targetless)
        if suffix in (".csv", ".tsv"):
            return CsvFile(
                path,
                target=self.target,
                schema=self.schema,
                drop=drop,
                targetless=targetless,
                featureless=featureless,
            )
        raise InputError(
            f"{path}: what is {suffix or 'a file without suffix'}? Known: .csv, .tsv, .npz, {', '.join(LIBSVM)}, "
            "the texts also as .gz, .bz2, .xz"
        )

    def given(self) -> tuple[Any, ...] | None:
        """The classes where they are stated, not found."""
        if self.task == "regression":
            return ()
        labels = self.labels or (self.schema.labels if self.schema else ())
        return given_classes(labels, self.task) if labels else None

    def read(self, file: TableFile, node: int = 0) -> tuple[Matrix, Array, tuple[str, ...]]:
        """All of X with its sanitised columns in place, the target cells, and the names of the columns."""
        if not self.sanitise:
            return (*file.read(), file.feature_names)
        assert isinstance(file, CsvFile)
        return file.read_sanitised(self.sanitise, self.seed, node)

    def as_text(self) -> str:
        return repr((self.target, self.task, self.labels, self.schema, self.features, sorted(self.sanitise)))


def file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
