"""Attacks on noisy N-vectors of ADMM sharing, and on the paper's mechanism as printed.

Sound forms S1 and S2: the party is asked with vectors w of the attacker's choice; what it releases is Gaussian
around the noise-off answer, so the ratio is exact.  D and D' answer as far apart as the construction allows.

As printed (Y. Hu, P. Liu, L. Kong, D. Niu 2019): D x + D xi with xi ~ N(0, sigma^2 (D'D)^-1).  Such noise lives in the
column space of D.  A vector that lies in that space to the last digit comes from D, for every sigma.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from distadmm.audit.bounds import Claim, claim_of, point_claim
from distadmm.audit.whitebox import Finding, Noise
from distadmm.methods.sharing import vectors
from distadmm.methods.sharing.admm import Problem
from distadmm.methods.sharing.equation10 import claimed_sensitivity, claimed_sigma, degenerate_noise
from distadmm.methods.sharing.release import Release
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.queries import Query, Releases
from distadmm.privacy.noise.sources import Simulation
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.losses import Logistic
from distadmm.problems.regularisers import Whole

Array = np.ndarray


class _Kept(Releases):
    """Releases whose messages, before they are shrunk, are kept."""

    sent: Array

    def vector(self, value: Array, query: Query, iteration: int, number: int = 0) -> Array:
        self.sent = np.array(super().vector(value, query, iteration, number))
        return self.sent


class _Bare:
    """Noise off: notes the answer."""

    value: Array

    def __init__(self, query: Query):
        self.queries = {1: query}

    def noisy(self, k: int, m: int, value: Array) -> tuple[Array, float]:
        self.value = np.array(value)
        return self.value, self.queries[m].sigma


class _Party(NamedTuple):
    """A party in both worlds and what it is asked: the same w in every round."""

    algorithm: vectors.S1
    problem: Problem
    blocks: list[Columns]
    w: Array
    rounds: int
    query: Query  # one round's release

    def answer(self, t: int, block: Columns, x: Array, release: Any) -> Array:
        return self.algorithm.answer(t + 1, 1, block, self.problem, x, self.w, release)[0]


def _party(mechanism: str, rows: int, rounds: int, mu: float) -> _Party:
    if mechanism == "s1":
        algorithm, problem = vectors.S1(), Problem(Logistic(), 1e-9)
        w, blocks = np.linspace(1.0, 2.0, rows), [Columns(np.eye(rows)), Columns(1e-9 * np.eye(rows))]
    else:
        algorithm = vectors.S2(radius=1.0, pull=2.0, message_norm=1.0)
        matrix = np.zeros((rows, 2))
        matrix[:, 0] = 1.0
        other = matrix.copy()
        other[0, 0] = -1.0
        problem = Problem(Logistic(), 0.5, region=algorithm.region(Whole()))
        w, blocks = np.full(rows, 2.0), [Columns(matrix), Columns(other)]
    query = algorithm.query(problem, 1.0, rows, "simulation", mu, rounds)
    return _Party(algorithm, problem, blocks, w, rounds, query)


def _rounds(party: _Party, block: Columns, node: int, source: Simulation) -> tuple[list[Array], _Kept]:
    ledger = MemoryLedger(node, adjacency="replace", mode=source.mode, scope="feature", orders=(2.0, 16.0))
    out = _Kept(ledger, source)
    out.commit([party.query] * party.rounds)
    x, sent = np.zeros(block.width), []
    for t in range(party.rounds):
        x = party.answer(t, block, x, Release({1: out}, {1: party.query}))
        sent.append(out.sent)
    return sent, out


def _means(party: _Party) -> list[Array]:
    """The noise-off answers of both worlds, as they pass the release."""
    found = []
    for block in party.blocks:
        bare = _Bare(party.query)
        party.answer(0, block, np.zeros(block.width), bare)
        found.append(bare.value)
    return found


def sound(
    mechanism: str, runs: int, seed: int, *, rows: int = 12, rounds: int = 4, mu: float = 1.0
) -> tuple[Array, Array, Claim]:
    """Log-likelihood ratios under D and D', and what the ledger claims."""
    party = _party(mechanism, rows, rounds, mu)
    here, there = _means(party)
    scores = []
    for world, block in enumerate(party.blocks):
        source, found = Simulation(seed + world), np.empty(runs)
        for r in range(runs):
            sent, out = _rounds(party, block, r, source)
            far = sum(float(np.sum((m - here) ** 2) - np.sum((m - there) ** 2)) for m in sent)
            found[r] = far / (2 * party.query.sigma**2)
        scores.append(found)
    return (
        scores[0],
        scores[1],
        claim_of(out.ledger.events, "replace", f"the ledger of a party that sends {mechanism}"),
    )


def recovered(
    mechanism: str, seed: int, *, rows: int = 12, rounds: int = 4, mu: float = 1.0
) -> tuple[list[Noise], list[Finding]]:
    """Level 0 of one party's rounds."""
    party = _party(mechanism, rows, rounds, mu)
    query = party.query
    sent, out = _rounds(party, party.blocks[0], 0, Simulation(seed))
    here, there = _means(party)
    (event,) = out.ledger.events
    rate = 1.0 / (event.noise_multiplier * query.sensitivity)  # type: ignore[attr-defined]
    noises = [Noise(1, t, message - here, event, rate) for t, message in enumerate(sent)]
    moved, findings = float(np.linalg.norm(here - there)), []
    if moved > query.sensitivity * (1 + 1e-9):
        findings.append(
            Finding(
                "entry", 1, 0, f"one change moves it by {moved:.6g}; its entry says {query.sensitivity:.6g}"
            )
        )
    return noises, findings


def as_printed(
    runs: int, seed: int, *, rows: int = 16, width: int = 4, epsilon: float = 1.0, delta: float = 1e-5
) -> tuple[Array, Array, Claim]:
    """How far a message is from the column space of D' rather than D, in both worlds, and what Theorem 1 claims.

    One feature's signs differ, which is what the paper's assumptions leave of "one column differs".
    """
    problem, rho = Problem(Logistic(), 1.0), 1.0
    sigma = claimed_sigma(claimed_sensitivity(width, 2, problem, rho), epsilon, delta)
    pattern = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(9,)))
    matrix = pattern.choice([-1.0, 1.0], (rows, width)) / np.sqrt(width)
    other = matrix.copy()
    other[:2, -1] *= -1.0
    blocks = [Columns(matrix), Columns(other)]
    w = np.ones(rows)
    outside = [_distance(block) for block in blocks]
    scores = []
    for world, block in enumerate(blocks):
        x = minimise(block, w, rho, problem.lam, problem.reg, problem.region, np.zeros(width))
        found = np.empty(runs)
        for r in range(runs):
            stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(world, r)))
            message = block.apply(x + degenerate_noise(block, sigma, stream))
            found[r] = np.log(outside[0](message) / outside[1](message))
        scores.append(found)
    words = f"Theorem 1 of the paper: ({epsilon:g}, {delta:g})-DP for one iteration"
    return scores[0], scores[1], point_claim(epsilon, delta, words)


def _distance(block: Columns) -> Callable[[Array], float]:
    """Of a vector from the column space, relative to its length."""
    Q, _ = np.linalg.qr(np.asarray(block.matrix))

    def distance(v: Array) -> float:
        left = v - Q @ (Q.T @ v)
        return max(float(np.linalg.norm(left)), 1e-300) / float(np.linalg.norm(v))

    return distance
