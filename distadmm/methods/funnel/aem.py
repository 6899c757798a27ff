"""Alternating Expectation Minimisation (Chen, Ye, Wu, Wu, Wu and Zhang, 2024), without its tensor.

Since sum_k s_ki = 1, phi_ij = log u_ij - sum_k s_ki log t_kj with t = S w = P(s|y), so the M x N x K
tensor q cancels.  With logarithms throughout (u underflows otherwise) one iteration is

    log t  <- log S u - log r                                         q: the expectation step, eq. (4c)
    Lambda <- max(0, root of G(Lambda) = sum_ij u_ij log w_ij - R^)   the multiplier of I(X;Y) >= R
    log u  <- log u + Lambda log w - omega S^T log t                  rows normalised to sum to p_i
    r      <- sum_i u_ij,   w <- u / r                                eqs. (4a), (4b)

omega = 1 is the paper's iteration: mirror descent on I(S;Y).  The root is negative when G(0) > 0: then the
constraint does not bind and Lambda = 0.  From a feasible start every iterate is feasible (Gibbs' inequality)
and I(S;Y) never rises.  All arrays carry a leading axis of starts, which are iterated together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distadmm.methods.funnel.model import FLOOR, Array, Joint, log0

ROOT = 1e-12  # |G| at which Newton's method stops, nats
EVALUATIONS = 60  # of G that it may take
LOST = 1e-10  # a start whose G stays below -LOST has no root: it is left where it is


class State(NamedTuple):
    logu: Array  # log P(x,y), B x M x N
    logw: Array  # log P(x|y), B x M x N
    logt: Array  # log P(s|y), B x K x N
    leak: Array  # I(S;Y), B
    told: Array  # I(X;Y), B
    Lambda: Array  # the multiplier of the update that led here, B
    guess: Array  # where the next one is expected, B


class Rows(NamedTuple):
    """Rows e^(log u + Lambda log w - ...) before they are normalised: row i of e sums to total_i."""

    z: Array
    e: Array
    total: Array


def measure(joint: Joint, rows: Rows, Lambda: Array, guess: Array) -> State:
    """The state whose channel has these rows, normalised."""
    z, e, total = rows
    scale = joint.p / total
    r = (scale[:, None, :] @ e)[:, 0]
    t = (joint.S * scale[:, None, :]) @ e
    logr = np.maximum(log0(r), FLOOR)
    logt = np.maximum(log0(t), FLOOR) - logr[:, None, :]
    z += np.log(scale)[:, :, None]  # = log u from here on
    logw = z - logr[:, None, :]
    leak = joint.HS + np.einsum("bkn,bkn->b", t, logt)
    told = joint.HX + (scale * np.einsum("bmn,bmn->bm", e, logw)).sum(axis=-1)
    return State(z, logw, logt, leak, told, Lambda, guess)


def start(joint: Joint, v: Array) -> State:
    """The state at the channels v (B x M x N)."""
    none = np.zeros(len(v))
    return measure(joint, Rows(np.maximum(log0(v), FLOOR), np.array(v), v.sum(axis=-1)), none, none)


def channels(joint: Joint, state: State) -> Array:
    """P(y|x), B x M x N; entries too small to matter are exactly zero."""
    u = np.exp(state.logu)
    v = u / u.sum(axis=-1, keepdims=True)
    v[v < 1e-250] = 0
    return v


def tilt(base: Array, logw: Array, Lambda: Array, joint: Joint, R: float, rows: Rows) -> tuple[Array, Array]:
    """Fill `rows` with e^(base + Lambda log w), its largest entry 1; return G and G' there."""
    z, e, total = rows
    np.multiply(logw, Lambda[:, None, None], out=z)
    z += base
    z -= z.max(axis=-1, keepdims=True)
    np.maximum(z, FLOOR, out=z)
    np.exp(z, out=e)
    np.sum(e, axis=-1, out=total)
    mean = np.einsum("bmn,bmn->bm", e, logw) / total
    square = np.einsum("bmn,bmn,bmn->bm", e, logw, logw) / total
    return mean @ joint.p + joint.HX - R, (square - mean * mean) @ joint.p


def root(base: Array, logw: Array, guess: Array, joint: Joint, R: float) -> tuple[Array, Rows, Array]:
    """max(0, root of G) by Newton's method kept in a bracket; the rows there, and what is left of G."""
    Lambda, low, high = guess.copy(), np.zeros_like(guess), np.full_like(guess, np.inf)
    rows = Rows(np.empty_like(base), np.empty_like(base), np.empty(base.shape[:2]))
    for _ in range(EVALUATIONS):
        G, slope = tilt(base, logw, Lambda, joint, R, rows)
        done = (np.abs(G) <= ROOT) | ((Lambda == 0) & (G > 0))
        if done.all():
            break
        low, high = np.where(G < 0, Lambda, low), np.where(G < 0, high, Lambda)
        newton = Lambda - G / np.maximum(slope, 1e-300)
        # below zero the constraint does not bind: 0 itself is tried before the bracket is halved
        newton = np.where((newton <= 0) & (low == 0) & (G > 0), 0.0, newton)
        middle = np.where(np.isinf(high), 2 * Lambda + 1, (low + high) / 2)
        inside = ((newton > low) & (newton < high)) | (newton == 0)
        Lambda = np.where(done, Lambda, np.where(inside, newton, middle))
    return Lambda, rows, G


def step(joint: Joint, state: State, R: float, omega: Array | float = 1.0) -> State:
    """One iteration for every start."""
    base = joint.S.T @ state.logt
    base *= -np.reshape(omega, (-1, 1, 1))
    base += state.logu
    Lambda, rows, G = root(base, state.logw, state.guess, joint, R)
    new = measure(joint, rows, Lambda, np.maximum(2 * Lambda - state.Lambda, Lambda / 2))
    return choose(G < -LOST, state, new)


def choose(first: Array, a: State, b: State) -> State:
    """State a for the starts where `first` holds, b for the others."""
    if not first.any():
        return b
    return State(*(np.where(first.reshape(-1, *[1] * (x.ndim - 1)), x, y) for x, y in zip(a, b)))
