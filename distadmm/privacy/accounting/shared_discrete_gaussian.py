"""One masked sum: discrete Gaussian noise in shares, of which the honest nodes hold enough; and what a coalition sees.

n honest shares of N_Z(0, s^2), s >= 2^8, add up to N_Z(0, n s^2), to within e^(1e-10000); that is a function of a
continuous Gaussian of variance n s^2 - 4, to within e^(1e-29).  So one sum of l2 sensitivity D is mu-Gaussian with

    mu^2 = D^2/(n s^2 - 4);      of a curvature, whose noise off the diagonal has half the variance, D^2/(n s^2 - 8).

The noise is shared so that any `coalition` = c of the nodes may collude.  Any other number c', whatever nodes are
dropped on the way, by whomever, as long as at least R_min of N are left, sees at most (`factor`)

    mu_c'^2 = mu^2 max over R_min <= R <= N, R > c' of max(1, R - c)/(R - c').

Derived for this project; not peer-reviewed.
"""

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting import gaussian
from distadmm.privacy.accounting.events import Adjacency, Array, Event, Gaussian, check_adjacency, whole
from distadmm.privacy.accounting.trust import Trust
from distadmm.structs import struct

_LATTICE = {"squares": 4, "gradient": 4, "curvature": 8, "evaluation": 4}
_LEAST_VARIANCE = 4**8  # of a share
_SLACK = 1 / (1 - 2**-23)  # of larger coalitions, for what the lattice takes off: s >= 2^13 in a run


@struct
class SharedDiscreteGaussian(Event):
    """A masked sum of `dimension` integers as one node pays for it; it is charged before its share is drawn."""

    share_variance_grid: int  # of this node's noise on one number; of a curvature, on its diagonal
    shares: int  # of such noise that the sum holds, whoever colludes: max(1, R - c)
    sensitivity_grid: float
    kind: str
    dimension: int
    coalition: int  # c
    nodes: int  # N
    least: int  # R_min
    mask_degree: int  # 0: every pair of nodes shares a mask
    session: str = ""
    round: int = 0
    roster: int = 0  # R
    transcript: str = ""  # h_{r+1}
    count: int = 1
    mech: ClassVar[str] = "shared-discrete-gaussian"
    law: ClassVar[str] = "discrete"
    exact: ClassVar[bool] = True
    shares_noise: ClassVar[bool] = True
    hypotheses: ClassVar[tuple[str, ...]] = ("share-scale", "same-history", "fresh-masks")

    def __post_init__(self) -> None:
        whole(self, "shares", "dimension", "nodes", "least", "count")
        if self.bears_no_label:
            return
        whole(self, "share_variance_grid")
        require(
            self.kind in _LATTICE and self.share_variance_grid >= _LEAST_VARIANCE,
            f"{self.mech}: a share of variance {self.share_variance_grid} of a sum of {self.kind!r}; needed: at least "
            f"2^16 of one of {', '.join(_LATTICE)}",
        )
        require(
            math.isfinite(self.sensitivity_grid) and self.sensitivity_grid > 0,
            f"{self.mech}: sensitivity_grid is {self.sensitivity_grid!r}; needed: a number above 0",
        )

    @property
    def bears_no_label(self) -> bool:
        """A sum without noise, of rows alone: it moves by nothing where a label changes, and else has no bound."""
        return self.share_variance_grid == 0 and self.sensitivity_grid == 0

    def gdp_mu(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        if self.bears_no_label:
            return 0.0 if adjacency == "label" else math.inf
        spread = self.shares * self.share_variance_grid - _LATTICE[self.kind]
        return self.sensitivity_grid * math.sqrt(self.count / spread)

    def renyi(self, orders: Array, adjacency: Adjacency) -> Array:
        return orders * self.gdp_mu(adjacency) ** 2 / (2 * self.count)

    def against(self, trust: Trust) -> Event:
        """As a coalition of another size sees it, whatever nodes are dropped."""
        others = int(min(max(trust.colluding, 0), self.nodes - 1))
        if others == self.coalition or self.bears_no_label:
            return self
        worse = factor(others, self.nodes, self.coalition, self.least, self.mask_degree)
        if others > self.coalition:  # (a s^2 - L)/(b s^2 - L) for b < a, where `factor` has a/b
            worse /= 1 - _LATTICE[self.kind] / self.share_variance_grid
        return Gaussian(1 / (self.gdp_mu("replace") * math.sqrt(worse)))

    def group(self, records: int) -> Event:
        return replace(self, sensitivity_grid=self.sensitivity_grid * records)

    def sample(self, stream, shape=None, sensitivity=None) -> Array:
        """This node's share of the noise."""
        if self.bears_no_label:
            return np.zeros(self.dimension, dtype=np.int64)
        sd = math.nextafter(math.sqrt(self.share_variance_grid), math.inf)
        if self.kind != "curvature":
            return stream.discrete_normal(sd, self.dimension)
        d = (math.isqrt(8 * self.dimension + 1) - 1) // 2
        rows, columns = np.triu_indices(d)
        on, noise = rows == columns, np.empty(self.dimension, dtype=np.int64)
        off = math.nextafter(math.sqrt(-(-self.share_variance_grid // 2)), math.inf)
        noise[on] = stream.discrete_normal(sd, d)
        noise[~on] = stream.discrete_normal(off, self.dimension - d)
        return noise


def factor(others: int, nodes: int, coalition: int, least: int, mask_degree: int = 0) -> float:
    """mu_c'^2 / mu^2 for any `others` = c' of the nodes; known before the run."""
    require(0 <= others < nodes, f"a coalition of {others} of {nodes} nodes; needed: 0 to {nodes - 1}")
    if coalition >= nodes - 1:  # without masks everybody sees every vector
        return 1.0
    if mask_degree and mask_degree < others + 1 + nodes - least:
        return float(nodes - coalition)
    rosters = range(max(least, others + 1), nodes + 1)
    return max(max(1, roster - coalition) / (roster - others) for roster in rosters)


def table(
    mu: float, delta: float, nodes: int, coalition: int, least: int, mask_degree: int = 0
) -> dict[int, float]:
    """epsilon by size of coalition; one row where no masks make a difference."""
    if coalition >= nodes - 1:
        return {nodes - 1: gaussian.epsilon(mu, delta)}
    shares = {c: factor(c, nodes, coalition, least, mask_degree) for c in range(nodes)}
    slack = {c: _SLACK if c > coalition else 1.0 for c in shares}
    return {c: gaussian.epsilon(mu * math.sqrt(share * slack[c]), delta) for c, share in shares.items()}


def least_roster(nodes: int, given: int | None, adjacency: str | None = "replace") -> int:
    """R_min: the run ends when fewer nodes are left."""
    if adjacency == "label":
        require(
            given in (None, nodes),
            "--adjacency label: labels go into one sum, which no smaller roster asks again; leave out --min-roster",
        )
        return nodes
    least = nodes - math.ceil(nodes / 10) if given is None else given
    require(1 <= least <= nodes, f"--min-roster is {least}; needed: 1 to the {nodes} nodes of the graph")
    return least


def colluding_of(text: str | None, nodes: int) -> int:
    """c: how many of the nodes may collude."""
    require(
        text is not None,
        "--trust is not given, and it is part of what is claimed: any (all others may collude, no masks), or "
        f"coalition:C, at most C of the {nodes} nodes",
    )
    trust = Trust.parse(text)
    require(
        trust.colluding >= 0,
        "--trust centre: masked sums have no centre to trust; coalition:0 trusts every node, and hides the rest",
    )
    c = nodes - 1 if math.isinf(trust.colluding) else int(trust.colluding)
    require(0 <= c < nodes, f"--trust {text} for {nodes} nodes; needed: coalition:0 to coalition:{nodes - 1}")
    return c
