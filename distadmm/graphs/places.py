"""Nodes on ranks: blocks of equal size that keep neighbours together."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from distadmm.errors import require

if TYPE_CHECKING:
    from distadmm.graphs.topology import Topology

Array = np.ndarray


def depths(topology: Topology, start: int) -> Array:
    """Hops from `start` to every node; -1 where there is no way."""
    depth, mark = np.full(topology.n, -1), np.empty(topology.n, dtype=np.int64)
    front, level = np.array([start]), 0
    while front.size:
        depth[front] = level
        reached = _after(topology, front)
        reached = reached[depth[reached] < 0]
        # Each node once; np.unique would load numpy's masked arrays, and all ranks wait for this one at the start.
        mark[reached] = turn = np.arange(reached.size)
        front, level = reached[mark[reached] == turn], level + 1
    return depth


def _after(topology: Topology, nodes: Array) -> Array:
    """The neighbours of `nodes`, one list after the other."""
    lengths = topology.degrees[nodes]
    starts = topology.indptr[nodes] - np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return topology.indices[np.repeat(starts, lengths) + np.arange(lengths.sum())]


def blocks(topology: Topology, ranks: int) -> list[Array]:
    """For each rank the nodes it hosts, ascending; sizes differ by one at most; node i on rank i when ranks = n.

    Two assignments are tried, and the one that parts fewer neighbours is kept: nodes in their own order (hard
    to beat for a grid whose rows are numbered), and blocks grown one node after the other.
    """
    n = topology.n
    require(ranks >= 1, f"{ranks} ranks; give at least 1")
    require(
        ranks <= n,
        f"{ranks} ranks for {n} nodes: a rank without a node has nothing to do; use mpiexec -n {n}",
    )
    own_order = np.repeat(np.arange(ranks), _sizes(n, ranks))
    if ranks in (1, n):
        owner = own_order
    else:
        owner = min((own_order, _grown(topology, ranks)), key=lambda owner: cut(topology, owner))
    return [np.flatnonzero(owner == rank) for rank in range(ranks)]


def cut(topology: Topology, owner: Array | Sequence[Array]) -> int:
    """How many edges join nodes of different ranks; `owner` gives each node's rank, or each rank's nodes."""
    if not isinstance(owner, np.ndarray):
        held, owner = owner, np.empty(topology.n, dtype=np.int64)
        for rank, nodes in enumerate(held):
            owner[nodes] = rank
    i, j = topology.edges.T
    return int(np.count_nonzero(owner[i] != owner[j]))


def _sizes(n: int, ranks: int) -> Array:
    return n // ranks + (np.arange(ranks) < n % ranks)


def _grown(topology: Topology, ranks: int) -> Array:
    """Fill one rank after the other; next comes the node that leaves the fewest edges over the rim.

    A node's price is (its neighbours not placed yet) - 2 (its neighbours in this block); among equals, and
    when no neighbour is left, the first in Cuthill-McKee order is taken, so blocks start at the far corner.
    """
    order = _cuthill_mckee(topology).tolist()
    place = [0] * topology.n
    for position, node in enumerate(order):
        place[node] = position
    first, near = topology.indptr.tolist(), topology.indices.tolist()
    owner = [-1] * topology.n
    free = topology.degrees.tolist()  # neighbours not placed yet
    for rank, size in enumerate(_sizes(topology.n, ranks).tolist()):
        inside: dict[int, int] = {}  # neighbours in this block, of the nodes at its rim
        rim: list[tuple[int, int]] = []
        for _ in range(size):
            node = _cheapest(rim, order, owner)
            owner[node] = rank
            for j in near[first[node] : first[node + 1]]:
                free[j] -= 1
                if owner[j] < 0:
                    inside[j] = inside.get(j, 0) + 1
                    heapq.heappush(rim, (free[j] - 2 * inside[j], place[j]))
    return np.array(owner)


def _cheapest(rim: list[tuple[int, int]], order: list[int], owner: list[int]) -> int:
    # A price only falls while a block grows, so the first entry met of a node is its latest.
    while rim:
        node = order[heapq.heappop(rim)[1]]
        if owner[node] < 0:
            return node
    return next(node for node in order if owner[node] < 0)


def _cuthill_mckee(topology: Topology) -> Array:
    """All nodes in the order of a breadth-first walk from a far corner, fewer neighbours first."""
    start = int(np.argmin(topology.degrees))
    for _ in range(2):
        start = int(np.argmax(depths(topology, start)))
    seen = np.zeros(topology.n, dtype=bool)
    seen[start] = True
    order = [start]
    for node in order:  # grows while it is walked
        near = topology.neighbours(node)
        near = near[~seen[near]]
        seen[near] = True
        order += near[np.argsort(topology.degrees[near], kind="stable")].tolist()
    return np.array(order)
