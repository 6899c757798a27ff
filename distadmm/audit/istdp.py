"""Attacks on private iterative thresholding, and on Algorithm 1 as printed.

Sound form: the transcript is xi^0, xi^1, ... and its ratio is exact for Gaussian noise,

    ln p(xi | D') / p(xi | D) = sum_k [|xi^k - g_D(theta^k)|^2 - |xi^k - g_D'(theta^k)|^2] / (2 sigma^2),

with theta^k a function of earlier xi.  D and D' differ in one record whose clipped gradients are opposite.

As printed (X. Yuan, Y. Peng 2023): D has n records x = 0, D' one more with x = e_1, y = 1.  Under D the loss is flat,
so that the line search on the exact loss accepts no step; under D' about every second one.  Whether the model has
moved tells the worlds apart, whatever sigma is.  `search` = False switches the line search off: then the exact
Barzilai-Borwein step, which multiplies the noise, gives the world away.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from distadmm.audit.bounds import Claim, claim_of, point_claim
from distadmm.audit.whitebox import Finding, Noise, multiplier
from distadmm.methods.istdp import printed
from distadmm.methods.istdp.plan import Plan
from distadmm.methods.istdp.private import ClippedGradient, iterate
from distadmm.methods.istdp.release import NoisyGradient
from distadmm.privacy.accounting.events import Event
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise.mechanism import Noise as Source
from distadmm.privacy.noise.sources import Simulation
from distadmm.problems.concave import MCP
from distadmm.problems.losses import Logistic

Array = np.ndarray
_LONG = 50.0  # norm of the canary, in units of the clip: its gradient is clipped for any model that is met


def worlds(plan: Plan, rows: int) -> list[tuple[Array, Array]]:
    """(X, y) of D and D'."""
    quiet = np.zeros((rows - 1, plan.dimension))
    canary = np.zeros((1, plan.dimension))
    canary[0, 0] = _LONG * plan.clip
    if plan.adjacency == "add-remove":
        return [(quiet, np.ones(rows - 1)), (np.concatenate([quiet, canary]), np.ones(rows))]
    X = np.concatenate([quiet, canary])
    flipped = np.ones(rows)
    flipped[-1] = -1.0
    return [(X, np.ones(rows)), (X, flipped)]


def transcript(
    X: Array, y: Array, plan: Plan, node: int, source: Simulation
) -> tuple[list[tuple[Array, Array]], MemoryLedger]:
    """(theta^k, xi^k) of one run, and its ledger."""
    ledger = MemoryLedger(
        node, adjacency=plan.adjacency, mode=source.mode, scope="record", orders=(2.0, 16.0)
    )
    release = NoisyGradient(X, y, Logistic(), plan, Source(ledger, source))
    ledger.commit([release.event.times(plan.iterations)])
    seen: list[tuple[Array, Array]] = []

    def xi(k: int, theta: Array) -> Array:
        if k == plan.iterations:  # the loop asks for one more gradient than it needs
            return np.zeros_like(theta)
        noisy = release(k, theta)
        seen.append((theta, np.array(noisy)))
        return noisy

    steps = iterate(xi, np.zeros(plan.dimension), MCP(plan.lam, plan.alpha), plan.steps)
    for _ in range(plan.iterations):
        next(steps)
    return seen, ledger


def sound(plan: Plan, rows: int, runs: int, seed: int) -> tuple[Array, Array, Claim]:
    """Log-likelihood ratios under D and under D', and what the ledger claims."""
    tables = worlds(plan, rows)
    g = [ClippedGradient(X, y, Logistic(), plan.clip, plan.divisor) for X, y in tables]
    scores = []
    for world, (X, y) in enumerate(tables):
        source = Simulation(seed + world)
        found = np.empty(runs)
        for r in range(runs):
            seen, ledger = transcript(X, y, plan, r, source)
            far = [[float(np.sum((xi - gradient(theta)) ** 2)) for theta, xi in seen] for gradient in g]
            found[r] = (math.fsum(far[0]) - math.fsum(far[1])) / (2 * plan.sigma**2)
        scores.append(found)
    return scores[0], scores[1], claim_of(ledger.events, plan.adjacency, "the ledger of a run")


def recovered(
    plan: Plan, rows: int, seed: int, claimed: Event | None = None
) -> tuple[list[Noise], list[Finding]]:
    """Level 0 of one run: xi less the clipped mean gradient, against what its ledger claims, or `claimed`."""
    X, y = worlds(plan, rows)[1]
    seen, ledger = transcript(X, y, plan, 0, Simulation(seed))
    exact = ClippedGradient(X, y, Logistic(), plan.clip, plan.divisor)
    (event,) = [claimed] if claimed else ledger.events
    rate = 1.0 / (multiplier(event) * plan.sensitivity)
    noises = [Noise(0, k, xi - exact(theta), event, rate) for k, (theta, xi) in enumerate(seen)]
    missing = len(seen) - ledger.tally.releases
    omitted = (
        [Finding("omitted", 0, -1, f"{missing} releases that the ledger does not have")]
        if missing > 0
        else []
    )
    return noises, omitted


def as_printed(
    runs: int,
    seed: int,
    *,
    rows: int = 16,
    dimension: int = 50,
    iterations: int = 10,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    search: bool = True,
) -> tuple[Array, Array, Claim]:
    """ln |theta - theta^1| after Algorithm 1, under D and under D', and what Theorem 3.3 claims."""
    sigma = printed.noise_scale(epsilon, delta, iterations, 1.0)
    scores = []
    for world in (0, 1):
        X, y = np.zeros((rows + world, dimension)), np.ones(rows + world)
        X[rows:, 0] = 1.0
        found = np.empty(runs)
        for r in range(runs):
            stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(world, r)))
            start = np.zeros(dimension)
            start[0] = 0.01
            steps = printed.iterate(
                X,
                y,
                Logistic(),
                MCP(0.0, 3.0),
                partial(_gaussian, stream, sigma, dimension),
                before=np.zeros(dimension),
                start=start,
                shortest=1e-3,
                longest=1e6,
                beta=1e-4 if search else -math.inf,
            )
            theta = start
            for _ in range(iterations if search else 1):
                theta = next(steps).theta
            found[r] = math.log(float(np.linalg.norm(theta - start)) + 1e-300)
        scores.append(found)
    words = f"Theorem 3.3 of the paper: ({epsilon:g}, {delta:g})-DP over {iterations} iterations"
    return scores[0], scores[1], point_claim(epsilon, delta, words)


def _gaussian(stream: np.random.Generator, sigma: float, dimension: int, k: int) -> Array:
    return sigma * stream.standard_normal(dimension)
