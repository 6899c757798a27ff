"""A privacy mapping as a first-class object: from the values of a column to symbols u.

A `Mapping` is a row-stochastic matrix p(u|y), one row a value y.  Applying it to a column draws one symbol for
every row.  What it leaks is a number of nats on average over P_Y: an information-theoretic statement, not a
differentially private one, unless `local_epsilon` is finite.

A column is replaced before anything else is done with the rows (`replace`).  Which symbol a row gets depends on the
row, the column and the seed alone, never on the rank that reads it, and a run that is resumed draws the same again.
"""

from __future__ import annotations

from collections.abc import Mapping as Mappings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from distadmm.data.table import Array
from distadmm.errors import InputError, require, told
from distadmm.files import read_npz, write_csv, write_npz

PURPOSE = 0x53414E49  # of the random choices made here
LOADABLE = 1e-9  # how far a row of a file may be from sum one


class ColumnMapping(Protocol):
    n_inputs: int  # categories that go in: 0, ..., n_inputs - 1, in the order of the column's domain
    n_outputs: int  # symbols that come out: 0, ..., n_outputs - 1

    def apply(self, column: Array, rng: np.random.Generator) -> Array: ...


def upwards(value: float) -> str:
    """Four digits, never fewer nats than there are."""
    from decimal import ROUND_CEILING, Context

    return str(Context(prec=4, rounding=ROUND_CEILING).create_decimal_from_float(value))


class LeakageReport(NamedTuple):
    """What the symbols say about the column, in nats."""

    nats: float  # I(Y;U): on average over P_Y
    entropy: float  # H(Y): what the column itself would say
    maximal: float  # log sum_u max_y p(u|y): no guess about any function of Y gains more than this factor
    local_epsilon: float  # log max p(u|y)/p(u|y'): local differential privacy, infinite when a u excludes a y
    inference: float | None  # I(S;U), where P_{S|Y} is known
    inference_before: float | None  # I(S;Y)

    def text(self) -> str:
        local = upwards(self.local_epsilon) if np.isfinite(self.local_epsilon) else "infinite"
        lines = [
            f"I(Y;U) = {self.nats:.6g} nats of H(Y) = {self.entropy:.6g}, on average over P_Y",
            f"maximal leakage {self.maximal:.6g} nats; local differential privacy epsilon {local}",
        ]
        if self.inference is not None:
            lines.append(f"I(S;U) = {self.inference:.6g} nats of I(S;Y) = {self.inference_before:.6g}")
        return "\n".join(lines)


class Told(NamedTuple):
    """The numbers of a ledger's event `Leakage`."""

    nats: float
    what: str


@dataclass(frozen=True, eq=False)
class Mapping:
    """p(u|y) with the names of its values and symbols, and the P_Y it was designed for."""

    matrix: Array  # (|Y|, |U|), rows sum to one
    values: tuple[str, ...] = ()  # the names of the y's, in the order of the column's domain
    prior: Array | None = None  # P_Y; uniform when not given
    column: str = ""  # the column it was designed for
    posterior: Array | None = field(default=None, repr=False)  # P_{S|Y}, one column per y

    def __post_init__(self) -> None:
        matrix = check_distribution(self.matrix, "the mapping")
        require(matrix.ndim == 2, f"the mapping has shape {matrix.shape}; needed a row for every value of Y")
        n = len(matrix)
        prior = np.full(n, 1 / n) if self.prior is None else check_distribution(self.prior, "P_Y")
        require(prior.shape == (n,), f"P_Y has shape {prior.shape}; needed {n} numbers, one per row")
        values = tuple(str(v) for v in self.values) or tuple(f"y{y}" for y in range(n))
        require(len(values) == n, f"{len(values)} values are named for a mapping of {n} rows")
        require(len(set(values)) == n, "two rows of the mapping have the same value; name each once")
        if self.posterior is not None:
            posterior = check_distribution(np.asarray(self.posterior).T, "P_{S|Y}").T
            fits = posterior.ndim == 2 and posterior.shape[1] == n
            require(fits, f"P_{{S|Y}} has shape {posterior.shape}; needed {n} columns")
            object.__setattr__(self, "posterior", posterior)
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "values", values)

    @property
    def n_inputs(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def n_outputs(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def _steps(self) -> Array:
        steps = np.cumsum(self.matrix, axis=1)
        return steps[:, :-1] / steps[:, -1:]  # type: ignore[no-any-return]

    def codes(self, column: Sequence[Any] | Array) -> Array:
        """The rows of the matrix that a column's entries mean: whole numbers are row numbers, texts names."""
        column = np.asarray(column)
        require(column.ndim == 1, f"the column has shape {column.shape}; needed one entry a row")
        if column.dtype.kind in "iu":
            bad = (column < 0) | (column >= self.n_inputs)
            require(
                not bad.any(),
                f"the column has the code {column[bad][:1]}; the mapping takes 0 to {self.n_inputs - 1}",
            )
            return column.astype(np.int64)
        require(
            column.dtype.kind in "UOS",
            f"the column holds {column.dtype}; give the names of its values, or their codes as whole numbers",
        )
        row_of = {value: row for row, value in enumerate(self.values)}
        try:
            return np.array([row_of[str(value)] for value in column], dtype=np.int64)
        except KeyError as error:
            known = ", ".join(self.values[:6]) + (", ..." if len(self.values) > 6 else "")
            raise InputError(f"the column has the value {error}; the mapping knows: {known}") from None

    def apply(self, column: Sequence[Any] | Array, rng: np.random.Generator) -> Array:
        """A symbol 0, ..., |U|-1 for every entry of the column: one uniform number of `rng` an entry."""
        codes = self.codes(column)
        return (rng.random(len(codes))[:, None] >= self._steps[codes]).sum(axis=1)  # type: ignore[no-any-return]

    def compact(self, unused: float = 1e-9) -> Mapping:
        """The symbols by falling probability, those of probability `unused` or less joined to the first.

        What is done to a symbol after it was drawn says nothing more about the column.
        """
        a = np.asarray(self.prior) @ self.matrix
        order = np.argsort(-a, kind="stable")
        used = order[a[order] > unused]
        matrix = self.matrix[:, used].copy()
        matrix[:, 0] += self.matrix[:, order[len(used) :]].sum(1)
        return Mapping(matrix, self.values, self.prior, self.column, self.posterior)

    def leakage(self) -> LeakageReport:
        prior, P = np.asarray(self.prior), self.matrix
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = P.max(0) / P.min(0)
        joint = prior[:, None] * P
        before, after = None, None
        if self.posterior is not None:
            both = self.posterior * prior
            before, after = _information(both), _information(both @ P)
        return LeakageReport(
            nats=_information(joint),
            entropy=entropy(prior),
            maximal=float(np.log(P.max(0).sum())),
            local_epsilon=float(np.log(np.nanmax(spread))),
            inference=after,
            inference_before=before,
        )

    def release(self, column: str = "", *, seeded: bool = False) -> Told:
        """What a ledger lists for publishing a column through this mapping: information, not privacy.

        P_Y is what the mapping's file says; a column with another one may tell more, up to the maximal leakage.
        `seeded`: the symbols were drawn by a seed, and who knows it learns more.
        """
        column, found = column or self.column or "the column", self.leakage()
        what = f"I({column}; its {self.n_outputs} symbols), average over the mapping's P_Y, "
        what += f"at most {upwards(found.maximal)} whatever P_Y is"
        return Told(found.nats, what + (", to those who do not know --seed" if seeded else ""))

    def save(self, path: str | Path) -> None:
        """Write `.npz` (everything) or `.csv` (value, prior and the row of each value)."""
        path = Path(path)
        if path.suffix == ".npz":
            arrays = {
                "matrix": self.matrix,
                "values": np.array(self.values),
                "prior": self.prior,
                "column": np.array(self.column),
            }
            if self.posterior is not None:
                arrays["posterior"] = self.posterior
            write_npz(path, arrays)
            return
        require(path.suffix == ".csv", f"{path} is neither .npz nor .csv; name the file so")
        rows = [
            [value, repr(float(p)), *(repr(float(x)) for x in row)]
            for value, p, row in zip(self.values, np.asarray(self.prior), self.matrix)
        ]
        write_csv(path, ["value", "prior", *(f"u{u}" for u in range(self.n_outputs))], rows)

    @classmethod
    def load(cls, path: str | Path) -> Mapping:
        """Read what `save` wrote; a CSV file may lack the column `prior`."""
        path = Path(path)
        if path.suffix == ".csv":
            return _load_csv(path)
        require(path.suffix == ".npz", f"{path} is neither .npz nor .csv; give a mapping that was saved so")
        arrays = read_npz(path)
        require("matrix" in arrays, f"{path} has no array 'matrix'; give a mapping saved by distadmm")
        values = np.atleast_1d(arrays.get("values", np.array([], dtype=str))).tolist()
        rest = str(arrays.get("column", "")), arrays.get("posterior")
        with told(f"{path}: REASON", InputError):
            return cls(arrays["matrix"], tuple(values), arrays.get("prior"), *rest)


def named_mappings(pairs: Sequence[str]) -> dict[str, Any]:
    """`COLUMN=mapping.npz` texts, as loaded mappings by column."""
    found = {}
    for pair in pairs:
        column, _, path = pair.partition("=")
        require(column and path, f"--sanitise is {pair!r}; needed: COLUMN=mapping.npz")
        require(column not in found, f"--sanitise names {column} twice; a column has one mapping: keep one")
        found[column] = Mapping.load(path)
    return found


def check_distribution(rows: Array, what: str) -> Array:
    """`rows` as float64 if each is a probability distribution (to 1e-9), normalised."""
    try:
        rows = np.array(np.nan) if np.iscomplexobj(rows) else np.asarray(rows, dtype=float)
    except (TypeError, ValueError):
        rows = np.array(np.nan)
    require(rows.ndim >= 1 and rows.size, f"{what} is not a table of numbers; give probabilities")
    require(np.isfinite(rows).all(), f"{what} has a NaN or infinite entry; give finite probabilities")
    require((rows >= 0).all(), f"{what} has the negative entry {rows.min():.6g}; probabilities are >= 0")
    sums = rows.sum(-1)
    off = np.abs(sums - 1)
    where = f"row {int(off.argmax())} of {what}" if rows.ndim > 1 else what
    require(
        off.max() <= LOADABLE,
        f"{where} sums to {np.ravel(sums)[off.argmax()]:.12g}; needed 1: divide it by its sum",
    )
    # What is one to rounding is left as it is, so that a file gives back the same bits.
    return np.where(off[..., None] > 1e-13, rows / sums[..., None], rows)


def entropy(p: Array) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def _information(joint: Array) -> float:
    """The mutual information of a joint distribution."""
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    ratio = np.divide(joint, product, out=np.ones_like(joint), where=joint > 0)
    return max(0.0, float((joint * np.log(ratio)).sum()))


def _load_csv(path: Path) -> Mapping:
    from distadmm.data.formats import read_cells

    rows = read_cells(path)
    head = rows[0]
    first = 2 if head[1:2] == ["prior"] else 1
    require(
        head[:1] == ["value"] and len(head) > first,
        f"{path} begins with {','.join(head)!r}; needed the columns value, prior (may be left out), u0, u1, ...",
    )
    with told(f"{path}: REASON; needed numbers", ValueError):
        numbers = np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])
    prior = numbers[:, 0] if first == 2 else None
    with told(f"{path}: REASON", InputError):
        return Mapping(numbers[:, first - 1 :], tuple(row[0] for row in rows[1:]), prior)


class Replaced(NamedTuple):
    """What a sanitised column holds instead of its categories."""

    codes: Array
    size: int


def generator(seed: int, column: str, node: int) -> np.random.Generator:
    spelled = int.from_bytes(column.encode(), "big")
    words = tuple((spelled >> shift) & 0xFFFFFFFF for shift in range(0, max(spelled.bit_length(), 1), 32))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PURPOSE, node, *words)))


def replace(
    mapping: ColumnMapping, codes: Array, domain: tuple[str, ...], column: str, seed: int, node: int = 0
) -> Replaced:
    """The mapping applied to all of `codes`, with its sizes checked."""
    require(
        mapping.n_inputs == len(domain),
        f"--sanitise {column}: the mapping takes {mapping.n_inputs} categories, the column has {len(domain)}; "
        "design it on this column's domain",
    )
    require(
        (codes >= 0).all(),
        f"--sanitise {column}: a row has no value there; a mapping needs one: leave such rows out",
    )
    values = tuple(getattr(mapping, "values", ()))
    if values and values != tuple(f"y{y}" for y in range(len(values))):  # else its rows are in order
        require(
            set(values) == set(domain),
            f"--sanitise {column}: the mapping is for the values {', '.join(values[:4])}, ...; the column has "
            f"{', '.join(domain[:4])}, ...; design it on this column",
        )
        codes = np.array([values.index(category) for category in domain])[codes]
    symbols, most = np.asarray(mapping.apply(codes, generator(seed, column, node))), mapping.n_outputs
    if symbols.shape != codes.shape or symbols.min(initial=0) < 0 or symbols.max(initial=0) >= most:
        raise ValueError(f"the mapping of {column} gave something else than {most} symbols a row")
    return Replaced(symbols.astype(np.int64), most)


def symbol_names(column: str, size: int) -> tuple[str, ...]:
    return tuple(f"{column}~{symbol}" for symbol in range(size))


def check_columns(mappings: Mappings[str, ColumnMapping], categorical: Mappings[str, object]) -> None:
    for column in mappings:
        require(
            column in categorical,
            f"--sanitise {column}: no such categorical column; there are: {', '.join(categorical) or 'none'}",
        )
