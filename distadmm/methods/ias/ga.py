"""Gradient ascent in P_{U|Y}, the paper's baseline, with a constant step alpha.

    P^+ = projection of  P + alpha p(y) g

on {p(u|y) >= eps, rows sum to 1}: the Euclidean projection, or, as is often done and the paper may have
done, clipping at eps and dividing by the row's sum, which is no projection and loses the ascent.
"""

import numpy as np

from distadmm.methods.ias.gba import Ascent
from distadmm.methods.ias.objective import Array, Objective

PROJECTIONS = ("euclidean", "renormalise")


def project_euclidean(P: Array, eps: float) -> Array:
    """The nearest row-stochastic matrix with entries >= eps."""
    K = P.shape[-1]
    room = 1 - K * eps
    v = np.sort(P - eps, axis=-1)[..., ::-1]
    shift = (np.cumsum(v, axis=-1) - room) / np.arange(1, K + 1)
    count = (v > shift).sum(-1, keepdims=True)
    level = np.take_along_axis(shift, np.maximum(count - 1, 0), axis=-1)
    return eps + np.maximum(P - eps - level, 0.0)


def renormalise(P: Array, eps: float) -> Array:
    """Clip at eps, divide by the row's sum; entries may end a little below eps."""
    P = np.maximum(P, eps)
    return P / P.sum(-1, keepdims=True)


def ascend(
    objective: Objective,
    P: Array,
    eps: float,
    *,
    alpha: float,
    iterations: int = 3000,
    tolerance: float = 1e-5,
    projection: str = "euclidean",
    trace: bool = False,
) -> Ascent:
    """Climb from every mapping of the batch until it moves less than `tolerance` (Frobenius norm)."""
    project = project_euclidean if projection == "euclidean" else renormalise
    p = objective.problem.P_Y[:, None]
    n = len(P)
    out_P, out_F = P.copy(), objective(P).F
    used, converged, history = np.full(n, iterations), np.zeros(n, dtype=bool), []
    active = np.arange(n)
    for k in range(1, iterations + 1):
        value = objective(P)
        new = project(P + alpha * p * value.g, eps)
        moved = np.sqrt(((new - P) ** 2).sum((-2, -1)))
        P = new
        if trace:
            out_F[active] = value.F
            history.append(out_F.copy())
        done = moved < tolerance
        if done.any():
            finished = active[done]
            out_P[finished], used[finished], converged[finished] = P[done], k, True
            active, P = active[~done], P[~done]
            if not len(active):
                break
    out_P[active] = P
    return Ascent(out_P, objective(out_P).F, used, converged, history)
