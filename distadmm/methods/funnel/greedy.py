"""Greedy merging (Makhdoumi, Salamatian, Fawaz and Medard, 2014).

Y starts as X.  As long as some pair of symbols can be merged with I(X;Y) >= R kept, the pair whose merging lowers
I(S;Y) most is merged.  The channel is a function of X.  With f(x) = x log x, merging y and y' changes

    H(X|Y)  by   f(r + r') - f(r) - f(r')
    I(S;Y)  by   sum_k [f(T_k + T'_k) - f(T_k) - f(T'_k)] - [f(r + r') - f(r) - f(r')],   T = P(s, y)
"""

import numpy as np

from distadmm.methods.funnel.model import Array, Joint, log0


def f(x: Array) -> Array:
    return x * log0(x)


def cluster(joint: Joint, R: float) -> Array:
    """The channel, M x N of zeros and ones; M - N pairs were merged."""
    member = np.eye(joint.M)
    r, T = joint.p.copy(), joint.S * joint.p
    left = joint.HX - R  # H(X|Y) may grow by this much
    while len(r) > 1:
        a, b = np.triu_indices(len(r), 1)
        cost = f(r[a] + r[b]) - f(r)[a] - f(r)[b]
        single = f(T).sum(axis=0)
        change = f(T[:, a] + T[:, b]).sum(axis=0) - single[a] - single[b] - cost
        change[cost > left + 1e-12] = np.inf
        if not np.isfinite(change).any():
            break
        best = int(change.argmin())
        i, j = a[best], b[best]
        left -= cost[best]
        r[i] += r[j]
        T[:, i] += T[:, j]
        member[:, i] += member[:, j]
        r, T, member = np.delete(r, j), np.delete(T, j, axis=1), np.delete(member, j, axis=1)
    return member
