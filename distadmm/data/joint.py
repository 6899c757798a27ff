"""Where a joint distribution of S and X comes from (of S and Y in `ias`): a table, rows of data, what is bundled.

Smoothing is stated as pseudo-counts: `smooth` adds that many to every cell of a table of counts.  `perturb` adds
to every cell of the *normalised* table, as the paper's "perturbation of 1e-3 to each entry" does; times the
number of records it is a pseudo-count too, and for large tables an enormous one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, product
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.data.formats import read_cells, read_numbers
from distadmm.data.mapping import check_distribution
from distadmm.data.schema import MARKS, Category, Schema, instead, is_number, read_schema
from distadmm.errors import InputError, require, told
from distadmm.files import read_json, read_npz

Array = np.ndarray

LARGEST = 1000  # symbols of X
MANY, OFTEN = 50, 10  # more different numbers than that need as many rows each
PROBLEMS = ("synthetic-unif", "synthetic-nonunif", "heart", "adult")
AGES = ("<30", "30-39", "40-49", "50-59", ">=60")
PRIORS = {"synthetic-unif": (1 / 3, 1 / 3, 1 / 3), "synthetic-nonunif": (0.1, 0.3, 0.6)}
SYNTHETIC = ((0.9, 0.08, 0.4), (0.025, 0.82, 0.05), (0.075, 0.1, 0.55))
HEART = (("sex", "death"), ("anaemia", "high_blood_pressure", "diabetes", "smoking"))
ADULT = (("age", "income"), ("age", "sex", "education-num"))


@dataclass(frozen=True, eq=False)
class Table:
    """A table of counts or probabilities, one row a symbol of S and one column a symbol of X."""

    cells: Array
    private: tuple[str, ...]  # names of the rows
    public: tuple[str, ...]  # names of the columns
    source: str
    column: str = ""  # what the columns are values of
    records: int | None = None  # rows of data that were counted; None for a table of probabilities
    alphabets: tuple[int, int] | None = None  # values that S and X can have, as known without the rows

    def smoothed(self, smooth: float = 0.0, perturb: float = 0.0) -> Self:
        """With pseudo-counts, and what was added said in `source`."""
        cells, source = self.cells.astype(float), self.source
        if smooth:
            require(self.records, "--smooth adds to counts, but the table holds probabilities; use --perturb")
            cells = cells + smooth
            source += f"; {self._added(smooth)}"
        if perturb:
            cells = cells / cells.sum() + perturb
            source += f"; {perturb:g} added to every cell of the normalised table"
            if self.records:
                source += f" = {self._added(perturb * self.records)}"
        return replace(self, cells=cells, source=source)

    def _added(self, pseudo: float) -> str:
        size, whole = self.cells.size, f"in all, to {self.records} records"
        return f"{pseudo:g} pseudo-counts in each of {size} cells ({pseudo * size:.4g} {whole})"

    def observed(self) -> Self:
        """Without the rows and columns that no record has."""
        rows, columns = self.cells.sum(axis=1) > 0, self.cells.sum(axis=0) > 0
        left = int((~columns).sum())
        private, public = tuple(compress(self.private, rows)), tuple(compress(self.public, columns))
        source = self.source + (f"; {left} combinations of X that no record has left out" if left else "")
        cells = self.cells[rows][:, columns]
        return replace(self, cells=cells, private=private, public=public, source=source)


def problem(name: str) -> Table:
    """One of PROBLEMS: those of the paper's experiments, from the data as they are."""
    if name in PRIORS:
        p = np.array(PRIORS[name])
        return Table(np.array(SYNTHETIC) * p, ("s1", "s2", "s3"), ("x1", "x2", "x3"), name, "x")
    require(name in PROBLEMS, f"no problem {name!r}; there are: {', '.join(PROBLEMS)}")
    if name == "heart":
        return heart(*HEART)
    from distadmm.data.adult import raw

    rows = raw.records()[: raw.TRAINING_ROWS]
    codes = {"age": _age_bin(rows["age"]), "income": rows["income"], "sex": rows["sex"]}
    codes["education-num"] = rows["education-num"] - 1
    names = {"age": AGES, "income": ("<=50K", ">50K"), "sex": ("Female", "Male")}
    names["education-num"] = tuple(str(n) for n in range(1, 17))
    table = counted(codes, names, *ADULT, source="Adult, the 32561 rows of adult.data")
    # Its names are those of a documentation, whether a row has them or not.
    return replace(table, alphabets=table.cells.shape)


def heart(private: Sequence[str], public: Sequence[str]) -> Table:
    """Heart failure: 299 records of six yes/no attributes."""
    from distadmm.data.heart_failure import table as heart_failure

    _columns(private, public, heart_failure.ATTRIBUTES, "heart")
    cells = heart_failure.joint(tuple(private), tuple(public))
    names = [_combinations({name: ("0", "1") for name in side}, side) for side in (private, public)]
    source = "heart failure clinical records, 299 rows"
    return Table(cells, names[0], names[1], source, "+".join(public), int(cells.sum()), cells.shape)


def adult(private: Sequence[str], public: Sequence[str]) -> Table:
    """Columns of the bundled Adult's training rows, categories in the order of its documentation, age in bins."""
    from distadmm.data.adult.domains import DOMAINS
    from distadmm.data.adult.table import adult_columns, split

    names = {**DOMAINS, "age": AGES, "income": ("<=50K", ">50K")}
    _columns(private, public, tuple(names), "adult")
    training, columns = split()[0], adult_columns()
    wanted = {*private, *public}
    codes = {name: columns[name][training] for name in wanted if name != "age"}
    if "age" in wanted:
        codes["age"] = _age_bin(columns["age"][training])
    table = counted(codes, names, private, public, f"Adult, {len(training)} training rows")
    return replace(table, alphabets=table.cells.shape)


def _age_bin(age: Array) -> Array:
    return np.searchsorted([30, 40, 50, 60], age, side="right")


def from_rows(
    path: str | Path,
    private: Sequence[str],
    public: Sequence[str],
    *,
    alphabetical: bool = False,
    schema: str | None = None,
) -> Table:
    """Columns of a CSV file with a header, counted; values in alphabetical or, where all are numbers, their order.

    `schema`: the file that says what missing cells stand for.
    """
    rows = read_cells(path)
    head = rows[0]
    _columns(private, public, head, str(path))
    described = read_schema(schema) if schema else Schema(())
    codes, names = {}, {}
    for name in {*private, *public}:
        values = _filled([row[head.index(name)] for row in rows[1:]], name, described, path)
        different = set(values)
        numbers = all(map(is_number, different))
        # Numbers that hardly ever occur twice are measured, not counted: a table of them is mostly chance.
        require(
            not numbers or len(different) <= max(MANY, len(values) // OFTEN),
            f"{path}: column {name!r} holds {len(different)} different numbers in {len(values)} rows, each of which "
            f"would be a symbol of its own; needed: at most {MANY}, or {OFTEN} rows for each; write a column of bins "
            "(20-29, 30-39, ...) into the file first",
        )
        names[name] = tuple(sorted(sorted(different), key=float if numbers and not alphabetical else str))
        place = {value: number for number, value in enumerate(names[name])}
        codes[name] = np.array([place[value] for value in values])
    table = counted(codes, names, private, public, f"{Path(path).name}, {len(rows) - 1} rows")
    domains = {
        column.name: len(column.domain) for column in described.columns if isinstance(column, Category)
    }
    if described.target and described.labels:
        domains[described.target] = len(described.labels)
    if not {*private, *public} <= set(domains):
        return table
    known = [int(np.prod([domains[name] for name in side])) for side in (private, public)]
    return replace(table, alphabets=(known[0], known[1]))


def _filled(cells: list[str], name: str, schema: Schema, path: str | Path) -> list[str]:
    """The cells of a column, the missing ones as what the schema says that they stand for."""
    column = next((column for column in schema.columns if column.name == name), None)
    known = column.domain if isinstance(column, Category) else ()
    marks = () if column else MARKS  # without a schema nobody says that such a cell is a value
    lost = [i for i, cell in enumerate(cells) if (schema.lacks(cell) or cell in marks) and cell not in known]
    if lost and (column is None or column.missing is None):
        raise InputError(
            f"{path} row {lost[0] + 1}, column {name!r}: the cell is {cells[lost[0]] or 'empty'}; fill it in, leave "
            f"out the row, or write {name} = {{ values = [...], missing_indicator = true }} in a --schema file"
            f"{f' (a list with {json.dumps(mark)} in it, where that is a value)' if (mark := cells[lost[0]]) else ''}"
        )
    for i in lost:
        filled = column.missing if column else ""
        cells[i] = f"{filled:g}" if isinstance(filled, float) else str(filled)
    foreign = next((i for i, cell in enumerate(cells) if known and cell not in known), None)
    if foreign is not None:
        raise InputError(
            f"{path} row {foreign + 1}, column {name!r}: {cells[foreign]!r} is not in the domain that the --schema "
            "gives; mend the cell, or add the value to the domain"
        )
    return cells


def counted(
    codes: Mapping[str, Array],
    names: Mapping[str, tuple[str, ...]],
    private: Sequence[str],
    public: Sequence[str],
    source: str,
) -> Table:
    """The table of counts of the combinations of some columns."""
    sizes = [int(np.prod([len(names[name]) for name in side])) for side in (private, public)]
    require(
        sizes[1] <= LARGEST,
        f"{'+'.join(public)} has {sizes[1]} combinations; at most {LARGEST} are handled: bin or drop a column",
    )
    flat = [
        np.ravel_multi_index([codes[name] for name in side], [len(names[name]) for name in side])
        for side in (private, public)
    ]
    cells = np.zeros(sizes, dtype=np.int64)
    np.add.at(cells, (flat[0], flat[1]), 1)
    row_names, column_names = (_combinations(names, side) for side in (private, public))
    return Table(cells, row_names, column_names, source, "+".join(public), int(cells.sum()))


def _combinations(names: Mapping[str, tuple[str, ...]], side: Sequence[str]) -> tuple[str, ...]:
    return tuple(map("|".join, product(*(names[name] for name in side))))


def _columns(private: Sequence[str], public: Sequence[str], known: Sequence[str], where: str) -> None:
    require(private and public, "rows need --private COLUMN,... and --public COLUMN,...")
    for name in (*private, *public):
        require(name in known, f"{where} has no column {name!r}; {instead(name, known)}")
    for side, flag in ((private, "--private"), (public, "--public")):
        require(len(set(side)) == len(side), f"{flag} {','.join(side)} names a column twice")


def read_joint(path: str | Path) -> Table:
    """A joint table: .csv (names across and down), or .npz with `joint`, or with `S` = P(s|x) and `p` = P(x)."""
    path = Path(path)
    require(
        path.suffix in (".csv", ".npz"),
        f"{path}: it is neither .csv nor .npz; give the table in one of these",
    )
    instead = "for rows of data use --rows, with --private and --public"
    found = read_numbers(path, instead) if path.suffix == ".csv" else read_npz(path)
    with told(f"{path}: REASON", InputError):
        cells, private, public = _npz_table(found) if isinstance(found, dict) else found
        checked_cells(cells, "K x M")
        total = cells.sum()
        whole = bool(total > 0 and np.array_equal(cells, np.round(cells)) and total > 1)
        require(
            whole or abs(total - 1) <= 1e-6,
            f"the table sums to {total:.9g}; needed: probabilities that sum to 1, or whole counts",
        )
        require(cells.shape[1] <= LARGEST, f"X has {cells.shape[1]} symbols; at most {LARGEST} are handled")
        for axis, names, what in ((1, private, "row"), (0, public, "column")):
            empty = [name for name, mass in zip(names, cells.sum(axis=axis)) if mass == 0]
            require(not empty, f"the {what} {', '.join(empty[:3])} has probability zero; leave it out")
    return Table(cells, private, public, path.name, path.stem, int(total) if whole else None)


def checked_cells(cells: Any, needed: str) -> Array:
    """A joint table of numbers that can be counts or probabilities; `needed` is its shape, in words."""
    cells = _real(cells)
    require(cells.ndim == 2 and cells.size, f"the joint table has shape {cells.shape}; needed {needed}")
    require(np.isfinite(cells).all(), "the joint table holds NaN or infinite entries; needed: numbers")
    require((cells >= 0).all(), f"the joint table holds the negative entry {cells.min():g}; needed: >= 0")
    return cells


def _real(numbers: Any) -> Array:
    require(not np.iscomplexobj(numbers), "the table holds complex numbers; needed: real ones")
    return np.asarray(numbers, dtype=float)


def _npz_table(arrays: dict[str, Array]) -> tuple[Array, tuple[str, ...], tuple[str, ...]]:
    if "joint" in arrays:
        cells = _real(arrays["joint"])
    else:
        require("S" in arrays and "p" in arrays, "it holds neither `joint` nor `S` and `p`")
        S = check_distribution(arrays["S"].T, "P(s|x), turned over,").T
        p = check_distribution(arrays["p"], "P(x)")
        fit = S.ndim == 2 and p.shape == S.shape[1:]
        require(fit, f"`S` has shape {S.shape} and `p` {p.shape}; needed: K x M, M")
        cells = S * p
    K, M = cells.shape if cells.ndim == 2 else (0, 0)
    private = tuple(str(name) for name in arrays.get("private", [f"s{k}" for k in range(K)]))
    public = tuple(str(name) for name in arrays.get("public", [f"x{i}" for i in range(M)]))
    require(len(private) == K and len(public) == M, "`private` and `public` must name the rows and columns")
    return cells, private, public


class Inferred(NamedTuple):
    """A file of `ias`: p(s,y) or counts, or P_S and P_{Y|S} as they stand, one row per s."""

    joint: Array | None
    P_S: Array
    P_YgS: Array
    values: tuple[str, ...]  # names of the y's
    name: str


def read_inferred(path: str | Path) -> Inferred:
    """P_S and P_YgS (JSON or npz), or a joint table p(s,y) or counts (npz `joint`, or CSV)."""
    path, nothing = Path(path), np.empty(0)
    if path.suffix == ".csv":
        joint, _, across = read_numbers(path, "for rows of data say --infer COLUMN --column COLUMN")
        return Inferred(joint, nothing, nothing, across, path.stem)
    require(
        path.suffix in (".json", ".npz"), f"{path} is not .json, .npz or .csv; give the table in one of these"
    )
    content = read_json(path) if path.suffix == ".json" else dict(read_npz(path))
    require(isinstance(content, dict), f"{path} is not an object with P_S and P_YgS")
    names = ("joint",) if "joint" in content else ("P_S", "P_YgS")
    missing = [name for name in names if name not in content]
    require(not missing, f"{path}: no {' and no '.join(missing)} in it; needed: P_S and P_YgS, or joint")
    values = tuple(str(value) for value in content.get("values", ()))
    what = " or ".join(names)
    with told(f"{path}: {what} is not a table of numbers with rows of one length", TypeError, ValueError):
        found = [_real(content[name]) for name in names]
    if "joint" in content:
        return Inferred(found[0], nothing, nothing, values, path.stem)
    return Inferred(None, found[0], found[1], values, path.stem)
