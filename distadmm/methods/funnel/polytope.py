"""The posteriors that say nothing of S: {w >= 0 : S w = P(s)}, a polytope, and its vertices.

A vertex has at most rank(S) positive entries.  Few combinations are enumerated; otherwise vertices are found by
local search: from a basis, every exchange of one column is tried at once and the best is taken.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

from distadmm.methods.funnel.model import Array, Joint, entropy

ENUMERABLE = 20_000  # bases
TINY = 1e-9


def supports(M: int, m: int) -> Array:
    """All subsets of m of M symbols, one a row."""
    return np.array(list(combinations(range(M), m)), dtype=np.intp).reshape(-1, m)


class Polytope:
    """{w >= 0 : A w = b} with A of full row rank m; a basis is m column numbers, many bases are rows."""

    def __init__(self, joint: Joint):
        U, s, _ = np.linalg.svd(joint.S, full_matrices=False)
        self.m = int((s > 1e-10 * s[0]).sum())
        self.M = joint.M
        self.A = U[:, : self.m].T @ joint.S
        self.b = U[:, : self.m].T @ joint.pS

    @property
    def enumerable(self) -> bool:
        return comb(self.M, self.m) <= ENUMERABLE

    def inverse(self, bases: Array) -> Array:
        return np.linalg.inv(self.A[:, bases].transpose(1, 0, 2))

    def points(self, bases: Array) -> Array:
        """The vertices of the bases as columns (M x number of bases), exactly non-negative, summing to one."""
        x = np.maximum(self.inverse(bases) @ self.b, 0)
        w = np.zeros((self.M, len(bases)))
        np.add.at(w, (bases, np.arange(len(bases))[:, None]), x)
        return w / w.sum(axis=0)

    def enumerate(self) -> Array:
        """All feasible bases."""
        bases = supports(self.M, self.m)
        blocks = self.A[:, bases].transpose(1, 0, 2)
        smallest = np.linalg.svd(blocks, compute_uv=False)[:, -1]
        bases = bases[smallest > 1e-10]
        feasible = (self.inverse(bases) @ self.b >= -1e-12).all(axis=1)
        return bases[feasible]

    def covering(self, rng: np.random.Generator) -> Array:
        """A feasible basis for each symbol, one that gives this symbol much weight."""
        from scipy.optimize import linprog

        found = []
        for i in range(self.M):
            cost = rng.standard_normal(self.M)
            cost[i] -= 10
            w = linprog(cost, A_eq=self.A, b_eq=self.b, method="highs-ds").x
            if w is not None:
                found.append(self._basis(w))
        return np.array(found, dtype=np.intp).reshape(-1, self.m)

    def _basis(self, w: Array) -> list[int]:
        """m independent columns, those with the largest weights first."""
        Q, basis = np.zeros((self.m, 0)), []
        for i in np.argsort(-w, kind="stable"):
            rest = self.A[:, i] - Q @ (Q.T @ self.A[:, i])
            length = np.linalg.norm(rest)
            if length > 1e-9 * np.linalg.norm(self.A[:, i]):
                Q = np.column_stack([Q, rest / length])
                basis.append(int(i))
            if len(basis) == self.m:
                break
        return basis

    def _exchanges(self, bases: Array) -> tuple[Array, Array, Array, Array]:
        """Entering each column: the values x left in the basis, the step, who leaves, and x before."""
        inverse = self.inverse(bases)
        x = np.maximum(inverse @ self.b, 0)
        D = inverse @ self.A
        ratio = np.full(D.shape, np.inf)
        np.divide(np.broadcast_to(x[:, :, None], D.shape), D, out=ratio, where=D > TINY)
        leave = ratio.argmin(axis=1)
        theta = np.take_along_axis(ratio, leave[:, None, :], axis=1)[:, 0]
        theta = np.where(np.isfinite(theta), theta, 0.0)
        return np.maximum(x[:, :, None] - theta[:, None, :] * D, 0), theta, leave, x

    def search(self, bases: Array, weight: float, alpha: Array, steps: int = 60) -> tuple[Array, Array]:
        """Lower weight * H(w) + alpha . w by exchanges until none helps; bases and their values."""
        row = np.arange(len(bases))
        for _ in range(steps):
            left, theta, leave, x = self._exchanges(bases)
            values = weight * (entropy(left, axis=1) + entropy(theta[None], axis=0))
            values += np.einsum("bm,bmi->bi", alpha[bases], left) + alpha * theta
            np.put_along_axis(values, bases, np.inf, axis=1)
            now = weight * entropy(x, axis=1) + (alpha[bases] * x).sum(axis=1)
            enter = values.argmin(axis=1)
            better = values[row, enter] < now - 1e-12
            if not better.any():
                break
            bases = bases.copy()
            bases[row[better], leave[row, enter][better]] = enter[better]
        return bases, now

    def shake(self, bases: Array, rng: np.random.Generator, times: int = 3) -> Array:
        """The bases after `times` random exchanges."""
        row = np.arange(len(bases))
        for _ in range(times):
            _, theta, leave, _ = self._exchanges(bases)
            allowed = theta > 0
            np.put_along_axis(allowed, bases, False, axis=1)
            enter = (rng.random(allowed.shape) * allowed).argmax(axis=1)
            good = allowed[row, enter]
            bases = bases.copy()
            bases[row[good], leave[row, enter][good]] = enter[good]
        return bases
