"""Weights of noise that edges share, found for one graph, one horizon and one size of coalition; nobody deals them out.

    least trace(Psi S),  S = diag(s^2) + L with weights c^2,
    while need_i e_i'(S without Q)^-1 e_i <= 1 of every node i and coalition Q

Psi is what the method makes of noise until its last model (`rule`).  Left sides are convex in s^2 and c^2, and so is
their p-norm, which stands for the largest of them: trace(Psi S) times it is lessened, which no common factor changes.
What comes out is only a proposal: `release.paired` scales it by the exact `exposures`, so a search that ends early
costs accuracy and never privacy.
"""

from __future__ import annotations

import numpy as np

from distadmm.algorithm import Array
from distadmm.privacy.accounting import pairwise_gaussian

# Of `pairwise_gaussian.effort` for one look at all coalitions, of which a search takes some hundred: some seconds in
# all, and some minutes where it was asked for.
EFFORT, MOST = 3e6, 1e8
_NORMS = (16, 256)
_LOOKS = 200  # at most, under each norm
# s^2 beside that of noise which nobody shares: whom the trust does not cover learns about eight times as much at most.
_LEAST = 2.0**-6
_STEP = np.log(2.0) / 64
_WEAKEST, _STRONGEST = 2.0**-10, 2.0**12  # c^2; where less is best, nothing is shared


def weighed(A: Array, psi: Array, need: Array, colluding: int) -> tuple[Array, Array]:
    """s^2 of each node, and c^2 of each edge as a matrix; `need`: how much the node's noise is to hide, 1 at most."""
    from scipy.optimize import minimize

    n, (i, j) = len(A), np.nonzero(np.triu(A))
    costs = np.concatenate([np.diag(psi), psi[i, i] + psi[j, j] - 2 * psi[i, j]])
    costs = np.maximum(costs, 1e-9 * costs.max())

    def noise(logs: Array) -> tuple[Array, Array]:
        pairs = np.zeros((n, n))
        pairs[i, j] = pairs[j, i] = np.exp(logs[n:])
        return np.exp(logs[:n]), pairs

    def target(logs: Array, norm: int) -> tuple[float, Array]:
        """ln of trace(Psi S) and of the norm, and how it changes."""
        own, pairs = noise(logs)
        seen = list(pairwise_gaussian.views(own, pairs, colluding))
        told = [need[left] * np.diagonal(known, axis1=1, axis2=2) for left, known in seen]
        most = max(float(each.max()) for each in told)
        total = sum(float(((each / most) ** norm).sum()) for each in told)
        nodes, ends = np.zeros(n), np.zeros((n, n))
        for (left, known), each in zip(seen, told):
            parts = (need[left] * (each / most) ** (norm - 1) / most / total)[..., None]
            G = known @ (parts * known)
            own_part = np.diagonal(G, axis1=1, axis2=2)
            np.add.at(nodes, left, own_part)
            apart = own_part[:, :, None] + own_part[:, None, :] - 2 * G
            np.add.at(ends, (left[:, :, None], left[:, None, :]), apart)
        spent = costs * np.exp(logs)
        slope = spent / spent.sum() - np.concatenate([nodes, ends[i, j]]) * np.exp(logs)
        return float(np.log(spent.sum()) + np.log(most) + np.log(total) / norm), slope

    logs = np.zeros(n + len(i))
    limits = np.log([(_LEAST, 1.0)] * n + [(_WEAKEST, _STRONGEST)] * len(i))
    how = {"method": "L-BFGS-B", "jac": True, "bounds": limits, "options": {"maxiter": _LOOKS}}
    for norm in _NORMS:
        found = minimize(target, logs, (norm,), **how)
        # A common factor changes nothing but what the limits mean.
        factor = (need * pairwise_gaussian.exposures(*noise(found.x), colluding)).max()
        logs = np.clip(found.x + np.log(factor), *limits.T)
    # Rounded, so that a search on another machine, which takes up a run, ends at the same weights; and on one grid.
    own, pairs = noise(np.rint(logs / _STEP) * _STEP)
    pairs = np.where(pairs > 1.5 * _WEAKEST, np.minimum(pairs, _STRONGEST * own.max()), 0.0)
    worst = (need * pairwise_gaussian.exposures(own, pairs, colluding)).max()
    alone = np.maximum(need, _LEAST)
    if worst * (costs @ np.concatenate([own, pairs[i, j]])) > costs[:n] @ alone:  # the search ended too early
        return alone, 0.0 * A
    return own, pairs
