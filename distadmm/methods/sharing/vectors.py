"""N-vector messages under noise: S1, S2, S3, and the paper's equation (10) as it stands.

Every iteration party m is sent q, forms w = v - q/(1+tau) from RELEASED values alone (v is what it last released,
never D_m x_m), solves its x-update and releases one N-vector.

S1, a whole party (or column) protected: any D, any convex R that is least at 0 in X.  From the x-update,
    <w - v, v> >= 0, so v lies in the ball of centre w/2 and radius |w|/2; projecting on it first makes
    Delta = |w| hold for any solver.  Noise N(0, s^2 |w|^2 I).

S2, one record's features protected: rows |phi| <= R, models in a ball r, w cut to [-W, W] entry by entry, the
    message to [-B, B], kappa = lambda l2 / (rho (1 + tau)), E = R r + W:
        Delta^2 = (E R)^2 / kappa + (2 min(B, R r))^2
    Two variational inequalities give kappa |dx|^2 + |D_{-i} dx|^2 <= 2 E R |dx| for the constrained minimiser (not
    for one projected afterwards), hence |D_{-i} dx| <= E R / sqrt(kappa); the own row moves by 2 min(B, R r).

S3: S2 where party 1 is the centre, so that its own predictions need no noise.  It protects the others from
    party 1, not the reverse.

A noisy vector is shrunk by 1 - sigma^2/variance before it is sent, which costs nothing.

(10): x + N(0, sigma^2 (D'D)^+) is released through D.  This noise lives in the column space of D, which differs
    between neighbours: the supports are mutually singular and no epsilon is finite.  Refuted; for comparison only.

Invariants that guard privacy
-----------------------------
* No centring, no power iteration, no adaptive penalty: theta is bounded by M, every constant is public.
* The model itself, and scores from it, are not covered by S1, S2 or S3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from distadmm.data.parts import Parts
from distadmm.errors import require
from distadmm.methods.sharing import admm
from distadmm.methods.sharing.admm import Problem, State
from distadmm.methods.sharing.masks import Collector, InClear, Masked
from distadmm.methods.sharing.moments import Bounds, Rows
from distadmm.privacy.noise.queries import Query, Releases, noise_for
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.regularisers import Ball
from distadmm.ranks.star import Star

Array = np.ndarray

MECHANISMS = ("s1", "s2", "s3")
SOLVED = 1e-6  # share of the sensitivity that an inexact x-update may add; it is part of the charge


@dataclass(frozen=True)
class Terms:
    """What all parties agree on; all of it public."""

    mechanism: str
    mu: float | None  # budget of each releasing party for all rounds; None: no noise
    rounds: int = 10
    rho: float = 0.2
    tau: float = 0.0
    row: tuple[float, ...] = (1.0,)  # R of each party, or of all
    radius: float = 2.0  # r
    pull: float = 7.0  # W
    message: float = 2.0  # B
    note: str = ""  # what is to be said of the bounds on rows

    def __post_init__(self) -> None:
        require(
            self.mechanism in MECHANISMS,
            f"--mechanism is {self.mechanism!r}; choose one of: {', '.join(MECHANISMS)}",
        )
        require(self.rounds >= 1, f"--rounds is {self.rounds}; needed: at least 1")
        for name in ("rho", "radius", "pull", "message"):
            require(getattr(self, name) > 0, f"--{name} is {getattr(self, name):g}; needed: a number above 0")

    def row_of(self, m: int) -> float:
        return self.row[(m - 1) % len(self.row)]

    def sensitivity(self, problem: Problem, m: int) -> float:
        """S2's Delta, for party m."""
        kappa = problem.lam * problem.reg.l2 / (self.rho * (1.0 + self.tau))
        require(kappa > 0, "S2 and S3 need --lambda above 0 and a regulariser with an l2 part")
        reach = self.row_of(m) * self.radius
        others = (reach + self.pull) * self.row_of(m) / math.sqrt(kappa)
        return math.hypot(others, 2.0 * min(self.message, reach)) * (1.0 + 2.0 * SOLVED)

    def query(self, problem: Problem, rows: int, mode: str, m: int) -> Query:
        """One round's release by party m.  S1's is relative to |w|, so that its sensitivity is 1."""
        sensitivity = 1.0 if self.mechanism == "s1" else self.sensitivity(problem, m)
        sigma = noise_for(sensitivity, self.mu, mode, rows, self.rounds) if self.mu else 0.0
        return Query(sigma, sensitivity, rows)


def into_half_ball(v: Array, w: Array) -> Array:
    """The nearest point to v of the ball with centre w/2 and radius |w|/2."""
    centre = 0.5 * w
    away, radius = v - centre, 0.5 * float(np.linalg.norm(w))
    distance = float(np.linalg.norm(away))
    return v if distance <= radius else centre + away * (radius / distance)


def answer(
    block: Columns, problem: Problem, terms: Terms, x: Array, w: Array, out: Releases, query: Query, t: int
) -> tuple[Array, Array]:
    """(x, the released vector) of one party; w is made of released values."""
    c = terms.rho * (1.0 + terms.tau)
    if terms.mechanism == "s1":
        x = minimise(block, w, c, problem.lam, problem.reg, problem.region, x)
        size = float(np.linalg.norm(w))
        if size == 0.0:  # every world answers 0
            return x, np.zeros(block.rows)
        return x, size * shrink(out.vector(into_half_ball(block.apply(x), w) / size, query, t), query.sigma)
    w = np.clip(w, -terms.pull, terms.pull)
    x = minimise(block, w, c, problem.lam, problem.reg, problem.region, x)
    _certify(block, problem, terms, x, w, query.sensitivity)
    return x, shrink(
        out.vector(np.clip(block.apply(x), -terms.message, terms.message), query, t), query.sigma
    )


def _certify(block: Columns, problem: Problem, terms: Terms, x: Array, w: Array, sensitivity: float) -> None:
    """The x-update is solved so well that its predictions are off by SOLVED * Delta at most, or nothing is sent.

    For a strongly convex objective of modulus m and Lipschitz constant L the distance to the minimiser is
    at most (1 + L/m) times that to the next projected gradient step.
    """
    assert isinstance(problem.region, Ball)
    c, modulus = terms.rho * (1.0 + terms.tau), problem.lam * problem.reg.l2
    top = float(np.sqrt(block.spectrum[0][-1]))
    lipschitz = c * top**2 + modulus
    step = x - (c * block.adjoint(block.apply(x) - w) + modulus * x) / lipschitz
    norm = float(np.linalg.norm(step))
    step *= min(1.0, problem.region.radius / max(norm, 1e-300))
    error = top * (1.0 + lipschitz / modulus) * float(np.linalg.norm(x - step))
    if error > SOLVED * sensitivity:
        raise RuntimeError("an x-update was not solved to the accuracy its privacy needs; nothing was sent")


def train(
    star: Star,
    parts: Parts,
    problem: Problem,
    terms: Terms,
    releases: Mapping[int, Releases],
    observe: Callable[[int, State], None] | None = None,
    *,
    masked: bool = False,
) -> State:
    """Called by every rank; `releases` holds those of the releasing parties hosted here.

    `masked` shows the centre only the sum.  Each vector keeps the noise that makes it accountable by itself: the
    anchor v is what the party released, which masks make no cheaper.
    """
    if terms.mechanism != "s1":
        require(problem.reg.l1 == 0, "S2 and S3 are proved for --reg l2")
        problem = replace(problem, region=Ball(terms.radius))
    blocks = {m: _bounded(matrix, terms, m) for m, matrix in parts.train.items()}
    queries = {m: terms.query(problem, parts.rows, out.mode, m) for m, out in releases.items()}
    for m, out in releases.items():
        out.commit([queries[m]] * terms.rounds)
    state = admm.start(star, blocks, parts.labels, problem, terms.rho, from_zero=False)
    collector: Collector = Masked(star, parts.rows) if masked else InClear(star, parts.rows)
    for t in range(terms.rounds):
        state = _round(star, blocks, parts, problem, terms, releases, queries, collector, state, t)
        if observe is not None:
            observe(t + 1, state)
    return state


def _round(
    star: Star,
    blocks: Mapping[int, Columns],
    parts: Parts,
    problem: Problem,
    terms: Terms,
    releases: Mapping[int, Releases],
    queries: Mapping[int, Query],
    collector: Collector,
    state: State,
    t: int,
) -> State:
    q = admm.pull(star, state, parts.rows)
    x, sent = {}, {}
    for m, block in blocks.items():
        w = state.v[m] - q / (1.0 + terms.tau)
        if m in releases:
            x[m], sent[m] = answer(block, problem, terms, state.x[m], w, releases[m], queries[m], t)
        else:  # S3's party 1, which sends nothing
            c = terms.rho * (1.0 + terms.tau)
            x[m] = minimise(block, w, c, problem.lam, problem.reg, problem.region, state.x[m])
            sent[m] = block.apply(x[m])
    total, arrived = collector.collect(sent, t)
    v = {m: collector.as_sent(vector) for m, vector in sent.items()}
    if total is None:
        return state._replace(x=x, v=v)
    assert parts.labels is not None
    b = state.b - float(q.mean()) / (1.0 + terms.tau) if problem.intercept else 0.0
    total = total + b
    z, y = admm.update_centre(problem, parts.labels, state, total)
    return State(x, v, total, z, y, b, state.rho, arrived)


def shrink(message: Array, sigma: float) -> Array:
    """A noisy vector scaled by the share of its variance that is not noise."""
    variance = float(np.mean(message**2))
    return message * max(0.0, 1.0 - sigma**2 / variance) if variance > 0 else message


def _bounded(matrix: object, terms: Terms, m: int) -> Columns:
    """Rows cut to R where one record is what is protected; nothing is centred."""
    if terms.mechanism == "s1":
        return Columns(matrix)
    return Columns(Rows(matrix, Bounds(terms.row_of(m), 1.0, 1.0)).matrix)


# -- the paper's mechanism --------------------------------------------------------------------------------


def claimed_sensitivity(width: int, parties: int, problem: Problem, rho: float, bound: float = 1.0) -> float:
    """Lemma 1's C = 3/(d rho) (lambda c1 + (1 + M rho) b1); it does not bound anything (see docs/sharing.md)."""
    return 3.0 / (width * rho) * (problem.lam * problem.reg.l2 + (1.0 + parties * rho) * bound)


def claimed_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Theorem 1's sigma of one iteration."""
    return math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon


def corollary(epsilon: float, rounds: int, delta: float) -> float:
    """Corollary 1's epsilon of all iterations, with delta' = delta."""
    return math.sqrt(2.0 * rounds * math.log(1.0 / delta)) * epsilon + rounds * epsilon * math.expm1(epsilon)


def degenerate_noise(block: Columns, sigma: float, stream: np.random.Generator) -> Array:
    """xi ~ N(0, sigma^2 (D'D)^+): the pseudo-inverse, since D'D is singular on one-hot columns."""
    e, V = block.spectrum
    return V @ (sigma * stream.standard_normal(e.size) / np.sqrt(e))
