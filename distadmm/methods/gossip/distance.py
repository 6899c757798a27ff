"""What each node of a private run learns of every other from its own messages, by distance: where that can be said."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from distadmm.errors import require
from distadmm.methods.consensus import forecast
from distadmm.methods.gossip.release import Paired, Recipe
from distadmm.privacy.accounting import accountant, network
from distadmm.privacy.accounting.network_statements import Learned
from distadmm.privacy.accounting.trust import Trust
from distadmm.run.setup import Prepared


def planned(prepared: Prepared, recipe: Recipe) -> Learned:
    """Of the whole schedule; called by every rank."""
    node, config = prepared.node, prepared.config
    here = [
        (int(i), recipe.planned(at).events, _hides(recipe.queries[at], recipe.mode))
        for at, i in enumerate(node.network.nodes)
    ]
    gathered, A = node.network.world.allgather(here), forecast.adjacency(node.network)

    def learned() -> Learned:
        assert A is not None
        _, books, hidden = zip(
            *sorted((each for some in gathered for each in some), key=lambda each: each[0])
        )
        seen = {tuple(event.against(Trust(1)) for event in book) for book in books}
        delta, n = config.privacy.delta, len(A)
        most = max(accountant.epsilon(list(events), delta, recipe.adjacency) for events in seen)
        missed = _missed(prepared, recipe)
        if missed:
            return Learned(delta, most, (), missed)
        require(
            n <= network.LARGEST,
            f"--by-distance works out exactly what each node sees, and {n} nodes are more than {network.LARGEST}; "
            "leave it out",
        )
        own, spacing, moved, shared = zip(*hidden)
        pairs = np.zeros((n, n))
        for i, c2 in enumerate(shared):
            for j, value in c2.items() if isinstance(c2, dict) else ((j, c2) for j in np.flatnonzero(A[i])):
                pairs[i, j] = value
        noise = network.Noise(np.array(own), pairs, np.array(spacing), recipe.dimension)
        rounds = config.algorithm.mixes + recipe.constants.after.rounds
        lines = network.by_distance(A, noise, np.array(moved), rounds, delta, most)
        return Learned(delta, most, tuple(lines), keys=recipe.pairwise)

    return cast(Learned, node.network.world.on_root(learned))


def _hides(query: Any, mode: str) -> tuple[float, float, float, Any]:
    """Of one release: the variance of its node's own noise, its grid, how far it is moved, and what edges share."""
    if isinstance(query, Paired):
        event, h = query.event, query.spacing
        c = event.edge_grid
        shared = {j: (each * h) ** 2 for j, each in c.items()} if isinstance(c, dict) else (c * h) ** 2
        return query.sigma**2, h, event.sensitivity_grid * h, shared
    if mode == "secure":
        grid = query.grid
        return grid.sigma**2, grid.spacing, grid.event.sensitivity_grid * grid.spacing, {}
    return (query.event(mode).noise_multiplier * query.sensitivity) ** 2, 0.0, query.sensitivity, {}


def _missed(prepared: Prepared, recipe: Recipe) -> str:
    """The hypothesis that fails; empty where all hold."""
    if recipe.unverified:
        return recipe.unverified
    if recipe.steps != 1 or recipe.first or prepared.config.loop.resume is not None:
        return "one-gradient"
    return "" if prepared.node.network.conditions is None else "all-rounds"
