"""What stands between gradients and the network: ledger, noise, and the bytes that were made, in this order.

Invariants that guard privacy
-----------------------------
* A gradient is used as it was released, by its own node too: clipped, noised once, kept to the byte for a replay.
* Noise is charged before it is drawn (`Noise`); in secure mode, and where edges share it, it is discrete, on a grid.
* What edges share is added before anything leaves, and is drawn for a round by its number: never frozen.
"""

from __future__ import annotations

import math

import numpy as np

from distadmm.errors import Unsolved, require
from distadmm.methods.gossip.rule import Constants
from distadmm.privacy.accounting.events import Adjacency, Array, Event, Unbounded
from distadmm.privacy.accounting.pairwise_gaussian import PairwiseGaussian
from distadmm.privacy.noise import mechanism, pairwise, protected
from distadmm.privacy.noise.queries import Query
from distadmm.ranks.conditions import Conditions
from distadmm.structs import struct


@struct
class Paired:
    """A gradient that is released on a grid under its node's own noise and that of its edges."""

    sensitivity: float
    dimension: int
    spacing: float
    event: PairwiseGaussian

    @classmethod
    def of(
        cls,
        reach: float,
        mu: float,
        steps: int,
        dimension: int,
        ratio: float,
        shares: tuple[float, ...],
        q: int,
        gone: int = 0,
    ) -> Paired:
        """`steps` of them cost mu when `q` nodes collude and `gone` are away, one record moves each by `reach` and
        c = `ratio` s."""
        each = math.sqrt(steps * (shares[q + gone] if q + gone < len(shares) else 1.0)) / mu
        spacing = mechanism.grid_of(reach * each)
        moved = mechanism.GridQuery(reach * each, reach, dimension, spacing).event.sensitivity_grid
        sigma = math.sqrt((moved * each) ** 2 + 4) * (1 + 1e-12)
        return cls(
            reach, dimension, spacing,
            PairwiseGaussian(sigma, ratio * sigma, moved, shares, coalition=q, dimension=dimension, gone=gone),
        )  # fmt: skip

    @property
    def sigma(self) -> float:
        return self.event.sigma_grid * self.spacing


@struct
class Recipe:
    """The mechanism of one rank's nodes; nothing in it depends on data."""

    adjacency: Adjacency
    dimension: int
    mode: str  # of the noise
    queries: tuple[Query | Paired, ...]  # what each node here releases in each step
    steps: int
    constants: Constants
    trust: str = "any"  # whom the noise is for
    unverified: str = ""  # a hypothesis that does not hold or cannot be checked: everything is unbounded
    first: tuple[Query | Paired, ...] = ()  # what each node here releases in iteration 1 alone, if anything

    def query(self, i: int, k: int) -> Query | Paired:
        """What node i releases in iteration k."""
        return self.first[i] if self.first and k == 1 else self.queries[i]

    def event(self, i: int, k: int = 0) -> Event:
        query = self.query(i, k)
        return query.event if isinstance(query, Paired) else query.event(self.mode)

    def planned(self, i: int) -> list[Event]:
        """All that node i will release."""
        return [self.event(i, 1)] * bool(self.first) + [self.event(i).times(self.steps)]

    @property
    def pairwise(self) -> bool:
        return isinstance(self.queries[0], Paired)

    def terms(self, nodes: int) -> bytes:
        """What both ends of an edge must have in common, or their noise is not the same."""
        first = self.queries[0]
        assert isinstance(first, Paired)
        event = first.event
        return pairwise.terms_of(
            nodes=nodes, steps=self.steps, dimension=self.dimension, coalition=event.coalition, gone=event.gone,
            sigma=event.sigma_grid, pair=event.pair_grid, spacing=first.spacing,
        )  # fmt: skip

    def charged(self, event: Event) -> Event:
        return Unbounded(self.unverified) if self.unverified else event


class Gradients(protected.Protected):
    """The noisy gradients of this rank's nodes."""

    recipe: Recipe  # type: ignore[assignment]
    edges: pairwise.Edges | None = None  # the keys of pairwise noise
    conditions: Conditions | None = None  # under which nodes drop out and return

    def plans(self, releases: object) -> list[tuple[Event, ...]]:
        recipe = self.recipe
        if recipe.unverified:
            return []
        return [tuple(recipe.planned(i)) for i in range(len(self.books))]

    def noisy(self, k: int, values: Array) -> Array:
        """The gradients of iteration k as they may be used; what an earlier process released is taken to the byte."""
        sound = np.isfinite(values).all()
        require(sound, f"a gradient of iteration {k} is not finite; nothing of it was sent", Unsolved)
        recipe, self._k = self.recipe, k
        self._events = [recipe.event(i, k) for i in range(len(values))]
        self._afford([recipe.charged(event) for event in self._events], k)
        before, sent = self.books.stored(k, values.shape[1]), np.empty_like(values)
        for i, value in enumerate(values):
            known = before is not None and bool(before.known[i])
            sent[i] = before.rows[i] if before is not None and known else self._noised(i, value, k)
        self.books.store(k, sent)
        return sent

    def _noised(self, i: int, value: Array, k: int) -> Array:
        query = self.recipe.query(i, k)
        unproved = Unbounded(self.recipe.unverified) if self.recipe.unverified else None
        if isinstance(query, Paired):
            assert self.edges is not None
            own = self.noise.on_grid(value, query, iteration=k, at=i, unproved=unproved)
            return own + query.spacing * self.edges.noise(
                self.books.nodes[i], k, query.event.pair_grid, value.size, self.away(k, query.event.gone)
            )
        if self.recipe.mode == "secure":
            return self.noise.on_grid(value, query.grid, iteration=k, at=i, unproved=unproved)
        event = self._events[i]
        drawn = self.noise.draw(
            event, iteration=k, at=i, shape=value.size, sensitivity=query.sensitivity, unproved=unproved
        )
        return value + drawn

    def away(self, k: int, most: int) -> tuple[int, ...]:
        """Nodes without which round k is made: those that are away, as far as that was paid for.

        More of them leave their halves to what neighbours add, which hides no less.
        """
        if not most or self.conditions is None:
            return ()
        return tuple(np.flatnonzero(~self.conditions.present(k))[:most].tolist())

    def passed(self, k: int, rows: Array) -> None:
        """`rows`, made of the gradients of iteration k and of what came before, may leave."""
        if self.guard is not None and self._believed:
            self.guard.seal(k, rows, self._events)
