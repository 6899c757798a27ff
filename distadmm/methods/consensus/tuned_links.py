"""Self-tuned ADMM where edges, nodes and messages come and go: the method of `tuned`, kept by the ends of edges.

Each end of an edge keeps what pulls it there, z_ij, and nothing else.  With the metric M_ij = M_ji of `tuned`:

    x_i  = argmin O_i(x) - <sum_j z_ij, x> + 1/2 x' (sum_j M_ij) x
    q_ij = 2 M_ij x_i - z_ij                                    sent from i to j
    z_ij = (1 - a/2) z_ij + a/2 q_ji                            where q_ji arrived; else it stays

Where all arrive, this is `tuned` itself, with sum_j z_ij = G_i - L_i.  It is the splitting of Peaceman and Rachford
for the dual problem, relaxed by a/2 < 1: a step is an averaged operator T of all z.  One message is one coordinate
of T, so an iteration in which some are away is T in the other coordinates.  All fixed points of T have the optimum,
whatever z a run begins with or a node left when it dropped out; no sum has to stay zero.  Where the messages that
arrive are drawn anew in each iteration, each with a chance above zero, z goes almost surely to a fixed point
(P. Bianchi, W. Hachem, F. Iutzeler, IEEE TAC 61, 2016; P. L. Combettes, J.-C. Pesquet, SIAM J. Optim. 25, 2015; of
ADMM with lost messages N. Bastianello et al., IEEE TAC 66, 2021).  Drop-outs are a chain, to which these theorems do
not speak; there it is measured.

What the metric needs of a neighbour comes with the first message from it that arrives.  Before, the edge is no part of
this end's problem, and nothing goes over it; afterwards the metric stays, and z_ij begins at M_ij w_ij as in `tuned`.
What a leaf's neighbour passes on there, nobody does here.
"""

from typing import NamedTuple

import numpy as np

from distadmm.algorithm import Array, Node
from distadmm.methods.consensus import tuned
from distadmm.structs import struct


class State(NamedTuple):
    f: Array  # models x_i, one row a node of this rank
    pull: Array  # z_ij: (node, neighbour, column), filled up with zeros
    far: Array  # likewise what the metric needs of each neighbour, zeros of one not heard yet


@struct
class Edges:
    """M_ij of this rank's edges; zero where the neighbour has not been heard."""

    known: Array  # a column
    own: tuned.Curvature | tuned.Whole
    far: tuned.Curvature | tuned.Whole
    Q: Array  # sum_j M_ij of each node

    def times(self, x: Array) -> Array:
        return 0.5 * self.known * (self.own.times(x) + self.far.times(x))


def edges(node: Node, kind: str, near: Array, far: Array) -> Edges:
    """Of what both ends of each edge gave for the metric."""
    network, identity, known = node.network, np.eye(node.problem.dimension), far[:, -1:] > 0
    own, other = tuned.read(kind, near)[0], tuned.read(kind, far)[0]
    Q = np.zeros((network.n_local, *identity.shape))
    for i in range(network.n_local):
        here = range(network.indptr[i], network.indptr[i + 1])
        heard = [e for e in here if known[e]]
        Q[i] = 0.5 * sum((own.matrix(e, identity) + other.matrix(e, identity) for e in heard), 0.0 * identity)
        if not heard:  # alone it stays at its own minimiser, if its rows have one
            Q[i] = tuned.least_convexity(node.facts) * identity
    return Edges(known, own, other, Q)


@struct
class TunedLinks:
    """The recursion of this module; `kind` is the metric."""

    kind: str

    def init(self, node: Node) -> State:
        assert not node.start.any(), "the edges start at what their ends agree on, whatever the models are"
        n_edges = len(node.network.indices)
        far = np.zeros((n_edges, self.rows(node).shape[1]))
        if self.kind == "public":
            far = tuned.degree_scale(node)
        pull = np.zeros((n_edges, node.start.shape[1]))
        return State(node.start, node.network.by_node(pull), node.network.by_node(far))

    def rows(self, node: Node) -> Array:
        return node.recall("rows of the metric", 0, lambda: tuned.rows(node, self.kind))

    def step(self, k: int, st: State, node: Node) -> State:
        network, conditions, a = node.network, node.network.conditions, tuned.RELAXATION[self.kind]
        assert conditions is not None, "a network that stays as it is has `Tuned`"
        z, far = network.by_edge(st.pull), network.by_edge(st.far)
        owner = np.repeat(np.arange(network.n_local), np.diff(network.indptr))
        near, moment, heard = self.rows(node)[owner], conditions.at(k), conditions.heard(k)
        anew = moment.edges & ~conditions.heard(k - 1)
        if self.kind == "public":
            heard = np.ones_like(heard)
        elif anew.any():  # somewhere in the network
            node.release.expose(k, f"the minimiser of the data, {tuned.EXPOSED[self.kind]}, for the metric")
            came = network.exchange_over_edges(near, anew)
            new = (anew & moment.received)[network.slots]
            far[new] = came[new]
            z[new] = self._beginning(node, near, far)[new]
        M = self._metric(node, near, far)
        noise = node.release.draw(k, np.zeros_like(node.degree))
        x = node.problem.argmin(linear=noise - network.sum_over_edges(z), quadratic=M.Q, start=st.f)
        x = node.release.seal(k, x, node.problem.residual)
        # Who has not heard a neighbour has nothing to say to it.
        speaks = moment.edges & heard[conditions.reverse]
        q = network.exchange_over_edges(2 * M.times(x[owner]) - z, speaks)
        arrived = (speaks & moment.received)[network.slots][:, None]
        network.traffic.lost += int((moment.edges & ~moment.received)[network.slots].sum())
        z = np.where(arrived, (1 - a / 2) * z + a / 2 * q, z)
        return State(x, network.by_node(z), network.by_node(far))

    def _metric(self, node: Node, near: Array, far: Array) -> Edges:
        # It never falls, and says which: the network follows from the seed.
        known = int((far[:, -1] > 0).sum())
        return node.recall("metric", known, lambda: edges(node, self.kind, near, far))

    def _beginning(self, node: Node, near: Array, far: Array) -> Array:
        """M_ij w_ij of each edge."""
        (P, t), (P_far, t_far) = tuned.read(self.kind, near), tuned.read(self.kind, far)
        return self._metric(node, near, far).times(tuned.agreed(P, t, P_far, t_far))
