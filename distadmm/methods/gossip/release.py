"""What stands between gradients and the network: ledger, noise, and the bytes that were made, in this order.

Invariants that guard privacy
-----------------------------
* A gradient is used as it was released, by its own node too: clipped, noised once, kept to the byte for a replay.
* Noise is charged before it is drawn (`Noise`); in secure mode it is discrete, on a grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting.events import Adjacency, Event, Unbounded
from distadmm.privacy.noise.protected import Protected
from distadmm.privacy.noise.queries import Query
from distadmm.structs import struct

if TYPE_CHECKING:
    from distadmm.methods.gossip.rule import Constants

Array = np.ndarray


@struct
class Recipe:
    """The mechanism of one rank's nodes; nothing in it depends on data."""

    adjacency: Adjacency
    dimension: int
    mode: str  # of the noise
    queries: tuple[Query, ...]  # what each node here releases in each step
    steps: int
    constants: Constants
    unverified: str = ""  # a hypothesis that does not hold or cannot be checked: everything is unbounded

    def event(self, i: int) -> Event:
        return self.queries[i].event(self.mode)

    def charged(self, event: Event) -> Event:
        return Unbounded(self.unverified) if self.unverified else event


class Gradients(Protected):
    """The noisy gradients of this rank's nodes."""

    recipe: Recipe  # type: ignore[assignment]

    def plans(self, releases: object) -> list[tuple[Event, ...]]:
        recipe = self.recipe
        if recipe.unverified:
            return []
        return [(recipe.event(i),) * recipe.steps for i in range(len(self.books))]

    def noisy(self, k: int, values: Array) -> Array:
        """The gradients of iteration k as they may be used; what an earlier process released is taken to the byte."""
        require(
            np.isfinite(values).all(), f"a gradient of iteration {k} is not finite; nothing of it was sent"
        )
        recipe, self._k = self.recipe, k
        self._events = [recipe.event(i) for i in range(len(values))]
        self._afford([recipe.charged(event) for event in self._events], k)
        before, sent = self.books.stored(k, recipe.dimension), np.empty_like(values)
        for i, value in enumerate(values):
            known = before is not None and bool(before.known[i])
            sent[i] = before.rows[i] if before is not None and known else self._noised(i, value, k)
        self.books.store(k, sent)
        return sent

    def _noised(self, i: int, value: Array, k: int) -> Array:
        query = self.recipe.queries[i]
        unproved = Unbounded(self.recipe.unverified) if self.recipe.unverified else None
        if self.recipe.mode == "secure":
            return self.noise.on_grid(value, query.grid, iteration=k, at=i, unproved=unproved)
        event = self._events[i]
        drawn = self.noise.draw(
            event, iteration=k, at=i, shape=value.size, sensitivity=query.sensitivity, unproved=unproved
        )
        return value + drawn

    def passed(self, k: int, rows: Array) -> None:
        """`rows`, made of the gradients of iteration k and of what came before, may leave."""
        if self.guard is not None and self._believed:
            self.guard.seal(k, rows, self._events)
