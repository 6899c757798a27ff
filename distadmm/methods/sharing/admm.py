"""ADMM sharing between a centre and parties: Algorithm 1 and the forms of it worth comparing.

One iteration t -> t+1, with S = sum_m v_m + b, the latest v_m = D_m x_m that the centre has been sent:

    q     = S - z + y/rho                                               centre -> parties
    w_m   = v_m - q / (1 + tau)
    x_m   = argmin_{X_m} lambda R(x_m) + rho(1+tau)/2 |D_m x_m - w_m|^2     (6), with a proximal weight tau
    v_m   = D_m x_m                                                     parties -> centre
    z     = argmin l(z) - <y, z> + rho/2 |S - z|^2                      (7)
    y     = y + rho (S - z)                                             (8)

tau = 0 is the paper's (6) to the letter.  One vector goes down, since S - z and y reach a party only
through q; `two_vectors` sends both of them, as the paper does.  The intercept b is the centre's own
unpenalised column of ones and is updated like a party's model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distadmm.methods.sharing.masks import Collector, InClear, total_of
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.losses import Loss
from distadmm.problems.prox import prox
from distadmm.problems.regularisers import Region, Regulariser, Whole
from distadmm.ranks.star import Star

Array = np.ndarray

# What party m sends in place of (x_m, D_m x_m) at iteration t: the hook of every noisy variant.
Release = Callable[[int, int, Array, Array], tuple[Array, Array]]

RIDGE, WHOLE = Regulariser(0.0, 1.0), Whole()

_NOTHING = np.empty(0)


@dataclass(frozen=True)
class Problem:
    """min_x  sum_i l(sum_m D_m^i x_m + b; y_i) + lam sum_m R(x_m),  x_m in X."""

    loss: Loss
    lam: float = 1.0
    reg: Regulariser = RIDGE
    region: Region = WHOLE
    intercept: bool = False


class State(NamedTuple):
    """What this rank knows after an iteration; the centre's fields are empty on other ranks."""

    x: dict[int, Array]  # the models of the parties hosted here
    v: dict[int, Array]  # their predictions, as last sent
    total: Array  # S, the sum of all predictions at the centre
    z: Array  # the centre's predictions
    y: Array  # the dual, the slope of the loss at z
    b: float  # the intercept
    rho: float  # the penalty, known to all
    heard: dict[int, Array]  # what each party last sent, where the centre can see it


def start(
    star: Star,
    blocks: Mapping[int, Columns],
    labels: Array | None,
    problem: Problem,
    rho: float,
    *,
    from_zero: bool,
) -> State:
    """x = 0; `from_zero` also z = y = 0 (the paper's start), else z = b, y = l'(b) of the best constant b."""
    x = {m: np.zeros(block.width) for m, block in blocks.items()}
    v = {m: np.zeros(block.rows) for m, block in blocks.items()}
    if not star.is_centre:
        return State(x, v, _NOTHING, _NOTHING, _NOTHING, 0.0, rho, {})
    assert labels is not None
    zero = np.zeros(labels.size)
    heard = dict.fromkeys(star.home, zero)
    if from_zero:
        return State(x, v, zero, zero, zero, 0.0, rho, heard)
    b = best_constant(problem.loss, labels) if problem.intercept else 0.0
    z = np.full(labels.size, b)
    return State(x, v, z, z, problem.loss.slope(z, labels), b, rho, heard)


def best_constant(loss: Loss, labels: Array) -> float:
    """The constant prediction of least loss, by bisection on the slope; 0 where there is none."""
    low, high = -1.0, 1.0
    while loss.slope(np.full(labels.size, high), labels).sum() < 0 and high < 64:
        low, high = high, 2 * high
    while loss.slope(np.full(labels.size, low), labels).sum() > 0 and low > -64:
        low, high = 2 * low, low
    for _ in range(60):
        middle = 0.5 * (low + high)
        rising = loss.slope(np.full(labels.size, middle), labels).sum() > 0
        low, high = (low, middle) if rising else (middle, high)
    return 0.5 * (low + high)


def update_party(
    block: Columns, problem: Problem, x: Array, v: Array, q: Array, rho: float, tau: float
) -> Array:
    """(6): the next model of the party that holds `block` and last sent v."""
    w = v - q / (1.0 + tau)
    return minimise(block, w, rho * (1.0 + tau), problem.lam, problem.reg, problem.region, x)


def update_centre(problem: Problem, labels: Array, state: State, total: Array) -> tuple[Array, Array]:
    """(7) and (8): the next z and y, given the sum of what the parties sent."""
    z = prox(problem.loss, labels, state.rho, total + state.y / state.rho, state.z)
    return z, state.y + state.rho * (total - z)


def jacobi(
    star: Star,
    blocks: Mapping[int, Columns],
    labels: Array | None,
    problem: Problem,
    state: State,
    t: int,
    *,
    tau: float,
    rows: int,
    two_vectors: bool = False,
    release: Release | None = None,
    collector: Collector | None = None,
) -> State:
    """One iteration in which all parties work at the same time."""
    collector = collector or InClear(star, rows)
    q = pull(star, state, rows, two_vectors=two_vectors)
    x, sent = {}, {}
    for m, block in blocks.items():
        x[m] = update_party(block, problem, state.x[m], state.v[m], q, state.rho, tau)
        sent[m] = block.apply(x[m])
        if release is not None:
            x[m], sent[m] = release(t, m, x[m], sent[m])
    total, arrived = collector.collect(sent, t)
    v = {m: collector.as_sent(value) for m, value in sent.items()}
    if total is None:
        return state._replace(x=x, v=v)
    assert labels is not None
    b = state.b - float(q.mean()) / (1.0 + tau) if problem.intercept else 0.0
    total = total + b
    z, y = update_centre(problem, labels, state, total)
    return State(x, v, total, z, y, b, state.rho, arrived)


def gauss_seidel(
    star: Star,
    blocks: Mapping[int, Columns],
    labels: Array | None,
    problem: Problem,
    state: State,
    t: int,
    *,
    tau: float,
    rows: int,
) -> State:
    """One iteration in which each party in turn sees its predecessors' new predictions: M round trips."""
    x, v, heard = dict(state.x), dict(state.v), dict(state.heard)
    total, b = state.total, state.b
    for m in star.home:
        q = total - state.z + state.y / state.rho if star.is_centre else None
        received = star.deal({m: q}, {m: rows})
        sent = {}
        if m in blocks:
            x[m] = update_party(blocks[m], problem, x[m], v[m], received[m], state.rho, tau)
            sent[m] = blocks[m].apply(x[m])
            v[m] = star.rounded(sent[m])
        arrived = star.up(sent, {m: rows})
        if arrived is not None:
            total = total + (arrived[m] - heard[m])
            heard[m] = arrived[m]
    if not star.is_centre:
        return state._replace(x=x, v=v)
    assert labels is not None
    if problem.intercept:
        b -= float((total - state.z + state.y / state.rho).mean()) / (1.0 + tau)
    total = total_of(heard, rows) + b
    z, y = update_centre(problem, labels, state, total)
    return State(x, v, total, z, y, b, state.rho, heard)


def averaged(
    star: Star,
    blocks: Mapping[int, Columns],
    labels: Array | None,
    problem: Problem,
    state: State,
    t: int,
    *,
    rows: int,
) -> State:
    """Boyd et al. 2011, section 7.3, in averages over the M parties.

        x_m  = argmin lambda R(x_m) + r/2 |D_m x_m - v_m - zbar + vbar + u|^2
        zbar = argmin l(M zbar) + M r/2 |zbar - u - vbar|^2
        u    = u + vbar - zbar

    with r = M rho, vbar = S/M, zbar = z/M and u = y/r.  It is the general step with tau = M - 1.
    """
    M = star.parties
    r = M * state.rho
    message = (state.total - state.z) / M + state.y / r if star.is_centre else None
    q = _told(star, message, rows)
    x, sent = {}, {}
    for m, block in blocks.items():
        w = state.v[m] - q
        x[m] = minimise(block, w, r, problem.lam, problem.reg, problem.region, state.x[m])
        sent[m] = block.apply(x[m])
    arrived = star.up(sent, rows)
    v = {m: star.rounded(value) for m, value in sent.items()}
    if arrived is None:
        return state._replace(x=x, v=v)
    assert labels is not None
    b = state.b - float(q.mean()) if problem.intercept else 0.0
    mean = (total_of(arrived, rows) + b) / M
    u = state.y / r
    # l(M zbar) + M r/2 |zbar - n|^2 is, in z = M zbar, l(z) + (r/M)/2 |z - M n|^2.
    zbar = prox(problem.loss, labels, r / M, M * (mean + u), state.z) / M
    return State(x, v, M * mean, M * zbar, r * (u + mean - zbar), b, state.rho, arrived)


def pull(star: Star, state: State, rows: int, *, two_vectors: bool = False) -> Array:
    """q at every party of this rank, and at the centre."""
    if two_vectors:
        residual = star.down(state.total - state.z if star.is_centre else None, rows)
        dual = star.down(state.y if star.is_centre else None, rows)
        return residual + dual / state.rho if residual.size else residual
    return _told(star, state.total - state.z + state.y / state.rho if star.is_centre else None, rows)


def _told(star: Star, message: Array | None, rows: int) -> Array:
    """The centre's message at every party of this rank, and at the centre itself, to the wire's precision."""
    received = star.down(message, rows)
    return received if message is None else star.rounded(message)
