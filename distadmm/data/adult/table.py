"""The Adult table in 105 columns: 99 documented categories, six numbers divided by public maxima."""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from distadmm.data.adult import raw
from distadmm.data.adult.domains import ATTRIBUTES, DOMAINS, MAXIMA
from distadmm.data.mapping import ColumnMapping, Replaced, check_columns, replace, symbol_names
from distadmm.data.schema import Category, Number, Schema
from distadmm.data.table import Array, Matrix, Sparse

NUMBERS = tuple(MAXIMA)
NOTHING: Mapping[str, Replaced] = {}
TRAINING = 40_000  # of the 45,222 rows without a missing value, after the permutation; 5,222 are for testing
ROWS_DROPPED = 3_620  # of 48,842: those with a missing value
DUPLICATES = 47  # of the 45,222 complete rows: equal to an earlier one, and kept
LICENCE = "CC BY 4.0"
SOURCE = "Becker & Kohavi (1996), Adult, UCI Machine Learning Repository, doi 10.24432/C5XW20"


@lru_cache(maxsize=1)
def complete() -> Array:
    """The 45,222 records without a missing value, in file order."""
    records = raw.records()
    return records[raw.complete_rows(records)]


def dealt() -> tuple[Array, Array]:
    """Numbers of the training and of the test rows among all rows of the published files."""
    order = raw.dealt()
    return order[:TRAINING], order[TRAINING:]


def place(rows: Array) -> Array:
    """Where rows of the published files stand in `complete()`."""
    return np.searchsorted(np.sort(raw.dealt()), rows)


def split() -> tuple[Array, Array]:
    """Numbers of the training and of the test rows among `complete()`."""
    training, testing = dealt()
    return place(training), place(testing)


def adult_columns() -> dict[str, Array]:
    """Raw columns of the complete rows, in file order: category numbers within DOMAINS, numbers, income."""
    records = complete()
    return {name: records[name].astype(np.int64) for name in (*ATTRIBUTES, "income")}


def sanitised(mappings: Mapping[str, ColumnMapping], seed: int) -> dict[str, Replaced]:
    """The columns of `mappings`, randomised for all complete rows.

    `education-num` says in numbers what `education` says in words, so it leaves together with it.
    """
    check_columns(mappings, DOMAINS)
    return {
        name: replace(mapping, complete()[name].astype(np.int64), DOMAINS[name], name, seed)
        for name, mapping in mappings.items()
    }


def _numbers_beside(replaced: Mapping[str, Replaced]) -> tuple[str, ...]:
    return tuple(name for name in NUMBERS if not (name == "education-num" and "education" in replaced))


def columns(replaced: Mapping[str, Replaced] = NOTHING) -> tuple[str, ...]:
    """Names of the columns that `encode` makes."""
    names: list[str] = []
    for name, domain in DOMAINS.items():
        if name in replaced:
            names += symbol_names(name, replaced[name].size)
        else:
            names += [f"{name}={category}" for category in domain]
    return (*names, *_numbers_beside(replaced))


COLUMNS = columns()
SCHEMA = Schema(  # of new rows with the published columns
    (*(Category(*each) for each in DOMAINS.items()), *(Number(name, 0.0, MAXIMA[name]) for name in NUMBERS)),
    missing=frozenset("?"),
)


def encode(records: Array, replaced: Mapping[str, Replaced] = NOTHING, *, sparse: bool = False) -> Matrix:
    """Rows of eight ones and six numbers in [0, 1], not yet divided by max(1, |x|)."""
    n = len(records)
    blocks = [replaced.get(name) or Replaced(records[name], len(DOMAINS[name])) for name in DOMAINS]
    start = np.cumsum([0, *(block.size for block in blocks)])
    ones = np.stack([block.codes + first for block, first in zip(blocks, start)], axis=1)
    numbers = np.stack([records[name] / MAXIMA[name] for name in _numbers_beside(replaced)], axis=1)
    width = int(start[-1]) + numbers.shape[1]
    if not sparse:
        X = np.zeros((n, width))
        X[np.arange(n)[:, None], ones] = 1.0
        X[:, start[-1] :] = numbers
        return X
    places = np.hstack([ones, np.broadcast_to(start[-1] + np.arange(numbers.shape[1]), numbers.shape)])
    values = np.hstack([np.ones(ones.shape), numbers])
    there = values != 0.0
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return Sparse(indptr, places[there], values[there], (n, width))


def target(records: Array) -> Array:
    """+1 for an income over 50,000 dollars, -1 for the others."""
    return np.where(records["income"] == 1, 1.0, -1.0)
