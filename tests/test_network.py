"""Neighbour sums against the adjacency matrix, on any layout, and what the wires carry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.ranks.graph_network import Network, Roster
from distadmm.ranks.world import World


def random_graph(n: int, p: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A connected graph: a ring and random chords."""
    rng = np.random.default_rng(seed)
    A = np.triu(rng.random((n, n)) < p, 1)
    A[np.arange(n - 1), np.arange(1, n)] = True
    A = (A | A.T).astype(float)
    indptr = np.concatenate(([0], np.cumsum(A.sum(axis=1).astype(int))))
    return indptr, np.concatenate([np.flatnonzero(row) for row in A]), A


def placed(n: int, p: float, seed: int, size: int) -> tuple[Roster, np.ndarray]:
    indptr, indices, A = random_graph(n, p, seed)
    order = np.random.default_rng(seed + 1).permutation(n)  # any placement must do
    return Roster(indptr, indices, np.sort(np.arange(n) % size)[np.argsort(order)]), A


@given(n=st.integers(2, 12), p=st.floats(0, 1), seed=st.integers(0, 1000), d=st.integers(1, 5))
@settings(deadline=None, max_examples=50)
def test_serial_sum_is_the_adjacency_product(n: int, p: float, seed: int, d: int) -> None:
    roster, A = placed(n, p, seed, 1)
    F = np.random.default_rng(seed).normal(size=(n, d))
    np.testing.assert_allclose(Network(roster).neighbour_sum(F), A @ F, atol=1e-12)


@pytest.mark.mpi(min_size=2)
def test_same_bits_and_exact_counts_on_ranks(world: World) -> None:
    n, d = 11, 3
    roster, A = placed(n, 0.4, 7, world.size)
    network, whole = Network(roster, world), placed(n, 0.4, 7, 1)[0]
    F = np.random.default_rng(0).normal(size=(n, d))
    for repetition in range(3):
        here = network.neighbour_sum(F[network.nodes] + repetition)
        serial = Network(whole).neighbour_sum(F + repetition)
        np.testing.assert_array_equal(here, serial[network.nodes])
    assert sum(world.allgather(network.traffic.messages)) == 3 * A.sum()
    assert sum(world.allgather(network.traffic.bytes)) == 3 * A.sum() * 8 * d
    host = roster.owner.tolist()
    crossing = {(i, host[j]) for i, j in zip(*np.nonzero(A)) if host[i] != host[j]}
    assert (
        sum(world.allgather(network.traffic.wire_bytes)) == 3 * len(crossing) * 8 * d
    )  # each row once a rank
    pairs = {(host[i], host[j]) for i, j in zip(*np.nonzero(A)) if host[i] != host[j]}
    assert sum(world.allgather(network.traffic.wire_messages)) == 3 * len(pairs)
    network.close()


@pytest.mark.mpi(min_size=2, sizes=[4])
def test_rows_of_two_widths_in_turn(world: World) -> None:
    roster, A = placed(9, 0.5, 3, world.size)
    network = Network(roster, world)
    for width in (2, 5, 2, 5):
        F = np.random.default_rng(width).normal(size=(9, width))
        np.testing.assert_allclose(
            network.neighbour_sum(F[network.nodes]), (A @ F)[network.nodes], atol=1e-12
        )
    network.close()


@pytest.mark.mpi(min_size=2, sizes=[20])
def test_one_node_a_rank_on_twenty_ranks(world: World) -> None:
    indptr, indices, A = random_graph(20, 0.2, 1)
    network = Network(Roster(indptr, indices, np.arange(20)), world)
    F = np.random.default_rng(5).normal(size=(20, 105))
    np.testing.assert_allclose(network.neighbour_sum(F[network.nodes]), (A @ F)[network.nodes], atol=1e-12)
    network.close()
