"""Facts against closed forms, networkx and dense algebra; placement against random placement."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import InputError
from distadmm.graphs import facts as module
from distadmm.graphs.topology import blocks, cut, facts, from_edges, load


def as_networkx(network):
    graph = nx.empty_graph(network.n)
    graph.add_edges_from(network.edges.tolist())
    return graph


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 30), st.integers(0, 1000))
def test_facts_agree_with_networkx(n, seed):
    graph = nx.compose(nx.random_labeled_tree(n, seed=seed), nx.gnp_random_graph(n, 0.1, seed=seed))
    found = facts(from_edges(n, list(graph.edges())))
    assert found.diameter == nx.diameter(graph)
    assert found.average_path == pytest.approx(nx.average_shortest_path_length(graph))
    assert found.bipartite == nx.is_bipartite(graph)
    assert found.paths_exact
    assert found.algebraic_connectivity == pytest.approx(nx.laplacian_spectrum(graph)[1], abs=1e-9)
    walk = np.linalg.eigvals(np.diag(1 / nx.to_numpy_array(graph).sum(1)) @ nx.to_numpy_array(graph)).real
    assert found.spectral_gap == pytest.approx(1 - np.sort(walk)[-2], abs=1e-7)
    below = np.abs(walk)[np.abs(walk) < 1 - 1e-7]
    assert found.mu == pytest.approx(below.max() if below.size else 0.0, abs=1e-6)


def test_closed_forms():
    ring = facts(load("ring:12"))
    assert ring.mu == pytest.approx(np.cos(2 * np.pi / 12))
    assert ring.algebraic_connectivity == pytest.approx(2 - 2 * np.cos(2 * np.pi / 12))
    complete = facts(load("complete:8"))
    assert complete.mu == pytest.approx(1 / 7)
    assert complete.algebraic_connectivity == pytest.approx(8)
    cube = facts(load("hypercube:5"))
    assert (cube.diameter, cube.bipartite) == (5, True)
    assert cube.mu == pytest.approx(1 - 2 / 5)
    pair = facts(load("path:2"))
    assert (pair.mu, pair.algebraic_connectivity, pair.bipartite) == (0.0, 2.0, True)


SPARSE = [
    "ring:60",
    "ring:61",
    "path:50",
    "grid:7x8",
    "ws:80:seed=2",
    "ba:80:m=2",
    "regular:80:d=4",
    "barbell:20:9",
]


@pytest.mark.parametrize("spec", SPARSE)
def test_the_sparse_eigenvalues_are_the_dense_ones(spec, monkeypatch):
    network = load(spec)
    dense = facts(network)
    monkeypatch.setattr(module, "DENSE_MOST", 10)
    sparse = facts(network)
    for name in ("algebraic_connectivity", "spectral_gap", "mu"):
        assert getattr(sparse, name) == pytest.approx(getattr(dense, name), rel=1e-6, abs=1e-10)


def test_ten_thousand_nodes_have_the_spectrum_of_theory():
    n = 10_001
    found = facts(load(f"ring:{n}"))
    assert (found.diameter, found.bipartite) == (n // 2, False)
    assert found.algebraic_connectivity == pytest.approx(2 - 2 * np.cos(2 * np.pi / n), rel=1e-5)
    assert 1 - found.mu == pytest.approx(1 - np.cos(np.pi / n), rel=1e-5)


def test_many_nodes_that_spread_well_need_no_factorisation(monkeypatch):
    """Theirs fills up: 30,000 nodes took minutes."""
    import scipy.sparse.linalg as library

    plain = library.eigsh

    def iterated(*given, **named):
        assert "sigma" not in named
        return plain(*given, **named)

    monkeypatch.setattr(library, "eigsh", iterated)
    network = load("regular:30000:d=4:seed=1")
    connectivity, second, _ = module._spectra(network, False)
    assert connectivity == pytest.approx(4 - 2 * np.sqrt(3), rel=0.02)  # Friedman's theorem
    assert second == pytest.approx(1 - connectivity / 4, rel=1e-7)


@pytest.mark.parametrize("spec", ["grid:9x31", "er:300:p=0.02", "path:130", "star:100"])
def test_both_ways_to_measure_distances_agree(spec):
    network = load(spec)
    assert module._all_at_once(network) == module._one_by_one(network)


def test_bits_are_counted_without_numpy_2(monkeypatch):
    network = load("grid:9x10")
    expected = module._all_at_once(network)
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert module._all_at_once(network) == expected


def test_sampled_distances_say_so(monkeypatch):
    network = load("ws:200:seed=3")
    exact = facts(network)
    monkeypatch.setattr(module, "ALL_PATHS_MOST", 100)
    sampled = facts(network)
    assert exact.paths_exact
    assert not sampled.paths_exact
    assert sampled.diameter <= exact.diameter
    assert sampled.average_path == pytest.approx(exact.average_path, rel=0.1)


def shuffled(spec, seed=1):
    network = load(spec)
    relabel = np.random.default_rng(seed).permutation(network.n)
    return from_edges(network.n, relabel[network.edges])


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 40), st.integers(0, 1000), st.data())
def test_blocks_host_every_node_once_in_equal_shares(n, seed, data):
    ranks = data.draw(st.integers(1, n))
    graph = nx.compose(nx.random_labeled_tree(n, seed=seed), nx.gnp_random_graph(n, 0.1, seed=seed))
    held = blocks(from_edges(n, list(graph.edges())), ranks)
    assert len(held) == ranks
    assert sorted(node for nodes in held for node in nodes) == list(range(n))
    assert {nodes.size for nodes in held} <= {n // ranks, -(-n // ranks)}
    assert all((np.diff(nodes) > 0).all() for nodes in held)
    if ranks == n:
        assert [nodes.tolist() for nodes in held] == [[i] for i in range(n)]


@pytest.mark.parametrize("ranks", [2, 5, 7])
@pytest.mark.parametrize(
    "spec", ["ring:40", "grid:8x9", "ws:60:k=4:p=0.1", "tree:63", "regular:60:d=4", "er20"]
)
def test_blocks_part_fewer_neighbours_than_chance_and_than_numbering(spec, ranks):
    for network in (load(spec), shuffled(spec)):
        rng = np.random.default_rng(0)
        own = np.arange(network.n) * ranks // network.n
        random = [cut(network, rng.permutation(own)) for _ in range(20)]
        placed = cut(network, blocks(network, ranks))
        assert placed < min(random)
        assert placed <= cut(network, np.array_split(np.arange(network.n), ranks))


def test_a_ring_in_any_numbering_is_cut_into_arcs():
    for ranks in (2, 3, 5, 8):
        network = shuffled("ring:40")
        assert cut(network, blocks(network, ranks)) == ranks


def test_the_cut_is_counted_the_same_from_blocks_and_owners():
    network = load("er20")
    held = blocks(network, 4)
    owner = np.empty(20, dtype=int)
    for rank, nodes in enumerate(held):
        owner[nodes] = rank
    assert cut(network, held) == cut(network, owner) == sum(owner[i] != owner[j] for i, j in network.edges)


@pytest.mark.parametrize("ranks", [0, -1, 21])
def test_a_wrong_number_of_ranks_is_refused(ranks):
    with pytest.raises(InputError):
        blocks(load("er20"), ranks)


def test_too_many_ranks_says_what_to_type():
    with pytest.raises(InputError, match="mpiexec -n 20"):
        blocks(load("er20"), 24)


@pytest.mark.parametrize("spec", ["path:2", "star:5", "ring:8", "complete:6", "grid:3x4", "er20"])
def test_how_slowly_a_network_follows_one_node(spec):
    graph = load(spec)
    walk = graph.adjacency().toarray() / graph.degrees[:, None]
    thetas = []
    for i in range(graph.n):
        rest = np.delete(np.delete(walk, i, axis=0), i, axis=1)
        thetas.append(1 / np.sqrt(1 - np.abs(np.linalg.eigvals(rest)).max() ** 2))
    assert module.theta_pinned(graph) == pytest.approx(np.mean(thetas))
