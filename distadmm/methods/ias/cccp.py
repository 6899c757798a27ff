"""The outer loop as a concave-convex procedure: (10) solved exactly by interior-point Newton steps.

(10) is jointly concave in (P_{U|Y}, P_U), for x f(a/x) is the perspective of a convex function: nothing
needs splitting.  I(S;U) is convex, so its tangent at P^(j) lies below it and F never falls:

    P^(j+1) = argmax  sum p(y) p(u|y) (A^T log(p(s|u)/p(s)))_{y,u} - beta E[d],   P_{S|U} that of P^(j)
"""

import numpy as np

from distadmm.methods.ias import gba, interior
from distadmm.methods.ias.objective import Array, Objective, marginals


def ascend(
    objective: Objective,
    P: Array,
    eps: float,
    *,
    iterations: int = 200,
    tolerance: float = 1e-10,
    trace: bool = False,
) -> gba.Ascent:
    """Climb from one mapping (a batch of one) until F gains less than `tolerance`."""
    X, F = P[0], float(objective(P[0]).F)
    problem, history, converged, k = objective.problem, [], False, 0
    while k < iterations and not converged:
        k += 1
        _, P_SU = marginals(problem, X)
        tangent = problem.A.T @ np.log(P_SU / problem.P_S[:, None])
        new = interior.climb(objective, X, eps, tangent=tangent, mu=1e-6).P
        F_new = float(objective(new).F)
        if trace:
            history.append(np.array([max(F, F_new)]))
        converged = F_new - F < tolerance
        if F_new > F:
            X, F = new, F_new
    return gba.Ascent(X[None], np.array([F]), np.array([k]), np.array([converged]), history)
