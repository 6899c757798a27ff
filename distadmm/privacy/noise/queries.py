"""A party's releases: a query, its sensitivity, and noise that the ledger has been charged for.

In simulation mode noise is a float Gaussian; in secure mode the answer goes on a grid and the noise is an
exact discrete Gaussian.  A query whose sigma is 0 is sent as it is, and the ledger says infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting.events import Event, Gaussian
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.mechanism import GridQuery, Noise, grid_of
from distadmm.privacy.noise.sources import Source

Array = np.ndarray

GRID_BITS = 20  # the grid is at least this much finer than sigma
GRID_MARGIN = 1.0005  # what integer noise costs more than real noise, rounded far up
# Noise on the diagonal to noise off it: sqrt(2) in floats; on a grid 7/5, just below it.
_DIAGONAL, _OFF = 5, 7


@dataclass(frozen=True)
class Query:
    """A vector of `dimension` numbers that one record moves by at most `sensitivity` (l2)."""

    sigma: float
    sensitivity: float
    dimension: int

    def event(self, mode: str) -> Event:
        if mode == "secure":
            return self.grid.event
        return Gaussian(self.sigma / self.sensitivity)

    @property
    def grid(self) -> GridQuery:
        return GridQuery(self.sigma, self.sensitivity, self.dimension, grid_of(self.sigma, GRID_BITS))


class Releases:
    """What one party or the centre releases, through its own ledger."""

    def __init__(self, ledger: MemoryLedger, source: Source, leakage: Sequence[Event] = ()):
        self.ledger = ledger
        self.leakage = leakage  # of columns sanitised before: listed, never added to an epsilon
        self.mode = source.mode
        self.noise = Noise(ledger, source)

    def commit(self, queries: Iterable[Query]) -> None:
        """Reserve the whole schedule, which depends on no data, before its first release."""
        events = [query.event(self.mode) for query in queries if query.sigma > 0]
        if events:
            self.ledger.commit(counted(events))
        for event in self.leakage:
            self.ledger.charge(event, iteration=0)

    def vector(self, value: Array, query: Query, iteration: int, number: int = 0) -> Array:
        """`value` with the noise of `query`."""
        if query.sigma == 0:
            self.ledger.expose("sent without noise", iteration=iteration)
            return value
        if self.mode == "secure":
            return self.noise.on_grid(value, query.grid, iteration=iteration, query=number)
        event = query.event(self.mode)
        noise = self.noise.draw(
            event, iteration=iteration, shape=query.dimension, sensitivity=query.sensitivity, query=number
        )
        return value + noise

    def symmetric(self, matrix: Array, query: Query, iteration: int, number: int = 0) -> Array:
        """A symmetric matrix with symmetric noise; the query's numbers are Frobenius norms of `matrix`.

        Noise of sd sigma on the diagonal and sigma/sqrt(2) above it is isotropic for (diagonal, sqrt(2)
        upper triangle), whose l2 norm is the Frobenius norm.  On a grid the integers (5 diagonal, 7 upper
        triangle) take sqrt(2)'s place: 49 < 2 * 25, so their norm is at most 5 times the Frobenius norm.
        """
        d = matrix.shape[0]
        upper = np.triu_indices(d, 1)
        exact = self.mode == "secure" and query.sigma > 0
        diagonal, off = (float(_DIAGONAL), float(_OFF)) if exact else (1.0, math.sqrt(2.0))
        flat = np.concatenate([diagonal * np.diag(matrix), off * matrix[upper]])
        noisy = self.vector(flat, matrix_query(query, self.mode, d), iteration, number)
        result = np.zeros((d, d))
        result[upper] = noisy[d:] / off
        result = result + result.T
        result[np.diag_indices(d)] = noisy[:d] / diagonal
        return result


def matrix_query(query: Query, mode: str, d: int) -> Query:
    """The query for the flat vector that `symmetric` releases."""
    scale = float(_DIAGONAL) if mode == "secure" and query.sigma > 0 else 1.0
    return Query(scale * query.sigma, scale * query.sensitivity, d * (d + 1) // 2)


def counted(events: list[Event]) -> list[Event]:
    """Equal events in a row as one event with a count."""
    from dataclasses import replace

    packed: list[Event] = []
    for event in events:
        if packed and packed[-1].single() == event:
            packed[-1] = replace(packed[-1], count=packed[-1].releases + 1)  # type: ignore[call-arg]
        else:
            packed.append(event)
    return packed


def noise_for(sensitivity: float, mu: float, mode: str, dimension: int, count: int = 1) -> float:
    """sigma with which `count` releases of this sensitivity are mu-Gaussian together.

    On a grid of at most 2^-20 sigma rounding adds at most 2^-20 sqrt(dimension) to sensitivity/sigma, and integer
    noise is a hair worse than real noise: both are paid for.
    """
    require(mu > 0, f"mu is {mu}; needed: a number above 0")
    each = mu / math.sqrt(count)
    if mode == "secure":
        each = (each - 2.0**-GRID_BITS * math.sqrt(dimension)) / GRID_MARGIN
        require(each > 0, f"{dimension} numbers are too many for this budget on the grid; raise --epsilon")
    return sensitivity / each
