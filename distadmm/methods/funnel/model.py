"""The funnel's letters: S = P(s|x), p = P(x), a channel v = P(y|x), its posteriors w = P(x|y) and weights r = P(y).

Everything is in nats.  Zeros are exact: 0 log 0 = 0.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from distadmm.data.joint import Array, Table, checked_cells
from distadmm.errors import InputError, require

FLOOR = -700.0  # stands for log 0: its exponential still is a normal number (exp is 10 times slower below)
SLACK = 1e-9  # by how much an input distribution may miss summing to one


def log0(a: Array) -> Array:
    """log a, with FLOOR where a is 0."""
    return np.log(a, out=np.full(np.shape(a), FLOOR), where=np.asarray(a) > 0)


def entropy(a: Array, axis: int = 0) -> Array:
    """-sum a log a along `axis`; of each column by default."""
    return -np.sum(a * log0(a), axis=axis)


@dataclass(frozen=True, eq=False)
class Joint:
    """A joint distribution of a private S (K symbols) and a public X (M symbols)."""

    S: Array  # K x M, columns P(s|x)
    p: Array  # M, P(x), all positive
    private: tuple[str, ...] = ()  # names of the K symbols
    public: tuple[str, ...] = ()  # names of the M symbols
    source: str = "a table"  # where it came from and what was added to it, for the record

    def __post_init__(self) -> None:
        S, p = np.array(self.S, dtype=float), np.array(self.p, dtype=float)
        fit = S.ndim == 2 and p.ndim == 1 and S.shape[1] == p.size and S.size
        require(fit, f"P(s|x) has shape {S.shape} and P(x) {p.shape}; needed: K x M and M")
        finite = np.isfinite(S).all() and np.isfinite(p).all()
        require(finite, "the distribution holds NaN or infinite entries")
        require((S >= 0).all() and (p >= 0).all(), "the distribution holds negative entries")
        require(
            (p > 0).all(), f"P(x) is zero at x = {self._names(p <= 0)}; leave symbols of probability zero out"
        )
        require(abs(p.sum() - 1) < SLACK, f"P(x) sums to {p.sum():.9g}; needed: 1")
        off = np.abs(S.sum(axis=0) - 1)
        require(
            off.max() < SLACK,
            f"P(s|x) sums to {S.sum(axis=0)[off.argmax()]:.9g} at x = {self._names(off == off.max())}; needed: 1",
        )
        object.__setattr__(self, "S", S / S.sum(axis=0))
        object.__setattr__(self, "p", p / p.sum())
        object.__setattr__(self, "private", self.private or tuple(f"s{k}" for k in range(S.shape[0])))
        object.__setattr__(self, "public", self.public or tuple(f"x{i}" for i in range(p.size)))

    def _names(self, which: Array) -> str:
        index = np.flatnonzero(which)[:3]
        return ", ".join(self.public[i] if self.public else f"number {i}" for i in index)

    @property
    def K(self) -> int:
        return self.S.shape[0]

    @property
    def M(self) -> int:
        return self.S.shape[1]

    @cached_property
    def pS(self) -> Array:
        return self.S @ self.p

    @cached_property
    def HX(self) -> float:
        return max(0.0, float(entropy(self.p)))

    @cached_property
    def HS(self) -> float:
        return max(0.0, float(entropy(self.pS)))

    @cached_property
    def ISX(self) -> float:
        """I(S;X): the leakage of releasing X itself, reached at R = H(X)."""
        return max(0.0, float(self.HS - entropy(self.S) @ self.p))

    def demand(self, R: float) -> float:
        """R as a number between 0 and H(X), or one line that says why it cannot be."""
        require(np.isfinite(R) and R >= 0, f"R is {R}; needed: 0 <= R <= H(X) = {self.HX:.6g} nats")
        require(
            R <= self.HX * (1 + 1e-9),
            f"R = {R:.6g} exceeds H(X) = {self.HX:.6g} nats, so no channel has I(X;Y) >= R; ask for less",
        )
        return min(float(R), self.HX)


def from_joint(J: Array, **names) -> Joint:
    """The joint distribution whose K x M table of probabilities (or counts) is J."""
    J = checked_cells(J, "K x M")
    require(J.sum() > 0, "the joint table sums to zero; needed: probabilities or counts")
    J = J / J.sum()
    p = J.sum(axis=0)
    if not (p > 0).all():
        public = names.get("public") or [f"number {i}" for i in range(p.size)]
        missing = ", ".join(public[i] for i in np.flatnonzero(p <= 0)[:3])
        raise InputError(f"P(x) is zero at x = {missing}; leave such columns out, or add --pseudo-counts")
    return Joint(J / p, p, **names)


def of_table(table: Table, smooth: float = 0.0, perturb: float = 0.0) -> Joint:
    table = table.smoothed(smooth, perturb)
    return from_joint(table.cells, private=table.private, public=table.public, source=table.source)


def posteriors(joint: Joint, v: Array) -> tuple[Array, Array]:
    """Weights r (N) and posteriors w (M x N) of the channel v (M x N); symbols never sent are dropped."""
    u = joint.p[:, None] * v
    r = u.sum(axis=0)
    sent = r > 0
    return r[sent], u[:, sent] / r[sent]


def channel(joint: Joint, r: Array, w: Array) -> Array:
    """The channel v (M x N, rows sum to one exactly) with weights r and posteriors w."""
    u = r * w
    return u / u.sum(axis=1, keepdims=True)


def informations(joint: Joint, v: Array) -> tuple[float, float]:
    """(I(S;Y), I(X;Y)) of the channel v; both are exact up to rounding, and never negative."""
    r, w = posteriors(joint, v)
    leak = joint.HS - r @ entropy(joint.S @ w)
    told = joint.HX - r @ entropy(w)
    return max(float(leak), 0.0), max(float(told), 0.0)


@dataclass(frozen=True, eq=False)
class Solution:
    """A channel with I(X;Y) >= R, how much it leaks, and what is known about the optimum."""

    method: str
    R: float
    v: Array  # M x N, P(y|x)
    leakage: float  # I(S;Y)
    disclosure: float  # I(X;Y)
    iterations: int
    converged: bool
    slope: float = float("nan")  # lambda: the multiplier of the constraint, dI(S;Y)/dR
    gap: float = float("nan")  # best reduced cost found by pricing: NOT a proof
    lower: float = 0.0  # proven: no channel with I(X;Y) >= R leaks less
    proof: str = "mutual information is not negative"  # why `lower` holds
    note: str = ""
