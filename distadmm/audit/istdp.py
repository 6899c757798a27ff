"""Attacks on private iterative thresholding, and on Algorithm 1 as printed.

Sound form: the transcript is xi^0, xi^1, ... and its ratio is exact for Gaussian noise,

    ln p(xi | D') / p(xi | D) = sum_k [|xi^k - g_D(theta^k)|^2 - |xi^k - g_D'(theta^k)|^2] / (2 sigma^2),

with theta^k a function of earlier xi.  D and D' differ in one record whose clipped gradients are opposite.

As printed (X. Yuan, Y. Peng 2023): D has n records x = 0, D' one more with x = e_1, y = 1.  Under D the loss is flat,
so that the line search on the exact loss accepts no step; under D' about every second one.  Whether the model has
moved tells the worlds apart, whatever sigma is.  `search` = False switches the line search off: then the exact
Barzilai-Borwein step, which multiplies the noise, gives the world away.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from distadmm.audit.bounds import Claim, point_claim
from distadmm.audit.draws import Draws, Played, ledgers
from distadmm.audit.noises import Finding, Noise, off_grid, rate_on
from distadmm.methods.istdp import printed, private
from distadmm.methods.istdp.plan import Plan
from distadmm.methods.istdp.release import GridGradient, NoisyGradient
from distadmm.privacy.accounting.events import Event
from distadmm.privacy.ledger.rules import MemoryLedger
from distadmm.privacy.noise import sources
from distadmm.privacy.noise.mechanism import Noise as Source
from distadmm.problems.concave import MCP
from distadmm.problems.losses import Array, Logistic

_LONG = 50.0  # norm of the canary, in units of the clip: its gradient is clipped for any model that is met


def worlds(plan: Plan, rows: int) -> list[tuple[Array, Array]]:
    """(X, y) of D and D'."""
    X, y = np.zeros((rows, plan.dimension)), np.ones(rows)
    X[-1, 0] = _LONG * plan.clip
    if plan.adjacency == "add-remove":
        return [(X[:-1], y[:-1]), (X, y)]
    return [(X, y), (X, np.append(y[:-1], -1.0))]


class Seen(NamedTuple):
    """One play: what the iteration asked and was told."""

    asked: list[Array]  # theta^k
    told: list[Array]  # xi^k
    ledger: MemoryLedger
    event: Event  # of one release
    sigma: float  # of the noise on a coordinate of xi
    unit: float  # of the grid that xi lies on; 0: none


def transcript(X: Array, y: Array, plan: Plan, node: int, source: sources.Source) -> Seen:
    """One play of the product's own release, as a run with such a source makes it."""
    (ledger,) = ledgers([node], plan.adjacency, source)
    release, unit = _release(X, y, plan, Source(ledger, source), source.mode)
    ledger.commit([release.event.times(plan.iterations)])
    seen = Seen([], [], ledger, release.event, release.sigma, unit)

    def xi(k: int, theta: Array) -> Array:
        if k == plan.iterations:  # the loop asks for one more gradient than it needs
            return np.zeros_like(theta)
        noisy = release(k, theta)
        seen.asked.append(theta)
        seen.told.append(np.array(noisy))
        return noisy

    steps = private.iterate(xi, np.zeros(plan.dimension), MCP(plan.lam, plan.alpha), plan.steps)
    for _ in range(plan.iterations):
        next(steps)
    return seen


def _release(X: Array, y: Array, plan: Plan, noise: Any, mode: str) -> tuple[Any, float]:
    if mode != "secure":
        return NoisyGradient(X, y, Logistic(), plan, noise), 0.0
    release = GridGradient(X, y, Logistic(), plan, noise)
    return release, release.query.grid.spacing * plan.clip / plan.divisor


def _exact(X: Array, y: Array, plan: Plan, mode: str) -> Callable[[Array], Array]:
    """What the release adds its noise to."""
    release, _ = _release(X, y, plan, None, mode)
    if mode != "secure":
        return release.exact
    return lambda theta: release.sum(theta) * (plan.clip / plan.divisor)


def played(plan: Plan, rows: int, runs: int, draws: Draws, claimed: Event | None = None) -> Played:
    """`runs` plays in each world, held against what their ledgers say, or against `claimed` of one release."""
    tables = worlds(plan, rows)
    g = [_exact(X, y, plan, draws.mode) for X, y in tables]
    scores, noises, findings = [], [], draws.findings()
    moved, missing = 0.0, 0
    for world, (X, y) in enumerate(tables):
        source, found = draws.source(draws.seed + world), np.empty(runs)
        for r in range(runs):
            seen = transcript(X, y, plan, r, source)
            means = [[gradient(theta) for theta in seen.asked] for gradient in g]
            far = [[float(np.sum((xi - m) ** 2)) for xi, m in zip(seen.told, side)] for side in means]
            found[r] = (math.fsum(far[0]) - math.fsum(far[1])) / (2 * seen.sigma**2)
            event = (claimed or seen.event).single()
            rate = rate_on(event, plan.sensitivity, seen.unit)
            told = enumerate(zip(seen.told, means[world]))
            noises += [Noise(r, k, xi - m, event, rate) for k, (xi, m) in told]
            moved = max(moved, *(float(np.linalg.norm(one - two)) for one, two in zip(*means)))
            missing = max(missing, len(seen.told) - seen.ledger.tally.releases)
            findings += off_grid(r, seen.told, seen.unit)
        scores.append(found)
    stated = getattr(event, "sensitivity_grid", math.inf) * seen.unit if seen.unit else math.inf
    stated = min(plan.sensitivity, stated)
    if moved > stated * (1 + 1e-6):  # a grid's own rounding is far below
        text = f"one record moves it by {moved:.6g}; its entry says {stated:.6g}"
        findings.append(Finding("entry", 0, -1, text))
    if missing > 0:
        findings.append(Finding("omitted", 0, -1, f"{missing} releases that the ledger does not have"))
    return Played(scores[0], scores[1], seen.ledger.events, noises, findings)


def as_printed(
    runs: int, seed: int, *, iterations: int = 10, epsilon: float = 1.0, delta: float = 1e-5, search: bool = True
) -> tuple[Array, Array, Claim]:  # fmt: skip
    """ln |theta - theta^1| after Algorithm 1, under D and under D', and what Theorem 3.3 claims."""
    sigma = printed.noise_scale(epsilon, delta, iterations, 1.0)
    rows, dimension, scores = 16, 50, []
    for world in (0, 1):
        X, y = np.zeros((rows + world, dimension)), np.ones(rows + world)
        X[rows:, 0] = 1.0
        found = np.empty(runs)
        for r in range(runs):
            stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(world, r)))
            start = np.zeros(dimension)
            start[0] = 0.01
            steps = printed.iterate(
                X, y, Logistic(), MCP(0.0, 3.0), partial(lambda of, k: sigma * of.standard_normal(dimension), stream),
                before=np.zeros(dimension), start=start, shortest=1e-3, longest=1e6,
                beta=1e-4 if search else -math.inf,
            )  # fmt: skip
            theta = start
            for _ in range(iterations if search else 1):
                theta = next(steps).theta
            found[r] = math.log(float(np.linalg.norm(theta - start)) + 1e-300)
        scores.append(found)
    words = f"Theorem 3.3 of the paper: ({epsilon:g}, {delta:g})-DP over {iterations} iterations"
    return scores[0], scores[1], point_claim(epsilon, delta, words)
