"""What stands between gradients and the network: ledger, noise, and the bytes that were made, in this order.

Invariants that guard privacy
-----------------------------
* A gradient is used as it was released, by its own node too: clipped, noised once, kept to the byte for a replay.
* Noise is charged before it is drawn (`Noise`); in secure mode, and where edges share it, it is discrete, on a grid.
* What edges share is added before anything leaves, and is drawn for a round by its number: never frozen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Any

import numpy as np

from distadmm.errors import Unsolved, require
from distadmm.methods.gossip.rule import Constants, Noise
from distadmm.privacy.accounting.events import Adjacency, Array, Event, Unbounded
from distadmm.privacy.accounting.pairwise_gaussian import PairwiseGaussian
from distadmm.privacy.ledger.schedules import Committed
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

    @property
    def sigma(self) -> float:
        return self.event.sigma_grid * self.spacing


def paired(
    reach: Array, mu: float, steps: int, dimension: int, noise: Noise, q: int, gone: int = 0
) -> tuple[Paired, ...]:
    """What each node of the graph releases: `steps` of them cost mu when `q` nodes collude and `gone` are away, and one
    record moves each by `reach`."""
    assert noise.own is not None
    assert noise.pairs is not None
    assert noise.exposed is not None
    own, exposed = noise.own, noise.exposed
    reach = np.full_like(reach, reach.max()) if noise.level else reach
    known = exposed[q + gone] if q + gone < len(exposed) else 1 / own
    each = [math.sqrt(steps * x) / mu for x in known.tolist()]
    spacing = mechanism.grid_of(max(map(mul, reach.tolist(), each)) * math.sqrt(own.max()))
    grids = [mechanism.GridQuery(1.0, far, dimension, spacing) for far in reach.tolist()]
    moved = np.array([grid.event.sensitivity_grid for grid in grids])
    most = max(map(mul, moved.tolist(), each))  # the deviation where `own` is 1
    sigma, unit = np.sqrt(most**2 * own + 4) * (1 + 1e-12), math.sqrt(most**2 + 4) * (1 + 1e-12)
    c, found = np.sqrt(noise.pairs) * unit, []
    same = len(np.unique(own)) == len(np.unique(c[c > 0])) == 1
    for i, far in enumerate(moved):
        worst = (moved / far) ** 2 * own[i]
        shares = (exposed * worst).max(axis=1)
        event = PairwiseGaussian(
            sigma[i], c.max() if same else tuple((int(j), c[i, j]) for j in np.flatnonzero(c[i])), far,
            tuple(shares), coalition=q, dimension=dimension, gone=gone,
            rest=max(1.0, (worst / own).max(), shares.max()),  # of a node that is cut off the same, but for rounding
        )  # fmt: skip
        found.append(Paired(float(reach[i]), dimension, spacing, event))
    return tuple(found)


def terms_of(everyone: Sequence[Paired], steps: int) -> bytes:
    """What the ends of all edges have to agree about, of what each node of the graph releases in each step."""
    first = everyone[0].event
    facts: dict[str, float] = {
        "nodes": len(everyone), "steps": steps, "dimension": first.dimension, "coalition": first.coalition,
        "gone": first.gone, "spacing": everyone[0].spacing,
    }  # fmt: skip
    for i, each in enumerate(everyone):
        pairs = each.event.edge_grid
        if isinstance(pairs, float):
            facts |= {"sigma": first.sigma_grid, "pair": pairs}
        else:
            facts |= {f"sigma {i}": each.event.sigma_grid, **{f"pair {i} {j}": c for j, c in pairs.items()}}
    return pairwise.terms_of(**facts)


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
    terms: bytes = b""  # what both ends of an edge must have in common, or their noise is not the same
    first: tuple[Query | Paired, ...] = ()  # what each node here releases in iteration 1 alone, if anything
    tolerance: float | None = None  # of solves where gradients are those of their ends

    def query(self, i: int, k: int) -> Query | Paired:
        """What node i releases in iteration k."""
        return self.first[i] if self.first and k == 1 else self.queries[i]

    def event(self, i: int, k: int = 0) -> Event:
        query = self.query(i, k)
        return query.event if isinstance(query, Paired) else query.event(self.mode)

    def planned(self, i: int) -> Committed:
        """All that node i will release."""
        return Committed((*[self.event(i, 1)] * bool(self.first), self.event(i).times(self.steps)))

    @property
    def pairwise(self) -> bool:
        return isinstance(self.queries[0], Paired)

    @property
    def beside(self) -> str:
        """What the sentence of a run has to say besides its bound."""
        if self.first:
            return "The first release of each node is of its rows' second moments, not of a gradient."
        if self.tolerance is None:
            return ""
        counted = f", solved to {self.tolerance:g}, which is counted" if self.adjacency != "node" else ""
        text = "Gradients are those where proximal steps of convex losses end"
        read = "" if self.pairwise else " Derivation not peer-reviewed."  # which is said there of both
        return f"{text}{counted}.{read}"

    def charged(self, event: Event) -> Event:
        return Unbounded(self.unverified) if self.unverified else event


class Gradients(protected.Protected):
    recipe: Recipe  # type: ignore[assignment]
    edges: pairwise.Edges | None = None  # the keys of pairwise noise
    conditions: Conditions | None = None  # under which nodes drop out and return

    def certify(self, k: int, residual: Array) -> None:
        """A solve that missed its tolerance is unbounded in the ledger before anything is made of it."""
        self._sent_before = self.books.stored(k, self.recipe.dimension)
        self._certify(k, residual)

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
            pairs, away = query.event.edge_grid, self.away(k, query.event.gone)
            return own + query.spacing * self.edges.noise(self.books.nodes[i], k, pairs, value.size, away)
        if self.recipe.mode == "secure":
            return self.noise.on_grid(value, query.grid, iteration=k, at=i, unproved=unproved)
        how: dict[str, Any] = {"shape": value.size, "sensitivity": query.sensitivity, "unproved": unproved}
        return value + self.noise.draw(self._events[i], iteration=k, at=i, **how)

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
