"""Pairwise noise on the edges of a graph: what a coalition that knows its own edges' part still does not know.

    z_i = s_i u_i + sum over neighbours j of sgn(j - i) c_ij v_ij,     u_i and v_ij fresh in every release

Everything that all nodes release, together with the v of their own edges, tells nodes Q of a change D in the vector of
node i exactly as much as a Gaussian mechanism with

    mu_i^2 = D_i^2 e_i'(diag(s^2) + L(G[V - Q]))^-1 e_i    L: the Laplacian, with weights c^2, of the graph without Q

so mu^2 <= D^2/s^2, with equality where Q cuts node i off, and about D^2/(sum of s^2) for large c in a connected part.
An edge whose ends draw different v (one of them was restarted, or is gone) raises no mu: by the signs of the inverse of
an M-matrix, two halves that nobody cancels hide at least as much as one that cancels.

On the integers u and v are discrete Gaussians.  With s, c >= 2^8 grid units the sum is, to within e^(1e-9) for a whole
run, a function of a continuous Gaussian with s^2 - 4 in place of s^2.

One run has one price: an entry says what the node of the run that is worst off spends, against coalitions of each size.

Derived for this project; not peer-reviewed.  Proofs: docs/proofs/pairwise-noise.md.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import combinations, islice
from typing import ClassVar

import numpy as np

from distadmm.algorithm import Array
from distadmm.errors import require
from distadmm.privacy.accounting.events import Adjacency, Event, check_adjacency, positive, whole
from distadmm.privacy.accounting.trust import Trust
from distadmm.structs import struct

LEAST = 2.0**8  # grid units of s and c
_EFFORT = 4e9  # multiplications up to which coalitions are gone through one by one
_AT_ONCE = 512


@struct
class PairwiseGaussian(Event):
    """One release of `dimension` integers of a node under its own noise and that of its edges."""

    sigma_grid: float  # s
    # c; or (j, c) of each neighbour j that something is shared with
    pair_grid: float | tuple[tuple[int, float], ...]
    sensitivity_grid: float
    shares: tuple[float, ...]  # mu^2 when 0, 1, 2, ... collude, beside that of this node's own noise alone
    coalition: int  # how many are priced
    dimension: int = 1
    count: int = 1
    # Nodes that may be away, whose edges' noise nobody adds then: priced as if they colluded too.
    gone: int = 0
    rest: float = 1.0  # the share of more of them, up to all others
    mech: ClassVar[str] = "pairwise-gaussian"
    law: ClassVar[str] = "discrete"
    exact: ClassVar[bool] = True
    shares_noise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive(self, "sigma_grid", "sensitivity_grid", "rest")
        whole(self, "dimension", "count")
        if isinstance(self.pair_grid, (list, tuple)):
            object.__setattr__(self, "pair_grid", tuple((int(j), float(c)) for j, c in self.pair_grid))
        else:
            positive(self, "pair_grid")
        object.__setattr__(self, "shares", tuple(map(float, self.shares)))
        pairs = self.edge_grid.values() if isinstance(self.edge_grid, dict) else [self.edge_grid]
        require(
            all(LEAST <= x < math.inf for x in (self.sigma_grid, *pairs)),
            f"{self.mech}: s and c are {self.sigma_grid:g} and {self.pair_grid} grid units; needed: at least 256",
        )
        counts = self.coalition, self.gone
        right = all(int(x) == x >= 0 for x in counts) and list(self.shares) == sorted(self.shares)
        require(
            right and self.rest >= 1 and all(0 < x <= self.rest for x in self.shares),
            f"{self.mech}: shares {self.shares} of coalition {self.coalition}, {self.gone} gone; needed: none below 0, "
            f"and shares up to {self.rest:g}, which is at least 1, ascending",
        )

    @property
    def edge_grid(self) -> float | dict[int, float]:
        """c; or c by neighbour, of those that something is shared with."""
        return dict(self.pair_grid) if isinstance(self.pair_grid, tuple) else self.pair_grid

    @property
    def share(self) -> float:
        at = self.coalition + self.gone
        return self.shares[at] if at < len(self.shares) else self.rest

    def gdp_mu(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return self.sensitivity_grid * math.sqrt(self.count * self.share / (self.sigma_grid**2 - 4))

    def renyi(self, orders: Array, adjacency: Adjacency) -> Array:
        return orders * self.single().gdp_mu(adjacency) ** 2 / 2  # type: ignore[operator]

    def against(self, trust: Trust) -> Event:
        """As a coalition of another size sees it; whoever sees what is published alone sees no more than one of 0."""
        others = len(self.shares) if math.isinf(trust.colluding) else int(max(trust.colluding, 0))
        return replace(self, coalition=others)

    def group(self, records: int) -> Event:
        return replace(self, sensitivity_grid=self.sensitivity_grid * records)

    def sample(self, stream, shape=None, sensitivity=None) -> Array:
        """s u_i."""
        return stream.discrete_normal(self.sigma_grid, self.dimension)


def views(
    own: Array, pairs: Array, colluding: int, gone: Collection[int] = ()
) -> Iterator[tuple[Array, Array]]:
    """Of many coalitions at once: who is left (a line a coalition), and (diag(s^2) + L)^-1 of those who are."""
    others = [i for i in range(len(own)) if i not in gone]
    coalitions = combinations(others, min(colluding, len(others) - 1))
    while some := list(islice(coalitions, _AT_ONCE)):
        left = np.array([[i for i in others if i not in members] for members in map(set, some)])
        G = pairs[left[:, :, None], left[:, None, :]]
        one = np.eye(left.shape[1])
        yield left, np.linalg.inv(own[left][:, :, None] * one + (G.sum(axis=2)[:, :, None] * one - G))


def effort(nodes: int, colluding: int) -> float:
    """Multiplications that go through all coalitions of that size once."""
    return math.comb(nodes, min(colluding, nodes - 1)) * float(nodes) ** 3


def exposures(own: Array, pairs: Array, colluding: int, gone: Collection[int] = ()) -> Array:
    """e_i'(diag(s^2) + L)^-1 e_i of each node, at worst over coalitions of that size; `own`: s^2, `pairs`: c^2.

    `gone`: nodes whose keys are out; every coalition has them.  Nodes that are always inside come out as 0.
    """
    worst, others = np.zeros(len(own)), [i for i in range(len(own)) if i not in gone]
    if effort(len(others), colluding) > _EFFORT:
        worst[others] = bound(own[others], pairs[np.ix_(others, others)], min(colluding, len(others) - 1))
        return worst
    for left, known in views(own, pairs, colluding, gone):
        np.maximum.at(worst, left, np.diagonal(known, axis1=1, axis2=2))
    # An inverse is good to about the condition of its matrix times the rounding; own noise is never worth less.
    condition = (own.max() + 2 * pairs.sum(axis=1).max()) / own.min()
    return np.minimum(worst * (1 + 64 * np.finfo(float).eps * condition), 1.0 / own)


def bound(own: Array, pairs: Array, q: int) -> float:
    """The same for all nodes, without going through coalitions: a graph without q nodes keeps lambda_2 - q."""
    m, A, least = len(own) - q, (pairs > 0).astype(float), float(own.min())
    slowest = float(np.linalg.eigvalsh(np.diag(A.sum(axis=1)) - A)[1]) - q
    if slowest <= 1e-9 or m <= 1:
        return 1 / least
    # More noise on other edges, or at other nodes, hides no less.
    ratio = float(pairs[pairs > 0].min()) / least
    return (1 / m + (1 - 1 / m) / (1 + ratio * slowest)) / least


def by_size(own: Array, pairs: Array, most: int) -> Array:
    """`exposures` for 0, 1, ..., `most` colluding nodes, a line each."""
    sizes = range(min(most, len(own) - 2) + 1)
    return np.maximum.accumulate([exposures(own, pairs, q) for q in sizes])  # type: ignore[no-any-return]
