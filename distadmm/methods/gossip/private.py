"""From privacy flags to noisy gradients: hypotheses, constants, noise.  Ledgers are those of every graph method.

A hypothesis that nobody established makes epsilon infinite, under its name; none is assumed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from distadmm.algorithm import Node
from distadmm.errors import require
from distadmm.methods.consensus import forecast, smoothing
from distadmm.methods.consensus import private as consensus
from distadmm.methods.consensus.private import armed, settle
from distadmm.methods.consensus.smoothing import Smoothing
from distadmm.methods.forecasts import Forecast
from distadmm.methods.gossip import optimised, rule
from distadmm.methods.gossip.release import Gradients, Paired, Recipe, paired, terms_of
from distadmm.privacy.accounting import accountant, gaussian, pairwise_gaussian, scopes
from distadmm.privacy.accounting.events import Array, Event
from distadmm.privacy.accounting.kept import Kept
from distadmm.privacy.accounting.schedule import require_few
from distadmm.privacy.accounting.trust import Trust
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.ledger.schedules import Committed
from distadmm.privacy.noise import masks, pairwise, sources
from distadmm.privacy.noise.queries import Query
from distadmm.problems.losses import loss_named
from distadmm.ranks.world import World
from distadmm.run.config import Config
from distadmm.run.setup import Prepared
from distadmm.structs import struct

__all__ = ["armed", "plan_of", "settle"]


_GAINS = 1 - 1e-6  # of a node's own noise: with less, edges take over some of it
_ABOVE = 1 + 1e-12  # so that no rounding of the sum over steps ends above --epsilon


@struct
class Plan:
    """What a private run will release and at what price: worked out once, before any file is written."""

    recipe: Recipe
    node: Node
    expected: float  # excess of the nodes' mean loss, by public facts alone
    words: str  # of the constants
    schedules: Sequence[Committed]  # what each node here reserves
    hosted: int = 1  # nodes of one rank, at most
    releases: tuple[Any, ...] = ()
    penalty: None = None
    learned: Any = None  # with --by-distance: what a node learns of another from its own messages

    @property
    def choice(self) -> Self:
        return self

    @property
    def trust(self) -> str:
        return self.recipe.trust

    @property
    def smoothing(self) -> Smoothing:
        return self.recipe.constants.after

    def forecast(self) -> Forecast:
        return Forecast(self.recipe.constants, np.array([self.expected]), consensus.PUBLIC)

    def release(self, books: Books, source: sources.Source, phases: int) -> Gradients:
        recipe, network = self.recipe, self.node.network
        edges = None
        if recipe.pairwise:
            # Real keys are drawn anew; those of a simulation stay, for its bits are those of a run in one piece.
            own = {i: masks.drawn(i, source, True, 0) for i in books.nodes}
            edges = pairwise.agreed(network, own, recipe.terms)
        made = Gradients(cast(Any, recipe), books, source, network, phases)
        made.edges, made.conditions = edges, network.conditions
        return made

    @property
    def header(self) -> dict[str, Any]:
        recipe, n = self.recipe, self.node.network.n_nodes
        scope = "gossip-pairwise" if recipe.pairwise else "gossip"
        verified = [] if recipe.unverified else scopes.SCOPES[scope].hypotheses
        claim = scopes.claim(scope, verified)
        if recipe.pairwise:
            claim["against"] = against(recipe.trust, n, cast(Any, recipe.queries[0]).event.gone, self.hosted)
        beside = recipe.beside
        if beside:
            claim["beside"] = beside
        return {"claim": claim, **({"trust": recipe.trust} if recipe.pairwise else {})}


def against(trust: str, nodes: int, gone: int = 0, hosted: int = 1) -> str:
    """Whom pairwise noise hides from, in words."""
    colluding = Trust.parse(trust).colluding
    away = f", while up to {gone} others are away in a round" if gone else ""
    if colluding < 0:
        return f"whoever sees what travels and holds no node{away}"
    # A run may be taken up again on other ranks, and its ledgers keep what was said at first.
    owner = "; the owner of a rank has all its nodes" + f", up to {hosted} when the run began" * (hosted > 1)
    return f"any {colluding:.0f} of the {nodes} nodes together (the reader's own node counts as one{away}{owner})"


def plan_of(prepared: Prepared) -> Plan:
    """The plan of a private run, or its refusal.  Called by every rank."""
    config, node = prepared.config, prepared.node
    world, privacy, algorithm = node.network.world, config.privacy, config.algorithm
    with world.together():
        _require_known(prepared)
        missed = unverified(prepared)
    missed = next(filter(None, world.allgather(missed)), "")
    opening, n = algorithm.opening(node), node.facts.n_nodes
    steps = config.loop.iterations - opening
    with world.together():
        require(
            steps >= 1,
            f"--iterations is {config.loop.iterations}: there is no gradient to release"
            + (f", the first {opening} mix second moments" if opening else "")
            + f"; needed: at least {opening + 1}",
        )
        require_few(steps)
        budget = float(privacy.epsilon or 0.0), privacy.delta
    multiplier = _once(world, "gaussian_noise_multiplier", *budget, steps) * _ABOVE
    with world.together():
        reach = _everywhere(prepared, sensitivities(prepared, 1.0))
    A = forecast.adjacency(node.network) if n <= forecast.LARGEST else None
    opened = _opened(prepared, opening)

    def chosen() -> tuple[rule.Constants, rule.Noise, float]:
        noises, improve = _noises(algorithm, A, reach)
        if algorithm.noise_model == "auto" and _began_unweighed(config.loop.resume):
            improve = None
        return rule.choose(
            algorithm, node.facts, node.problem.dimension, rule.mixing(A), _deviation(prepared, multiplier, reach),
            steps, algorithm.unit(node), [clip_of(config)], _afters(algorithm, A), noises,
            partial(_climb, loss_named(config.problem.loss)), opened, improve, algorithm.noise_model == "optimised",
        )  # fmt: skip

    constants, noise, expected = world.on_root(chosen)
    with world.together():
        made = (_shared if noise.pairs is not None else _queries)(prepared, constants, steps, noise)
    recipe = Recipe(
        adjacency=cast(Any, privacy.adjacency), dimension=node.problem.dimension, mode=privacy.rng, steps=steps,
        constants=constants, trust=algorithm.trust if noise.pairs is not None else "any", unverified=missed,
        tolerance=node.problem.tolerance if algorithm.solves else None, **made,
    )  # fmt: skip
    hosted = max(world.allgather(node.network.n_local))
    bare, here = Committed().doubted(missed), range(len(recipe.queries))
    schedules = [bare if missed else recipe.planned(i) for i in here]
    words = constants.words(algorithm.unit(node)) + noise.words
    learned = None
    if algorithm.by_distance:
        from distadmm.methods.gossip.distance import planned

        learned = planned(prepared, recipe)
    return Plan(recipe, node, expected, words, schedules, hosted, learned=learned)


def _began_unweighed(folder: str | None) -> bool:
    """Whether a run that goes on began with noise that was not weighed for its graph, which older versions never did:
    its ledgers say so, and it keeps the noise that they reserved."""
    if folder is None:
        return False
    from distadmm.privacy.ledger import shelves

    entries = shelves.of_nodes(Path(folder) / "ledger", [0])[0].entries
    event = next((each["events"][-1] for each in entries if each["kind"] == "commit"), None)
    if event is None:
        return False
    pair = event.get("pair_grid")
    if pair is None:
        return True
    return isinstance(pair, float) and any(np.isclose(pair / event["sigma_grid"], rule.RATIOS, rtol=1e-9))


def _opened(prepared: Prepared, opening: int) -> list[rule.Constants]:
    """What may be released before gradients: at which shares of mu^2, and how long its noise is expected to be."""
    algorithm, node, privacy = prepared.config.algorithm, prepared.node, prepared.config.privacy
    plain = rule.Constants(0.0, 0.0, Smoothing(), opening=opening)
    if not algorithm.opens:
        return [plain]
    budget = float(privacy.epsilon or 0.0), privacy.delta
    once = _once(prepared.world, "gaussian_noise_multiplier", *budget, 1)
    moved = _everywhere(prepared, moments_moved(prepared))
    sd = once * float(np.sqrt(np.mean(moved**2) / 2))  # of a number beside the diagonal
    long = node.facts.max_curvature * 2 * sd * float(np.sqrt(rule.width_of(node) / node.facts.n_nodes))
    return [plain._replace(share=q, damping=long / q**0.5) for q in algorithm.shares]


def _once(world: World, function: str, *given: float) -> float:
    """What a function of `accounting.gaussian` says; one rank of a host loads it, if it was never asked before."""

    def value(asked: tuple[float, ...]) -> float:
        return getattr(gaussian, function)(*asked)  # type: ignore[no-any-return]

    return world.each_once(value, [given], Kept(function))[given]


def _everywhere(prepared: Prepared, here: Array) -> Array:
    """A number of each node here, of all nodes in their order: ranks may host them in another."""
    network = prepared.node.network
    found = np.empty(network.n_nodes)
    for nodes, values in network.world.allgather((network.nodes, here)):
        found[nodes] = values
    return found


def _deviation(prepared: Prepared, multiplier: float, reach: Array) -> Callable[[float], float]:
    """sd of a node's own noise by clip: the mean square over nodes."""
    typical = float(np.sqrt(np.mean(reach**2)))
    label = prepared.config.privacy.adjacency == "label" and prepared.config.problem.loss == "logistic"
    return lambda clip: multiplier * typical * (min(2 * clip, 1.0) if label else clip)


def _climb(loss: Any, clip: float) -> float:
    """From the least slope of a record's loss to the largest, as far as the clip leaves them."""
    sides = 1 if getattr(loss, "one_signed", False) else 2
    return sides * float(min(getattr(loss, "max_slope", np.inf), clip))


def colluding_of(trust: str | None, nodes: int) -> int:
    """q: how many nodes may collude; all others where nobody is trusted."""
    others = Trust.parse(trust).colluding
    require(
        others < nodes or np.isinf(others),
        f"--trust {trust} for {nodes} nodes; needed: any, centre, or coalition:0 to coalition:{nodes - 1}",
    )
    return nodes - 1 if np.isinf(others) else int(max(others, 0))


def _noises(
    algorithm: Any, A: Array | None, reach: Array
) -> tuple[list[rule.Noise], Callable[[Array], rule.Noise] | None]:
    """Ways to make the noise: each node's own, and shared by edges in several strengths; and one made for the graph."""
    nodes, model = len(reach), algorithm.noise_model
    local = rule.Noise(np.full(nodes if A is not None else 1, 1.0 / nodes if A is not None else 1.0))
    q = colluding_of(algorithm.trust, nodes)
    if A is None or model == "local" or (q >= nodes - 1 and model == "auto"):
        require(
            model in ("auto", "local"),
            f"--noise-model {model} for {nodes} nodes; needed: at most {forecast.LARGEST}",
        )
        return [local], None
    at, most, one = q + algorithm.spare, max(q, 2) + algorithm.spare, np.ones(nodes)
    need = (reach / reach.max()) ** 2

    def noise(own: Array, pairs: Array, need: Array, typical: float = float(need.mean())) -> rule.Noise:
        exposed = pairwise_gaussian.by_size(own, pairs, most)
        return rule.Noise.of(A, own, pairs, exposed, need, at, typical)

    def improve(worth: Array) -> rule.Noise:
        _, vectors = np.linalg.eigh(smoothing.matrix(A))
        own, pairs = optimised.weighed(A, (vectors * worth) @ vectors.T, need, at)
        return noise(own, pairs, need).spans(need)

    most_effort = optimised.EFFORT if model == "auto" else optimised.MOST
    few = pairwise_gaussian.effort(nodes, at) <= most_effort
    require(
        few or model == "auto",
        f"--noise-model optimised goes through all coalitions of {at} of {nodes} nodes in each trial, and they are too "
        "many; use --noise-model pairwise",
    )
    words = ", edges share {:g} times a node's own noise"
    pairs = [noise(one, r**2 * A, one)._replace(words=words.format(r)) for r in rule.RATIOS]
    if model == "pairwise":
        return pairs, None
    return [local, *(each for each in pairs if each.factor < _GAINS)], improve if few else None


def _shared(prepared: Prepared, use: rule.Constants, steps: int, noise: rule.Noise) -> dict[str, Any]:
    """What each node here releases where edges share noise: first, and in each step; and what ends agree about."""
    config, node, world = prepared.config, prepared.node, prepared.world
    privacy, spare = config.privacy, config.algorithm.spare
    if privacy.rng == "secure":
        masks.require_suite()
    q, width = colluding_of(config.algorithm.trust, node.facts.n_nodes), rule.width_of(node)
    mu = _once(world, "mu_at", float(privacy.epsilon or 0.0), privacy.delta)

    def made(reach: Array, share: float, times: int, numbers: int) -> tuple[Paired, ...]:
        return paired(_everywhere(prepared, reach), mu * share**0.5, times, numbers, noise, q, spare)

    every = made(sensitivities(prepared, use.clip), 1 - use.share, steps, node.problem.dimension)
    first = made(moments_moved(prepared), use.share, 1, width * (width + 1) // 2) if use.share else ()
    here = node.network.nodes.tolist()
    return {
        "queries": tuple(every[i] for i in here), "first": tuple(first[i] for i in here if first),
        "terms": terms_of(every, steps),
    }  # fmt: skip


def _queries(prepared: Prepared, use: rule.Constants, steps: int, noise: rule.Noise) -> dict[str, Any]:
    """What each node here releases under its own noise alone: first, and in each step."""
    privacy, world = prepared.config.privacy, prepared.world
    d, width = prepared.node.problem.dimension, rule.width_of(prepared.node)
    budget, many = (float(privacy.epsilon or 0.0), privacy.delta), width * (width + 1) // 2
    reach, moved = sensitivities(prepared, use.clip), moments_moved(prepared)
    once, each = (_once(world, "gaussian_noise_multiplier", *budget, k) * _ABOVE for k in (1, steps))
    cases = list(zip(reach.tolist(), moved.tolist()))
    first, queries = {}, {}
    for case in dict.fromkeys(cases):
        if use.share:
            first[case] = _query(case[1], once / use.share**0.5, many, 1, prepared, use.share)
        before = [first[case].event(privacy.rng)] if use.share else []
        queries[case] = _query(case[0], each / (1 - use.share) ** 0.5, d, steps, prepared, 1.0, before)
    found = {"queries": tuple(queries[case] for case in cases)}
    return {**found, "first": tuple(first[case] for case in cases if case in first)}


def clip_of(config: Config) -> float:
    asked = config.algorithm.gradient_clip
    usual = rule.NODE_CLIP if config.privacy.adjacency == "node" else rule.CLIP
    return usual if asked == "auto" else float(asked)


def _afters(algorithm: Any, A: Array | None) -> list[Smoothing]:
    """What may follow the last step: as the user says, or what is worth trying."""
    asked = smoothing.asked(algorithm.average, algorithm.mixing)
    return smoothing.tried(asked, algorithm, A if algorithm.mixing == "auto" else None)


def sensitivities(prepared: Prepared, clip: float) -> Array:
    """How far one record moves the gradient of O_i/C of each node here, whose records' parts are cut to `clip`."""
    privacy, problem = prepared.config.privacy, prepared.node.problem
    if privacy.adjacency == "node":  # the whole gradient is cut
        return np.full(len(problem.objectives), 2 * clip)
    each = np.array([objective.scale for objective in problem.objectives]) / prepared.node.facts.weight
    if privacy.adjacency == "add-remove":
        each = each * clip
    elif privacy.adjacency == "label" and prepared.config.problem.loss == "logistic":
        each = each * min(2 * clip, 1.0)  # the two slopes are one apart
    else:
        each = each * 2 * clip
    return prepared.config.algorithm.moved(each, prepared.node)  # type: ignore[no-any-return]


def moments_moved(prepared: Prepared) -> Array:
    """How far one record moves the second moments of each node here, in Frobenius' norm."""
    privacy, problem = prepared.config.privacy, prepared.node.problem
    if privacy.adjacency == "node":  # the whole matrix is cut to 1
        return np.full(len(problem.objectives), 2**0.5)
    each = np.array([objective.scale for objective in problem.objectives]) / prepared.node.facts.weight
    return each * (1.0 if privacy.adjacency == "add-remove" else 2**0.5)


def _query(
    sensitivity: float, multiplier: float, numbers: int, times: int, prepared: Prepared, share: float,
    before: Sequence[Event] = (),
) -> Query:  # fmt: skip
    """One release of `times`: noise for a share of the budget's mu^2, on its grid where it is secret."""
    from distadmm.privacy.noise import queries

    privacy = prepared.config.privacy
    most = float(privacy.epsilon or 0.0)
    if share < 1.0:
        most = gaussian.epsilon(gaussian.mu_at(most, privacy.delta) * share**0.5, privacy.delta)

    kept = Kept("epsilon of one node", privacy.delta, privacy.adjacency)

    def price(events: tuple[Event, ...]) -> float:
        return accountant.epsilon(list(events), privacy.delta, cast(Any, privacy.adjacency))

    def keeps(event: Event) -> bool:
        return kept.one((*before, event.times(times)), price) <= most  # type: ignore[no-any-return]

    return queries.within(multiplier, sensitivity, numbers, privacy.rng, keeps)


def _require_known(prepared: Prepared) -> None:
    """What noisy gradients have no words for is refused, not ignored."""
    more = {"noise": prepared.config.privacy.noise == "gamma"}
    consensus.require_known(prepared, more, "its noise is Gaussian, on gradients, for --epsilon")


def unverified(prepared: Prepared) -> str:
    """The first hypothesis that does not hold here or that no code can check; empty when all are verified."""
    facts = prepared.source.facts
    facts.require_short_rows()
    return facts.doubt or consensus.unchecked(prepared)
