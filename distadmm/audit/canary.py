"""Many independent copies of one small network, played by the product's own code.

Each copy is a pair: a victim, who holds the canary's table, and a neighbour.  All pairs are nodes of one
network in one process, so a thousand transcripts cost one run: the same solver, the same release, the same
ledgers as any other run, and noise of each node's own.

Canaries (rows are y x, of norm 1; the rest of the table pushes the model to where one record matters most):

    worst      the record whose gradient moves the noise furthest under the adjacency
    label      the same record with its label flipped
    duplicate  a record that the table has already, once more
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Facts, Node
from distadmm.audit.play import Recording, record, twin
from distadmm.audit.ratio import Neighbours, Released, log_ratio
from distadmm.errors import InputError, require
from distadmm.privacy.accounting.events import Event
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.privacy.ledger.tally import Tally
from distadmm.privacy.noise import protected, release, sources
from distadmm.problems.consensus import GeneralisedLinear
from distadmm.problems.losses import Loss
from distadmm.problems.rounding import Certain
from distadmm.ranks.graph_network import Network, Roster

CANARIES = ("worst", "label", "duplicate")
_CROWD = 6  # records that push the model away from the canary


def tables(canary: str, adjacency: str, dimension: int) -> Neighbours:
    require(canary in CANARIES, f"--canary is {canary!r}; choose one of: {', '.join(CANARIES)}")
    e = np.eye(max(dimension, 2))[:, :dimension]
    none = np.zeros((0, dimension))
    if canary == "label" or adjacency == "label":
        require(
            adjacency != "add-remove",
            "--canary label flips a label, which is not adding or removing a record; use --adjacency label or replace",
        )
        # A flipped logistic label moves the gradient by w y x whatever the model is.
        return Neighbours(none, e[:1], -e[:1])
    crowd = -np.repeat(e[:1], _CROWD, axis=0)  # the model goes against e_1, where e_1's slope is steepest
    if adjacency == "add-remove":
        return Neighbours(crowd, none, -e[:1] if canary == "duplicate" else e[:1])
    if canary == "duplicate" or dimension == 1:
        return Neighbours(crowd, e[:1], -e[:1])
    half, side = 0.5, np.sqrt(0.75)  # 120 degrees apart, both steep when the model goes against e_1
    return Neighbours(crowd, (half * e[0] + side * e[1])[None], (half * e[0] - side * e[1])[None])


class Setting(NamedTuple):
    """What an attacked run has in common with the configured one."""

    algorithm: Any
    recipe: protected.Recipe  # of the pairs: (K, 2) alpha and two weights
    facts: Facts
    eta: tuple[Array | None, Array | None]  # of the victim and its neighbour; None: automatic
    growth: tuple[Array | None, Array | None]
    loss: Loss
    iterations: int
    tolerance: float
    phases: int


def transcripts(
    setting: Setting, found: Neighbours, there: bool, runs: int, source: sources.Source
) -> tuple[Node, Recording]:
    """`runs` independent transcripts of one world."""
    only = found.only_there if there else found.only_here
    rows = np.concatenate([found.common, only])
    if len(rows) == 0:
        rows = np.zeros((1, found.common.shape[1]))
    recipe = setting.recipe
    node = _pairs(setting, rows, np.eye(1, recipe.dimension), runs)
    copied = replace(recipe, alpha=np.tile(recipe.alpha, (1, runs)), weight=np.tile(recipe.weight, runs))
    return node, record(setting.algorithm, node, copied, setting.iterations, source, setting.phases, read=1)


def _pairs(setting: Setting, victim: Array, neighbour: Array, runs: int) -> Node:
    n = 2 * runs
    indptr, indices = np.arange(n + 1), np.arange(n) ^ 1
    network = Network(Roster.alone(indptr, indices))
    facts = setting.facts._replace(n_nodes=n, degrees=np.ones(n, dtype=int))

    pair = [
        GeneralisedLinear(rows, np.ones(len(rows)), setting.loss, weight=weight, ridge=facts.ridge, divisor=1)
        for rows, weight in zip((victim, neighbour), setting.recipe.weight.tolist())
    ]
    problem = Certain([pair[i % 2] for i in range(n)], setting.tolerance)

    def table(values: tuple[Array | None, Array | None]) -> Array | None:
        return None if values[0] is None else np.tile(np.array(values, dtype=float), runs)

    start = np.zeros((n, problem.dimension))
    per_node = {"eta": table(setting.eta), "eta_growth": table(setting.growth)}
    return Node(network, problem, release.Unprotected(), facts, start, per_node)


def scores(
    setting: Setting, found: Neighbours, there: bool, runs: int, source: sources.Source
) -> tuple[Array, list[Event]]:
    """ln p(transcript | D')/p(transcript | D) of `runs` transcripts of one world, and a victim's ledger."""
    node, recording = transcripts(setting, found, there, runs, source)
    asked = twin(setting.algorithm, node, recording).solves
    victims = slice(0, None, 2)
    total = np.zeros(runs)
    for solve, (k, sealed) in enumerate(sorted(recording.sealed.items()), 1):
        at = asked[k]
        quadratic = np.ravel(at.quadratic)[victims]
        event = setting.recipe.event(solve, 0, float(quadratic[0]), float(at.factor[0, 0]))
        if not isinstance(event, ObjectivePerturbation):
            raise InputError(
                "the exact likelihood ratio is that of objective perturbation; use --mechanism objective"
            )
        released = Released(sealed[victims], at.linear[victims], quadratic)
        weight, ridge = float(setting.recipe.weight[0]), setting.facts.ridge
        total += log_ratio(released, found, event, setting.loss, weight, ridge)
    return total, events_of(recording, 0)


def events_of(recording: Recording, i: int) -> list[Event]:
    return list(Tally.of(recording.entries[i]).events)


def unbounded(events: list[Event]) -> str:
    """Why a ledger claims nothing; empty when it claims something."""
    return next((event.words for event in events if event.unbounded), "")
