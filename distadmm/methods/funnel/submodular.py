"""Agglomerative clustering by differences of submodular functions (Ding and Sadeghi, 2019).

Y starts as X.  The subset W of the present symbols whose merging lowers I(S;Y) - mu I(X;Y) most is sought and
merged, until none lowers it.  With f(x) = x log x, T = P(s, y) and r = P(y), merging W changes the Lagrangian by

    F(W) = A(W) - B(W),   A(W) = -(1 - mu) f(r(W)) + m(W),   B(W) = -sum_k f(T_k(W)),
    m_j = (1 - mu) f(r_j) - sum_k f(T_kj)

f is convex, so A (for mu <= 1) and B are submodular.  The modular-modular procedure of Iyer and Bilmes replaces A
by a modular upper bound and B by a modular lower bound, both tight at W, takes the exact minimiser, and repeats:
F never rises.  Which mu gives which I(X;Y) is not known beforehand: a grid of mu is run, for all R together.
"""

import numpy as np

from distadmm.methods.funnel.greedy import f
from distadmm.methods.funnel.model import Array, Joint

MULTIPLIERS = np.concatenate([np.geomspace(1e-3, 0.3, 16), np.linspace(0.33, 0.99, 14)])


def change(T: Array, r: Array, W: Array, mu: float) -> float:
    """F(W): how much merging the symbols of the mask W changes I(S;Y) - mu I(X;Y)."""
    modular = (1 - mu) * f(r) - f(T).sum(axis=0)
    merged = f(T[:, W].sum(axis=1)).sum() - (1 - mu) * f(r[W].sum())
    return float(merged + modular[W].sum()) if W.any() else 0.0


def merge_set(T: Array, r: Array, mu: float) -> Array:
    """A mask W with F(W) as low as the procedure gets it, from the best pair and from all symbols."""
    n = len(r)
    a, b = np.triu_indices(n, 1)
    single = f(T).sum(axis=0) - (1 - mu) * f(r)
    pair = f(T[:, a] + T[:, b]).sum(axis=0) - (1 - mu) * f(r[a] + r[b]) - single[a] - single[b]
    best = np.zeros(n, dtype=bool)
    best[[a[pair.argmin()], b[pair.argmin()]]] = True
    ends = [_descend(T, r, mu, best), _descend(T, r, mu, np.ones(n, dtype=bool)), best]
    return min(ends, key=lambda W: change(T, r, W, mu))


def _descend(T: Array, r: Array, mu: float, W: Array) -> Array:
    value = change(T, r, W, mu)
    while True:
        candidates = [_upper(T, r, mu, W, which) - _lower(T, W) < 0 for which in (1, 2)]
        values = [change(T, r, C, mu) for C in candidates]
        if min(values) >= value - 1e-14:
            return W
        value = min(values)
        W = candidates[values.index(value)]


def _upper(T: Array, r: Array, mu: float, W: Array, which: int) -> Array:
    """Coefficients of one of the two modular upper bounds of A that are tight at W."""
    modular = (1 - mu) * f(r) - f(T).sum(axis=0)
    mass = r[W].sum()

    def concave(x: Array) -> Array:
        return -(1 - mu) * f(np.maximum(x, 0.0))

    if which == 1:
        inside, outside = concave(mass) - concave(mass - r), concave(r)
    else:
        inside, outside = concave(r.sum()) - concave(r.sum() - r), concave(mass + r) - concave(mass)
    return modular + np.where(W, inside, outside)


def _lower(T: Array, W: Array) -> Array:
    """Coefficients of a modular lower bound of B tight at W: its increments along a chain through W."""
    order = np.concatenate([np.flatnonzero(W), np.flatnonzero(~W)])
    along = -f(np.cumsum(T[:, order], axis=1)).sum(axis=0)
    coefficients = np.empty(len(order))
    coefficients[order] = np.diff(along, prepend=0.0)
    return coefficients


def cluster(joint: Joint, mu: float) -> Array:
    """The channel the clustering ends at, M x N of zeros and ones."""
    member = np.eye(joint.M)
    r, T = joint.p.copy(), joint.S * joint.p
    while len(r) > 1:
        W = merge_set(T, r, mu)
        if change(T, r, W, mu) >= -1e-12:
            break
        kept = ~W
        r = np.append(r[kept], r[W].sum())
        T = np.column_stack([T[:, kept], T[:, W].sum(axis=1)])
        member = np.column_stack([member[:, kept], member[:, W].sum(axis=1)])
    return member
