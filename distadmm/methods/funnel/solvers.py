"""Every method behind one interface: pieces of work that can be dealt out, and channels that come back.

A piece depends on the problem, the seed and its own number alone, so the result has the same bits whatever the
number of ranks that share the pieces out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.methods.funnel import aem, drs, greedy, lp, multistart, nlp, perfect, submodular
from distadmm.methods.funnel.model import Array, Joint, informations

METHODS = ("lp", "aem", "aem-adaptive", "drs", "greedy", "submodular", "nlp")
EVERY = -1  # a piece that serves all R
FEASIBLE = 1e-9  # nats by which a baseline's channel may miss R and still be used


@dataclass(frozen=True)
class Effort:
    """How long and how often; every number is a bound on work, none is a time."""

    symbols: int | None = None  # |Y| of aem, aem-adaptive, drs and nlp; |X| + 1 when not given
    starts: int = 30  # of aem, aem-adaptive; nlp uses a third
    iterations: int | None = None  # 500 for aem and aem-adaptive, 3000 for drs, 300 for nlp
    tol: float = 1e-11  # aem rests when three iterations in a row lower I(S;Y) by no more
    repeats: int = 4  # of lp
    rounds: int = 60  # linear programs in each repeat of lp
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("starts", "repeats", "rounds"):
            require(getattr(self, name) >= 1, f"--{name} is {getattr(self, name)}; needed: at least 1")
        require(
            self.iterations is None or self.iterations >= 1,
            f"--iterations is {self.iterations}; needed: >= 1",
        )
        require(self.tol >= 0, f"--tol is {self.tol:g}; needed: 0 or more")
        require(self.seed >= 0, f"--seed is {self.seed}; needed: 0 or more")

    def alphabet(self, joint: Joint) -> int:
        """N; fewer symbols than X has may not be able to tell R."""
        N = joint.M + 1 if self.symbols is None else self.symbols
        require(
            N >= joint.M,
            f"--symbols is {N}; needed: at least |X| = {joint.M}, for a start with I(X;Y) >= R "
            f"(|X| + 1 = {joint.M + 1} symbols always suffice for the optimum)",
        )
        return N


DEFAULT = Effort()


class Piece(NamedTuple):
    rate: int  # which R, or EVERY
    number: int


class Channel(NamedTuple):
    v: Array
    leak: float
    told: float
    iterations: int
    converged: bool


def pieces(joint: Joint, method: str, rates: int, effort: Effort) -> list[Piece]:
    """The work of a method for a number of R."""
    if method == "drs":
        return [Piece(EVERY, k) for k in range(len(drs.VARIANTS))]
    if method == "submodular":
        return [Piece(EVERY, k) for k in range(len(submodular.MULTIPLIERS))]
    if method in ("aem", "aem-adaptive"):
        size = multistart.block_size(joint, effort.alphabet(joint))
        count = -(-effort.starts // size)
    else:
        count = {"lp": effort.repeats, "greedy": 1, "nlp": -(-effort.starts // 3)}[method]
    return [Piece(rate, k) for rate in range(rates) for k in range(count)]


def check(joint: Joint, method: str, effort: Effort) -> None:
    """Refuse what a method cannot do, before any work."""
    require(method in METHODS, f"no method {method!r}; there are: {', '.join(METHODS)}")
    N = effort.alphabet(joint)
    if method == "nlp":
        require(
            joint.M * N <= nlp.LARGEST,
            f"nlp handles at most {nlp.LARGEST} unknowns and this problem has {joint.M * N}; use lp",
        )


def channels(joint: Joint, method: str, R: float, number: int, effort: Effort) -> list[Channel]:
    """What one piece of a method other than lp finds; R is not used by the methods that serve all R."""
    N = effort.alphabet(joint)
    if method in ("aem", "aem-adaptive"):
        size = multistart.block_size(joint, N)
        block = range(number * size, min((number + 1) * size, effort.starts))
        most = effort.iterations or 500
        ends = multistart.from_starts(joint, R, N, effort.seed, block, most, effort.tol, method != "aem")
        return [
            _channel(joint, v, ends.iterations, bool(done))
            for v, done in zip(aem.channels(joint, ends.state), ends.converged)
        ]
    if method == "drs":
        found, n, near = drs.end_points(joint, N, effort.seed, number, effort.iterations or 3000)
        return [_channel(joint, v, n, bool(done)) for v, done in zip(found, near)]
    if method == "nlp":
        v, n, done = nlp.run(joint, R, N, effort.seed, number, effort.iterations or 300)
        return [_channel(joint, v, n, done)]
    if method == "submodular":
        v = submodular.cluster(joint, float(submodular.MULTIPLIERS[number]))
    else:
        v = greedy.cluster(joint, R)
    return [_channel(joint, v, joint.M - v.shape[1], True)]


def _channel(joint: Joint, v: Array, iterations: int, converged: bool) -> Channel:
    return Channel(v, *informations(joint, v), iterations, converged)


def run_lp(joint: Joint, R: float, number: int, known: perfect.Perfect, effort: Effort) -> lp.Found:
    """One repeat of lp."""
    return lp.run(joint, R, known, effort.seed, number, lp.usual(known, effort.rounds))


def best(found: Sequence[Channel], R: float) -> Channel | None:
    """The channel that leaks least among those that tell enough."""
    enough = [channel for channel in found if channel.told >= R - FEASIBLE]
    return min(enough, key=lambda channel: channel.leak, default=None)


def tidy(joint: Joint, v: Array) -> Array:
    """The channel without symbols that are never sent, the likeliest first; rows sum to one."""
    r = joint.p @ v
    order = np.argsort(-r, kind="stable")
    v = v[:, order[r[order] > 0]]
    return v / v.sum(axis=1, keepdims=True)
