"""Perfect privacy: R0, the most that Y can tell of X while I(S;Y) = 0.

I(S;Y) = 0 iff every posterior satisfies S w = P(s): they form a polytope {w >= 0 : S w = P(s)}, and entropy is
concave, so the best mixture uses its vertices:  R0 = H(X) - min_r { sum_v r_v H(v) : sum_v r_v v = p, r >= 0 },
exact when all vertices are enumerated.  A vertex has at most rank(S) positive entries.  Few combinations are
enumerated; otherwise vertices are found by local search (from a basis, every exchange of one column is tried at
once and the best is taken) and the value is attained but maybe not the largest; it is never more than H(X|S),
since I(X;Y) = I(X;Y|S) when Y is independent of S.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from distadmm.methods.funnel import starts
from distadmm.methods.funnel.model import Array, Joint, channel, entropy, informations

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
        return bases[(self.inverse(bases) @ self.b >= -1e-12).all(axis=1)]

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

    def shake(self, bases: Array, rng: np.random.Generator) -> Array:
        """The bases after three random exchanges."""
        row = np.arange(len(bases))
        for _ in range(3):
            _, theta, leave, _ = self._exchanges(bases)
            allowed = theta > 0
            np.put_along_axis(allowed, bases, False, axis=1)
            enter = (rng.random(allowed.shape) * allowed).argmax(axis=1)
            good = allowed[row, enter]
            bases = bases.copy()
            bases[row[good], leave[row, enter][good]] = enter[good]
        return bases


STARTS = 60  # bases searched from in each round of the column generation
ROUNDS = 150
OFFERED = 5  # vertices a symbol in the linear programs of the column generation, at most
PATIENCE = 3  # rounds without an improving vertex after which the generation rests
INDEX = 1 << 20  # of this generator among the seed's children


@dataclass(frozen=True, eq=False)
class Perfect:
    R0: float  # attained by v
    upper: float  # no channel with I(S;Y) = 0 tells more
    exact: bool  # R0 is the maximum
    v: Array  # M x N: the channel
    bases: Array  # of the polytope's vertices that are known
    vertices: Array  # M x their number


def solve(joint: Joint, seed: int = 0) -> Perfect:
    """R0, its channel, and the vertices to build others from."""
    polytope = Polytope(joint)
    if polytope.enumerable:
        bases = polytope.enumerate()
        # p, the posterior of a Y that says nothing, is no vertex, but with it there always is a mixture
        w = np.column_stack([joint.p, polytope.points(bases)])
    else:
        bases, w = _generate(joint, polytope, starts.rng_of(seed, INDEX))
    r, _ = _mixture(w, entropy(w), joint.p)
    v = channel(joint, r[r > 0], w[:, r > 0])
    R0 = informations(joint, v)[1]
    upper = R0 if polytope.enumerable else joint.HX - joint.ISX
    return Perfect(R0, upper, polytope.enumerable, v, bases, w)


def _mixture(w: Array, cost: Array, p: Array) -> tuple[Array, Array]:
    """Weights of the cheapest mixture of the columns w that makes p, and its multipliers."""
    from scipy.optimize import linprog

    found = linprog(cost, A_eq=w, b_eq=p, method="highs-ds")
    if found.status:
        raise RuntimeError(f"the linear program of perfect privacy failed: {found.message}")
    return found.x, found.eqlin.marginals


def _generate(joint: Joint, polytope: Polytope, rng: np.random.Generator) -> tuple[Array, Array]:
    """Bases and vertices (after p itself) by column generation: those that lower a mixture's entropy."""
    # single symbols, which betray S, stand in at a price no vertex has until there are vertices enough
    betraying, price = np.eye(joint.M), np.full(joint.M, 2 * np.log(joint.M))
    known, quiet = polytope.covering(rng), 0
    w = offered = polytope.points(known)
    for _ in range(ROUNDS):
        cost = np.concatenate([price, entropy(offered)])
        _, alpha = _mixture(np.column_stack([betraying, offered]), cost, joint.p)
        chosen = known[rng.permutation(len(known))[:STARTS]]
        bases, values = polytope.search(polytope.shake(chosen, rng), 1.0, -alpha)
        better = values < -1e-9
        quiet = 0 if better.any() else quiet + 1
        if quiet == PATIENCE:
            break
        fresh = np.unique(np.sort(bases[better], axis=1), axis=0)
        known = np.concatenate([known, fresh])
        w = np.column_stack([w, polytope.points(fresh)])
        # the dearest vertices are left out of the next program
        offered = w[:, np.argsort(entropy(w) - alpha @ w, kind="stable")[: OFFERED * joint.M]]
    return known, np.column_stack([joint.p, w])
