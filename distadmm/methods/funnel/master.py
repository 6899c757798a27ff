"""The funnel as a linear program over posteriors, and the search for columns that improve it.

    max_r  sum_c r_c H(S w_c)   s.t.  sum_c r_c w_c = p,   sum_c r_c H(w_c) <= H(X) - R,   r >= 0

With multipliers alpha of the first and lambda of the second constraint, a posterior w improves the program iff its
reduced cost is positive:

    g(w) = H(S w) - lambda H(w) - alpha . w

g is raised by the mirror step  log w <- log w + omega (lambda log w - S^T log S w - alpha), which is monotone for
omega = 1; longer steps are tried and kept while they help.  H(X) - sum r H(w) = I(X;Y), so the optimal value is
I(S;Y) = H(S) - sum_c r_c H(S w_c), and a maximum of g that is proven to be zero proves the optimum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distadmm.methods.funnel.model import FLOOR, Array, Joint, entropy, log0

GROW, SHRINK = 1.5, 0.3  # of the mirror step
ATTEMPTS = (
    ("highs-ds", False, 1e-9),
    ("highs-ds", True, 1e-9),
    ("highs-ds", True, 1e-7),
    ("highs-ipm", True, 1e-7),
)


class Pool(NamedTuple):
    w: Array  # M x C: the posteriors to choose from
    hx: Array  # C: H(w)
    hs: Array  # C: H(S w)


class Optimum(NamedTuple):
    r: Array  # C: weights of the pool's posteriors
    alpha: Array  # M: multipliers of sum r w = p
    slope: float  # lambda >= 0: of I(X;Y) >= R
    value: float  # I(S;Y)


def pool(joint: Joint, w: Array) -> Pool:
    """A pool of the posteriors w."""
    return Pool(w, entropy(w), entropy(joint.S @ w))


def distinct(w: Array) -> Array:
    """The columns of w, repeated ones once."""
    _, first = np.unique(np.round(w, 10), axis=1, return_index=True)
    return w[:, np.sort(first)]


def joined(a: Pool, b: Pool, kept: Array) -> Pool:
    """The `kept` columns of a, and b."""
    return Pool(*(np.concatenate([x[..., kept], y], axis=-1) for x, y in zip(a, b)))


def solve(joint: Joint, columns: Pool, R: float) -> Optimum:
    """The optimum over the pool, by HiGHS."""
    from scipy.optimize import linprog

    for method, presolve, tol in ATTEMPTS:
        options = {
            "presolve": presolve,
            "primal_feasibility_tolerance": tol,
            "dual_feasibility_tolerance": tol,
        }
        found = linprog(
            -columns.hs,
            A_ub=columns.hx[None],
            b_ub=[joint.HX - R],
            A_eq=columns.w,
            b_eq=joint.p,
            method=method,
            options=options,
        )
        if found.status == 0:
            slope = max(0.0, -float(found.ineqlin.marginals[0]))
            return Optimum(found.x, -found.eqlin.marginals, slope, joint.HS + found.fun)
    raise RuntimeError(f"the linear program over {columns.w.shape[1]} posteriors failed: {found.message}")


def reduced(columns: Pool, at: Optimum) -> Array:
    """g of each column."""
    return columns.hs - at.slope * columns.hx - at.alpha @ columns.w


def ascend(joint: Joint, w: Array, at: Optimum, iterations: int) -> tuple[Array, Array]:
    """Raise g from each of the posteriors w; where they came to, and g there."""
    alpha, slope, S = at.alpha[:, None], at.slope, joint.S

    def evaluate(w: Array, logw: Array) -> tuple[Array, Array]:
        t = S @ w
        logt = np.maximum(log0(t), FLOOR)
        return logt, slope * np.einsum("mc,mc->c", w, logw) - np.einsum("kc,kc->c", t, logt) - at.alpha @ w

    logw, omega = np.maximum(log0(w), FLOOR), np.ones(w.shape[1])
    logt, g = evaluate(w, logw)
    for _ in range(iterations):
        x = logw + omega * (slope * logw - S.T @ logt - alpha)
        x -= x.max(axis=0)
        np.maximum(x, FLOOR, out=x)
        e = np.exp(x)
        total = e.sum(axis=0)
        e /= total
        x -= np.log(total)
        logt_new, g_new = evaluate(e, x)
        up = g_new >= g
        logw, w = np.where(up, x, logw), np.where(up, e, w)
        logt, g = np.where(up, logt_new, logt), np.where(up, g_new, g)
        omega = np.where(up, GROW * omega, np.maximum(SHRINK * omega, 1.0))
    w[w < 1e-12] = 0
    return w / w.sum(axis=0), g
