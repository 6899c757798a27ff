"""A party's releases: a query, its sensitivity, and noise that the ledger has been charged for.

In simulation mode noise is a float Gaussian; in secure mode the answer goes on a grid and the noise is an
exact discrete Gaussian.  A query whose sigma is 0 is sent as it is, and the ledger says infinity.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from distadmm.errors import InputError, require
from distadmm.privacy.accounting.events import Array, Event, Gaussian
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.ledger.schedules import Committed
from distadmm.privacy.noise.mechanism import GridQuery, Noise, grid_of
from distadmm.privacy.noise.sources import Source

BARE = "sent without noise"
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
    multiplier: float = 0.0  # sigma / sensitivity, to the bit, where that was chosen first
    spacing: float = 0.0  # of the grid of secure noise (default: from sigma)

    def event(self, mode: str) -> Event:
        if mode == "secure":
            return self.grid.event
        return Gaussian(self.multiplier or self.sigma / self.sensitivity)

    @property
    def grid(self) -> GridQuery:
        spacing = self.spacing or grid_of(self.sigma, GRID_BITS)
        return GridQuery(self.sigma, self.sensitivity, self.dimension, spacing)


class Releases:
    """What one party or the centre releases, through its own ledger."""

    def __init__(
        self, ledger: MemoryLedger, source: Source, leakage: Sequence[Event] = (), *, again: bool = False
    ):
        """`again`: this process repeats what an earlier one may have released already."""
        self.ledger = ledger
        self.leakage = leakage  # of columns sanitised before: listed, never added to an epsilon
        self.mode = source.mode
        self.noise = Noise(ledger, source)
        self._again = again
        self._durable = hasattr(ledger, "path")
        self.made = 0  # releases since the start of the run, those of earlier processes included
        self._charged = ledger.tally.releases if again else 0  # by earlier processes
        self._kept: dict[int, bytes] = {}  # what was released in an iteration, one answer behind the other

    def commit(self, schedule: Committed) -> None:
        """Reserve the whole schedule, which depends on no data, before its first release."""
        if schedule.events and self.ledger.tally.schedule is None:
            self.ledger.commit(schedule.events)
        for event in self.leakage:
            if event not in self.ledger.events:
                self.ledger.charge(event, iteration=0)

    def affords(self, query: Query, iteration: int) -> bool:
        """Whether the budget admits the release of `iteration`, or an earlier process has paid for it."""
        paid = self.mode == "simulation" and self.made < self._charged
        paid = paid or (self._again and self.ledger.stored(iteration) is not None)
        return paid or query.sigma == 0 or self.ledger.affords([query.event(self.mode)])

    def vector(self, value: Array, query: Query, iteration: int, number: int = 0) -> Array:
        """`value` with the noise of `query`; what an earlier process sent is sent again as it was, to the byte."""
        if query.sigma == 0:
            self.ledger.expose(BARE, iteration=iteration)
            return value
        self.made += 1
        before = self._kept.get(iteration, b"")
        sent = self.ledger.stored(iteration) if self._again else None
        known = (sent or b"")[len(before) : len(before) + 8 * query.dimension]
        if len(known) == 8 * query.dimension:
            answer = np.frombuffer(known)
        elif self.mode == "secure":
            answer = self.noise.on_grid(value, query.grid, iteration=iteration, query=number)
        else:
            # The seed repeats what an earlier process drew and paid for, so nothing new is given away.
            draw = self.noise.repeat if self.made <= self._charged else self.noise.draw
            answer = value + draw(
                query.event(self.mode), iteration=iteration, shape=query.dimension,
                sensitivity=query.sensitivity, query=number,
            )  # fmt: skip
        self._kept = {iteration: before + answer.tobytes()}
        if not known and self._durable:
            self.ledger.store_release(iteration, self._kept[iteration])
        return answer.copy()

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


def committed(queries: Iterable[Query], mode: str) -> Committed:
    """The schedule of these; what leaves without noise has no bound, and no ledger reserves it."""
    every = tuple(queries)
    noisy = tuple(query.event(mode) for query in every if query.sigma > 0)
    return Committed(noisy).doubted("" if noisy and len(noisy) == len(every) else BARE)


def matrix_query(query: Query, mode: str, d: int) -> Query:
    """The query for the flat vector that `symmetric` releases."""
    scale = float(_DIAGONAL) if mode == "secure" and query.sigma > 0 else 1.0
    return Query(scale * query.sigma, scale * query.sensitivity, d * (d + 1) // 2)


def noise_for(sensitivity: float, mu: float, mode: str, dimension: int, count: int = 1) -> float:
    """sigma with which `count` releases of this sensitivity are mu-Gaussian together: a share of a budget.

    On a grid of at most 2^-20 sigma rounding adds at most 2^-20 sqrt(dimension) to sensitivity/sigma, and integer
    noise is a hair worse than real noise: both are paid for.
    """
    require(mu > 0, f"mu is {mu}; needed: a number above 0")
    each = mu / math.sqrt(count)
    if mode == "secure":
        each = (each - 2.0**-GRID_BITS * math.sqrt(dimension)) / GRID_MARGIN
        require(each > 0, f"{dimension} numbers are too many for this budget on the grid; raise --epsilon")
    return sensitivity / each


def within(
    multiplier: float, sensitivity: float, dimension: int, mode: str, keeps: Callable[[Event], bool]
) -> Query:
    """The query with a whole budget to itself: `multiplier` (sigma / sensitivity) is what real noise needs for it.

    On a grid rounding and discreteness cost a little: sigma grows until the accountant `keeps` the budget.
    """
    sigma = multiplier * sensitivity
    if mode != "secure":
        return Query(sigma, sensitivity, dimension, multiplier)
    spacing = grid_of(sigma, GRID_BITS)
    rounding = 1.0 + math.sqrt(dimension) * spacing / sensitivity
    for extra in (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        query = Query(sigma * rounding * (1.0 + extra), sensitivity, dimension, spacing=spacing)
        if keeps(query.event(mode)):
            return query
    raise InputError(
        f"no noise on a grid of about {spacing:g} keeps this budget for {dimension} numbers; lower --epsilon"
    )
