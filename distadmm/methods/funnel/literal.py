"""Algorithm 1 of the paper as printed, with its M x N x K tensor, and what becomes of it.

    u_ij = 1{i=j}/M,  r_j = sum_i u_ij;  then repeatedly
    q_ijk <- s_ki u_ij / sum_i' s_ki' u_i'j,   phi_ij <- sum_k s_ki (log q_ijk - log s_ki)
    Lambda with G(Lambda) = 0,   u_ij <- p_i e^(Lambda log w_ij + phi_ij) r_j / row sum,   r, w <- u / r

The start ignores p, and w is used before it is set (u / r is taken).  For N > M the symbols beyond M have r = 0, so
w and q are 0/0 in the first iteration; for N = M every zero of u makes 0 log 0.
"""

from typing import NamedTuple

import numpy as np

from distadmm.methods.funnel import aem
from distadmm.methods.funnel.model import Array, Joint

NEWTON = 50
FLOORS = (1e-6, 1e-12, 1e-100, 1e-300)


class Outcome(NamedTuple):
    iteration: int  # at which it failed or came to rest
    value: float  # I(S;Y) there; NaN when there is none
    what: str


def iteration(joint: Joint, u: Array, w: Array, r: Array, R: float) -> tuple[Array, Array, Array, float]:
    """One pass of the loop, in plain floating point: u, w, r and Lambda after it."""
    s = joint.S.T[:, None, :]
    q = s * u[:, :, None]
    q /= q.sum(axis=0)
    phi = (s * (np.log(q) - np.log(s))).sum(axis=2)
    logw = np.log(w)
    Lambda = 0.0
    for _ in range(NEWTON):
        e = np.exp(Lambda * logw + phi) * r
        v = e / e.sum(axis=1, keepdims=True)
        mean = (v * logw).sum(axis=1)
        G = joint.p @ mean + joint.HX - R
        if not abs(G) > 1e-12:  # found, or NaN
            break
        Lambda -= G / (joint.p @ ((v * logw**2).sum(axis=1) - mean**2))
    u = joint.p[:, None] * v
    r = u.sum(axis=0)
    return u, u / r, r, float(Lambda)


def as_printed(joint: Joint, R: float, N: int, iterations: int) -> Outcome:
    """The algorithm in plain floating point from its printed start."""
    with np.errstate(all="ignore"):
        u = np.eye(joint.M, N) / joint.M
        r = u.sum(axis=0)
        w = u / r
        for n in range(1, iterations + 1):
            u, w, r, _ = iteration(joint, u, w, r, R)
            if not np.isfinite(u).all():
                why = "w and q are 0/0 for the symbols beyond |X|" if N > joint.M else "0 log 0"
                return Outcome(n, float("nan"), f"NaN in iteration {n}: {why}")
        t = joint.S @ u
        return Outcome(n, float((t * np.log(t / r)).sum() + joint.HS), "")


def with_floor(joint: Joint, R: float, N: int, floor: float, iterations: int) -> Outcome:
    """From the printed start with `floor` in place of its zeros, in logarithms with Lambda = max(0, root)."""
    u = np.maximum(np.eye(joint.M, N) / joint.M, floor)
    state = aem.start(joint, (u / u.sum(axis=1, keepdims=True))[None])
    for _ in range(iterations):
        state = aem.step(joint, state, R)
    told = float(state.told[0])
    kept = "" if told >= R - aem.LOST else f"; I(X;Y) = {told:.6g} misses R"
    return Outcome(iterations, float(state.leak[0]), f"what it comes to depends on the floor{kept}")


def report(joint: Joint, R: float, N: int, iterations: int) -> list[tuple[str, Outcome]]:
    """Every reading of the printed algorithm; with 0 log 0 = 0 and N = M the zeros of the start never leave."""
    constant = f"the constant H(X) - R = {joint.HX - R:.6g}"
    stays = Outcome(1, joint.ISX, f"stays at the identity channel: G is {constant} and has no root")
    found = [
        (f"as printed, |Y| = {N}", as_printed(joint, R, N, iterations)),
        (f"as printed, |Y| = |X| = {joint.M}", as_printed(joint, R, joint.M, iterations)),
        ("with 0 log 0 = 0", stays),
    ]
    return found + [(f"zeros set to {e:g}", with_floor(joint, R, N, e, iterations)) for e in FLOORS]
