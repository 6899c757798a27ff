"""Attacks on noisy N-vectors of ADMM sharing, and on the paper's mechanism as printed.

Sound forms S1 and S2: the party is asked with vectors w of the attacker's choice; what it releases is Gaussian
around the noise-off answer, so the ratio is exact.  D and D' answer as far apart as the construction allows.

As printed (Y. Hu, P. Liu, L. Kong, D. Niu 2019): D x + D xi with xi ~ N(0, sigma^2 (D'D)^-1).  Such noise lives in the
column space of D.  A vector that lies in that space to the last digit comes from D, for every sigma.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distadmm.audit.bounds import Claim, claim_of, point_claim
from distadmm.audit.whitebox import Finding, Noise
from distadmm.methods.sharing import vectors
from distadmm.methods.sharing.admm import Problem
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.queries import Query, Releases
from distadmm.privacy.noise.sources import Simulation
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.losses import Logistic
from distadmm.problems.regularisers import Ball

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

    def vector(self, value: Array, query: Query, iteration: int, number: int = 0) -> Array:
        self.value = np.array(value)
        return self.value


def _party(
    mechanism: str, rows: int, rounds: int, mu: float
) -> tuple[Problem, vectors.Terms, list[Columns], Array]:
    """The problem, what was agreed, the party's block in both worlds, and w."""
    if mechanism == "s1":
        terms = vectors.Terms("s1", mu, rounds)
        w = np.linspace(1.0, 2.0, rows)
        return Problem(Logistic(), 1e-9), terms, [Columns(np.eye(rows)), Columns(1e-9 * np.eye(rows))], w
    terms = vectors.Terms("s2", mu, rounds, row=(1.0,), radius=1.0, pull=2.0, message=1.0)
    matrix = np.zeros((rows, 2))
    matrix[:, 0] = 1.0
    other = matrix.copy()
    other[0, 0] = -1.0
    problem = Problem(Logistic(), 0.5, region=Ball(terms.radius))
    return problem, terms, [Columns(matrix), Columns(other)], np.full(rows, 2.0)


def _rounds(
    block: Columns, problem: Problem, terms: vectors.Terms, w: Array, node: int, source: Simulation
) -> tuple[list[Array], _Kept, Query]:
    ledger = MemoryLedger(node, adjacency="replace", mode=source.mode, scope="feature", orders=(2.0, 16.0))
    out = _Kept(ledger, source)
    query = terms.query(problem, block.rows, out.mode, 1)
    out.commit([query] * terms.rounds)
    x, sent = np.zeros(block.width), []
    for t in range(terms.rounds):
        x, _ = vectors.answer(block, problem, terms, x, w, out, query, t)
        sent.append(out.sent)
    return sent, out, query


def _means(
    blocks: list[Columns], problem: Problem, terms: vectors.Terms, w: Array, query: Query
) -> list[Array]:
    """The noise-off answers of both worlds, as they pass the release."""
    found = []
    for block in blocks:
        bare: Any = _Bare()
        vectors.answer(block, problem, terms, np.zeros(block.width), w, bare, query, 0)
        found.append(bare.value)
    return found


def sound(
    mechanism: str, runs: int, seed: int, *, rows: int = 12, rounds: int = 4, mu: float = 1.0
) -> tuple[Array, Array, Claim]:
    """Log-likelihood ratios under D and D', and what the ledger claims."""
    problem, terms, blocks, w = _party(mechanism, rows, rounds, mu)
    scores = []
    for world, block in enumerate(blocks):
        source, found = Simulation(seed + world), np.empty(runs)
        for r in range(runs):
            sent, out, query = _rounds(block, problem, terms, w, r, source)
            if r == 0:
                here, there = _means(blocks, problem, terms, w, query)
            far = sum(float(np.sum((m - here) ** 2) - np.sum((m - there) ** 2)) for m in sent)
            found[r] = far / (2 * query.sigma**2)
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
    problem, terms, blocks, w = _party(mechanism, rows, rounds, mu)
    sent, out, query = _rounds(blocks[0], problem, terms, w, 0, Simulation(seed))
    here, there = _means(blocks, problem, terms, w, query)
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
    sigma = vectors.claimed_sigma(vectors.claimed_sensitivity(width, 2, problem, rho), epsilon, delta)
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
            message = block.apply(x + vectors.degenerate_noise(block, sigma, stream))
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
