"""From a mapping near a local optimum to the optimum itself: like columns merged, then Newton steps.

Two columns with the same posterior carry no more than their sum.  With eps > 0 they carry less, since each
must keep eps in every row, and first-order ascent takes for ever to join them.  So columns are joined
outright, at several likenesses, and each outcome is climbed to its optimum; an unused column is eps
throughout and contributes nothing.
"""

from typing import NamedTuple

import numpy as np

from distadmm.methods.ias import envelope, interior
from distadmm.methods.ias.objective import Array, Objective

TIE = 1e-11  # a mapping of fewer columns is preferred to one better by less than this
NEGLIGIBLE = 1e-10  # eps lost to unused columns that is not worth filling them
LIKE = 0.02  # posteriors nearer than this are one kind
LARGEST = 40_000  # |Y| |U| beyond which Newton steps cost more than they bring


class Polished(NamedTuple):
    P: Array  # (|Y|, |U|)
    F: float
    a: Array  # multipliers of the rows' sums: what the certificate prices with
    steps: int
    used: int  # columns in use


def posteriors(objective: Objective, P: Array) -> tuple[Array, Array]:
    joint = (objective.problem.P_Y[:, None] * P).T
    mass = joint.sum(1)
    return mass, joint / mass[:, None]


def used_columns(objective: Objective, P: Array, eps: float) -> Array:
    """Which columns are more than the eps they must keep."""
    return np.flatnonzero(objective.problem.P_Y @ (P - eps) > 1e-9)


def kinds(objective: Objective, X: Array, likeness: float) -> Array:
    """One column for each kind of posterior among X's: columns nearer than `likeness` in l1 are added up."""
    mass, q = posteriors(objective, X)
    joined: list[Array] = []
    centres: list[Array] = []
    for u in np.argsort(-mass, kind="stable"):
        distance = [np.abs(q[u] - centre).sum() for centre in centres]
        if distance and min(distance) < likeness:
            joined[int(np.argmin(distance))] += X[:, u]
        else:
            joined.append(X[:, u].copy())
            centres.append(q[u])
    return np.array(joined).T


def join(objective: Objective, X: Array) -> Array:
    """X with the two columns joined whose joining loses least of the objective."""
    i, j = np.triu_indices(X.shape[1], 1)
    worth = _column_worth(objective, X)
    pairs = X[:, i] + X[:, j]
    loss = worth[i] + worth[j] - _column_worth(objective, pairs)
    first = int(loss.argmin())
    return np.hstack([np.delete(X, [i[first], j[first]], axis=1), pairs[:, first : first + 1]])


def _column_worth(objective: Objective, X: Array) -> Array:
    """What each column adds to F: p(u) psi(P_{Y|u})."""
    mass, q = posteriors(objective, X)
    return mass * envelope.psi(objective, q)


class _Kinds(NamedTuple):
    """A mapping whose columns are copies of a few kinds, the others unused."""

    X: Array  # one column a kind, the sum of its copies
    copies: Array  # how many columns of the mapping each kind fills
    F: float
    a: Array
    steps: int


def _share(objective: Objective, X: Array, K: int, eps: float) -> _Kinds:
    """Climb, and share out the unused ones of the K columns among the kinds where that pays.

    An unused column takes eps of every row and says nothing; n copies of a kind take nothing more than the
    kind itself, but each of its rows must be at least n eps.  Multipliers say which is cheaper.
    """
    copies, steps = np.ones(X.shape[1]), 0
    best: _Kinds | None = None
    while True:
        unused, floor = K - copies.sum(), copies * eps
        above = np.maximum(X - floor, 1e-9)
        above *= (1 - unused * eps - floor.sum()) / above.sum(1, keepdims=True)
        climbed = interior.climb(objective, floor + above, floor, mu=1e-6)
        steps += climbed.steps
        if best is not None and climbed.F <= best.F:
            return best._replace(steps=steps)
        best = _Kinds(climbed.P, copies.copy(), climbed.F, climbed.a, steps)
        of_unused = climbed.a @ objective.problem.P_Y
        if unused * eps < NEGLIGIBLE or climbed.price.min() >= of_unused:
            return best
        X = climbed.P
        copies[climbed.price.argmin()] += 1


def fill(X: Array, K: int, eps: float) -> Array:
    """X with unused columns of eps up to K, no entry below eps, rows summing to one."""
    P = np.hstack([np.maximum(X, eps), np.full((len(X), K - X.shape[1]), eps)])
    return eps + (P - eps) * ((1 - K * eps) / (P - eps).sum(1, keepdims=True))


def polish(objective: Objective, P: Array, eps: float, patience: int = 1) -> Polished:
    """The best local optimum reached from P[y, u]: climb, join two kinds, climb again, while it pays."""
    K, steps, falls = P.shape[1], 0, 0
    value = objective(P)
    best = Polished(P, float(value.F), (P * value.g).sum(1), 0, len(used_columns(objective, P, eps)))
    X = P[:, used_columns(objective, P, eps)]
    if 1 - K * eps < 1e-9 or P.size > LARGEST:
        return best
    if X.shape[1]:
        X = kinds(objective, X, LIKE)
    while X.shape[1]:
        found = _share(objective, X, K, eps)
        steps += found.steps
        copied = np.repeat(found.X / found.copies, found.copies.astype(int), axis=1)
        new = fill(copied, K, eps)
        F = float(objective(new).F)
        if F > best.F - TIE:
            best, falls = Polished(new, F, found.a, steps, int(found.copies.sum())), 0
        else:
            falls += 1
        if falls > patience or X.shape[1] < 2:
            break
        X = join(objective, found.X)
    return best._replace(steps=steps)
