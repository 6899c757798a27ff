"""A column replaced by a randomised one before anything else is done with the rows.

A mapping draws, for a row whose column holds category y, a symbol u with probability P(u|y).  Which symbol a
row gets depends on the row, the column and the seed alone, never on the rank that reads it, and a run that is
resumed draws the same symbols again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from distadmm.data.table import Array
from distadmm.errors import require

PURPOSE = 0x53414E49  # of the random choices made here


class ColumnMapping(Protocol):
    n_inputs: int  # categories that go in: 0, ..., n_inputs - 1, in the order of the column's domain
    n_outputs: int  # symbols that come out: 0, ..., n_outputs - 1

    def apply(self, column: Array, rng: np.random.Generator) -> Array: ...


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
    symbols = np.asarray(
        mapping.apply(_rows_of(mapping, domain, column)[codes], generator(seed, column, node))
    )
    if (
        symbols.shape != codes.shape
        or symbols.min(initial=0) < 0
        or symbols.max(initial=0) >= mapping.n_outputs
    ):
        raise ValueError(
            f"the mapping of {column} gave something else than {mapping.n_outputs} symbols a row"
        )
    return Replaced(symbols.astype(np.int64), mapping.n_outputs)


def _rows_of(mapping: ColumnMapping, domain: tuple[str, ...], column: str) -> Array:
    """The mapping's row for each category of the domain: by name where the mapping names its values."""
    values = tuple(getattr(mapping, "values", ()))
    if not values or values == tuple(f"y{y}" for y in range(len(values))):  # it does not: rows are in order
        return np.arange(len(domain))
    require(
        set(values) == set(domain),
        f"--sanitise {column}: the mapping is for the values {', '.join(values[:4])}, ...; the column has "
        f"{', '.join(domain[:4])}, ...; design it on this column",
    )
    row_of = {value: row for row, value in enumerate(values)}
    return np.array([row_of[category] for category in domain])


def symbol_names(column: str, size: int) -> tuple[str, ...]:
    return tuple(f"{column}~{symbol}" for symbol in range(size))


def check_columns(mappings: Mapping[str, ColumnMapping], categorical: Mapping[str, object]) -> None:
    for column in mappings:
        require(
            column in categorical,
            f"--sanitise {column}: no such categorical column; there are: {', '.join(categorical) or 'none'}",
        )
