"""Scores of new rows by the model of a finished run.

A new row becomes columns as the training's rows did, one by one and by what `model.json` says alone: the schema, the
names of the columns, the norm.  So a score is a function of the released model and of that row, and costs no privacy
of the rows it was trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.data.adult.table import SCHEMA
from distadmm.data.csvfile import MEND, CsvFile
from distadmm.data.formats import kind
from distadmm.data.reading import CELLS, Reading
from distadmm.data.schema import Category, Number, Schema, instead
from distadmm.data.session import cell_file, table
from distadmm.data.table import WIDE, Array, Matrix, Sparse, clip_rows, dense, with_intercept
from distadmm.errors import InputError, require
from distadmm.run.model import Model

Table = tuple[list[str], list[tuple[Any, ...]]]


class BadRows(InputError):
    """Some of the rows have cells that cannot be read."""


class Scorer(NamedTuple):
    """One linear model, with all that makes new rows of it scores."""

    told: dict[str, Any]
    theta: Array  # (classes or 1, columns), the intercept's last where there is one
    whose: str

    @classmethod
    def of(cls, model: Model, node: int | str | None = None) -> Self:
        """The model of a run: a node's own (0 unless another is named), the "mean" of these, or what there is."""
        told, found = model.told, model.arrays
        require(
            "coefficients" in found and told["link"],
            f"{model.path} does not say how rows are scored; give the directory of a finished run of this version",
        )
        theta, each, whose = found["coefficients"], found.get("each node's"), "this run's model"
        if each is not None:
            own = str(node or 0)
            require(
                own == "mean" or (own.isdecimal() and int(own) < len(each)),
                f"--node is {node}; needed: 0 to {len(each) - 1}, or mean",
            )
            if (each == each[0]).all():
                theta, whose = each[0], f"the model that all {len(each)} nodes hold"
            elif own == "mean":
                whose = f"the mean of {len(each)} nodes' models, which no node holds"
            else:
                theta, whose = each[int(own)], f"node {own}'s own model"
        elif node is not None:
            raise InputError(f"{model.path} has one model; leave out --node")
        elif theta.ndim == 2:  # of repetitions
            whose = "this run's model" if len(theta) == 1 else f"the first of {len(theta)} repetitions"
            theta = theta[0]
        several = len(told["classes"]) if told["link"] == "softmax" else 1
        return cls(told, np.reshape(theta, (several, -1)), whose)

    # -- from rows to columns ---------------------------------------------------------------------------

    def read(self, rows: Any, refused: dict[int, str] | None = None) -> Matrix:
        """The columns of the model, of a file, a DataFrame or an array; a target is neither needed nor looked at.

        Rows with a cell that cannot be read are an error that counts them; or zeros, and `refused` says why, unless
        these are all rows.
        """
        wanted, encoding = self.told["features"], self.told["encoding"] or {}
        framed = hasattr(rows, "columns")
        if not (framed or isinstance(rows, str | Path) or encoding.get("schema")):
            return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=float)
        path: Any = Path(rows) if isinstance(rows, str | Path) else table(rows, targetless=True)
        if kind(path) not in CELLS:
            file = Reading(features=encoding.get("features") or len(wanted)).open(path, targetless=True)
            require(
                len(file.feature_names) == len(wanted),
                f"{path} has {len(file.feature_names)} columns; the model was trained on {len(wanted)}",
            )
            return file.read()[0]
        given = cell_file(path, targetless=True)
        given.refused = {}  # what is bad in other columns does not matter
        there = given.header
        schema = self._schema(set(there))
        missing = [repr(column.name) for column in schema.columns if column.name not in there]
        if missing:
            named = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
            raise InputError(
                f"{path} has no column {named}; the model was trained on {'it' if len(missing) == 1 else 'them'}; "
                f"{instead(missing[0][1:-1], there)}"
            )
        names: list[str] = []
        for column in schema.columns:
            if not (isinstance(column, Category) and column.domain[0] == f"{column.name}~0"):
                names += column.labels
            else:
                names += column.domain
                require(
                    set(given.column(column.name)) <= set(column.domain),
                    f"{path}: column {column.name!r} is not sanitised, as it was for this model; do so by: python -m "
                    f"distadmm apply MAPPING --column {column.name} --data {path}",
                )
        file = cell_file(path, schema=schema.of_new_rows(there), targetless=True)
        file.refused = {} if refused is None else refused
        X = dense(file.read()[0])
        if file.refused and (refused is None or len(refused) == file.n_rows):
            kind_of_error = BadRows if refused is None else InputError
            raise kind_of_error(_refusal(file, file.refused))
        return X if names == wanted else X[:, [names.index(name) for name in wanted]]

    def _schema(self, there: set[str]) -> Schema:
        """How a file with these columns is read: as the training's, or column by column under the model's names."""
        encoding = self.told["encoding"] or {}
        if encoding.get("schema"):
            schema = Schema.of_json(encoding["schema"])
        elif encoding.get("table") == "adult" and "workclass" in there:
            schema = SCHEMA
        else:
            return Schema(tuple(Number(name) for name in self.told["features"]))
        names = self.told["features"]
        columns: list[Number | Category] = []
        for column in schema.columns:
            symbols = tuple(name for name in names if name.startswith(f"{column.name}~"))
            if any(label in names for label in column.labels):
                columns.append(column)
            elif isinstance(column, Category) and symbols:
                columns.append(Category(column.name, symbols))
        return replace(schema, columns=tuple(columns))

    # -- from columns to scores -------------------------------------------------------------------------

    @property
    def unit(self) -> float:
        """By which features are divided first, as those of the training were."""
        return float((self.told["encoding"] or {}).get("unit", 1.0))

    def scores(self, X: Matrix) -> Array:
        """<x, theta>, a column a class of a softmax model, else one."""
        X = X if isinstance(X, Sparse) else np.asarray(X, dtype=float)
        width, inside = len(self.told["features"]), self.told["intercept"] == "inside"
        require(
            len(X.shape) == 2 and X.shape[1] == width,
            f"the rows have shape {X.shape}; the model was trained on {width} columns: give (rows, {width})",
        )
        require(
            np.isfinite(X.data if isinstance(X, Sparse) else X).all(),
            "the rows hold a NaN or an infinite number; give finite numbers",
        )
        if self.unit != 1.0:
            X = dense(X) / self.unit
        Z: Matrix = with_intercept(X) if inside else X
        if self.told["row_norm"] is not None:
            Z = clip_rows(Z, self.told["row_norm"])[0]
        Z = with_intercept(Z) if self.told["intercept"] == "outside" else Z
        wide = self.theta.shape[1] > WIDE
        with np.errstate(all="ignore"):
            return finite((Z.to_scipy() if isinstance(Z, Sparse) and wide else dense(Z)) @ self.theta.T)

    def probabilities(self, X: Matrix) -> Array:
        """A column a class."""
        return _probabilities(self.told, self.scores(X))

    def predictions(self, X: Matrix) -> Array:
        """The names of classes, or numbers where the target is one."""
        return _predictions(self.told, self.scores(X))

    def table(self, X: Matrix) -> Table:
        """What a file of scores holds."""
        return table_of(self.told, self.scores(X))


def finite(z: Array) -> Array:
    """These scores, of a model that is whole."""
    told = "the model gives scores that are no finite numbers: its run diverged, or its file is damaged; "
    require(np.isfinite(z).all(), told + "train it again, or restore the file")
    return z


def _refusal(file: CsvFile, reasons: Mapping[int, str]) -> str:
    """Why the first of these rows cannot be scored, how many there are, and where the first ones stand."""
    rows = sorted(reasons)
    kind_of_place, first = file.place(rows[0]).split()
    said = f"{file.path} {kind_of_place} {first}, {reasons[rows[0]]}"
    if len(rows) == 1:
        return f"{said}; {MEND}"
    places = ", ".join([first, *(file.place(row).split()[1] for row in rows[1:6])])
    more = ", ..." if len(rows) > 6 else ""
    return (
        f"{said}; {len(rows)} of {file.n_rows} rows cannot be scored ({kind_of_place}s {places}{more}): mend them or "
        "leave them out"
    )


def _probabilities(told: Mapping[str, Any], z: Array) -> Array:
    link = told["link"]
    require(link in ("logistic", "softmax"), f"--loss {told['loss']} has no probabilities; use scores")
    if link == "logistic":
        z = np.hstack([np.zeros_like(z), z])
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


def _predictions(told: Mapping[str, Any], z: Array) -> Array:
    if told["link"] == "identity":
        return z[:, 0]
    which = z.argmax(axis=1) if told["link"] == "softmax" else (z[:, 0] > 0).astype(int)
    classes = told["classes"]
    if {*classes} == {"False", "True"}:  # as a program holds them
        classes = [name == "True" for name in classes]
    return np.array(classes)[which]


def without(table: Table, refused: Mapping[int, str]) -> Table:
    """A file of scores in which these rows have none, and a last column says why."""
    heads, lines = table
    blank = ("",) * (len(heads) - 1)
    kept = [
        (line[0], *blank, refused[row]) if row in refused else (*line, "") for row, line in enumerate(lines)
    ]
    return [*heads, "reason"], kept


def table_of(told: Mapping[str, Any], z: Array, named: tuple[str, Sequence[str]] | None = None) -> Table:
    """Heads and lines of what a file of scores holds; rows are numbered, unless they are `named` (head, names)."""
    number = lambda value: f"{value:.10g}"  # noqa: E731
    called = lambda name: number(name) if isinstance(name, float) else name  # noqa: E731  (0, not 0.0)
    head, names = named or ("row", range(1, len(z) + 1))
    heads, columns, link = [head], [list(names)], told["link"]
    if link == "identity":
        heads, columns = [head, "prediction"], [*columns, list(map(number, z[:, 0]))]
        return heads, list(zip(*columns))
    if told["classes"]:
        heads, columns = [head, "class"], [*columns, list(map(called, _predictions(told, z).tolist()))]
    if link != "softmax":
        heads, columns = [*heads, "score"], [*columns, list(map(number, z[:, 0]))]
    if link in ("logistic", "softmax"):
        heads += [f"p({called(name)})" for name in told["classes"]]
        columns += [list(map(number, column)) for column in _probabilities(told, z).T]
    return heads, list(zip(*columns))
