"""Attacks on noisy gradients by the adversary that a run's trust names: everything that travels, and its own edges.

The product's own noise is drawn for the whole graph, with keys that its nodes really agreed on, in two worlds: the
gradient of the node that is worst off moves by all that is charged, or not.  The nodes of a coalition know what their
edges add; it is taken off, and what is left has the covariance s^2 I + c^2 L of the graph without them, as claimed:

  * level 0: whitened by it, noises are independent standard normals.  Noise that is frozen, too small, or the same on
    two edges is none of that;
  * level 1 and 2: the likelihood ratio of all that the coalition sees;
  * what a ledger says of coalitions is worked out again, one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Any, NamedTuple, cast

import numpy as np

from distadmm.algorithm import Array
from distadmm.audit.bounds import claim_of
from distadmm.audit.draws import Draws, Played
from distadmm.audit.noises import Finding, Noise, off_grid
from distadmm.audit.play import fresh
from distadmm.audit.runs import Play
from distadmm.methods.consensus import forecast
from distadmm.methods.gossip.private import Plan, colluding_of
from distadmm.methods.gossip.release import Gradients, Paired
from distadmm.privacy.accounting.events import Gaussian
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.ledger.rules import MemoryLedger

_STEPS = 4  # of a play
_WIDTH = 32  # columns of the attacked gradients
_LOOKED_AT = 8  # plays whose noise is tested
COALITIONS = 20_000  # that are gone through


class Adversary(NamedTuple):
    members: tuple[int, ...]
    target: int  # the node that it learns most of
    mu: float  # of one release


def adversary(A: Array, S: Array, reach: float, coalitions: Sequence[Sequence[int]]) -> Adversary:
    """Of these coalitions the one that learns most; S: covariance of one release, given nobody's edges."""
    best = Adversary((), 0, 0.0)
    for members in coalitions:
        left, covariance = _seen(A, S, members)
        known = reach * np.sqrt(np.diag(np.linalg.inv(covariance)))
        if known.max() > best.mu:
            best = Adversary(tuple(members), left[int(known.argmax())], float(known.max()))
    return best


def _seen(A: Array, S: Array, members: Sequence[int]) -> tuple[list[int], Array]:
    """The nodes outside, and the covariance of their noise when the edges of `members` are known."""
    left = [i for i in range(len(A)) if i not in members]
    inside = S[np.ix_(left, left)].copy()
    edge = -S * A  # c^2 of each
    inside[np.diag_indices(len(left))] -= edge[np.ix_(left, list(members))].sum(axis=1)
    return left, inside


def play_of(plan: Plan, words: str) -> Play:
    """How the noise of `plan` is attacked, by as many as its trust names."""
    n, recipe = plan.node.facts.n_nodes, plan.recipe
    colluding = colluding_of(recipe.trust, n) if recipe.pairwise else 0
    claim: Callable[..., Any] = lambda events: claim_of(  # noqa: E731
        events, recipe.adjacency, f"a ledger of {words}, {_STEPS} steps, against {recipe.trust}"
    )
    return Play(words, lambda runs, draws: played(plan, runs, draws, colluding), claim, recipe.mode)


def played(plan: Plan, runs: int, draws: Draws, colluding: int) -> Played:
    """`runs` plays in each world, seen by the worst `colluding` nodes."""
    node, recipe = fresh(plan.node), plan.recipe
    A = cast(Array, forecast.adjacency(node.network))
    queries = [_narrow(query) for query in recipe.queries]
    events = [query.event if isinstance(query, Paired) else query.event(recipe.mode) for query in queries]
    event, query = events[0], queries[0]
    unit = (
        query.spacing if isinstance(query, Paired) else query.grid.spacing if recipe.mode == "secure" else 0.0
    )
    S = np.diag([_claimed(e, q, recipe.mode) ** 2 for e, q in zip(events, queries)])
    if isinstance(query, Paired):
        S = S + (query.event.pair_grid * unit) ** 2 * (np.diag(A.sum(axis=1)) - A)
    reach = max(query.sensitivity for query in queries)
    coalitions = list(islice(combinations(range(len(A)), colluding), COALITIONS))
    who = adversary(A, S, reach, coalitions)
    left, covariance = _seen(A, S, who.members)
    inverse, whiten = np.linalg.inv(covariance), np.linalg.inv(np.linalg.cholesky(covariance))
    findings, noises, scores = draws.findings(), [], []
    claimed = event.gdp_mu(recipe.adjacency)
    if (
        colluding == colluding_of(recipe.trust, len(A))
        and claimed is not None
        and who.mu > claimed * (1 + 1e-6)
    ):
        text = f"{len(who.members)} nodes {who.members} learn mu = {who.mu:.6g} of node {who.target} in one release"
        findings.append(Finding("entry", who.target, -1, f"{text}; its entry says {claimed:.6g}"))
    moved = np.zeros(len(left))
    moved[left.index(who.target)] = reach
    release: Gradients | None = None
    for world in (0, 1):
        found, source = np.empty(runs), draws.source(draws.seed + world)
        for r in range(runs):
            release = _release(plan, node, queries, source, release, 2 * r + world)
            known = np.zeros((_STEPS, len(A), query.dimension))
            sent = np.zeros_like(known)
            for t in range(_STEPS):
                values = np.zeros((len(A), query.dimension))
                values[who.target, 0] = world * reach
                k = _STEPS * r + t + 1  # of no other play: a seed repeats its iterations
                sent[t] = release.noisy(k, values)
                if isinstance(query, Paired):
                    known[t] = of_members(release, who.members, k, query)
            view = (sent - known)[:, left]
            here = view[:, :, 0]
            there = here - moved
            far = np.einsum("ti,ij,tj->", there, inverse, there) - np.einsum(
                "ti,ij,tj->", here, inverse, here
            )
            found[r] = far / 2
            if r < _LOOKED_AT:
                view[:, left.index(who.target), 0] -= world * reach
                for t in range(_STEPS):
                    rows = whiten @ view[t]
                    noises += [
                        Noise(i, _STEPS * r + t + 1, row, Gaussian(1.0), 1.0) for i, row in zip(left, rows)
                    ]
                    findings += off_grid(r, [sent[t]], unit)
        scores.append(found)
    return Played(scores[0], scores[1], [event.times(_STEPS)], noises, findings)


def _narrow(query: Any) -> Any:
    """The same release of fewer columns."""
    width = min(query.dimension, _WIDTH)
    if isinstance(query, Paired):
        return replace(query, dimension=width, event=replace(query.event, dimension=width))
    return replace(query, dimension=width)


def _claimed(event: Any, query: Any, mode: str) -> float:
    """The deviation of a node's own noise, as its entry says."""
    if isinstance(query, Paired):
        return event.sigma_grid * query.spacing
    return (
        event.sigma_grid * query.grid.spacing
        if mode == "secure"
        else event.noise_multiplier * query.sensitivity
    )


def _release(
    plan: Plan, node: Any, queries: list[Any], source: Any, before: Gradients | None, r: int
) -> Gradients:
    """The product's own, with ledgers of its own; keys are agreed on once, and each play has terms of its own."""
    recipe = replace(
        plan.recipe,
        queries=tuple(queries),
        dimension=queries[0].dimension,
        steps=_STEPS,
        unverified="",
        first=(),
    )
    header: dict[str, Any] = {"adjacency": recipe.adjacency, "mode": source.mode, "orders": (2.0, 16.0)}
    books = Books(
        [MemoryLedger(i, scope="record", source=source.name, **header) for i in range(node.facts.n_nodes)]
    )
    if before is None or before.edges is None:
        made = replace(plan, recipe=recipe, node=node).release(books, source, 1)
    else:
        made = Gradients(cast(Any, recipe), books, source, node.network, 1)
        made.edges = before.edges.again(recipe.terms(len(books)) + str(r).encode())
    node.network.stamp, made.conditions = None, None
    made.commit(made.plans(()))
    return made


def of_members(release: Gradients, members: Sequence[int], k: int, query: Paired) -> Array:
    """What the edges of `members` add to every node's release."""
    assert release.edges is not None
    keys, away = release.edges.keys, release.away(k, query.event.gone)
    total = np.zeros((len(keys), query.dimension))
    for q in members:
        for j in keys[q]:
            if j not in members and (j in away or q not in away):
                v = release.edges.between(q, j, k, query.event.pair_grid, query.dimension)
                total[j] += query.spacing * (v if q > j else -v)
    return total
