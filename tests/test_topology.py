"""Networks from generators: their shape against networkx, their seeds, and what is refused."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import InputError
from distadmm.graphs import generate, topology
from distadmm.graphs.topology import from_edges, load, load_changing


def as_networkx(network):
    graph = nx.empty_graph(network.n)
    graph.add_edges_from(network.edges.tolist())
    return graph


SAME_AS_NETWORKX = {
    "ring:7": nx.cycle_graph(7),
    "path:6": nx.path_graph(6),
    "star:9": nx.star_graph(8),
    "complete:6": nx.complete_graph(6),
    "grid:3x5": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 5)),
    "grid:2x3x2": nx.convert_node_labels_to_integers(nx.grid_graph([2, 3, 2])),
    "torus:3x4": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4, periodic=True)),
    "hypercube:4": nx.hypercube_graph(4),
    "tree:13:b=3": nx.balanced_tree(3, 2),
    "barbell:4:3": nx.barbell_graph(4, 3),
    "barbell:3": nx.barbell_graph(3, 0),
    "regular:6:d=5": nx.complete_graph(6),
    "ws:10:k=4:p=0": nx.watts_strogatz_graph(10, 4, 0),
    "er:5:p=1": nx.complete_graph(5),
}


@pytest.mark.parametrize("spec", SAME_AS_NETWORKX)
def test_a_generator_makes_the_graph_of_its_name(spec):
    assert nx.is_isomorphic(as_networkx(load(spec)), SAME_AS_NETWORKX[spec])


def test_ring_path_star_grid_are_numbered_as_said():
    assert load("ring:5").neighbours(0).tolist() == [1, 4]
    assert load("path:4").edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert load("star:4").neighbours(0).tolist() == [1, 2, 3]
    assert load("grid:2x3").neighbours(1).tolist() == [0, 2, 4]  # left, right, below


@pytest.mark.parametrize("spec", ["regular:20:d=3", "er:20:p=0.25", "ws:20:k=4:p=0.3", "ba:20:m=3"])
def test_a_seed_is_a_graph(spec):
    first, again, other = load(f"{spec}:seed=4"), load(f"{spec}:seed=4"), load(f"{spec}:seed=5")
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint


@settings(deadline=None, max_examples=50)
@given(st.integers(4, 40), st.integers(2, 39), st.integers(0, 9))
def test_regular_graphs_are_regular_and_connected(n, d, seed):
    d = min(d, n - 1) - (n * min(d, n - 1)) % 2
    network = load(f"regular:{n}:d={d}:seed={seed}") if d >= 2 else load(f"ring:{n}")
    assert (network.degrees == max(d, 2)).all()
    assert nx.is_connected(as_networkx(network))


@settings(deadline=None, max_examples=50)
@given(st.integers(6, 40), st.sampled_from([2, 4]), st.floats(0, 1), st.integers(1, 4), st.integers(0, 9))
def test_random_graphs_have_the_edges_of_their_kind(n, k, p, m, seed):
    assert (
        len(load(f"ws:{n}:k={k + 2 if n > 6 else k}:p={p}:seed={seed}").edges)
        == n * (k + 2 if n > 6 else k) // 2
    )
    grown = load(f"ba:{n}:m={m}:seed={seed}")
    assert len(grown.edges) == m + m * (n - m - 1)
    assert (grown.degrees >= 1).all()
    assert nx.is_connected(as_networkx(grown))


def test_erdos_renyi_has_the_expected_number_of_edges():
    counts = [len(load(f"er:40:p=0.3:seed={seed}").edges) for seed in range(40)]
    mean, deviation = 0.3 * 780, np.sqrt(0.3 * 0.7 * 780 / 40)
    assert abs(np.mean(counts) - mean) < 4 * deviation


def test_a_disconnected_draw_is_drawn_again():
    seeds = [seed for seed in range(50) if _first_draw_is_disconnected(seed)]
    assert seeds, "no seed tests the retry"
    for seed in seeds:
        assert nx.is_connected(as_networkx(load(f"er:8:p=0.3:seed={seed}")))


def _first_draw_is_disconnected(seed):
    rng = generate._generator(seed, 0)
    graph = nx.empty_graph(8)
    graph.add_edges_from(
        (i, j) for i in range(8) for j, u in zip(range(i + 1, 8), rng.random(7 - i)) if u < 0.3
    )
    return not nx.is_connected(graph)


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30))
def test_components_agree_with_networkx(n, pairs):
    edges = np.array([(i % n, j % n) for i, j in pairs], dtype=int).reshape(-1, 2)
    graph = nx.empty_graph(n)
    graph.add_edges_from(edges.tolist())
    label = generate.components(n, edges)
    assert all(label[node] == min(part) for part in nx.connected_components(graph) for node in part)


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 25), st.integers(0, 10_000))
def test_neighbour_arrays_agree_with_the_edges(n, seed):
    graph = nx.gnp_random_graph(n, 0.5, seed=seed)
    network = from_edges(n, list(graph.edges()), connected=False)
    assert [network.neighbours(i).tolist() for i in range(n)] == [sorted(graph[i]) for i in range(n)]
    assert network.degrees.tolist() == [d for _, d in graph.degree()]
    assert (network.edges[:, 0] < network.edges[:, 1]).all()
    owner = np.repeat(np.arange(n), network.degrees)
    ends = np.sort(np.stack([owner, network.indices], axis=1), axis=1)
    assert (network.edges[network.edge_index] == ends).all()
    assert (network.adjacency().toarray() == nx.to_numpy_array(graph)).all()
    assert (network.laplacian().toarray() == nx.laplacian_matrix(graph).toarray()).all()


def test_edge_attributes_follow_their_edges():
    network = from_edges(3, [(2, 1), (1, 0)], edge_attributes={"latency": np.array([21.0, 10.0])})
    assert network.edges.tolist() == [[0, 1], [1, 2]]
    assert network.edge_attributes["latency"].tolist() == [10.0, 21.0]


def test_fingerprint_sees_names_edges_and_attributes():
    plain = from_edges(3, [(0, 1), (1, 2)])
    others = [
        from_edges(3, [(0, 1), (0, 2)]),
        from_edges(3, [(0, 1), (1, 2)], names=["a", "b", "c"]),
        from_edges(3, [(0, 1), (1, 2)], node_attributes={"eta": np.ones(3)}),
    ]
    assert len({network.fingerprint for network in (plain, *others)}) == 4
    assert plain.fingerprint == from_edges(3, [(2, 1), (1, 0)]).fingerprint


@pytest.mark.parametrize(
    ("edges", "n", "words"),
    [
        ([], 0, "empty"),
        ([], 1, "one node"),
        ([(0, 1)], 3, "not connected"),
        ([(0, 1), (1, 1)], 2, "self-loop"),
        ([(0, 1), (1, 0)], 2, "parallel"),
        ([(0, 2)], 2, "outside"),
    ],
)
def test_what_is_no_network_is_refused(edges, n, words):
    with pytest.raises(InputError, match=words):
        from_edges(n, edges)


@pytest.mark.parametrize(
    "spec",
    [
        *[
            "",
            "nothing",
            "rng:20",
            "ring",
            "ring:two",
            "ring:2",
            "ring:-3",
            "ring:20:3",
            "ring:20:n=3",
            "path:1",
        ],
        *[
            "grid:20",
            "grid:4x",
            "grid:0x3",
            "torus:2x5",
            "hypercube:0",
            "hypercube:40",
            "barbell:2",
            "tree:5:b=0",
        ],
        *["regular:5:d=3", "regular:5:d=5", "regular:6:d=1", "regular:6:d=0", "er:20:p=0", "er:20:p=1.5"],
        *["er:20:p=nan", "er:20:q=1", "er:20:p=0.3:p=0.4", "er:20:p=0.01", "er:20:seed=-1", "er:20:seed=1.5"],
        *[
            "ws:20:k=3",
            "ws:20:k=20",
            "ws:20:p=2",
            "ba:5:m=0",
            "ba:5:m=5",
            "complete:100000",
            "er:1000000:p=0.5",
        ],
        *["seq:ring:3,ring:4", "links:p=0.5:er20", "x" * 500],
    ],
)
def test_a_wrong_line_is_one_clear_line(spec):
    with pytest.raises(InputError) as caught:
        load(spec)
    assert "\n" not in str(caught.value)


def test_a_near_miss_is_named():
    with pytest.raises(InputError, match="did you mean ring"):
        load("rng:20")
    with pytest.raises(InputError, match="did you mean er20"):
        load("er21")


class TestChanging:
    def test_a_plain_network_does_not_change(self):
        changing = load_changing("ring:5")
        assert changing.constant
        assert changing.active(0).all()
        assert changing.active(7).all()

    def test_a_sequence_takes_its_graphs_in_turn(self):
        changing = load_changing("seq:path:4,ring:4,star:5")
        assert changing.union.n == 5
        for step, spec in [(0, "path:4"), (1, "ring:4"), (2, "star:5"), (3, "path:4"), (4, "ring:4")]:
            active = changing.union.edges[changing.active(step)]
            assert active.tolist() == load(spec).edges.tolist()
        assert not changing.constant

    def test_only_together_must_they_be_connected(self, tmp_path):
        (tmp_path / "a.edges").write_text("0 1\n2 3\n")
        (tmp_path / "b.edges").write_text("1 2\n3 0\n")
        changing = load_changing(f"seq:{tmp_path}/a.edges,{tmp_path}/b.edges")
        assert changing.union.edges.tolist() == load("ring:4").edges.tolist()
        with pytest.raises(InputError, match="not connected"):
            load_changing(f"seq:{tmp_path}/a.edges,{tmp_path}/a.edges")

    def test_attributes_are_merged_and_must_be_complete(self, tmp_path):
        node = '{{"nodes": [{{"id": 0, "eta": {0}}}, {{"id": {1}, "eta": {0}}}], "links": [{2}]}}'
        link = '{{"source": 0, "target": {}, "latency": {}}}'
        (tmp_path / "a.json").write_text(node.format(1.5, 1, link.format(1, 0.25)))
        (tmp_path / "b.json").write_text(node.format(2.5, 2, link.format(2, 0.5)))
        union = load_changing(f"seq:{tmp_path}/a.json,{tmp_path}/b.json").union
        assert union.node_attributes["eta"].tolist() == [1.5, 1.5, 2.5]
        assert union.edge_attributes["latency"].tolist() == [0.25, 0.5]
        with pytest.raises(InputError, match="eta is missing for node 2"):
            load_changing(f"seq:{tmp_path}/a.json,path:3")

    def test_links_are_there_with_their_probability_and_seed(self):
        changing = load_changing("links:p=0.7:seed=5:torus:4x5")
        steps = np.array([changing.active(step) for step in range(500)])
        assert abs(steps.mean() - 0.7) < 4 * np.sqrt(0.21 / steps.size)
        again = load_changing("links:seed=5:p=0.7:torus:4x5")
        assert (again.active(3) == steps[3]).all()
        assert not (load_changing("links:seed=6:p=0.7:torus:4x5").active(3) == steps[3]).all()

    @pytest.mark.parametrize(
        "spec",
        [
            "links:er20",
            "links:p=0:er20",
            "links:p=x:er20",
            "links:p=0.5:q=1:er20",
            "links:p=0.5",
            "seq:",
            "seq:er20,",
            "links:p=0.5:seed=-1:er20",
            "seq:ring:3,rng:4",
        ],
    )
    def test_wrong_lines_are_refused(self, spec):
        with pytest.raises(InputError):
            load_changing(spec)


def test_loading_a_network_imports_neither_networkx_nor_scipy():
    import subprocess
    import sys

    code = (
        "import sys; from distadmm.graphs import topology as t; "
        "t.blocks(t.load('er20'), 20); t.blocks(t.load('er:50:p=0.2'), 3); "
        "sys.exit(any(name in sys.modules for name in ('networkx', 'scipy', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_generator_is_listed_with_its_usage():
    for name, make in topology.GENERATORS.items():
        usage, what = make.__doc__.split(" -- ")
        assert usage.startswith(name + ":")
        assert what
