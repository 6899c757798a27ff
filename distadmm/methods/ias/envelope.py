"""The concave envelope behind eq. (1), and a global upper bound from it.

With q_u = P_{Y|u} the objective is sum_u p(u) psi(q_u) under sum_u p(u) q_u = P_Y, where

    psi(q) = KL(A q || P_S) - beta Phi(q),   Phi(q) = sum_y p(y) f°(q_y/p(y)),   f°(s) = s f(1/s).

So for eps -> 0 the optimum is the concave envelope of psi at P_Y, and for every a (and every eps)

    F* <= a.P_Y + max_q [psi(q) - a.q].

KL is convex in w = A q, which has only |S|-1 dimensions, and -beta Phi is concave in q.  On a simplex of
w's the line (plane) through KL's corner values lies above KL, and under a linear form k.q the rest is
maximised exactly: max_q [k.q - beta Phi(q)] = min_nu [nu + beta sum_y p(y) f°*((k_y - nu)/beta)], every
nu giving a valid bound.  Cutting the simplices with the largest bounds first, until none exceeds the best
psi - a.q found, closes it: branch and bound in |S|-1 dimensions, a bound up to rounding and not a guess from
grid points.
"""

from typing import NamedTuple

import numpy as np

from distadmm.methods.ias.inference import Inference
from distadmm.methods.ias.measures import TINY, Measure
from distadmm.methods.ias.objective import Array, Objective

MAX_S = 4  # beyond this many symbols of S there are too many simplices
BATCH = 4096  # simplices bounded at a time
LIMIT = 400_000  # simplices looked at before a price is left open


def psi(objective: Objective, q: Array) -> Array:
    """KL(Aq||P_S) - beta Phi(q) of every row q; zero entries allowed."""
    information, leakage = terms(objective.problem, objective.measure, q)
    return information - objective.beta * leakage


def terms(problem: Inference, measure: Measure, q: Array) -> tuple[Array, Array]:
    """KL(Aq||P_S) and Phi(q) of every row q >= 0 of sum one."""
    return _kl(q @ problem.A.T, problem.P_S), measure.star(q / problem.P_Y) @ problem.P_Y


def _kl(w: Array, P_S: Array) -> Array:
    return (w * np.log(np.maximum(w, TINY) / P_S)).sum(-1)


class Peak(NamedTuple):
    """max_q [k.q - beta Phi(q)] for many k."""

    q: Array
    bound: Array  # never below the maximum, but for rounding


def peak(objective: Objective, k: Array) -> Peak:
    """Maximise k.q - beta Phi(q) over posteriors q, for every row k: Newton on the one multiplier nu."""
    p, beta, density = objective.problem.P_Y, objective.beta, objective.measure.density
    h = objective.measure.h
    low = (k - beta * h(p)).max(-1)  # there one q_y alone is 1, so the sum is at least 1
    high = np.maximum(k.max(-1) - beta * h(np.array(1.0)), low)  # there every q_y <= p(y)
    nu = low
    for _ in range(60):
        at = density((k - nu[..., None]) / beta, 1 / p)
        total, rate = at.s @ p, at.rate @ p / beta
        excess = total - 1
        low, high = np.where(excess >= 0, nu, low), np.where(excess < 0, nu, high)
        newton = nu + np.log(np.maximum(total, TINY)) * total / np.maximum(rate, TINY)  # on log(total) = 0
        inside = (newton >= low) & (newton <= high)
        nu_next = np.where(inside, newton, 0.5 * (low + high))
        settled = np.abs(excess) <= 1e-13
        if settled.all() or np.array_equal(nu_next, nu):
            break
        nu = np.where(settled, nu, nu_next)
    at = density((k - nu[..., None]) / beta, 1 / p)
    q = at.s * p
    return Peak(q / q.sum(-1, keepdims=True), nu + beta * (at.value @ p))


class Price(NamedTuple):
    upper: float  # a bound on the maximum
    lower: float  # the best found
    q: Array  # rows: posteriors whose value is among the best found, distinct, best first
    value: Array  # their psi - a.q
    simplices: int
    proved: bool  # False when `upper` is only the best found


def price(
    objective: Objective, a: Array, *, tolerance: float = 1e-9, simplices: int = LIMIT, keep: int = 40
) -> Price:
    """Bound max_q [psi(q) - a.q] by branch and bound over simplices of w = A q."""
    cells, bound = np.eye(len(objective.problem.P_S))[None], np.array([np.inf])  # corners in rows
    lower, best_q, best_value = -np.inf, np.empty((0, len(a))), np.empty(0)
    settled, seen = -np.inf, 0  # the largest bound among simplices that are done with
    while len(cells) and (room := min(BATCH, simplices - seen) // 2):
        # The simplices with the largest bounds first: out of simplices, what is left open is as little as can be.
        order = np.argsort(-bound, kind="stable")
        now, later = order[:room], order[room:]
        halves = _halve(objective, cells[now]) if seen else cells
        own, q = _bound(objective, a, halves)
        seen += len(halves)
        value = psi(objective, q) - q @ a
        best_q, best_value = _best(np.vstack([best_q, q]), np.concatenate([best_value, value]), keep)
        lower = max(lower, float(best_value[0]))
        cells, bound = np.concatenate([cells[later], halves]), np.concatenate([bound[later], own])
        open_ = bound > lower + tolerance
        settled = max(settled, float(bound[~open_].max(initial=-np.inf)))
        cells, bound = cells[open_], bound[open_]
    settled = max(settled, float(bound.max(initial=-np.inf)))
    q, value = _climb(objective, a, best_q, steps=25)
    lower = max(lower, float(value.max()))
    return Price(max(settled, lower), lower, q, value, seen, True)


def price_by_search(objective: Objective, a: Array, seed: int) -> Price:
    """The best of many ascents, for |S| beyond branch and bound: a heuristic, not a bound."""
    rng = np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(7, 0)))
    p = objective.problem.P_Y
    q = np.vstack([np.eye(len(p)), objective.problem.joint / objective.problem.P_S[:, None]])
    q = np.vstack([q, rng.dirichlet(np.full(len(p), 0.3), size=2000)])
    q, value = _climb(objective, a, q)
    return Price(float(value.max()), float(value.max()), q, value, 0, False)


def _bound(objective: Objective, a: Array, cells: Array) -> tuple[Array, Array]:
    """For every simplex of w's: the maximum over all q of (the plane above KL) - beta Phi - a.q, and its q."""
    problem, bounds, peaks = objective.problem, [], []
    for start in range(0, len(cells), BATCH):
        corners = cells[start : start + BATCH]
        plane = np.linalg.solve(corners, _kl(corners, problem.P_S)[..., None])[..., 0]
        top = peak(objective, plane @ problem.A - a)
        bounds.append(top.bound)
        peaks.append(top.q)
    return np.concatenate(bounds), np.vstack(peaks)


def _halve(objective: Objective, cells: Array) -> Array:
    """Cut every simplex in two across the edge over whose middle the plane lies highest above KL."""
    n, S = len(cells), cells.shape[1]
    i, j = np.triu_indices(S, 1)
    at, P_S = _kl(cells, objective.problem.P_S), objective.problem.P_S
    above = 0.5 * (at[:, i] + at[:, j]) - _kl(0.5 * (cells[:, i] + cells[:, j]), P_S)
    widest = above.argmax(1)
    rows, i, j = np.arange(n), i[widest], j[widest]
    middle = 0.5 * (cells[rows, i] + cells[rows, j])
    left, right = cells.copy(), cells.copy()
    left[rows, i], right[rows, j] = middle, middle
    return np.concatenate([left, right])


def _best(q: Array, value: Array, keep: int) -> tuple[Array, Array]:
    """Up to `keep` of the best posteriors that differ from one another, best first."""
    order = np.argsort(-value, kind="stable")[: 10 * keep]
    q, value = q[order], value[order]
    near = np.abs(q[:, None] - q).sum(-1) <= 1e-3
    chosen: list[int] = []
    covered = np.zeros(len(q), dtype=bool)
    for index in range(len(q)):
        if not covered[index]:
            chosen.append(index)
            covered |= near[index]
    return q[chosen[:keep]], value[chosen[:keep]]


def _climb(objective: Objective, a: Array, q: Array, steps: int = 300) -> tuple[Array, Array]:
    """Climb psi - a.q from every row: KL replaced by its tangent plane at A q, the rest exactly."""
    P_S, A = objective.problem.P_S, objective.problem.A
    value = psi(objective, q) - q @ a
    for _ in range(steps):
        tangent = np.log(np.maximum(q @ A.T, TINY) / P_S)
        q_new = peak(objective, tangent @ A - a).q
        new = psi(objective, q_new) - q_new @ a
        better = new > value
        if not (new > value + 1e-13).any():
            break
        q, value = np.where(better[:, None], q_new, q), np.where(better, new, value)
    return _best(q, value, len(q))
