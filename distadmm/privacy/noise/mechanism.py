"""Noise that is paid for before it is drawn.

A `Noise` binds the ledgers of this rank's nodes to a source of randomness.  `draw` charges the ledger,
and returns noise only when the charge is durable; when the budget refuses, nothing is drawn.

    ObjectivePerturbation   linear term b, density ~ exp(-alpha |b|) or N(0, sigma^2 I)
    KNorm                   additive b, density ~ exp(-alpha |b|)
    Gaussian                additive, sigma = noise multiplier x sensitivity
    DiscreteGaussian        additive, on a grid, exact (`on_grid`)

Invariants that guard privacy
-----------------------------
* No noise without a charge, and one draw a charge: a second draw for the same release is an error.  (`repeat`
  is for simulation noise alone, which guarantees nothing.)
* The noise has the scale that the charged event states; callers cannot pass another.
* Secure noise goes with secure ledgers and simulation noise with simulation ledgers.

Floating point: only `on_grid` is exact.  Everything else is float arithmetic whose rounding is not covered
by a proof (`float_exact: false` in the ledger); a cryptographic generator does not change that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from distadmm.errors import InputError, require
from distadmm.privacy.accounting.discrete_gaussian import DiscreteGaussian
from distadmm.privacy.accounting.events import Array, Event, Unbounded, k_norm
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.sources import PURPOSES, Secure, Simulation, Source, Stream, source_of

__all__ = ["GridQuery", "Noise", "Secure", "Simulation", "grid_of", "k_norm", "source_of"]


def grid_of(sigma: float, bits: int = 20) -> float:
    """A grid of spacing 2^-bits sigma or up to twice as fine; a power of two, so nothing is rounded twice."""
    require(math.isfinite(sigma) and sigma > 0, f"sigma is {sigma!r}; needed: a finite number above 0")
    return 2.0 ** (math.floor(math.log2(sigma)) - bits)


@dataclass(frozen=True)
class GridQuery:
    """A query in R^N that is released on a grid: rounded to multiples of `spacing`, then integer noise.

    Rounding moves each of two neighbouring answers by at most spacing/2 a coordinate, so their distance is
    at most Delta + spacing sqrt(N): that is what its `event` is charged with.
    """

    sigma: float
    sensitivity: float
    dimension: int
    spacing: float

    def __post_init__(self) -> None:
        require(
            self.spacing > 0 and math.frexp(self.spacing)[0] == 0.5,
            f"the grid's spacing is {self.spacing!r}; needed: a power of two, e.g. from grid_of",
        )

    @cached_property
    def event(self) -> DiscreteGaussian:
        rounding = math.nextafter(math.sqrt(self.dimension), math.inf)
        moved = math.nextafter(self.sensitivity / self.spacing + rounding, math.inf)
        return DiscreteGaussian(self.sigma / self.spacing, moved, dimension=self.dimension)


class _Paid(NamedTuple):
    event: Event
    iteration: int
    drawn: set[int]  # purposes
    ahead: bool = False  # by `pay`, and not drawn yet


class OnGrid(Protocol):
    """A query that is released on a grid, and what that is charged with."""

    @property
    def dimension(self) -> int: ...

    @property
    def spacing(self) -> float: ...

    @property
    def event(self) -> Event: ...


class Noise:
    """The only source of noise for what the nodes of `ledgers` release."""

    def __init__(self, ledgers: MemoryLedger | Sequence[MemoryLedger], source: Source):
        self.ledgers = [ledgers] if isinstance(ledgers, MemoryLedger) else list(ledgers)
        self.source = source
        for ledger in self.ledgers:
            require(
                ledger.mode == source.mode,
                f"the ledger of node {ledger.node} is for {ledger.mode} noise, the source gives {source.mode} noise; "
                "open the ledger with the mode of the source",
            )
        self._paid: dict[int, _Paid] = {}  # by node, its latest charge

    def _charge(self, at: int, event: Event, iteration: int, purpose: int) -> None:
        """Charge the release of the node at position `at`; then its noise may be drawn, once."""
        ledger = self.ledgers[at]
        before = self._before(ledger.node, iteration, purpose)
        if before is None or not before.ahead or before.event is not event:
            ledger.charge(event, iteration=iteration)
        self._paid[ledger.node] = _Paid(event, iteration, before.drawn if before else set())

    def _before(self, node: int, iteration: int, purpose: int) -> _Paid | None:
        """What the node paid in this iteration, if it did; it has not drawn for this purpose."""
        before = self._paid.get(node)
        if before is None or before.iteration != iteration:
            return None
        if purpose in before.drawn:
            raise RuntimeError(
                f"node {node} would draw the noise of iteration {iteration} twice; number its queries"
            )
        return before

    def pay(
        self, events: Sequence[Event | None], charge: Callable[..., None], *, iteration: int
    ) -> None:  # fmt: skip
        """Charge what all nodes draw next, by `charge` of their ledgers at once; `draw` does not charge it again."""
        nodes = [ledger.node for ledger, event in zip(self.ledgers, events) if event is not None]
        for node in nodes:
            self._before(node, iteration, PURPOSES["noise"])
        charge(events, iteration=iteration)
        for node, event in zip(nodes, (event for event in events if event is not None)):
            self._paid[node] = _Paid(event, iteration, set(), ahead=True)

    def _stream(self, at: int, purpose: int) -> Stream:
        """The stream for a draw that has been paid for."""
        node = self.ledgers[at].node
        paid = self._paid[node]
        paid.drawn.add(purpose)
        return self.source.at(node, purpose, paid.iteration)

    def draw(
        self,
        event: Event,
        *,
        iteration: int,
        at: int = 0,
        shape: int | tuple[int, ...] | None = None,
        sensitivity: float | None = None,
        query: int = 0,
        unproved: Unbounded | None = None,
    ) -> Array:
        """Charge `event`, or that nothing bounds its release, then draw its noise.

        `shape` and `sensitivity` go with `Gaussian`, which states neither.  A node that answers several
        queries in an iteration numbers them by `query`.
        """
        self._check(event, shape, sensitivity)
        purpose = _purpose("noise", query)
        self._charge(at, unproved or event, iteration, purpose)
        return event.sample(self._stream(at, purpose), shape, sensitivity)

    def repeat(self, event: Event, *, iteration: int, at: int = 0, query: int = 0, **stated: Any) -> Array:
        """Simulation noise that an earlier process paid for and drew, as by `draw`: to compute on as it did, not to be
        released."""
        self._check(event, **stated)
        if self.source.mode != "simulation":
            raise RuntimeError(f"{self.source.mode} noise cannot be drawn again")
        stream = self.source.at(self.ledgers[at].node, _purpose("noise", query), iteration)
        return event.sample(stream, **stated)

    def output(self, tolerance: float, *, at: int = 0, query: int = 0) -> Array:
        """The noise of an approximate minimiser, density ~ exp(-a |e|), a = eps_o Phi / (2 tau).

        The charge of its release covers it: `output_epsilon` is part of that event.  It needs the
        gradient's norm at the minimiser to be at most tau = `tolerance`, rounding included.
        """
        node = self.ledgers[at].node
        paid = self._paid.get(node)
        purpose = _purpose("output", query)
        event = paid.event if paid and purpose not in paid.drawn else None
        if event is None or event.also is None:
            raise RuntimeError(f"node {node} would draw output noise that its last charge does not cover")
        require(tolerance > 0, f"the tolerance is {tolerance!r}; needed: a number above 0")
        return output_noise(self._stream(at, purpose), event, tolerance)

    def on_grid(
        self, value: Array, grid: OnGrid, *, iteration: int, at: int = 0, query: int = 0,
        unproved: Unbounded | None = None,
    ) -> Array:  # fmt: skip
        """`value` rounded to the grid plus exact discrete Gaussian noise: multiples of `grid.spacing`."""
        value = np.asarray(value, dtype=float)
        require(
            value.size == grid.dimension, f"{value.size} values for a query of dimension {grid.dimension}"
        )
        scaled = value / grid.spacing
        if not np.all(np.abs(scaled) < 2.0**51):
            raise InputError("a value to release is not finite, or too large for the grid; clip it first")
        noise = self.draw(grid.event, iteration=iteration, at=at, query=query, unproved=unproved)
        return (np.rint(scaled).astype(np.int64) + noise.reshape(value.shape)) * grid.spacing  # type: ignore[no-any-return]

    def _check(self, event: Event, shape: object = None, sensitivity: float | None = None) -> None:
        """Everything that can be wrong, before anything is charged.  (Messages are built when needed: this is hot.)"""
        if not event.law:
            raise InputError(f"no noise is known for {event}; charge it at the ledger")
        if event.releases != 1:
            raise InputError(f"{event} stands for {event.releases} releases; draw them one by one")
        if not event.states_query:
            if shape is None or sensitivity is None or not sensitivity > 0:
                raise InputError(f"{event} needs the shape and the sensitivity of its query to be drawn")
        elif shape is not None or sensitivity is not None:
            raise InputError(f"{event} states its own dimension and scale; give neither")


def output_noise(stream: Any, event: Event, tolerance: float) -> Array:
    """See `Noise.output`."""
    assert isinstance(event, ObjectivePerturbation)
    return k_norm(stream, event.dimension, event.output_epsilon * event.floor / (2 * tolerance))


def _purpose(name: str, query: int) -> int:
    return PURPOSES[name] + 256 * query
