"""Pairwise noise on the edges of a graph: what a coalition that knows its own edges' part still does not know.

    z_i = s u_i + sum over neighbours j of sgn(j - i) c v_ij,     u_i and v_ij fresh in every release

Everything that all nodes release, together with the v of their own edges, tells nodes Q of a change D in the vector of
node i exactly as much as a Gaussian mechanism with

    mu_i^2 = D^2 e_i'(s^2 I + c^2 L(G[V - Q]))^-1 e_i          L: the Laplacian of the graph without Q

so mu^2 <= D^2/s^2, with equality where Q cuts node i off, and about D^2/(m s^2) for large c in a part of m nodes.
An edge whose ends draw different v (one of them was restarted, or is gone) raises no mu: by the signs of the inverse of
an M-matrix, two halves that nobody cancels hide at least as much as one that cancels.

On the integers u and v are discrete Gaussians.  With s, c >= 2^8 grid units the sum is, to within e^(1e-9) for a whole
run, a function of a continuous Gaussian with s^2 - 4 in place of s^2.

Derived for this project; not peer-reviewed.  Proofs: docs/proofs/pairwise-noise.md.
"""

import math
from collections.abc import Collection
from itertools import combinations, islice
from typing import ClassVar

import numpy as np

from distadmm.algorithm import Array
from distadmm.errors import require
from distadmm.privacy.accounting.events import Adjacency, Event, Gaussian, check_adjacency, positive, whole
from distadmm.privacy.accounting.trust import Trust
from distadmm.structs import struct

LEAST = 2.0**8  # grid units of s and c
_EFFORT = 4e9  # multiplications up to which coalitions are gone through one by one
_AT_ONCE = 512


@struct
class PairwiseGaussian(Event):
    """One release of `dimension` integers of a node under its own noise and that of its edges."""

    sigma_grid: float  # s
    pair_grid: float  # c
    sensitivity_grid: float
    shares: tuple[float, ...]  # mu^2 when 0, 1, 2, ... collude, beside that of all others; 1 for more of them
    coalition: int  # how many are priced
    dimension: int = 1
    count: int = 1
    # Nodes that may be away, whose edges' noise nobody adds then: priced as if they colluded too.
    gone: int = 0
    mech: ClassVar[str] = "pairwise-gaussian"
    law: ClassVar[str] = "discrete"
    exact: ClassVar[bool] = True
    shares_noise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive(self, "sigma_grid", "pair_grid", "sensitivity_grid")
        whole(self, "dimension", "count")
        object.__setattr__(self, "shares", tuple(map(float, self.shares)))
        require(
            min(self.sigma_grid, self.pair_grid) >= LEAST,
            f"{self.mech}: s and c are {self.sigma_grid:g} and {self.pair_grid:g} grid units; needed: at least 256",
        )
        right = min(self.coalition, self.gone) >= 0 and list(self.shares) == sorted(self.shares)
        require(
            right and all(0 < x <= 1 for x in self.shares),
            f"{self.mech}: shares {self.shares} of coalition {self.coalition}, {self.gone} gone; needed: none below 0, "
            "and shares up to 1, ascending",
        )

    @property
    def share(self) -> float:
        return self._share(self.coalition)

    def _share(self, colluding: int) -> float:
        at = colluding + self.gone
        return self.shares[at] if at < len(self.shares) else 1.0

    def gdp_mu(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return self.sensitivity_grid * math.sqrt(self.count * self.share / (self.sigma_grid**2 - 4))

    def renyi(self, orders: Array, adjacency: Adjacency) -> Array:
        return orders * self.single().gdp_mu(adjacency) ** 2 / 2  # type: ignore[operator]

    def against(self, trust: Trust) -> Event:
        """As a coalition of another size sees it; whoever sees what is published alone sees no more than one of 0."""
        others = len(self.shares) if math.isinf(trust.colluding) else int(max(trust.colluding, 0))
        if others == self.coalition:
            return self
        return Gaussian(
            math.sqrt((self.sigma_grid**2 - 4) / self._share(others)) / self.sensitivity_grid, self.count
        )

    def group(self, records: int) -> Event:
        if records == 1:  # what it is against others must not be lost
            return self
        return Gaussian(math.sqrt(self.count) / (self.gdp_mu("replace") * records), self.count)

    def sample(self, stream, shape=None, sensitivity=None) -> Array:
        """s u_i."""
        return stream.discrete_normal(self.sigma_grid, self.dimension)


def exposures(A: Array, colluding: int, ratio: float, gone: Collection[int] = ()) -> Array:
    """s^2 e_i'(s^2 I + c^2 L)^-1 e_i of each node, at worst over coalitions of that size; `ratio` is c/s.

    `gone`: nodes whose keys are out; every coalition has them.  Nodes that are always inside come out as 0.
    """
    n, q = len(A), min(colluding, len(A) - 1 - len(gone))
    others = [i for i in range(n) if i not in gone]
    worst = np.zeros(n)
    if math.comb(len(others), q) * float(n) ** 3 > _EFFORT:
        worst[others] = bound(A[np.ix_(others, others)], q, ratio)
        return worst
    coalitions = combinations(others, q)
    while some := list(islice(coalitions, _AT_ONCE)):
        left = np.array([[i for i in others if i not in members] for members in map(set, some)])
        G = A[left[:, :, None], left[:, None, :]]
        L = G.sum(axis=2)[:, :, None] * np.eye(left.shape[1]) - G
        diagonal = np.diagonal(np.linalg.inv(np.eye(left.shape[1]) + ratio**2 * L), axis1=1, axis2=2)
        np.maximum.at(worst, left, diagonal)
    # An inverse is good to about the condition of its matrix times the rounding; a share is never above 1.
    slack = 1 + 64 * np.finfo(float).eps * (1 + 2 * ratio**2 * A.sum(axis=1).max())
    return np.minimum(worst * slack, 1.0)


def bound(A: Array, q: int, ratio: float) -> float:
    """The same for all nodes, without going through coalitions: a graph without q nodes keeps lambda_2 - q."""
    m, slowest = len(A) - q, float(np.linalg.eigvalsh(np.diag(A.sum(axis=1)) - A)[1]) - q
    return 1 / m + (1 - 1 / m) / (1 + ratio**2 * slowest) if slowest > 1e-9 and m > 1 else 1.0


def shares(A: Array, most: int, ratio: float) -> tuple[float, ...]:
    """Of the node that is worst off, for 0, 1, ..., `most` colluding nodes."""
    found = [float(exposures(A, q, ratio).max()) for q in range(min(most, len(A) - 2) + 1)]
    return tuple(np.maximum.accumulate(found).tolist())
