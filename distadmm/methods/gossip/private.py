"""From privacy flags to noisy gradients: hypotheses, constants, noise.  Ledgers are those of every graph method.

A hypothesis that nobody established makes epsilon infinite, under its name; none is assumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from distadmm.errors import require
from distadmm.methods.consensus import forecast, smoothing
from distadmm.methods.consensus import private as consensus
from distadmm.methods.consensus.private import armed, settle
from distadmm.methods.consensus.smoothing import Smoothing
from distadmm.methods.gossip import rule
from distadmm.methods.gossip.gossip import longest
from distadmm.problems.losses import LOSSES
from distadmm.run.config import Config
from distadmm.run.setup import Prepared
from distadmm.structs import struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distadmm.algorithm import Node
    from distadmm.methods.gossip.release import Gradients, Recipe
    from distadmm.privacy.accounting.events import Event
    from distadmm.privacy.ledger.books import Books
    from distadmm.privacy.noise.queries import Query
    from distadmm.privacy.noise.sources import Source

__all__ = ["armed", "plan_of", "settle"]

Array = np.ndarray


@struct
class Plan:
    """What a private run will release and at what price: worked out once, before any file is written."""

    recipe: Recipe
    node: Node
    forecast: float  # expected excess of the nodes' mean loss, by public facts alone
    words: str  # of the constants
    releases: tuple[Any, ...] = ()
    penalty: None = None

    @property
    def choice(self) -> Plan:
        return self

    @property
    def smoothing(self) -> Smoothing:
        return self.recipe.constants.after

    def release(self, books: Books, source: Source, phases: int) -> Gradients:
        from distadmm.methods.gossip.release import Gradients

        return Gradients(cast(Any, self.recipe), books, source, self.node.network, phases)

    @property
    def events(self) -> Sequence[tuple[Event, ...]]:
        recipe = self.recipe
        if recipe.unverified:
            return [()] * len(recipe.queries)
        return [(recipe.event(i).times(recipe.steps),) for i in range(len(recipe.queries))]

    @property
    def header(self) -> dict[str, Any]:
        from distadmm.privacy.accounting import scopes

        verified = [] if self.recipe.unverified else scopes.SCOPES["gossip"].hypotheses
        return {"claim": scopes.claim("gossip", verified)}


def plan_of(prepared: Prepared) -> Plan | None:
    """The plan of a private run, or its refusal; None without noise.  Called by every rank."""
    config, node = prepared.config, prepared.node
    world, privacy = node.network.world, config.privacy
    if not privacy.wanted:
        return None
    with world.together():
        _require_known(prepared)
        missed = unverified(prepared)
    missed = next(filter(None, world.allgather(missed)), "")
    from distadmm.methods.gossip.release import Recipe
    from distadmm.privacy.accounting.gaussian import gaussian_noise_multiplier

    steps, algorithm = config.loop.iterations, config.algorithm
    with world.together():
        require(steps >= 1, "--iterations is 0: there is nothing to release; needed: at least 1")
        multiplier = gaussian_noise_multiplier(float(privacy.epsilon or 0.0), privacy.delta, steps)
        units = sensitivities(prepared, 1.0)
    own = np.sqrt(np.mean(np.concatenate(world.allgather(units**2))))  # of clip 1
    A = forecast.adjacency(node.network) if node.facts.n_nodes <= forecast.LARGEST else None

    def chosen() -> tuple[rule.Constants, float]:
        return rule.choose(
            algorithm, node.facts, node.problem.dimension, rule.Mixing.of(A), lambda clip: multiplier * own * clip,
            steps, longest(node), [clip_of(config)], _afters(algorithm, A),
        )  # fmt: skip

    constants, expected = world.on_root(chosen)
    with world.together():
        reach = sensitivities(prepared, constants.clip)
        queries = {float(each): _query(float(each), multiplier, prepared, steps) for each in reach}
    recipe = Recipe(
        adjacency=cast(Any, privacy.adjacency), dimension=node.problem.dimension, mode=privacy.rng, steps=steps,
        queries=tuple(queries[float(each)] for each in reach), constants=constants, unverified=missed,
    )  # fmt: skip
    return Plan(recipe, node, expected, constants.words(longest(node)))


def clip_of(config: Config) -> float:
    asked = config.algorithm.gradient_clip
    return rule.CLIP if asked == "auto" else float(asked)


def _afters(algorithm: Any, A: Array | None) -> list[Smoothing]:
    """What may follow the last step: as the user says, or what is worth trying."""
    asked = smoothing.asked(algorithm.average, algorithm.mixing)
    rounds = asked.rounds
    if algorithm.mixing == "auto" and A is not None:
        rounds = smoothing.rounds_for(smoothing.matrix(A))
    powers = smoothing.POWERS if algorithm.average == "auto" else (asked.power,)
    return [Smoothing(power, rounds) for power in powers]


def sensitivities(prepared: Prepared, clip: float) -> Array:
    """How far one record moves the gradient of O_i/C of each node here, whose records' parts are cut to `clip`."""
    privacy, problem = prepared.config.privacy, prepared.node.problem
    each = np.array([objective.scale for objective in problem.objectives]) / prepared.node.facts.weight
    if privacy.adjacency == "add-remove":
        return each * clip
    if privacy.adjacency == "label" and prepared.config.problem.loss == "logistic":
        return each * min(2 * clip, 1.0)  # the two slopes are one apart
    return each * 2 * clip


def _query(sensitivity: float, multiplier: float, prepared: Prepared, steps: int) -> Query:
    """A step's release: noise for all steps' budget, on its grid where it is secret."""
    from distadmm.privacy.accounting import accountant
    from distadmm.privacy.noise import queries

    privacy = prepared.config.privacy

    def keeps(event: Event) -> bool:
        spent = accountant.epsilon([event.times(steps)], privacy.delta, cast(Any, privacy.adjacency))
        return spent <= float(privacy.epsilon or 0.0)

    return queries.within(multiplier, sensitivity, prepared.node.problem.dimension, privacy.rng, keeps)


def _require_known(prepared: Prepared) -> None:
    """What noisy gradients have no words for is refused, not ignored."""
    config, privacy = prepared.config, prepared.config.privacy
    refused = {
        "alpha": privacy.alpha, "noise": privacy.noise == "gamma", "mechanism": privacy.mechanism != "objective",
        "form": privacy.form != "sound", "assume": privacy.assume,
    }  # fmt: skip
    for name, given in refused.items():
        require(
            not given,
            f"--algorithm {config.name} has no --{name}: its noise is Gaussian, on gradients, for --epsilon; leave it "
            "out",
        )
    if privacy.adjacency == "add-remove":
        consensus.require_rows_that_stay(config, dealt_out=prepared.source.pooled_allowed)


def unverified(prepared: Prepared) -> str:
    """The first hypothesis that does not hold here or that no code can check; empty when all are verified."""
    config, facts = prepared.config, prepared.source.facts
    require(
        facts.norm.value is not None and facts.norm.value <= 1,
        "privacy needs rows of norm at most 1, and whether they are is not read off them; leave out --no-clip",
    )
    if facts.doubt:
        return facts.doubt
    if config.problem.loss not in LOSSES:
        return f"that the loss {config.problem.loss} keeps records apart is not verified by code"
    return consensus.unchecked(config)
