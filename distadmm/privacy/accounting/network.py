"""Network privacy of averaging: what one node learns of another from what it receives, all of it together.

Every node releases x_i = g_i + z_i once; in message t = 0, 1, ..., `rounds` - 1 it sends its neighbours row i of
p_t(W) x, p_t a public polynomial of degree t.  Node q knows its own x, what its edges share, and what it is sent:

    B = the span of e_q' and of e_j' W^t, j next to q, t < rounds

Let S be the covariance of z on the other nodes, nothing left of what edges of q share.  A change Delta of g_i costs as
much as a Gaussian mechanism with

    mu^2 = Delta^2 e_i' B'(B S B')^+ B e_i = Delta^2 (|L^-1 e_i|^2 - |U' L^-1 e_i|^2),     L L' = S,

U an orthonormal basis of L^-1 times what B does not see.  Never a sum over messages: they share their noise.  What B
does not see is worked out in fractions, so that nothing that is seen looks hidden because it was rounded.

On a grid the noise that stays hidden has to hide the grid, too.  Short vectors of whole numbers that are not seen, one
for each hidden dimension, make it as good as continuous noise with 1 - 4/s^2 of its variance, to within e^(1e-10).
Where those at hand are too long nothing is said here (infinity), and what all messages together tell stands.

One participation only: a second gradient, taken where hidden values led, can tell more than this matrix says.
Derived for this project; not peer-reviewed.  Proofs: docs/proofs/network.md.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from distadmm.algorithm import Array
from distadmm.privacy.accounting import gaussian

LARGEST = 64  # nodes, for whose graph fractions take up to half a minute
_CLOSE = 1e-10  # how far, in logarithms, noise on a grid is from continuous noise, all coordinates together
_EPS = float(np.finfo(float).eps)


class Noise(NamedTuple):
    """What hides the x of all nodes of a graph."""

    own: Array  # variance of each node's own
    pairs: Array  # of what each edge's ends share
    spacing: Array  # of each node's grid; 0 where the noise is continuous
    numbers: int = 1  # in one x


class Span:
    """Rows that are known, in fractions and reduced: each has a 1 where all others have a 0."""

    def __init__(self, rows: Iterable[Array] = ()):
        self.rows: dict[int, Array] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Array) -> Array | None:
        """What `row` adds to the others; None: nothing."""
        for at, known in self.rows.items():
            if row[at]:
                row = row - row[at] * known
        pivot = next((at for at, value in enumerate(row) if value), None)
        if pivot is None:
            return None
        row = row / row[pivot]
        for at, known in self.rows.items():
            if known[pivot]:
                self.rows[at] = known - known[pivot] * row
        self.rows[pivot] = row
        return row

    def hidden(self, width: int) -> list[Array]:
        """As many vectors as there are hidden dimensions, each of whole numbers: all rows are 0 along them."""
        found = []
        for free in set(range(width)) - self.rows.keys():
            vector = np.array([Fraction(at == free) for at in range(width)])
            for at, row in self.rows.items():
                vector[at] = -row[free]
            found.append(vector * math.lcm(*(value.denominator for value in vector)))
        return found


def averaging(A: Array) -> Array:
    """W with Metropolis weights, in fractions."""
    degrees = [int(V) for V in A.sum(axis=1)]
    W = np.array([[Fraction(0)] * len(A) for _ in A])
    for i, j in np.argwhere(A).tolist():
        W[i, j] = Fraction(1, 1 + max(degrees[i], degrees[j]))
    return W + np.diag(1 - W.sum(axis=1))


def seen(W: Array, q: int, rounds: int) -> Span:
    """B.  Where a round adds nothing, no later one does: W maps what is seen onto what is seen one round later."""
    unit = np.array([[Fraction(i == j) for j in range(len(W))] for i in range(len(W))])
    span = Span([unit[q]])
    new = [unit[j] for j in np.flatnonzero(W[q]) if j != q]
    for _ in range(rounds):
        added = [row for row in map(span.add, new) if row is not None]
        new = [W @ row for row in added]
    return span


def learned(W: Array, noise: Noise, q: int, rounds: int) -> Array:
    """mu^2/Delta^2 of each node for q: 0 of q itself, infinite where the grid is too coarse to say."""
    H, span = np.flatnonzero(np.arange(len(W)) != q), seen(W, q, rounds)
    hidden, own, pairs = (
        [vector[H] for vector in span.hidden(len(W))],
        noise.own[H],
        noise.pairs[np.ix_(H, H)],
    )
    L = np.linalg.cholesky(np.diag(own + pairs.sum(axis=1)) - pairs)
    root = np.linalg.inv(L)
    found = most = (root**2).sum(axis=0)
    if hidden:
        N = root @ np.stack([vector / max(map(abs, vector)) for vector in hidden], axis=1).astype(float)
        U, s, _ = np.linalg.svd(N / np.linalg.norm(N, axis=0), full_matrices=False)
        wrong = 64 * _EPS * len(W) * np.linalg.cond(L) * s[0] / max(s[-1], _EPS)
        found = np.minimum(most * (1 + wrong) - ((U.T @ root) ** 2).sum(axis=0), most)
    if noise.spacing.any():
        found = found * _on_grid(hidden, own, pairs, noise.spacing[H], noise.numbers)
    sent = [any(row[i] for at, row in span.rows.items() if at != q) for i in H]
    shares = np.zeros(len(W))
    shares[H] = np.where(sent, found, 0.0)
    return shares


def _on_grid(hidden: list[Array], own: Array, pairs: Array, spacing: Array, numbers: int) -> float:
    """How much more noise on a grid tells; infinite where what hides the grid is too little for this to be said."""
    a, b = np.nonzero(np.triu(pairs))  # both ends of an edge are on one grid
    sd, shared = np.sqrt(own) / spacing, np.sqrt(pairs[a, b]) / spacing[a]
    least = min(*sd, *shared, math.inf)
    # Squared, of hidden vectors of whole numbers: what an edge shares less as much of its ends' own, and own alone.
    lengths = [0.0, *(shared**-2 + sd[a] ** -2 + sd[b] ** -2)]
    for vector in hidden:
        steps = vector / np.array([Fraction(h) for h in spacing.tolist()])
        steps = steps * math.lcm(*(each.denominator for each in steps))
        steps = steps / math.gcd(*(each.numerator for each in steps))
        short = max(map(abs, steps)) <= 2**60
        lengths.append(((steps.astype(float) / sd) ** 2).sum() if short else math.inf)
    most = 2 * math.pi**2 / math.log(2 * (len(sd) + len(shared)) * (1 + 8 * numbers / _CLOSE))
    return 1 / (1 - 4 / least**2) if least >= 2.0**8 and max(lengths) <= most else math.inf


def distances(A: Array) -> Array:
    """In edges; of a connected graph."""
    near, found = np.eye(len(A)) > 0, np.zeros(A.shape, dtype=int)
    while not near.all():
        found += ~near
        near = near | (near @ A > 0)
    return found


class AtDistance(NamedTuple):
    """What nodes so many edges apart learn of each other."""

    distance: int
    pairs: int
    least: float  # epsilon of the pair that learns least
    epsilon: float  # of the pair that learns most


def by_distance(
    A: Array, noise: Noise, moved: Array, rounds: int, delta: float, most: float
) -> list[AtDistance]:
    """A line a distance; `moved`: Delta of each node, `most`: epsilon of whoever sees all messages and is one node."""
    W, apart = averaging(A), distances(A)
    mu = np.sqrt([learned(W, noise, q, rounds) * moved**2 for q in range(len(A))])

    def epsilon(mu: float) -> float:
        close = _CLOSE if noise.spacing.any() and mu else 0.0
        return most if math.isinf(mu) else min(gaussian.epsilon(mu, delta * (1 - 2 * close)) + close, most)

    found = []
    for d in range(1, int(apart.max()) + 1):
        here = mu[apart == d]
        found.append(AtDistance(d, len(here), epsilon(float(here.min())), epsilon(float(here.max()))))
    return found
