"""The funnel handed to a general solver (SLSQP, with gradients): a check on the others, for small problems.

min_v I(S;Y)  s.t.  I(X;Y) >= R,  rows of v sum to one,  0 <= v <= 1
dI(S;Y)/dv_ij = p_i sum_k s_ki log (t_kj / P(s_k)),   dI(X;Y)/dv_ij = p_i log (w_ij / p_i)
"""

from typing import Any

import numpy as np

from distadmm.methods.funnel import aem, starts
from distadmm.methods.funnel.model import FLOOR, Array, Joint, informations, log0

LARGEST = 600  # unknowns; the cost of an iteration grows with their cube


def gradients(joint: Joint, v: Array) -> tuple[float, Array, float, Array]:
    """I(S;Y) and I(X;Y) of v >= 0, with their gradients (M x N)."""
    u = joint.p[:, None] * v
    T = joint.S @ u
    logr = np.maximum(log0(u.sum(axis=0)), FLOOR)
    lift_s = np.maximum(log0(T), FLOOR) - logr - np.log(np.maximum(joint.pS, 1e-300))[:, None]
    lift_x = np.maximum(log0(v), FLOOR) - logr
    p = joint.p[:, None]
    return float((T * lift_s).sum()), p * (joint.S.T @ lift_s), float((u * lift_x).sum()), p * lift_x


def run(joint: Joint, R: float, N: int, seed: int, index: int, iterations: int) -> tuple[Array, int, bool]:
    """The channel SLSQP ends at from feasible start `index`, its iterations, and whether it says it converged.

    An end that misses I(X;Y) >= R by rounding is put back by one AEM iteration.
    """
    from scipy.optimize import minimize

    M = joint.M
    first = starts.feasible(joint, R, N, seed, range(index, index + 1))[0]

    def cut(x: Array) -> Array:
        return np.clip(x.reshape(M, N), 1e-12, 1.0)

    rows = np.kron(np.eye(M), np.ones(N))
    sums = {"type": "eq", "fun": lambda x: rows @ x - 1, "jac": lambda x: rows}
    told: dict[str, Any] = {"type": "ineq", "fun": lambda x: gradients(joint, cut(x))[2] - R}
    told["jac"] = lambda x: gradients(joint, cut(x))[3].ravel()
    found = minimize(
        lambda x: gradients(joint, cut(x))[0], first.ravel(), jac=lambda x: gradients(joint, cut(x))[1].ravel(),
        bounds=[(1e-12, 1.0)] * (M * N), constraints=[sums, told], method="SLSQP",
        options={"maxiter": iterations, "ftol": 1e-12},
    )  # fmt: skip
    v = cut(found.x)
    v /= v.sum(axis=1, keepdims=True)
    if informations(joint, v)[1] < R:
        v = aem.channels(joint, aem.step(joint, aem.start(joint, v[None]), R))[0]
    return v, int(found.nit), bool(found.success)
