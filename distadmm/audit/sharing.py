"""Attacks on noisy vectors and moments of ADMM sharing, and on the paper's mechanism as printed.

Sound forms: the party is asked with vectors w, or scores, of the attacker's choice; what it releases is Gaussian around
the noise-off answer to the same earlier messages, so the ratio is exact.  D and D' answer as far apart as the
construction allows.

As printed (Y. Hu, P. Liu, L. Kong, D. Niu 2019): D x + D xi with xi ~ N(0, sigma^2 (D'D)^-1).  Such noise lives in the
column space of D.  A vector that lies in that space to the last digit comes from D, for every sigma.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from distadmm.audit.bounds import Claim, point_claim
from distadmm.audit.draws import Draws, Played, ledgers
from distadmm.audit.noises import Finding, Noise, off_grid, rate_on
from distadmm.methods.sharing import equation10, private, vectors
from distadmm.methods.sharing.admm import Problem
from distadmm.methods.sharing.moments import Desk, Rows, admm_reply, mutual_reply, one_reply
from distadmm.methods.sharing.release import Release
from distadmm.privacy.accounting.events import Event
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.queries import Query, Releases, committed
from distadmm.privacy.noise.sources import Source
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.losses import Array, Logistic


class _Said(Releases):
    """Releases whose answers and messages are kept; with `said` the messages are those, and no noise is drawn."""

    def __init__(self, ledger: MemoryLedger, source: Source, said: list[Array] | None = None):
        super().__init__(ledger, source)
        self.said = said
        self.answers: list[Array] = []
        self.sent: list[Array] = []
        self.asked: list[Query] = []

    def vector(self, value: Array, query: Query, iteration: int, number: int = 0) -> Array:
        self.answers.append(np.array(value))
        self.asked.append(query)
        if self.said is None:
            self.sent.append(np.array(super().vector(value, query, iteration, number)))
            return self.sent[-1]
        return self.said[len(self.answers) - 1]

    def unit(self, query: Query) -> float:
        return query.grid.spacing if self.mode == "secure" else 0.0


class Party(NamedTuple):
    """One party in two neighbouring worlds."""

    name: str  # of its mechanism
    answer: Callable[[int, Releases], None]  # (world, releases): all that it sends
    queries: list[Query]  # in the order in which they are asked
    adjacency: Any
    adaptive: bool  # later answers depend on earlier messages


_LONG = 10.0  # norm of the attacked rows, in units of what they are cut to


def of_vectors(
    algorithm: vectors.S1, problem: Problem, row: float, rows: int, rounds: int, mu: float, mode: str
) -> Party:
    """A party that is asked with the same w in every round.

    By row: the first record points one way or the other.  A whole party: its columns reach w, or not.
    """
    if algorithm.by_row:
        problem = replace(problem, region=algorithm.region(problem.region))
        w, tables = _furthest(algorithm, problem, row, rows)
    else:
        problem = Problem(Logistic(), 1e-9)
        w, tables = np.linspace(1.0, 2.0, rows), [1e4 * np.eye(rows), 1e-9 * np.eye(rows)]
    query = algorithm.query(problem, row, rows, mode, mu, rounds)
    blocks = [algorithm.columns(table, row) for table in tables]

    def answer(world: int, out: Releases) -> None:
        release, x = Release({1: out}, {1: query}), np.zeros(blocks[world].width)
        for t in range(rounds):
            x = algorithm.answer(t + 1, 1, blocks[world], problem, x, w, release)[0]

    return Party(type(algorithm).__name__.lower(), answer, [query] * rounds, "replace", adaptive=False)


def _furthest(algorithm: Any, problem: Problem, row: float, rows: int) -> tuple[Array, list[Array]]:
    """w and two tables whose answers are far apart.

    Records along e_1, their squares kappa in all, show most of how the first record moves the model; those along e_2
    hold it where the first record's own prediction turns with its row.  Between the two, the best angle.
    """
    c = algorithm.rho * (1.0 + algorithm.tau)
    kappa, half = problem.lam * problem.reg.l2 / c, max(1, (rows - 1) // 2)
    w = np.zeros(rows)
    w[0] = w[1 + half :] = _LONG * algorithm.pull
    found: list[tuple[float, list[Array]]] = []
    for angle in np.linspace(0, np.pi / 2, 9):
        matrix = np.zeros((rows, 2))
        matrix[0] = _LONG * row * np.array([np.cos(angle), np.sin(angle)])
        matrix[1 : 1 + half, 0] = min(row, np.sqrt(kappa / half))
        matrix[1 + half :, 1] = row
        tables = [matrix, np.concatenate([-matrix[:1], matrix[1:]])]
        said = []
        for table in tables:
            block, pull = algorithm.columns(table, row), np.clip(w, -algorithm.pull, algorithm.pull)
            x = minimise(block, pull, c, problem.lam, problem.reg, problem.region, np.zeros(2))
            said.append(np.clip(block.apply(x), -algorithm.message_norm, algorithm.message_norm))
        found.append((float(np.linalg.norm(said[0] - said[1])), tables))
    return w, max(found, key=lambda each: each[0])[1]


def toy(mechanism: str, mode: str, *, rows: int = 12, rounds: int = 4, mu: float = 1.0) -> Party:
    """A party of S1 or S2 with constants of its own."""
    algorithm = vectors.S1() if mechanism == "s1" else vectors.S2(radius=1.0, pull=2.0, message_norm=1.0)
    return of_vectors(algorithm, Problem(Logistic(), 0.5), 1.0, rows, rounds, mu, mode)


def of_moments(
    agreed: private.Agreement, m: int, problem: Problem, rows: int, width: int, spread: float, mode: str
) -> Party:
    """The reply of party m: one record, too long, points the other way, or is blank; `spread` is the noise in V2's
    slopes."""
    bounds, width = agreed.bounds[m], max(width, 2)
    tables = np.zeros((2, rows, width))
    tables[0, 0, 0] = _LONG * bounds.row
    if bounds.neighbours == "replace":
        tables[1, 0, int(bounds.nonnegative)] = (1 if bounds.nonnegative else -1) * _LONG * bounds.row
    work, labels = private.plan(agreed, m, width, mode, spread), np.ones(rows)

    def answer(world: int, out: Releases) -> None:
        desk = Desk(Rows(tables[world], bounds, exact=mode == "secure"), bounds, work, out)
        if agreed.mechanism == "v2":
            clip = private.slope_clip(spread)
            mutual_reply(desk, np.full(rows, _LONG * clip), spread, clip)
            return
        reply = admm_reply if agreed.mechanism == "v1-admm" else one_reply
        # Scores at which every slope is as steep as it gets.
        reply(desk, -30.0 * labels, labels, problem.loss, problem.lam)

    adjacency = "replace" if bounds.neighbours == "replace" else "add-remove"
    return Party(agreed.mechanism, answer, work.queries(mode, width), adjacency, adaptive=work.rounds > 1)


def of_slopes(agreed: private.Agreement, problem: Problem, rows: int, mode: str) -> Party:
    """V2's first party: a label flips among records as heavy as lambda_1, or a record turns away from all others."""
    bounds, weight = agreed.bounds[1], agreed.weight_one
    matrix, labels = np.zeros((rows, 2)), np.ones(rows)
    turned, flipped = matrix.copy(), labels.copy()
    flipped[0] = -1.0
    if agreed.protect == "label":
        matrix[:, 0] = turned[:, 0] = min(bounds.row, np.sqrt(4 * weight / rows))
        labels[1::2] = flipped[1::2] = -1.0
    else:
        matrix[:, 0] = turned[:, 0] = _LONG * bounds.row
        matrix[0, 0] *= -1
    tables, query = [(matrix, labels), (turned, flipped)], private.slope_query(agreed, rows, mode)

    def answer(world: int, out: Releases) -> None:
        table, y = tables[world]
        out.vector(private.own_slopes(Rows(table, bounds), y, problem.loss, weight)[1], query, 0)

    return Party("v2", answer, [query], "label" if agreed.protect == "label" else "replace", adaptive=False)


def _play(party: Party, world: int, node: int, source: Source, said: list[Array] | None = None) -> _Said:
    out = _Said(ledgers([node], party.adjacency, source)[0], source, said)
    if said is None:
        out.commit(committed(party.queries, out.mode))
    party.answer(world, out)
    return out


def played(party: Party, runs: int, draws: Draws, claimed: Sequence[Event] | None = None) -> Played:
    """`runs` plays in each world, held against what their ledgers say, or against a run's own events."""
    scores, noises, findings = [], [], draws.findings()
    moved = np.zeros(len(party.queries))
    for world in (0, 1):
        source, found, other = draws.source(draws.seed + world), np.empty(runs), None
        for r in range(runs):
            out = _play(party, world, r, source)
            events = [e.single() for e in claimed or out.ledger.events for _ in range(e.releases)]
            if other is None or party.adaptive:  # what the other world would have answered to these messages
                other = _play(party, 1 - world, r, source, out.sent).answers
            far = [
                (float(np.sum((m - own) ** 2)) - float(np.sum((m - there) ** 2))) / (2 * query.sigma**2)
                for m, own, there, query in zip(out.sent, out.answers, other, out.asked)
            ]
            found[r] = sum(far) if world == 0 else -sum(far)
            moved = np.maximum(moved, [np.linalg.norm(own - there) for own, there in zip(out.answers, other)])
            for t, (m, own, query, event) in enumerate(zip(out.sent, out.answers, out.asked, events)):
                rate = rate_on(event, query.sensitivity, out.unit(query))
                noises.append(Noise(r, t, m - own, event, rate))
                findings += off_grid(r, [m], out.unit(query))
        scores.append(found)
    for t, (reached, query) in enumerate(zip(moved.tolist(), out.asked)):
        if reached > query.sensitivity * (1 + 1e-9):
            text = f"one change moves it by {reached:.6g}; its entry says {query.sensitivity:.6g}"
            findings.append(Finding("entry", 0, t, text))
    if len(events) < len(out.sent):
        findings.append(Finding("omitted", 0, -1, f"{len(out.sent)} releases, {len(events)} in the ledger"))
    return Played(scores[0], scores[1], out.ledger.events, noises, findings)


def as_printed(
    runs: int, seed: int, *, epsilon: float = 1.0, delta: float = 1e-5
) -> tuple[Array, Array, Claim]:
    """How far a message is from the column space of D' rather than D, in both worlds, and what Theorem 1 claims.

    One feature's signs differ, which is what the paper's assumptions leave of "one column differs".
    """
    problem, rho, rows, width = Problem(Logistic(), 1.0), 1.0, 16, 4
    sigma = equation10.claimed_sigma(equation10.claimed_sensitivity(width, 2, problem, rho), epsilon, delta)
    pattern = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(9,)))
    matrix = pattern.choice([-1.0, 1.0], (rows, width)) / np.sqrt(width)
    other = matrix.copy()
    other[:2, -1] *= -1.0
    blocks, bases = [Columns(matrix), Columns(other)], [np.linalg.qr(each)[0] for each in (matrix, other)]
    w, scores = np.ones(rows), []
    for world, block in enumerate(blocks):
        x = minimise(block, w, rho, problem.lam, problem.reg, problem.region, np.zeros(width))
        found = np.empty(runs)
        for r in range(runs):
            stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(world, r)))
            message = block.apply(x + equation10.degenerate_noise(block, sigma, stream))
            size = float(np.linalg.norm(message))
            far = [float(np.linalg.norm(message - Q @ (Q.T @ message))) for Q in bases]
            found[r] = np.log((max(far[0], 1e-300) / size) / (max(far[1], 1e-300) / size))
        scores.append(found)
    words = f"Theorem 1 of the paper: ({epsilon:g}, {delta:g})-DP for one iteration"
    return scores[0], scores[1], point_claim(epsilon, delta, words)
