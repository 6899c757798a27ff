"""What a network is like: sizes, distances and spectra, exact or said to be sampled; its nodes on ranks."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distadmm.errors import require

if TYPE_CHECKING:
    from distadmm.graphs.topology import Topology

Array = np.ndarray

DENSE_MOST = 400  # up to here all eigenvalues are computed; beyond, a few by Lanczos to `TOLERANCE`
TOLERANCE = 1e-8  # relative to the eigenvalue's distance from its end of the spectrum
_ROUGHLY = 1e-2  # the same, of a first look
ALL_PATHS_MOST = 20_000  # up to here distances are exact; beyond, they are those from `SAMPLED` nodes
SAMPLED = 64


class Facts(NamedTuple):
    """The table that `python -m distadmm topology` prints."""

    nodes: int
    edges: int
    degree_min: int
    degree_mean: float
    degree_max: int
    diameter: int  # a lower bound unless `paths_exact`
    average_path: float  # hops between two nodes, mean over all pairs; sampled unless `paths_exact`
    paths_exact: bool
    algebraic_connectivity: float  # second smallest eigenvalue of the Laplacian D - A
    spectral_gap: float  # 1 - second largest eigenvalue of the random walk D^-1 A
    mu: float  # largest |eigenvalue| of D^-1 A below 1: leaves out 1, and -1 when bipartite; 0 if none is left
    bipartite: bool


def facts(topology: Topology) -> Facts:
    """Everything in `Facts`; seconds for 10,000 nodes, milliseconds for 20."""
    diameter, average, exact = _paths(topology)
    bipartite = is_bipartite(topology)
    connectivity, second, mu = _spectra(topology, bipartite)
    return Facts(
        nodes=topology.n,
        edges=len(topology.edges),
        degree_min=int(topology.degrees.min()),
        degree_mean=float(topology.degrees.mean()),
        degree_max=int(topology.degrees.max()),
        diameter=diameter,
        average_path=average,
        paths_exact=exact,
        algebraic_connectivity=connectivity,
        spectral_gap=1.0 - second,
        mu=mu,
        bipartite=bipartite,
    )


def dense(topology: Topology) -> Array:
    """The adjacency matrix."""
    A = np.zeros((topology.n, topology.n))
    A[np.repeat(np.arange(topology.n), topology.degrees), topology.indices] = 1.0
    return A


def is_bipartite(topology: Topology) -> bool:
    """True if no edge joins two nodes at the same distance from node 0, parity taken."""
    odd = depths(topology, 0) % 2
    return bool((odd[topology.edges[:, 0]] != odd[topology.edges[:, 1]]).all())


def mu(topology: Topology) -> float:
    """Largest |eigenvalue| of the random walk D^-1 A below 1: how slowly plain averaging agrees."""
    return _spectra(topology, is_bipartite(topology))[2]


def theta_pinned(topology: Topology) -> float:
    """Mean over the nodes i of 1/sqrt(1 - m_i^2), m_i the largest eigenvalue of D^-1 A with node i absorbing.

    1/sqrt(1 - mu^2) says how slowly a network agrees; this, how slowly it follows one of its nodes.  Large networks
    are slower at the latter, so that it limits nothing there: infinity beyond `DENSE_MOST`.
    """
    n = topology.n
    if n > DENSE_MOST:
        return float("inf")
    scale = 1.0 / np.sqrt(topology.degrees)
    values, vectors = np.linalg.eigh(scale[:, None] * dense(topology) * scale)
    # m_i is the root of sum_k v_ik^2/(l_k - z), which falls, between the two largest l_k (interlacing).
    low, high, weights = np.full(n, values[-2]), np.full(n, values[-1]), vectors**2
    for _ in range(50):
        z = (low + high) / 2
        above = (weights / (values - z[:, None])).sum(axis=1) > 0
        low, high = np.where(above, low, z), np.where(above, z, high)
    return float(np.mean(1.0 / np.sqrt(1.0 - low**2)))


def _spectra(topology: Topology, bipartite: bool) -> tuple[float, float, float]:
    """Algebraic connectivity; the second largest eigenvalue of D^-1 A; mu."""
    n = topology.n
    scale = 1.0 / np.sqrt(topology.degrees)
    if n <= DENSE_MOST:
        adjacency = dense(topology)
        walk = np.linalg.eigvalsh(scale[:, None] * adjacency * scale)  # similar to D^-1 A, and symmetric
        connectivity = np.linalg.eigvalsh(np.diag(topology.degrees.astype(float)) - adjacency)[1]
        rest = walk[1 if bipartite else 0 : -1]
        return float(connectivity), float(walk[-2]), float(np.abs(rest).max()) if rest.size else 0.0
    from scipy.sparse import diags_array, eye_array

    walk = diags_array(scale) @ topology.adjacency() @ diags_array(scale)
    connectivity = _smallest(topology.laplacian(), np.ones(n))
    above = _smallest(eye_array(n) - walk, 1.0 / scale)
    # A bipartite spectrum is symmetric, so what lies nearest to -1 mirrors what lies nearest to 1.
    below = above if bipartite else _smallest(eye_array(n) + walk, None)
    return connectivity, 1.0 - above, 1.0 - min(above, below)


def _smallest(matrix: Any, null: Array | None) -> float:
    """The smallest positive eigenvalue of a sparse positive semidefinite matrix whose null space is `null`.

    Lanczos finds it at once when the network spreads well, and roughly when there are many nodes and eigenvalues beside
    it: then it takes its time.  When it does not, the network falls apart by few cuts, which is when a sparse
    factorisation is cheap: then Lanczos runs on the inverse.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    n = matrix.shape[0]
    # Without a start of ours scipy draws another one each time.
    start = np.random.Generator(np.random.PCG64(n)).standard_normal(n)
    search = {"v0": start, "return_eigenvectors": False}
    lifted = matrix
    if null is not None:
        # A relative tolerance is void at the eigenvalue 0, so its vector is lifted above the spectrum first.
        unit, lift = null / np.linalg.norm(null), 4.0 * matrix.diagonal().max()
        lifted = LinearOperator((n, n), lambda x: matrix @ x + lift * (unit @ x) * unit, dtype=float)

    def lanczos(tolerance: float, rounds: int) -> float:
        return float(eigsh(lifted, k=1, which="SA", maxiter=rounds, ncv=40, tol=tolerance, **search)[0])

    with contextlib.suppress(ArpackNoConvergence):
        return lanczos(TOLERANCE, 20)
    with contextlib.suppress(ArpackNoConvergence):
        lanczos(_ROUGHLY, 20)
        return lanczos(TOLERANCE, 2000)
    shift = -1e-2 / n**2  # just below 0, and small beside the gap of even a path
    return float(
        eigsh(matrix.tocsc(), k=1 if null is None else 2, sigma=shift, tol=TOLERANCE, **search).max()
    )


def _paths(topology: Topology) -> tuple[int, float, bool]:
    """Diameter and average path length."""
    n = topology.n
    far = depths(topology, int(np.argmax(depths(topology, 0))))
    if n > ALL_PATHS_MOST:
        # The far ends and evenly spread nodes: the greatest distance found is a lower bound of the diameter.
        nodes = np.unique(np.linspace(0, n - 1, SAMPLED).astype(int))
        found = [depths(topology, int(node)) for node in nodes]
        return int(max(far.max(), *(d.max() for d in found))), float(np.mean(found) * n / (n - 1)), False
    diameter, total = (_all_at_once if far.max() <= 60 else _one_by_one)(topology)
    return diameter, total / (n * (n - 1)), True


def _all_at_once(topology: Topology) -> tuple[int, int]:
    """Diameter and sum of distances; bit j of row i says that i reaches j in `hops` hops.  Cost ~ diameter."""
    n = topology.n
    node = np.arange(n)
    diameter = total = 0
    for block in np.array_split(node, -(-n // 4096)):  # 64 targets a word, 4096 targets at a time
        reached = np.zeros((n, -(-block.size // 64)), dtype=np.uint64)
        bit = np.arange(block.size)
        reached[block, bit // 64] = np.uint64(1) << (bit % 64).astype(np.uint64)
        missing, hops = block.size * (n - 1), 0
        while missing:
            hops += 1
            total += missing  # each pair not met yet is at least `hops` apart
            reached |= np.bitwise_or.reduceat(reached[topology.indices], topology.indptr[:-1], axis=0)
            missing = block.size * n - _count_bits(reached)
        diameter = max(diameter, hops)
    return diameter, total


def _count_bits(words: Array) -> int:
    if hasattr(np, "bitwise_count"):  # numpy 2
        return int(np.bitwise_count(words).sum(dtype=np.int64))
    return int(np.unpackbits(words.view(np.uint8)).sum(dtype=np.int64))


def _one_by_one(topology: Topology) -> tuple[int, int]:
    """The same by a walk from each node.  Cost ~ nodes, whatever the diameter."""
    from scipy.sparse.csgraph import dijkstra

    adjacency = topology.adjacency()
    diameter = total = 0
    for block in np.array_split(np.arange(topology.n), -(-topology.n // 256)):
        hops = dijkstra(adjacency, unweighted=True, indices=block)
        diameter, total = max(diameter, int(hops.max())), total + int(hops.sum())
    return diameter, total


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
    """For each rank the nodes it hosts, ascending."""
    owner = placed(topology, ranks)
    return [np.flatnonzero(owner == rank) for rank in range(ranks)]


def placed(topology: Topology, ranks: int) -> Array:
    """The rank of each node: as many nodes on each, or one more; node i on rank i when ranks = n.

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
        return own_order
    return min((own_order, _grown(topology, ranks)), key=lambda owner: cut(topology, owner))


def cut(topology: Topology, owner: Array | Sequence[Array]) -> int:
    """How many edges join nodes of different ranks; `owner` gives each node's rank, or each rank's nodes."""
    if not isinstance(owner, np.ndarray):
        ranks = np.repeat(np.arange(len(owner)), [len(nodes) for nodes in owner])
        owner = ranks[np.argsort(np.concatenate(owner))]
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
            # A price only falls while a block grows, so the first entry met of a node is its latest.
            near_by = (order[heapq.heappop(rim)[1]] for _ in range(len(rim)))
            node = next(node for node in chain(near_by, order) if owner[node] < 0)
            owner[node] = rank
            for j in near[first[node] : first[node + 1]]:
                free[j] -= 1
                if owner[j] < 0:
                    inside[j] = inside.get(j, 0) + 1
                    heapq.heappush(rim, (free[j] - 2 * inside[j], place[j]))
    return np.array(owner)


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
