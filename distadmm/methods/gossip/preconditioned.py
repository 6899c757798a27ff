"""Noisy gossip gradient under a preconditioner that is released once: the second moments of the rows, under noise.

    S_j = mean of x x' + Z_j (symmetric),   S <- W S in each of R rounds,
    then   f_i <- sum_j W_ij (f_j - s P_j (g_j + z_j) + b (f_j - f_j of before)),   P = (c1 S + r + m)^-1

c1 S is no less than any Hessian of the data's part, S without what noise made negative; r is the ridge, and m how
long the noise of S is expected to be, so that no step along P is much longer than Newton's.  One record moves S by
sqrt(2) w at most in Frobenius' norm (x x' and y y' are semidefinite: their inner product is no less than 0), one that
is removed by w; a share q of mu^2 is spent on S, the rest on gradients.  It reads no labels and no model.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from distadmm.algorithm import Array, Node, register
from distadmm.errors import require
from distadmm.methods.consensus import forecast, smoothing
from distadmm.methods.gossip.gossip import Gossip
from distadmm.methods.gossip.rule import Constants, width_of

WIDEST = 1000  # columns whose second moments are released
_ROOT = np.sqrt(2.0)


class State(NamedTuple):
    f: Array  # models f_i, one row a node of this rank
    mean: Array  # of the models so far, with --average
    kept: Array  # models before
    moments: Array  # S as it was released and mixed: the diagonal, then sqrt(2) times what is above it


@register("preconditioned")
@dataclass(frozen=True)
class Preconditioned(Gossip):
    """Steps along noisy gradients, turned by second moments that were released once."""

    opens: ClassVar[bool] = True
    endures: ClassVar[bool] = False
    shares: ClassVar[tuple[float, ...]] = (0.05, 0.2, 0.5)  # q that are tried

    def check(self, node: Node, iterations: int) -> None:
        super().check(node, iterations)
        require(
            np.isfinite(node.facts.max_curvature),
            "--algorithm preconditioned needs a loss whose curvature has a bound, and the given one has none; use "
            "--algorithm gossip",
        )
        width = width_of(node)
        require(
            width <= WIDEST,
            f"--algorithm preconditioned releases the second moments of all columns, and {width} are more than "
            f"{WIDEST}; use --algorithm gossip",
        )
        rounds = self.fixed(node).opening if not node.release.private else 0
        require(
            iterations > rounds or not iterations,
            f"--iterations is {iterations}, and the first {rounds} of them mix second moments; give more",
        )

    def unit(self, node: Node) -> float:
        return 1.0  # Newton's

    def opening(self, node: Node) -> int:
        """R; on every rank."""
        A, world = forecast.adjacency(node.network), node.network.world
        return cast(int, world.broadcast(None if A is None else smoothing.rounds_for(smoothing.matrix(A))))

    def init(self, node: Node) -> Any:
        f, d = node.start, width_of(node)
        return State(f, f, self.starts(f), np.zeros((len(f), d * (d + 1) // 2)))

    def step(self, k: int, st: Any, node: Node) -> Any:
        use = self.fixed(node)
        if k > use.opening:
            return super().step(k, st, node)
        if k == 1:
            return st._replace(moments=self.mixed(k, self.moments(k, node), node))
        node.release.recycle(k, st.moments)
        return st._replace(moments=smoothing.once(st.moments, node))

    def moments(self, k: int, node: Node) -> Array:
        """Those of the nodes here as they may be used."""
        release, weight, rows = cast(Any, node.release), node.facts.weight, []
        for each in node.problem.objectives:
            A = each.records()[0]
            S = (each.scale / weight) * (A.T @ A)
            if release.private and release.recipe.adjacency == "node":
                S *= (1 - 1e-12) / max(1.0, float(np.linalg.norm(S)))
            rows.append(flat(S))
        if release.private:
            return cast(Array, release.noisy(k, np.stack(rows)))
        release.expose(k, "second moments without noise")
        return np.stack(rows)

    def turned(self, g: Array, st: Any, node: Node, use: Constants) -> Array:
        made = node.recall("turn", 0, lambda: [self.inverse(row, node, use) for row in st.moments])
        return np.stack([(each.reshape(-1, len(P)) @ P).ravel() for each, P in zip(g, made)])

    def inverse(self, row: Array, node: Node, use: Constants) -> Array:
        """P of one node."""
        values, vectors = np.linalg.eigh(square(row, width_of(node)))
        added = node.facts.ridge / node.facts.weight + use.damping
        steep = node.facts.max_curvature * np.maximum(values, 0.0) + added
        return (vectors / np.maximum(steep, 1e-12)) @ vectors.T

    def bent(self, g: Array, h: Array, use: Constants) -> Array:
        return g / (h + use.damping)


def flat(S: Array) -> Array:
    """A symmetric matrix as a vector whose length is Frobenius' norm."""
    return np.concatenate([np.diag(S), _ROOT * S[np.triu_indices(len(S), 1)]])


def square(row: Array, d: int) -> Array:
    S = np.zeros((d, d))
    S[np.triu_indices(d, 1)] = row[d:] / _ROOT
    S = S + S.T
    S[np.diag_indices(d)] = row[:d]
    return S
