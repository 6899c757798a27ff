"""An algorithm played with every message kept, and played again without noise on the messages that were kept.

    record(...)   the run itself: what was sealed, what was sent, what the ledgers say
    twin(...)     the same steps with noise 0, in which every sealed value is replaced by the recorded one

A twin shows what each step asked of the data and of earlier messages: the linear and quadratic terms of its
solve.  A twin over other data shows which messages depend on data at all: those of an iteration that seals
nothing must come out the same, to the bit.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Node
from distadmm.audit.draws import ledgers
from distadmm.errors import BudgetExhausted, InputError
from distadmm.methods.consensus.sizing import plans_of
from distadmm.privacy.accounting.events import Event, event_from_json
from distadmm.privacy.ledger import chain
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.noise.protected import Protected, Recipe
from distadmm.privacy.noise.release import Unprotected
from distadmm.privacy.noise.sources import Source
from distadmm.problems.consensus import GeneralisedLinear
from distadmm.ranks.graph_network import Network
from distadmm.run.loop import sitting_out


class Message(NamedTuple):
    """One exchange: the rows that the nodes handed to their neighbours."""

    iteration: int
    rows: Array


class Solve(NamedTuple):
    """What one primal step asked for, noise taken out."""

    linear: Array  # (n, d)
    quadratic: Array  # (n, 1), or (n, d, d)
    factor: Array  # (n, 1), by which the noise of the linear term is scaled
    f: Array  # the noise-off answer; only where the twin solves


@dataclass
class Recording:
    """What an attacker with every message and the auditor with the ledgers have."""

    iterations: int
    sealed: dict[int, Array]  # iteration -> the rows that passed the release
    messages: list[Message] | None  # all exchanges; None where only stored bytes are left
    entries: list[list[chain.Entry]]  # each node's ledger
    faults: list[str] = field(default_factory=list)  # of the ledgers' chains
    noise: dict[tuple[int, int], Array] = field(default_factory=dict)  # (node's place, iteration) -> drawn
    output: dict[tuple[int, int], Array] = field(default_factory=dict)  # the same of output noise


def run_through(algorithm: Any, node: Node, iterations: int) -> tuple[int, list[Message]]:
    """Play `iterations` steps; how many were made (a budget may end them), and every exchange.

    What is exchanged after the last iteration is numbered on from there.
    """
    messages: list[Message] = []
    network, now, after, over = node.network, 0, 0, False
    through = network.exchange

    def exchange(F: Array) -> Array:
        nonlocal after
        after += over
        messages.append(Message(now + after, np.array(F)))
        return through(F)

    def refuse(rows: Array, sent: Array) -> Array:
        raise InputError(
            "self-tuned ADMM on links that change sends each neighbour another row, and a transcript is of rows "
            "that all neighbours get; give --no-tune"
        )

    network.exchange, per_edge = exchange, network.exchange_over_edges  # type: ignore[method-assign]
    network.exchange_over_edges = refuse  # type: ignore[method-assign]
    try:
        state = algorithm.init(node)
        while now < iterations:
            now += 1
            network.begin(now)
            state = sitting_out(node, state, algorithm.step(now, state, node))
        over = True
        algorithm.finish(now, state, node)
    except BudgetExhausted:
        now -= 1
    finally:
        network.exchange, network.exchange_over_edges = through, per_edge  # type: ignore[method-assign]
    return now, messages


def fresh(node: Node, *, problem: Any = None, release: Any = None) -> Node:
    """The same nodes in one process, before their first step."""
    network, anew = node.network, Network(node.network.roster)
    if network.conditions is not None:
        anew.endure(replace(network.conditions, _presence=[], _heard=[]))
    parts = problem or node.problem, release or Unprotected()
    return Node(anew, *parts, node.facts, np.array(node.start), node.table)


class _Noted:
    """The noise of a release, with what it draws kept."""

    def __init__(self, noise: Any, recording: Recording):
        self._noise, self._kept = noise, recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noise, name)

    def draw(self, event: Event, *, iteration: int, at: int = 0, **given: Any) -> Array:
        drawn = self._noise.draw(event, iteration=iteration, at=at, **given)
        self._kept.noise[at, iteration] = np.array(drawn)
        self._now = iteration
        return drawn

    def output(self, tolerance: float, *, at: int = 0, **given: Any) -> Array:
        drawn = self._noise.output(tolerance, at=at, **given)
        self._kept.output[at, self._now] = np.array(drawn)
        return drawn


def record(
    algorithm: Any, node: Node, recipe: Recipe, iterations: int, source: Source, phases: int,
    *, read: int | None = None,
) -> Recording:  # fmt: skip
    """A protected run with ledgers in memory, the first `read` of which are read (default: all).

    `node` itself is left as it was.
    """
    books = Books(ledgers(node.network.nodes, recipe.adjacency, source))
    playing = fresh(node, problem=node.problem.anew())
    release = Protected(recipe, books, source, playing.network, phases)
    release.watch(playing.network, playing.start, "")
    playing.network.stamp = None  # heads are no business of this attack
    if not recipe.unverified:
        release.commit(plans_of(recipe, algorithm.releases(playing, iterations)))
    recording = Recording(iterations, {}, None, [])
    release.noise = _Noted(release.noise, recording)  # type: ignore[assignment]
    seal = release.seal

    def sealing(k: int, f: Array, residual: Array) -> Array:
        recording.sealed[k] = np.array(seal(k, f, residual))
        return recording.sealed[k].copy()

    release.seal = sealing  # type: ignore[method-assign]
    playing.release = release
    recording.iterations, recording.messages = run_through(algorithm, playing, iterations)
    for ledger in books.ledgers[:read]:
        take_entries(recording, chain.parse(ledger.content, f"ledger of node {ledger.node}"))
    return recording


def take_entries(recording: Recording, found: chain.Chain) -> None:
    recording.entries.append(found.entries)
    if found.fault:
        recording.faults.append(str(found.fault))


def charged(entries: Sequence[chain.Entry]) -> dict[int, list[Event]]:
    """Iteration -> what a ledger says was released then; recycled messages are not listed."""
    reserved: dict[tuple[int, int], Event] = {}
    found: dict[int, list[Event]] = {}
    for entry in entries:
        if entry["kind"] == "commit":
            for item, line in enumerate(entry["events"]):
                reserved[entry["seq"], item] = event_from_json(line).single()
        elif entry["kind"] == "charge":
            event = event_from_json({"mech": entry["mech"], **entry["params"]})
            reserved[entry["seq"], 0] = event
            found.setdefault(entry["k"], []).append(event)
        elif entry["kind"] == "release":
            found.setdefault(entry["k"], []).append(reserved[entry["of"], entry["item"]])
    return found


class _Silent(Unprotected):
    """Noise 0; what is sealed is what the recording sealed."""

    private = True

    def __init__(self, sealed: dict[int, Array], n: int):
        super().__init__()
        self.sealed, self.n = sealed, n
        self.factor: dict[int, Array] = {}
        self.k = 0

    def draw(self, k: int, quadratic: Array, factor: Array | float = 1.0) -> float:
        self.k = k
        self.factor[k] = np.array(np.broadcast_to(factor, (self.n, 1)), dtype=float)
        return 0.0

    def seal(self, k: int, f: Array, residual: Array) -> Array:
        return self.sealed[k].copy()

    def recycle(self, k: int, f: Array | None = None) -> None:
        self.k = k

    def expose(self, k: int, what: str) -> None:
        self.k = k


class Twin(NamedTuple):
    solves: dict[int, Solve]
    messages: list[Message]


def twin(
    algorithm: Any, node: Node, recording: Recording, *, other_data: bool = False, solve: bool = False
) -> Twin:
    """The noise-off twin of `recording`; `solve` finds the noise-off minimisers too."""
    objectives = [elsewhere(o) for o in node.problem.objectives] if other_data else None
    release = _Silent(recording.sealed, node.network.n_local)
    problem = node.problem.anew(objectives)
    asked: dict[int, Solve] = {}
    argmin = problem.argmin

    def noting(linear: Array, quadratic: Array, start: Array) -> Array:
        f = argmin(linear, quadratic, start) if solve else np.array(start)
        k = release.k
        factor = release.factor.get(k, np.ones((node.network.n_local, 1)))
        asked[k] = Solve(np.array(linear), np.array(quadratic, dtype=float), factor, np.array(f))
        return f

    problem.argmin = noting  # type: ignore[method-assign]
    playing = fresh(node, problem=problem, release=release)
    made, messages = run_through(algorithm, playing, recording.iterations)
    assert made == recording.iterations
    return Twin(asked, messages)


def elsewhere(objective: Any) -> Any:
    """An objective with the same public constants over other data."""
    if isinstance(objective, GeneralisedLinear):
        turned, y = -objective.A[:, ::-1], np.ones(objective.rows)
        if not objective.loss.labels:
            y = -np.broadcast_to(objective.y, objective.rows)
        scale, ridge = objective.scale, objective.ridge
        return GeneralisedLinear(turned, y, objective.loss, weight=scale, ridge=ridge, divisor=1)
    return _Tilted(objective)


class _Tilted:
    """Any objective, turned into another: 3/2 O(f) + sum f."""

    def __init__(self, objective: Any):
        self._objective = copy.copy(objective)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def value(self, f: Array) -> float:
        return 1.5 * self._objective.value(f) + float(np.sum(f))

    def grad(self, f: Array) -> Array:
        return 1.5 * self._objective.grad(f) + 1.0

    def hess(self, f: Array) -> Array:
        return 1.5 * self._objective.hess(f)
