"""What nodes make of their models after the last solve: means over the solves, and over neighbours.

    m(1) = f(1),   m(t) = m(t-1) + (s + 1)/(t + s) (f(t) - m(t-1))     the weights of f(1), f(2), ... grow as t^s
    f_i <- f_i - sum_j (f_i - f_j)/(1 + max(V_i, V_j))                 a round; the mean over all nodes stays

Neither reads data: both are made of what was released, cost no privacy, and take out noise.
"""

from typing import Any, NamedTuple

import numpy as np

from distadmm.algorithm import Array, Node
from distadmm.errors import number, require

POWERS = (None, 3.0, 1.0)  # s that are tried; None: the last models alone
_MOST_ROUNDS = 16
_ENOUGH = 0.3  # by which the rounds shrink what tells the nodes apart


class Smoothing(NamedTuple):
    power: float | None = None  # s; None: no mean over the solves
    rounds: int = 0

    @property
    def words(self) -> list[str]:
        means = [] if self.power is None else [f"models averaged with weights t^{self.power:g}"]
        return means + [f"{self.rounds} mixing round" + "s" * (self.rounds > 1)] * bool(self.rounds)


def asked(average: str, mixing: str) -> Smoothing:
    """What the flags say; 'auto' is nothing where no budget chose."""
    power = None if average in ("auto", "last") else number(average)
    rounds = 0.0 if mixing == "auto" else number(mixing)
    right = power is None or 0 <= power < np.inf
    require(right, f"--average is {average!r}; needed: 'auto', 'last' or a finite number, 0 or more")
    whole = 0 <= rounds < np.inf and rounds == int(rounds)
    require(whole, f"--mixing is {mixing!r}; needed: 'auto' or a whole number, 0 or more")
    return Smoothing(power, int(rounds))


def tried(asked: Smoothing, flags: Any, A: Array | None) -> list[Smoothing]:
    """What is worth trying where --average is auto, and of the graph of A, if one is given, as rounds of mixing."""
    rounds = asked.rounds if A is None else rounds_for(matrix(A))
    return [Smoothing(s, rounds) for s in (POWERS if flags.average == "auto" else (asked.power,))]


def averaged(power: float | None, t: int, mean: Array, f: Array) -> Array:
    """m(t)"""
    return mean if power is None else mean + (power + 1.0) / (t + power) * (f - mean)


def mixed(rounds: int, k: int, f: Array, node: Node) -> Array:
    """The models after so many rounds, each message noted as made of releases."""
    for _ in range(rounds):
        node.release.recycle(k, f)
        f = once(f, node)
    return f


def once(f: Array, node: Node) -> Array:
    """W f: a round, one message an edge."""
    network, degrees = node.network, node.facts.degrees
    own = np.repeat(np.arange(network.n_local), np.diff(network.indptr))  # whose each edge is
    weight = 1.0 / (1.0 + np.maximum(degrees[network.nodes][own], degrees[network.indices]))[:, None]
    if network.edges is not None:  # ends that are away keep what they have
        weight = weight * network.edges[:, None]
    return f - network.sum_over_edges(weight * (f[own] - network.exchange(f)[network.columns]))


def matrix(A: Array) -> Array:
    """W of one round on the graph with this adjacency matrix."""
    V = A.sum(axis=1)
    W = A / (1.0 + np.maximum.outer(V, V))
    return W + np.diag(1.0 - W.sum(axis=1))


def gap(A: Array) -> float:
    """1 - the second largest eigenvalue of W."""
    return 1.0 - float(np.linalg.eigvalsh(matrix(A))[-2]) if len(A) > 1 else 1.0


def rounds_for(W: Array) -> int:
    """1, 2, 4, ... rounds, until the graph's slowest disagreement has shrunk enough, or they are too many."""
    slowest = float(np.sort(np.abs(np.linalg.eigvalsh(W)))[-2]) if len(W) > 1 else 0.0
    rounds = 1
    while slowest**rounds > _ENOUGH and rounds < _MOST_ROUNDS:
        rounds *= 2
    return rounds
