"""Difference-of-convex steps (Huang and El Gamal, 2024), the rival that is named and not compared with.

Their paper was not at hand: this is the closed form that its abstract speaks of, derived here.  With f = -H(Y|X),

    L(v) = I(S;Y) - beta I(X;Y) = (1 - beta) H(Y) - H(Y|S) + beta H(Y|X) = f(v) - (f - L)(v),

f is convex, and so is f - L: with D_X, D_S, D_Y the divergences between two channels' P(y|x), P(y|s) and P(y), averaged
over x and s, its Bregman divergence is (1 + beta) D_X + (1 - beta) D_Y - D_S, and D_Y <= D_S <= D_X.  So the step to
the least f(v) - <gradient of f - L, v>,

    log v  <-  (1 + beta) log v + (1 - beta) log r - S^T log a  - (a constant of each row),    a = P(y|s),  r = P(y),

lowers L by at least D_X.  From beta = 1 on L is concave and ends are deterministic.  The method has no R: like that of
drs its grid's end points serve every R that they reach.
"""

import numpy as np

from distadmm.methods.funnel import drs
from distadmm.methods.funnel.model import FLOOR, Array, Joint, entropy, log0
from distadmm.methods.funnel.starts import rng_of

BETAS = np.geomspace(0.01, 1.0, 28)
REST = 1e-10  # nats: L that falls by no more ends a run
INDEX = 1 << 23


def step(joint: Joint, logv: Array, beta: Array) -> Array:
    """One step of every run (log v: B x M x N)."""
    b, v = beta[:, None, None], np.exp(logv)
    logr = np.maximum(log0(joint.p @ v), FLOOR)[:, None, :]
    moved = (1 + b) * logv + (1 - b) * logr - joint.S.T @ np.maximum(log0(drs.inverse(joint) @ v), FLOOR)
    moved -= moved.max(axis=2, keepdims=True)
    moved -= np.log(np.exp(moved).sum(axis=2, keepdims=True))
    return np.maximum(moved, FLOOR)


def lagrangian(joint: Joint, v: Array, beta: Array) -> Array:
    by_symbol = (1 - beta) * entropy(joint.p @ v, axis=1)
    by_private = entropy(drs.inverse(joint) @ v, axis=2) @ joint.pS
    return by_symbol - by_private + beta * (entropy(v, axis=2) @ joint.p)


def end_points(joint: Joint, N: int, seed: int, number: int, iterations: int) -> tuple[Array, int, Array]:
    """The channels (B x M x N) of all starts of one multiplier, iterations made, and which are at rest."""
    v = drs.first(joint, N, rng_of(seed, INDEX + number), drs.STARTS)
    beta = np.full(len(v), BETAS[number])
    found, rest, n = v.copy(), np.zeros(len(v), dtype=bool), 0
    logv, level = np.maximum(log0(v), FLOOR), lagrangian(joint, v, beta)
    while n < iterations and not rest.all():
        n += 1
        left = np.flatnonzero(~rest)
        logv = step(joint, logv, beta[left])
        found[left] = np.exp(logv)
        now = lagrangian(joint, found[left], beta[left])
        quiet = level - now <= REST
        rest[left], level, logv = quiet, now[~quiet], logv[~quiet]
    return found / found.sum(axis=2, keepdims=True), n, rest
