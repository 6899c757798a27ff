"""Self-tuned ADMM for runs without privacy: over-relaxed, with an edge metric nobody has to choose.

ADMM over edges, with a positive-definite metric M_ij = M_ji on each edge in place of 2 eta I:

    P_i = s_i (c_i I + (e_i - c_i) u_i u_i'),   M_ij = (P_i + P_j)/2,   Q_i = sum_j M_ij

    x_i  = argmin O_i(x) + <L_i - G_i, x> + 1/2 x'Q_i x         then send x_i to the neighbours
    r_i  = 1/2 sum_j M_ij (x_i - x_j)
    L_i += a r_i                                                (sum_i L_i = 0, since M_ij = M_ji)
    G_i  = (1 - a) G_i + a (Q_i x_i - r_i)

With M = 2 eta I, a = 1 and L = 2 lambda these are equations (8)-(9) of the R-ADMM paper.

Metric "r1": s_i = 2 theta*/V_i with theta* = 1/sqrt(1 - mu^2) from the graph; e_i and u_i are the largest
eigenvalue of O_i''(0) and its eigenvector, c_i the geometric mean of the smallest and the second largest.
Each node sends (u_i, c_i, e_i, s_i) once: a direction and two curvatures of its data, in the clear.
Metric "public": P_i is a multiple of the identity made of the graph and public constants; only x is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distadmm.algorithm import Facts, Node

Array = np.ndarray
RELAXATION = {"r1": 1.8, "public": 1.9}  # a, below 2
_LEAST_SPREAD = 1e-4  # a smallest eigenvalue below this share of the second largest counts as this share


class State(NamedTuple):
    f: Array  # models x_i, one row a node of this rank
    L: Array  # duals L_i = 2 lambda_i
    G: Array  # pull towards the neighbours' last values


@dataclass(frozen=True)
class Metric:
    """P of this rank's nodes and of the neighbour at each of their edges."""

    own: Array  # rows (u_i, c_i, e_i, s_i)
    far: Array  # one such row an edge
    Q: Array  # sum_j M_ij of each node
    floor: Array  # least eigenvalue of each Q, as a column

    @staticmethod
    def apply(P: Array, x: Array) -> Array:
        """P x for matching rows of P = (u, c, e, s) and x."""
        u, c, e, s = P[:, :-3], P[:, -3:-2], P[:, -2:-1], P[:, -1:]
        along = np.einsum("ij,ij->i", u, x)[:, None]
        return s * (c * x + (e - c) * along * u)


def theta_star(facts: Facts) -> float:
    return float(1.0 / np.sqrt(1.0 - facts.mu**2))


def curvature_rows(node: Node) -> Array:
    """(u_i, c_i, e_i, s_i) of the metric r1."""
    scale = 2.0 * theta_star(node.facts) / node.degree[:, 0]
    rows = []
    for objective, s in zip(node.problem.objectives, scale):
        values, vectors = np.linalg.eigh(objective.hess(np.zeros(objective.dimension)))
        second = values[-2] if len(values) > 1 else values[-1]
        across = np.sqrt(max(values[0], _LEAST_SPREAD * second) * second)
        # An eigenvector's sign is arbitrary and P does not depend on it; fix it so that files agree.
        u = vectors[:, -1] * np.sign(vectors[np.argmax(np.abs(vectors[:, -1])), -1])
        rows.append(np.concatenate([u, [across, values[-1], s]]))
    return np.stack(rows)


def public_rows(node: Node) -> Array:
    """The same rows for the public metric: no direction, equal curvatures from public constants."""
    facts = node.facts
    curvature = np.sqrt(facts.ridge * (facts.ridge + facts.weight * facts.max_curvature))
    if not np.isfinite(curvature) or curvature == 0.0:
        curvature = 1.0
    rows = np.zeros((node.network.n_local, node.problem.dimension + 3))
    rows[:, -3:-1] = curvature
    rows[:, -1] = 0.5 * theta_star(facts) / node.degree[:, 0]
    return rows


def metric(node: Node, kind: str) -> Metric:
    """Exchange what the metric needs; the public one needs the neighbours' degrees, which all ranks know."""
    network, d = node.network, node.problem.dimension
    if kind == "r1":
        own = curvature_rows(node)
        node.release.expose(0, "a direction and two curvatures of the data, for the metric")
        far = network.exchange(own)[network.columns].copy()
    else:
        own = public_rows(node)
        far = np.repeat(own[:1], len(network.columns), axis=0)
        far[:, -1] = 0.5 * theta_star(node.facts) / node.facts.degrees[network.indices]
    Q = np.empty((network.n_local, d, d))
    identity = np.eye(d)
    for i in range(network.n_local):
        edges = slice(network.indptr[i], network.indptr[i + 1])
        V = network.degree[i, 0]
        Q[i] = 0.5 * (V * _matrix(own[i], identity) + sum(_matrix(P, identity) for P in far[edges]))
    return Metric(own, far, Q, np.linalg.eigvalsh(Q)[:, :1])


def _matrix(P: Array, identity: Array) -> Array:
    u, (c, e, s) = P[:-3], P[-3:]
    return s * (c * identity + (e - c) * np.outer(u, u))


@dataclass(frozen=True)
class Tuned:
    """The recursion of this module; `kind` is the metric."""

    kind: str

    def init(self, node: Node) -> State:
        assert not node.start.any(), "the pull G starts at zero, so the models must too"
        node.recall("metric", 0, lambda: metric(node, self.kind))
        return State(node.start, np.zeros_like(node.start), np.zeros_like(node.start))

    def step(self, k: int, st: State, node: Node) -> State:
        network, a = node.network, RELAXATION[self.kind]
        M: Metric = node.recall("metric", 0, lambda: metric(node, self.kind))
        noise = node.release.draw(k, M.floor)
        x = node.problem.argmin(linear=st.L - st.G + noise, quadratic=M.Q, start=st.f)
        x = node.release.seal(k, x, node.problem.residual)
        visible = network.exchange(x)
        heard = network.sum_over_neighbours(visible)
        apart = (
            np.repeat(x, np.diff(network.indptr), axis=0) - visible[network.columns]
        )  # x_i - x_j, an edge a row
        near = Metric.apply(M.own, node.degree * x - heard)  # P_i sum_j (x_i - x_j)
        r = 0.25 * (near + network.sum_over_edges(Metric.apply(M.far, apart)))
        Qx = np.matmul(M.Q, x[:, :, None])[:, :, 0]
        return State(x, st.L + a * r, (1 - a) * st.G + a * (Qx - r))
