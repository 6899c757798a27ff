"""Attacks on noisy gradients by the adversary that a run's trust names: everything that travels, and its own edges.

The product's own noise is drawn for the whole graph, with keys that its nodes really agreed on, in two worlds: the
gradient of the node that is worst off moves by all that is charged, or not.  The nodes of a coalition know what their
edges add; it is taken off, and what is left has the covariance s^2 I + c^2 L of the graph without them, as claimed:

  * level 0: whitened by it, noises are independent standard normals.  Noise that is frozen, too small, or the same on
    two edges is none of that;
  * level 1 and 2: the likelihood ratio of all that the coalition sees;
  * what a ledger says of coalitions is worked out again, one by one.

Where second moments are released first, they are attacked too, as one more release that moves by all that it is charged
for.  Where up to R nodes may be away, those R are away whose absence tells the coalition most, in every round.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, islice
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from distadmm.algorithm import Array
from distadmm.audit.bounds import claim_of
from distadmm.audit.draws import Draws, Played, ledgers
from distadmm.audit.noises import Finding, Noise, off_grid
from distadmm.audit.play import fresh
from distadmm.audit.runs import Play
from distadmm.methods.consensus import forecast
from distadmm.methods.gossip.private import Plan, colluding_of
from distadmm.methods.gossip.release import Gradients, Paired
from distadmm.privacy.accounting.events import Gaussian
from distadmm.privacy.ledger.books import Books
from distadmm.problems.consensus import GeneralisedLinear, Problem

_STEPS = 4  # of a play
_WIDTH = 32  # columns of the attacked gradients
_LOOKED_AT = 8  # plays whose noise is tested
COALITIONS = 20_000  # that are gone through


class Adversary(NamedTuple):
    members: tuple[int, ...]
    target: int  # the node that it learns most of
    mu: float  # of one release
    away: tuple[int, ...] = ()  # nodes whose absence helps it


def adversary(A: Array, S: Array, reach: Array | float, coalitions: Sequence[Sequence[int]]) -> Adversary:
    """Of these coalitions the one that learns most; S: covariance of one release, given nobody's edges."""
    best, reach = Adversary((), 0, 0.0), np.broadcast_to(reach, len(A))
    for members in coalitions:
        left, covariance = _seen(A, S, members)
        known = reach[left] * np.sqrt(np.diag(np.linalg.inv(covariance)))
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


def play_of(algorithm: Any, plan: Plan, words: str) -> Play:
    """How the noise of `plan` is attacked, by as many as its trust names; and whether a record moves more."""
    moved = overmoved(algorithm, plan)
    n, recipe = plan.node.facts.n_nodes, plan.recipe
    colluding = colluding_of(recipe.trust, n) if recipe.pairwise else 0
    first = "1 release of second moments and " if recipe.first else ""
    gone = _gone(recipe.queries[0])
    away = f" while {gone} are away" if gone else ""
    claim: Callable[..., Any] = lambda events: claim_of(  # noqa: E731
        events, recipe.adjacency, f"a ledger of {words}, {first}{_STEPS} steps, against {recipe.trust}{away}"
    )

    def play(runs: int, draws: Draws) -> Played:
        found = played(plan, runs, draws, colluding)
        return found._replace(findings=[*moved, *found.findings])

    return Play(words, play, claim, recipe.mode)


def overmoved(algorithm: Any, plan: Plan) -> list[Finding]:
    """Gradients of the product's own that one record moves by more than is charged: of nodes of one record, opposite in
    both worlds but for a part that both have, where its slope is steepest and where the model starts."""
    node, recipe, found = plan.node, plan.recipe, []
    free = SimpleNamespace(
        private=True, recipe=recipe, noisy=lambda k, data: data, certify=lambda k, residual: None
    )
    row, other = np.array([[0.2, math.sqrt(1 - 0.04)]]), np.array([[0.2, -math.sqrt(1 - 0.04)]])
    ones = np.ones(1)
    tables = {
        "label": ((row, ones), (row, -ones)), "add-remove": ((row, ones), (0 * row, ones)),
    }.get(recipe.adjacency, ((row, ones), (other, ones)))  # fmt: skip
    for i, (objective, query) in enumerate(zip(node.problem.objectives, recipe.queries)):
        weight = node.facts.weight if recipe.adjacency == "node" else objective.scale
        for far in (0.0, -1e4):
            sent = []
            for X, y in tables:
                own = GeneralisedLinear(X, y, objective.loss, weight=weight, ridge=objective.ridge)
                alone = node.having(release=free, problem=Problem([own], node.problem.tolerance))
                sent.append(algorithm.gradients(1, np.array([[far, 0.0]]), alone, recipe.constants)[0])
            true = float(np.linalg.norm(sent[0] - sent[1]))
            if true > query.sensitivity * (1 + 1e-9):
                text = f"a record moves its gradient by {true:.6g}; its entry is for {query.sensitivity:.6g}"
                found.append(Finding("entry", i, 1, text))
    return found


class Stage(NamedTuple):
    """Releases of one kind, as the adversary sees them."""

    queries: Sequence[Any]  # of each node
    steps: int  # of a play
    unit: float  # of the grid; 0: none
    reach: Array  # how far one record moves each node's release
    covariance: Array  # of one release, given nobody's edges

    @classmethod
    def of(cls, A: Array, queries: Sequence[Any], mode: str, steps: int) -> "Stage":
        queries = [_narrow(query) for query in queries]
        units = [_unit(query, mode) for query in queries]
        S = np.diag([_claimed(_event(each, mode), each, unit) ** 2 for each, unit in zip(queries, units)])
        if isinstance(queries[0], Paired):
            S += shared(A, queries)
        return cls(queries, steps, units[0], np.array([each.sensitivity for each in queries]), S)


def shared(A: Array, queries: Sequence[Paired]) -> Array:
    """The covariance of what edges add to one release of each node."""
    C = np.zeros_like(A)
    for i, query in enumerate(queries):
        c = query.event.edge_grid
        near = np.flatnonzero(A[i])
        C[i, near] = [(c if isinstance(c, float) else c.get(int(j), 0.0)) * query.spacing for j in near]
    return np.diag((C**2).sum(axis=1)) - C**2  # type: ignore[no-any-return]


class Sight(NamedTuple):
    """What is left to guess of one stage when what the adversary knows is taken off."""

    left: list[int]  # whose releases
    moved: Array
    inverse: Array  # of the covariance
    whiten: Array

    @classmethod
    def of(cls, A: Array, stage: Stage, who: Adversary) -> "Sight":
        left, covariance = _seen(A, stage.covariance, who.members + who.away)
        moved = np.zeros(len(left))
        moved[left.index(who.target)] = stage.reach[who.target]
        whiten = np.linalg.inv(np.linalg.cholesky(covariance))
        return cls(left, moved, np.linalg.inv(covariance), whiten)

    def ratio(self, here: Array) -> float:
        """The log-likelihood ratio of one release's first column."""
        there = here - self.moved
        return float(there @ self.inverse @ there - here @ self.inverse @ here) / 2


def played(plan: Plan, runs: int, draws: Draws, colluding: int) -> Played:
    """`runs` plays in each world, seen by the worst `colluding` nodes."""
    node, recipe = fresh(plan.node), plan.recipe
    A = cast(Array, forecast.adjacency(node.network))
    gone = _gone(recipe.queries[0])
    kinds = [(recipe.first, 1)] * bool(recipe.first) + [(recipe.queries, _STEPS)]
    stages = [Stage.of(A, queries, recipe.mode, steps) for queries, steps in kinds]
    last, size = stages[-1], min(colluding + gone, len(A) - 1)
    coalitions = list(islice(combinations(range(len(A)), size), COALITIONS))
    who = adversary(A, last.covariance, last.reach, coalitions)
    who = who._replace(members=who.members[:colluding], away=who.members[colluding:])
    events = [_event(stage.queries[who.target], recipe.mode) for stage in stages]
    sights = [Sight.of(A, stage, who) for stage in stages]
    findings, noises, scores = draws.findings(), [], []
    if colluding == colluding_of(recipe.trust, len(A)):
        findings += _entries(who, sights, [event.gdp_mu(recipe.adjacency) for event in events])
    for world in (0, 1):
        ratios, source = np.zeros(runs), draws.source(draws.seed + world)
        releases: list[Gradients | None] = [None] * len(stages)
        for r in range(runs):
            k = r * sum(stage.steps for stage in stages)  # of no other play: a seed repeats its iterations
            for s, (stage, sight) in enumerate(zip(stages, sights)):
                releases[s] = made = _release(plan, node, stage, source, releases[s], 2 * r + world, who.away)
                for _ in range(stage.steps):
                    k += 1
                    sent, view = _released(made, k, stage, who, world)
                    view = view[sight.left]
                    ratios[r] += sight.ratio(view[:, 0])
                    if r < _LOOKED_AT:
                        view[:, 0] -= world * sight.moved
                        white = zip(sight.left, sight.whiten @ view)
                        noises += [Noise(i, k, row, Gaussian(1.0), 1.0) for i, row in white]
                        findings += off_grid(r, [sent], stage.unit)
        scores.append(ratios)
    spent = [event.times(stage.steps) for event, stage in zip(events, stages)]
    return Played(scores[0], scores[1], spent, noises, findings)


def _entries(who: Adversary, sights: Sequence[Sight], claimed: Sequence[float | None]) -> list[Finding]:
    """Where a coalition learns more of one release than its entry says."""
    found = []
    for sight, most in zip(sights, claimed):
        mu = float(np.sqrt(sight.moved @ sight.inverse @ sight.moved))
        if most is not None and mu > most * (1 + 1e-6):
            text = f"{len(who.members)} nodes {who.members} learn mu = {mu:.6g} of node {who.target} in one release"
            away = f" while {who.away} are away" if who.away else ""
            found.append(Finding("entry", who.target, -1, f"{text}{away}; its entry says {most:.6g}"))
    return found


def _released(made: Gradients, k: int, stage: Stage, who: Adversary, world: int) -> tuple[Array, Array]:
    """What every node releases in iteration k, and that without what the edges of the coalition add."""
    query = stage.queries[0]
    values = np.zeros((len(stage.queries), query.dimension))
    values[who.target, 0] = world * stage.reach[who.target]
    sent = made.noisy(k, values)
    return sent, sent - of_members(made, who.members, k, query) if isinstance(query, Paired) else sent.copy()


def _event(query: Any, mode: str) -> Any:
    return query.event if isinstance(query, Paired) else query.event(mode)


def _gone(query: Any) -> int:
    """How many nodes may be away in a round."""
    return query.event.gone if isinstance(query, Paired) else 0


def _narrow(query: Any) -> Any:
    """The same release of fewer columns."""
    width = min(query.dimension, _WIDTH)
    own = {"event": replace(query.event, dimension=width)} if isinstance(query, Paired) else {}
    return replace(query, dimension=width, **own)


def _unit(query: Any, mode: str) -> float:
    """Of the grid that a release lies on; 0: none."""
    if isinstance(query, Paired):
        return query.spacing
    return query.grid.spacing if mode == "secure" else 0.0


def _claimed(event: Any, query: Any, unit: float) -> float:
    """The deviation of a node's own noise, as its entry says."""
    return event.sigma_grid * unit if unit else event.noise_multiplier * query.sensitivity


def _release(
    plan: Plan, node: Any, stage: Stage, source: Any, before: Gradients | None, r: int, away: tuple[int, ...]
) -> Gradients:
    """The product's own, with ledgers of its own; keys are agreed on once, and each play has terms of its own."""
    queries = tuple(stage.queries)
    own = {"queries": queries, "dimension": queries[0].dimension, "steps": stage.steps}
    recipe = replace(plan.recipe, **own, unverified="", first=())
    books = Books(ledgers(range(node.facts.n_nodes), recipe.adjacency, source))
    if before is None or before.edges is None:
        made = replace(plan, recipe=recipe, node=node).release(books, source, 1)
    else:
        made = Gradients(cast(Any, recipe), books, source, node.network, 1)
        made.edges = before.edges.again(recipe.terms + str(r).encode())
    there = ~np.isin(np.arange(len(books)), away)  # in every round
    node.network.stamp, made.conditions = None, cast(Any, SimpleNamespace(present=lambda k: there))
    made.commit([recipe.planned(i) for i in range(len(books))])
    return made


def of_members(release: Gradients, members: Sequence[int], k: int, query: Paired) -> Array:
    """What the edges of `members` add to every node's release."""
    assert release.edges is not None
    keys, away = release.edges.keys, release.away(k, query.event.gone)
    total = np.zeros((len(keys), query.dimension))
    for q in members:
        c = cast(Paired, release.recipe.query(q, k)).event.edge_grid
        for j in keys[q] if isinstance(c, float) else c:
            if j not in members and (j in away or q not in away):
                v = release.edges.between(q, j, k, c if isinstance(c, float) else c[j], query.dimension)
                total[j] += query.spacing * (v if q > j else -v)
    return total
