"""Self-tuned ADMM for runs without privacy: over-relaxed, with an edge metric nobody has to choose.

ADMM over edges, with a positive-definite metric M_ij = M_ji on each edge in place of 2 eta I:

    M_ij = (P_i + P_j)/2,   Q_i = sum_j M_ij,   L_i = 0,   G_i = sum_j M_ij w_ij

    x_i  = argmin O_i(x) + <L_i - G_i, x> + 1/2 x'Q_i x         then send x_i to the neighbours
    r_i  = 1/2 sum_j M_ij (x_i - x_j)
    L_i += a r_i                                                (sum_i L_i = 0, since M_ij = M_ji)
    G_i  = (1 - a) G_i + a (Q_i x_i - r_i)

With M = 2 eta I, a = 1 and L = 2 lambda these are equations (8)-(9) of the R-ADMM paper.

Metric "r1": P_i = s_i (c_i I + (e_i - c_i) u_i u_i') with s_i = kappa/V_i.  kappa is 2/sqrt(1 - mu^2), or, if
less, what it takes the graph to follow one node: along u_i, node i alone decides.  Each node first minimises
O_i alone, at t_i: there, not at zero, classes of unequal size weigh what they weigh at the optimum.  e_i and u_i
are the largest eigenvalue of O_i''(t_i) and its eigenvector, c_i the geometric mean of the smallest and the second
largest.  Each node sends (t_i, u_i, c_i, e_i, s_i) once, in the clear, and the edge starts at what the two of
them would agree on, w_ij = (P_i + P_j)^-1 (P_i t_i + P_j t_j).

A node with one neighbour alone (a leaf) and that neighbour move as one where u of the leaf points, so the
neighbour's other edges must carry the leaf's curvature as well: it sends u and
s_j (e - c)/2 of its steepest leaf on, and P_j gains s_j (e - c)/2 u u'.

Metric "full": P_i = s_i H_i, with H_i = O_i''(t_i) itself.  Each node sends (t_i, upper triangle of H_i, s_i) once.

Metric "public": P_i is a multiple of the identity made of the graph and public constants; only x is sent, and
w = 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distadmm.algorithm import Array, Facts, Node
from distadmm.problems.consensus import Problem
from distadmm.structs import struct

RELAXATION = {"r1": 1.7, "full": 1.7, "public": 1.9}  # a, below 2
EXPOSED = {"r1": "a direction and two curvatures", "full": "the Hessian there"}  # of the data, by the metric
_LEAST_SPREAD = 1e-4  # a smallest eigenvalue below this share of the second largest counts as this share
_INNER = 5  # leaves are passed on where at least so many nodes are not leaves, so that somebody is to be told


class State(NamedTuple):
    f: Array  # models x_i, one row a node of this rank
    L: Array  # duals L_i = 2 lambda_i
    G: Array  # pull towards the neighbours' last values


class Spike(NamedTuple):
    u: Array  # directions of length one (or zero), a row each
    weight: Array  # a column


class Curvature(NamedTuple):
    """P = base I + sum of weight u u' over the spikes; one P a row of the arrays."""

    base: Array  # a column
    spikes: tuple[Spike, ...] = ()

    def times(self, x: Array) -> Array:
        """P x, row by row."""
        y = self.base * x
        for u, weight in self.spikes:
            y += weight * np.einsum("ij,ij->i", u, x)[:, None] * u
        return y

    def matrix(self, row: int, identity: Array) -> Array:
        P = self.base[row] * identity
        for u, weight in self.spikes:
            P = P + weight[row] * np.outer(u[row], u[row])
        return P

    def at(self, rows: Array) -> Curvature:
        return Curvature(self.base[rows], tuple(Spike(u[rows], weight[rows]) for u, weight in self.spikes))


class Whole(NamedTuple):
    """P as it is; one P a row, and rows may share theirs."""

    P: Array
    of: Array  # which P each row has

    def times(self, x: Array) -> Array:
        return np.stack([self.P[i] @ row for i, row in zip(self.of, x)])

    def matrix(self, row: int, identity: Array) -> Array:
        return self.P[self.of[row]]

    def at(self, rows: Array) -> Whole:
        return Whole(self.P, self.of[rows])


@struct
class Metric:
    """P of this rank's nodes and of the neighbour at each of their edges."""

    own: Curvature | Whole
    far: Curvature | Whole
    start: Array  # sum_j M_ij w_ij of each node
    Q: Array  # sum_j M_ij of each node
    mine: Array  # whose each edge is


def metric(node: Node, kind: str) -> Metric:
    """Exchange what the metric needs; the public one needs the neighbours' degrees, which all ranks know."""
    network = node.network
    mine = np.repeat(np.arange(network.n_local), np.diff(network.indptr))
    near = rows(node, kind)
    own, t = read(kind, near)
    far: Curvature | Whole
    if kind == "public":
        far, start = Curvature(degree_scale(node)), np.zeros_like(node.start)
    else:
        node.release.expose(0, f"the minimiser of the data, {EXPOSED[kind]}, for the metric")
        # One P a node, of which each edge has its neighbour's.
        others, t_there = read(kind, network.exchange(near))
        far, t_far = others.at(network.columns), t_there[network.columns]
        w = agreed(own.at(mine), t[mine], far, t_far)
        if isinstance(own, Curvature) and leaves_matter(node.facts):
            assert isinstance(far, Curvature), "both ends of an edge have the same kind of metric"
            own, far = _with_leaves(node, own, far)
        start = 0.5 * network.sum_over_edges(own.at(mine).times(w) + far.times(w))
    identity = np.eye(node.problem.dimension)
    Q = np.empty((network.n_local, *identity.shape))
    for i in range(network.n_local):
        edges = range(network.indptr[i], network.indptr[i + 1])
        Q[i] = 0.5 * (len(edges) * own.matrix(i, identity) + sum(far.matrix(e, identity) for e in edges))
    return Metric(own, far, start, Q, mine)


def rows(node: Node, kind: str) -> Array:
    """What the metric needs of each node here; the last column, s_i, is above zero."""
    if kind == "public":
        return public_scale(node.facts, node.degree)
    return hessian_rows(node) if kind == "full" else curvature_rows(node)


def degree_scale(node: Node) -> Array:
    """The public metric of the neighbour at each edge."""
    return public_scale(node.facts, node.facts.degrees[node.network.indices][:, None])


def read(kind: str, rows: Array) -> tuple[Curvature | Whole, Array]:
    """P and t of such rows, (t, u, c, e, s) of the metric r1; of a row of zeros, P = 0."""
    if kind == "public":
        return Curvature(rows), np.zeros_like(rows)
    if kind == "full":
        P, t = _matrices(rows)
        return Whole(P, np.arange(len(P))), t
    d, c, e, s = (rows.shape[1] - 3) // 2, rows[:, -3:-2], rows[:, -2:-1], rows[:, -1:]
    return Curvature(s * c, (Spike(rows[:, d : 2 * d], s * (e - c)),)), rows[:, :d]


def agreed(P: Curvature | Whole, t: Array, P_far: Curvature | Whole, t_far: Array) -> Array:
    """What the two ends of each edge would agree on, (P + P_far)^-1 (P t + P_far t_far)."""
    if isinstance(P, Whole):
        assert isinstance(P_far, Whole), "both ends of an edge have the same kind of metric"
        pairs = ((P.P[i], a, P_far.P[j], b) for i, a, j, b in zip(P.of, t, P_far.of, t_far))
        return np.stack([np.linalg.solve(own + far, own @ a + far @ b) for own, a, far, b in pairs])
    assert isinstance(P_far, Curvature), "both ends of an edge have the same kind of metric"
    return meeting_point(P, t, P_far, t_far)


def kappa(facts: Facts) -> float:
    return float(min(2.0 / np.sqrt(1.0 - facts.mu**2), facts.theta_pinned))


def public_scale(facts: Facts, degree: Array) -> Array:
    """P_i = kappa/5 sqrt(r (r + C c1)) / V_i: for rows of norm one, with ridge r, weight C, l'' <= c1."""
    curvature = np.sqrt(facts.ridge * (facts.ridge + facts.weight * facts.max_curvature))
    if not np.isfinite(curvature) or curvature == 0.0:
        curvature = 1.0
    return 0.2 * kappa(facts) * curvature / degree


def curvature_rows(node: Node) -> Array:
    """(t_i, u_i, c_i, e_i, s_i) of the metric r1."""
    scale = kappa(node.facts) / node.degree[:, 0]
    rows = []
    minima = own_minima(node)
    for H, t, s in zip(node.problem.hessians(minima), minima, scale):
        values, vectors = np.linalg.eigh(H)
        # Without a ridge few rows, or a hinge, leave directions that nothing holds: the metric has to.
        steepest = max(values[-1], _LEAST_SPREAD * bound_on_curvature(node.facts))
        second = max(values[-2:][0], _LEAST_SPREAD * steepest)
        across = np.sqrt(max(values[0], _LEAST_SPREAD * second) * second)
        # An eigenvector's sign is arbitrary and P does not depend on it; fix it so that files agree.
        u = vectors[:, -1] * np.sign(vectors[np.argmax(np.abs(vectors[:, -1])), -1])
        rows.append(np.concatenate([t, u, [across, steepest, s]]))
    return np.stack(rows)


def bound_on_curvature(facts: Facts) -> float:
    """Of an objective without its ridge, for rows of norm one."""
    return facts.weight * (facts.max_curvature if np.isfinite(facts.max_curvature) else 1.0)


def hessian_rows(node: Node) -> Array:
    """(t_i, upper triangle of H_i, s_i) of the metric full."""
    scale = kappa(node.facts) / node.degree[:, 0]
    minima = own_minima(node)
    upper = np.triu_indices(node.problem.dimension)
    least = _LEAST_SPREAD**2 * bound_on_curvature(node.facts)
    rows = []
    for H, t, s in zip(node.problem.hessians(minima), minima, scale):
        H.flat[:: len(t) + 1] += least  # as `curvature_rows`: what nothing holds, the metric has to
        rows.append(np.concatenate([t, H[upper], [s]]))
    return np.stack(rows)


def _matrices(rows: Array) -> tuple[Array, Array]:
    """P and t of rows (t, upper triangle of H, s)."""
    d = int(np.sqrt(2 * rows.shape[1] + 0.25) - 1.5)
    P = np.zeros((len(rows), d, d))
    P[:, *np.triu_indices(d)] = rows[:, -1:] * rows[:, d:-1]
    return P + np.triu(P, 1).transpose(0, 2, 1), rows[:, :d].copy()


def least_convexity(facts: Facts) -> float:
    """What a node adds that nothing else holds."""
    return _LEAST_SPREAD * bound_on_curvature(facts)


def own_minima(node: Node) -> Array:
    """t_i = argmin O_i, a little convexity added lest there be none (as when a node's classes are separable)."""
    problem = node.problem
    convexity = np.full((len(node.start), 1), least_convexity(node.facts))
    memory = problem.memory()  # the solver shall not notice: a resumed run comes by here as well
    # Of the class: whoever notes the steps of a run (`transcript`) replaces the instance's, and this is none.
    t = Problem.argmin(problem, np.zeros_like(node.start), convexity, node.start)
    problem.restore(memory)
    return t


def meeting_point(P: Curvature, t: Array, P_far: Curvature, t_far: Array) -> Array:
    """(P + P_far)^-1 (P t + P_far t_far), row by row, each P with one spike (Woodbury's formula)."""
    y = P.times(t) + P_far.times(t_far)
    base = (P.base + P_far.base)[:, :, None]
    (u, weight), (u_far, weight_far) = P.spikes[0], P_far.spikes[0]
    U = np.stack([u, u_far], axis=1)
    W = np.stack([weight, weight_far], axis=1)
    inner = base * np.eye(2) + W * np.matmul(U, U.transpose(0, 2, 1))
    z = np.linalg.solve(inner, W * np.matmul(U, y[:, :, None]))
    return (y - np.matmul(U.transpose(0, 2, 1), z)[:, :, 0]) / base[:, :, 0]


def leaves_matter(facts: Facts) -> bool:
    """Whether there are leaves, and enough other nodes that a leaf is far from most; every rank knows."""
    leaves = int((facts.degrees == 1).sum())
    return leaves > 0 and facts.n_nodes - leaves >= _INNER


def _with_leaves(node: Node, own: Curvature, far: Curvature) -> tuple[Curvature, Curvature]:
    """The same P with the spike of each node's steepest leaf; a message (u, s_j (e - c)/2) more, zero for no leaf."""
    network = node.network
    (u, weight), leaf = far.spikes[0], node.facts.degrees[network.indices] == 1
    passed = np.zeros((network.n_local, u.shape[1] + 1))
    for i in range(network.n_local):
        first, last = network.indptr[i : i + 2]
        edges = first + np.flatnonzero(leaf[first:last])
        if len(edges):
            # P of a leaf, which has one edge, is s times its curvature with s = kappa: here s_j = s/V_j.
            steepest = edges[np.argmax(weight[edges, 0])]
            passed[i] = *u[steepest], 0.5 * weight[steepest, 0] / node.degree[i, 0]
    node.release.expose(0, "the direction of a neighbour that has no other, passed on")
    heard = network.exchange(passed)[network.columns]
    return tuple(  # type: ignore[return-value]
        Curvature(P.base, (*P.spikes, Spike(rows[:, :-1], rows[:, -1:])))
        for P, rows in ((own, passed), (far, heard))
    )


@struct
class Tuned:
    """The recursion of this module; `kind` is the metric."""

    kind: str

    def init(self, node: Node) -> State:
        assert not node.start.any(), "the edges start at what their ends agree on, whatever the models are"
        return State(node.start, np.zeros_like(node.start), self.metric(node).start)

    def metric(self, node: Node) -> Metric:
        return node.recall("metric", 0, lambda: metric(node, self.kind))

    def step(self, k: int, st: State, node: Node) -> State:
        network, a, M = node.network, RELAXATION[self.kind], self.metric(node)
        noise = node.release.draw(k, np.zeros_like(node.degree))
        x = node.problem.argmin(linear=st.L - st.G + noise, quadratic=M.Q, start=st.f)
        x = node.release.seal(k, x, node.problem.residual)
        visible = network.exchange(x)
        heard = network.sum_over_neighbours(visible)
        apart = x[M.mine] - visible[network.columns]  # x_i - x_j, an edge a row
        near = M.own.times(node.degree * x - heard)  # P_i sum_j (x_i - x_j)
        r = 0.25 * (near + network.sum_over_edges(M.far.times(apart)))
        Qx = np.matmul(M.Q, x[:, :, None])[:, :, 0]
        return State(x, st.L + a * r, (1 - a) * st.G + a * (Qx - r))
