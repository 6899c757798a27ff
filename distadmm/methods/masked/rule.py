"""Which sums are asked, under which noise: the constants of the learning rule, all public.

mu^2 is split: q0 for the squares of the columns, q1 for the curvature, the rest for gradients, of which share0 goes to
the first, at w = 0.  With rows |x| <= 1 one record moves, when it is replaced (when it comes or goes: half of D2, D3,
1 in place of sqrt 2, and all of De),

    squares    sum x*x                      D0 = sqrt 2    squares have inner products >= 0
    curvature  sum phi phi'  (Frobenius)    D1 = sqrt 2    so have outer products
    first      sum phi r(0)'                D2 = 2 R0      |r(0)| <= R0
    later      sum phi u'                   D3 = 2 Cp      |u| <= Cp, u = r(phi'w) - gamma r(0), shortened to Cp
    evaluation sum (wrong, min(l, B)/B)     De = sqrt 2    both in [0, 1]; 1 where targets are numbers

where r is the slope of the loss.  The gradient at w is the later sum + gamma times the first one: what is known of it
already is not asked again, and what is left of each record is short.

Where only a label may change (logistic loss, gamma = 1), squares and curvature do not move, nor do later sums: r(z) -
r(0) is odd, so that a row times its label adds the same whatever the label is.  All of mu^2 goes to the first sum,
D2 = 1.

Where all rows of a node may be others, each node cuts its own sum to a norm, the sum's unit, and sends it in units of
it: m/2 (squares), .3 m^(3/4) (curvature), sqrt m/2 (gradients), m public rows a node.  Then D0 = D1 = sqrt 2, for the
first two have inner products >= 0 after the cut as well, and D2 = D3 = 2.
"""

import math
from functools import cached_property
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.structs import struct

Array = np.ndarray
SHRINK = 1 - 2.0**-40  # of mu: the noise is a little larger than the budget asks, which takes all rounding
MOST_COLUMNS = 400  # for which the curvature is asked
LEAST_SD = 2**13  # grid units of a share, below which a sum of shares is not known to be what it should
MOST_SD = 2.0**27 - 1  # beyond which nothing is drawn exactly
_HOPELESS, _HOPELESS_NODES = 10.0, 15.0  # n mu/(sqrt(d) nf)


@struct
class Rule:
    """One rule for one run; `mu` is infinite where no noise is wanted."""

    name: str
    loss: str
    adjacency: str
    nodes: int
    colluding: int
    rows: int  # n, public
    columns: int  # d
    outputs: int  # of a record's score
    mu: float
    rounds: int  # K: gradients after the first
    q0: float
    q1: float
    first_slope: float  # R0
    centre: float  # gamma
    slope: float  # Cp
    share0: float | None  # None: all gradients under equal noise
    growth: float
    height: float  # h: what the curvature of the loss is taken to be
    kappa: float
    floor0: float
    floor1: float
    leverage: float
    ridge: float
    momentum: float = 0.0  # beta; 0 where there is a curvature
    base: float = 0.0
    evaluation: float = 0.0  # mu of a sum that tells how good the model is, besides `mu`; 0: none

    @property
    def of_labels(self) -> bool:
        """Only a label may change: it enters the first gradient, sum y phi/2, and no other sum."""
        return self.adjacency == "label"

    @property
    def of_nodes(self) -> bool:
        """All rows of a node may be others."""
        return self.adjacency == "node"

    def unit(self, kind: str) -> float:
        """What a sum is counted in: 1, or the norm to which each node's own part is cut."""
        if not self.of_nodes or not self.rows:
            return 1.0
        m = self.rows / self.nodes
        return {"squares": m / 2, "curvature": 0.3 * m**0.75, "gradient": math.sqrt(m) / 2}[kind]

    def grain(self, kind: str) -> float:
        """What a whole number in a sum stands for."""
        return 4.0**-self.bits * self.unit(kind)

    @property
    def squares(self) -> bool:
        return self.q0 > 0 or self.of_labels

    @property
    def extra_ridge(self) -> float:
        """On |w|^2/2: without it the noise in a rare column has no finite minimiser."""
        return 0.3 * self.excess(self.nodes) / self.mu if self.of_labels else 0.0

    @property
    def curvature(self) -> bool:
        return not self.momentum

    @property
    def q2(self) -> float:
        return 1 - self.q0 - self.q1

    def honest(self, roster: int) -> int:
        """Shares of noise that a sum over so many nodes holds, whoever colludes."""
        return max(1, roster - self.colluding)

    def excess(self, roster: int) -> float:
        """nf: by how much the noise of all is more than that of the honest ones."""
        return math.sqrt(roster / self.honest(roster))

    # -- one record -----------------------------------------------------------------------------------

    @property
    def whole_slope(self) -> float:
        """The cap of a gradient that is not centred."""
        return self.slope + self.centre * self.first_slope

    def moved(self, kind: str, first: bool = False, plain: bool = False) -> float:
        """By how much one record moves a sum; `first`: sum phi r(0)', or a gradient at w = 0; `plain`: not centred."""
        twice = 1 if self.adjacency == "add-remove" else 2
        if kind == "evaluation":
            return math.sqrt(self.words(kind))
        if self.of_labels and not (first and kind == "gradient"):
            return 0.0
        if kind != "gradient":
            return math.sqrt(twice)
        if self.of_nodes:  # in units of the cut
            return 2.0
        return twice * (self.first_slope if first else self.whole_slope if plain else self.slope)

    def _share0(self) -> float:
        if self.share0 is not None:
            return self.share0
        first, later = self.moved("gradient", True) ** 2, self.moved("gradient") ** 2
        return first / (first + self.rounds * later)

    def sd(self, kind: str, t: int = 0) -> float:
        """Standard deviation of the noise of the honest in the sum, in units; of the t-th gradient, 0 the first."""
        if self.moved(kind, t == 0) == 0:
            return 0.0
        if kind == "squares":
            return self.moved(kind) / (self.mu * math.sqrt(self.q0))
        if kind == "curvature":
            return self.moved(kind) / (self.mu * math.sqrt(self.q1))
        if kind == "evaluation":
            return self.moved(kind) / self.evaluation
        if t == 0:
            return self.moved(kind, True) / (self.mu * math.sqrt(self.q2 * self._share0()))
        shares = self.growth ** np.arange(self.rounds)
        part = float(shares[min(t, self.rounds) - 1] / shares.sum())
        return self.moved(kind) / (self.mu * math.sqrt(self.q2 * (1 - self._share0()) * part))

    def sds(self) -> list[float]:
        """All that occur: squares, curvature, first gradient, later ones."""
        return [self.sd(kind, t) for kind, t in self._each()]

    @cached_property
    def bits(self) -> int:
        """b: sums are whole multiples of 4^-b."""
        worst = max(self.sds())
        return max((b for b in range(4, 11) if 4**b * worst <= 2**27), default=4)

    def words(self, kind: str) -> int:
        """Numbers in a sum."""
        d = self.columns
        told = 1 if self.loss == "squared" else 2  # of a real target no row is wrong
        return {
            "squares": d, "curvature": d * (d + 1) // 2, "gradient": d * self.outputs, "evaluation": told
        }[kind]  # fmt: skip

    def variance(self, kind: str, t: int = 0, plain: bool = False) -> float:
        """sigma^2 in grid units; of a curvature, on the diagonal (twice that off it)."""
        more = self.whole_slope / self.slope if plain and not self.of_nodes else 1.0  # at the same price
        return (more * self.sd(kind, t)) ** 2 * 16.0**self.bits + self.lattice(kind)

    def lattice(self, kind: str) -> int:
        """What the discreteness of the noise costs, in grid units of variance."""
        return 8 if kind == "curvature" else 4

    def share_variances(self, kind: str, t: int, roster: int, plain: bool = False) -> Array:
        """Variance of one node's noise on each number, in grid units: whole, rounded up."""
        if math.isinf(self.mu) or self.moved(kind, t == 0, plain) == 0:
            return np.zeros(self.words(kind), dtype=np.int64)
        whole = self.variance(kind, t, plain) / self.honest(roster)
        if kind != "curvature":
            return np.full(self.words(kind), math.ceil(whole), dtype=np.int64)
        on = diagonal(self.columns)
        return np.where(on, math.ceil(whole), math.ceil(whole / 2)).astype(np.int64)

    # -- the run --------------------------------------------------------------------------------------

    @property
    def kinds(self) -> list[str]:
        """The rounds of a run in which none is lost."""
        return [kind for kind, _ in self._each()]

    @property
    def most_rounds(self) -> int:
        return len(self.kinds)

    @property
    def constants(self) -> tuple[float, ...]:
        """As they are committed, after the terms that every rule has."""
        own = (self.first_slope, self.centre, self.slope, self.height, self.kappa, self.ridge, self.rounds)
        share0 = self._share0()
        return (*own, share0, self.growth, self.q0, self.q1, self.q2, self.floor1, self.leverage,
                self.momentum, self.base)  # fmt: skip

    @property
    def most_loss(self) -> float:
        """B."""
        return MOST_LOSS.get(self.loss, 4.0)

    @property
    def hope(self) -> float:
        """Z = n mu/(sqrt(d) nf): what there is to learn from so many rows (or nodes) under so much noise."""
        count = self.nodes if self.of_nodes else self.rows
        return count * self.mu / (math.sqrt(self.columns) * self.excess(self.nodes))

    @property
    def hopeless(self) -> float:
        """Below which Z a run is refused."""
        return _HOPELESS_NODES if self.of_nodes else _HOPELESS

    @property
    def doubtful(self) -> int:
        """Below which Z runs were seen to be no better than the base rate (`benchmarks/masked_cases.py`)."""
        return 60 if self.momentum else 40

    def check(self, force: bool = False) -> str:
        """Refuse what cannot be summed, or is not worth a budget; a warning, or nothing."""
        b = self.bits
        largest = self.rows * 4.0**b + 40 * math.sqrt(self.nodes) * max(self.sds()) * 4.0**b
        require(
            largest < 2.0**62 and self.rows * 4.0**b < 2.0**53,
            f"sums over {self.rows} rows do not fit 62 bits beside their noise; raise --epsilon",
        )
        if math.isinf(self.mu):
            return ""
        require(
            max(self.sds()) * 4.0**b < MOST_SD,
            "noise beyond 2^27 grid units, of which none is drawn exactly; raise --epsilon or --delta",
        )
        require(
            self.least_share >= LEAST_SD**2,
            "a node's share of noise is below 2^13 grid units; lower --epsilon",
        )
        z, least = self.hope, self.hopeless
        what = f"{self.nodes} nodes" if self.of_nodes else f"{self.rows} rows"
        require(
            z >= least or force,
            f"{what} of {self.columns} columns under this budget (n mu/(sqrt(d) nf) = {z:.3g}, needed: {least:g}): "
            f"nothing beats the base rate; use more {what.split()[1]}, fewer columns, a larger --epsilon or a smaller "
            "coalition, or --anyway",
        )
        doubt = f"may be no better than the base rate: n mu/(sqrt(d) nf) = {z:.3g} is below {self.doubtful}"
        return doubt if z < self.doubtful else ""

    @property
    def least_share(self) -> int:
        """Smallest variance of a node's share, of what is noised, in grid units."""
        noised = [(kind, t) for kind, t in self._each() if self.sd(kind, t)]
        return int(min(self.share_variances(kind, t, self.nodes).min() for kind, t in noised))

    def _each(self) -> list[tuple[str, int]]:
        """All kinds of sums that occur, and where gradients stand in the schedule: 0 the first."""
        kinds = [("squares", 0)] * self.squares + [("curvature", 0)] * self.curvature
        kinds += [("gradient", t) for t in range(self.rounds + 1)]
        return kinds + [("evaluation", 0)] * bool(self.evaluation)


def diagonal(d: int) -> Array:
    """Which entries of an upper triangle, row by row, are on the diagonal."""
    rows, columns = np.triu_indices(d)
    return rows == columns


NAMES = ("centred", "first")
ADJACENCIES = ("replace", "add-remove", "label", "node")  # in the order of the commitment's byte
LOSSES = ("logistic", "squared", "huber", "softmax")
LABEL_ROUNDS = 40  # which cost nothing: what is not noised bears no label
MOST_LOSS = {"squared": 1.0}  # B, to which the loss of a row is cut in an evaluation; 4 for the others


# Constants of the rules where they differ from the usual ones, by what a rule is for.
_USUAL: dict[str, Any] = {
    "rounds": 8, "q0": 0.05, "q1": 0.15, "first_slope": 0.5, "centre": 0.0, "slope": 0.5, "share0": None,
    "growth": 1.0, "height": 0.25, "kappa": 0.72, "floor0": 4.0, "floor1": 1.0, "leverage": 1.0,
}  # fmt: skip
_OWN: dict[str, dict[str, Any]] = {
    "label": {
        "rounds": LABEL_ROUNDS, "q0": 0.0, "q1": 0.0, "centre": 1.0, "share0": 1.0, "kappa": 1.0, "floor0": 0.0,
        "floor1": 0.0,
    },
    "node": {"centre": 0.7, "slope": 0.35, "share0": 0.5, "growth": 1.15},
    "first": {"slope": 0.7},
    "squared": {"rounds": 6, "first_slope": 1.0, "share0": 0.2, "height": 1.0, "kappa": 1.2, "leverage": 2.0},
    "huber": {"first_slope": 1.0, "slope": 1.0, "height": 1.0, "kappa": 0.5},
}  # fmt: skip


def choose(
    *, name: str, loss: str, adjacency: str, nodes: int, colluding: int, rows: int, columns: int,
    outputs: int = 1, mu: float = math.inf, ridge: float = 1 / 9,
) -> Rule:  # fmt: skip
    """The rule for public sizes; `mu` is the budget."""
    require(
        adjacency in ADJACENCIES,
        f"--adjacency {adjacency}: masked sums are priced for {', '.join(ADJACENCIES)}; choose one of them",
    )
    require(loss in LOSSES, f"--loss {loss} has no rule of masked sums; choose one of {', '.join(LOSSES)}")
    usual, narrow = loss == "logistic" and name == "centred", columns <= MOST_COLUMNS
    kind = adjacency if adjacency in ("label", "node") else loss if name == "centred" else name
    require(
        kind != "label" or (usual and narrow),
        "--adjacency label: labels enter by one sum with the logistic loss, rule centred and up to "
        f"{MOST_COLUMNS} columns; here {loss}, {name}, {columns}; choose replace, which covers labels too",
    )
    require(
        kind != "node" or (usual and narrow),
        f"--adjacency node: masked sums have a rule for the logistic loss, rule centred and up to {MOST_COLUMNS} "
        f"columns; here {loss}, {name}, {columns}; choose --algorithm gossip, or replace",
    )
    require(
        kind != "first" or loss == "logistic",
        f"--rule first is for the logistic loss, not {loss}; leave it out",
    )
    require(
        kind not in ("squared", "huber", "softmax") or narrow,
        f"--loss {loss} with {columns} columns: its rule asks for their curvature, which pays up to {MOST_COLUMNS}; "
        "use fewer columns (--features), or the logistic loss",
    )
    shared: dict[str, Any] = {
        "name": name, "loss": loss, "adjacency": adjacency, "nodes": nodes, "colluding": colluding,
        "rows": rows, "columns": columns, "outputs": outputs, "mu": mu * SHRINK, "ridge": ridge,
    }  # fmt: skip
    own = _OWN.get(kind, {})
    if kind == "logistic":
        own = _logistic(rows, columns, mu * SHRINK, math.sqrt(nodes / max(1, nodes - colluding)))
    elif kind == "softmax":
        r0, shared["ridge"] = math.sqrt(1 - 1 / outputs), 2 * ridge
        own = {
            "q1": 0.1, "first_slope": r0, "centre": 0.5, "slope": 0.7 * r0, "share0": 0.45, "growth": 1.15,
            "height": 1 / outputs, "kappa": 1.0, "floor1": max(1.0, outputs / 4),
        }  # fmt: skip
    return Rule(**shared, **{**_USUAL, **own})


def _logistic(n: int, d: int, mu: float, nf: float) -> dict[str, Any]:
    """Of the centred rule: with a curvature, or of many columns with momentum."""
    own, z = {"centre": 0.7, "slope": 0.35, "share0": 0.5}, n * mu / (d * nf)
    if d <= MOST_COLUMNS:
        q0, q1 = (0.03, 0.12) if z >= 15 else (0.0, 3 / 19)
        return {**own, "rounds": 12, "q0": q0, "q1": q1, "floor1": 12 / (1.25 * math.sqrt(d))}
    pull, beta = n * mu / nf, 0.9
    return {
        **own, "rounds": 128 if math.isinf(pull) else min(128, max(16, round(9 + 0.0067 * pull))),
        "q0": 0.05 if z >= 4 else 0.0, "q1": 0.0, "kappa": 0.0, "floor1": 0.0, "momentum": beta,
        "base": 1.02 * n / (8 * (1 + beta)),
    }  # fmt: skip
