"""Section III-C: ADMM with Bregman distances, here of the quadratic kernels tau/2 |x|^2.

    x_y^{k+1} = argmax h_y(x) + (x - x_y^k).grad_{x_y} g(x^k, v^k)
                       - rho/2 |p(y) x + r - v^k - Lambda^k/rho|^2 - tau/2 |x - x_y^k|^2
    v^{k+1}   = argmax g(x^{k+1}, v) - rho/2 |m - v - Lambda^k/rho|^2 - tau/2 |v - v^k|^2
    Lambda^{k+1} = Lambda^k + rho (v^{k+1} - m)                                                  (29)

with h_y(x) = -p(y) sum_u x D, g = -beta E[d], r the other rows' share of the marginal and m the marginal.
The Lagrangian of (29) carries -Lambda.delta, so here the printed sign is right.  Its proof wants tau larger
than the Lipschitz constant 2 beta l_f/eps^2 of grad g, which allows no step worth taking; a smaller tau is
a heuristic.
"""

import numpy as np

from distadmm.methods.ias import admm, ga, gba
from distadmm.methods.ias.objective import Array, Objective, marginals


def ascend(
    objective: Objective,
    P: Array,
    eps: float,
    *,
    tau: float = 10.0,
    rho: float = 1.0,
    inner: int = 20,
    iterations: int = 200,
    tolerance: float = 1e-9,
    trace: bool = False,
) -> gba.Ascent:
    """Outer steps of `inner` steps of (29) each, for every mapping of the batch, until F moves little."""
    problem, measure, beta = objective.problem, objective.measure, objective.beta
    p = problem.P_Y
    x, (v, _) = P.copy(), marginals(problem, P)
    Lambda = np.zeros_like(v)
    n = len(P)
    F, used, converged = objective(x).F, np.full(n, iterations), np.zeros(n, dtype=bool)
    history = []
    for j in range(1, iterations + 1):
        D, going = admm.divergences(objective, x), ~converged
        start = x, v, Lambda
        for _ in range(inner):
            pull = -beta * p[:, None] * measure.h(v[:, None, :] / x)  # grad g at (x^k, v^k)
            new = x.copy()
            for y, w in enumerate(p):
                r = np.matmul(p, new) - w * new[:, y]
                force = pull[:, y] - w * D[:, y] - rho * w * (r - v - Lambda / rho) + tau * x[:, y]
                new[:, y] = ga.project_euclidean(force / (rho * w * w + tau), eps)
            x, m = new, np.matmul(p, new)
            near = (rho * m + tau * v) / (rho + tau)
            v_next = admm.solve_marginal(measure, beta, p, x, -Lambda, rho + tau, near, v)
            v, Lambda = v_next, Lambda + rho * (v_next - m)
        # a start that has settled stays as it was, whatever else is in the batch
        x = np.where(going[:, None, None], x, start[0])
        v, Lambda = (np.where(going[:, None], a, b) for a, b in ((v, start[1]), (Lambda, start[2])))
        F_new = objective(x).F
        settled = going & (np.abs(F_new - F) < tolerance) & (np.abs(v - np.matmul(p, x)).sum(-1) < 1e-6)
        F = F_new
        used[settled], converged = j, converged | settled
        if trace:
            history.append(F.copy())
        if converged.all():
            break
    return gba.Ascent(x, F, used * inner, converged, history)
