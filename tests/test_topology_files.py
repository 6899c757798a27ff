"""Network files: formats that agree, the bundled ones, and everything that is refused."""

import contextlib
import importlib.util
import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distadmm.errors import InputError
from distadmm.graphs.topology import FORMATS, bundled, load, provenance

ROOT = Path(__file__).parents[1]


def write(path: Path, graph: nx.Graph) -> Path:
    """`graph` as networkx itself writes it."""
    if path.suffix == ".graphml":
        nx.write_graphml(graph, path)
    elif path.suffix == ".gml":
        nx.write_gml(graph, path)
    elif path.suffix == ".gexf":
        nx.write_gexf(graph, path)
    elif path.suffix == ".net":
        nx.write_pajek(graph, path)
    elif path.suffix in (".edges", ".edgelist", ".txt"):
        nx.write_edgelist(graph, path)
    elif path.suffix == ".adjlist":
        nx.write_adjlist(graph, path)
    elif path.suffix == ".npy":
        np.save(path, nx.to_numpy_array(graph, sorted(graph)))
    elif path.suffix == ".csv":
        lines = [",".join(["", *map(str, graph)])]
        for name, row in zip(graph, nx.to_numpy_array(graph).tolist()):
            lines.append(",".join(map(str, [name, *row])))
        path.write_text("\n".join(lines))
    else:
        name = {"edges": "edges" if path.stem.startswith("e") else "links"}
        path.write_text(json.dumps(nx.node_link_data(graph, **name)))
    return path


NUMBERED = "g.npy"  # nodes have no other names there
FILES = [
    f"g.{end}" for end in ["graphml", "gml", "gexf", "net", "edges", "edgelist", "txt", "adjlist", "csv"]
] + [
    "e.json",
    "l.json",
]


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 15), st.integers(0, 1000))
def test_all_formats_hold_the_same_network(tmp_path_factory, n, seed):
    folder = tmp_path_factory.mktemp("formats")
    tree = nx.random_labeled_tree(n, seed=seed)
    graph = nx.compose(tree, nx.gnp_random_graph(n, 0.3, seed=seed))
    prints = {load(str(write(folder / name, graph))).fingerprint for name in [*FILES, NUMBERED]}
    assert len(prints) == 1
    assert load(str(folder / "g.edges")).edges.tolist() == sorted(sorted(edge) for edge in graph.edges())


@pytest.mark.parametrize("name", FILES)
def test_names_are_kept(tmp_path, name):
    graph = nx.Graph([("Oslo", "Rome"), ("Rome", "Bern"), ("Bern", "Oslo"), ("Bern", "Graz")])
    network = load(str(write(tmp_path / name, graph)))
    assert set(network.names) == set(graph)
    named = {frozenset(network.names[i] for i in edge) for edge in network.edges}
    assert named == {frozenset(edge) for edge in graph.edges()}


def test_whole_numbers_are_sorted_as_numbers(tmp_path):
    (tmp_path / "g.edges").write_text("10 9\n9 100\n")
    assert load(str(tmp_path / "g.edges")).names == ("9", "10", "100")


def test_attributes_are_read_from_nodes_and_edges(tmp_path):
    graph = nx.Graph()
    graph.add_node("a", eta=0.5, club="x", floor=3)
    graph.add_node("b", eta=1.5, club="y")
    graph.add_edge("a", "b", latency=0.25, weight=2)
    for name in ("g.graphml", "g.gml", "l.json"):
        network = load(str(write(tmp_path / name, graph)))
        assert network.node_attributes["eta"].tolist() == [0.5, 1.5]
        assert network.node_attributes["floor"][0] == 3
        assert network.node_attributes["floor"][1] != network.node_attributes["floor"][1]  # NaN: b has none
        assert "club" not in network.node_attributes
        assert network.edge_attributes["latency"].tolist() == [0.25]
        assert network.edge_attributes["weight"].tolist() == [2.0]


@pytest.mark.parametrize(
    ("text", "edges", "weight"),
    [
        ("source,target\na,b\nb,c\n", [("a", "b"), ("b", "c")], None),
        (
            "\ufeffSource;Target;Type;Weight\r\na;b;Undirected;1.5\r\nb;c;Undirected;1.5\r\n",
            [("a", "b"), ("b", "c")],
            1.5,
        ),
        ("id,to,from\n7,1,0\n8,2,1\n9,3,2\n", [("0", "1"), ("1", "2"), ("2", "3")], None),
        ("0,1\n1,2\n2,3\n", [("0", "1"), ("1", "2"), ("2", "3")], None),
        ("0,1,2\n1,2,2\n2,3,2\n3,0,2\n", [("0", "1"), ("1", "2"), ("2", "3"), ("3", "0")], 2.0),
    ],
)
def test_a_csv_may_hold_an_edge_a_line(tmp_path, text, edges, weight):
    (tmp_path / "net.csv").write_text(text)
    found = load(str(tmp_path / "net.csv"))
    named = {frozenset((found.names[a], found.names[b])) for a, b in found.edges}
    assert named == set(map(frozenset, edges))
    assert weight is None or list(found.edge_attributes["weight"]) == [weight] * len(edges)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("source,target\na,b\nb\n", "line 3: found 'b'; needed: two nodes"),
        ("source,target\na,b\nb,\n", "line 3"),
        ("source,target,type\na,b,Directed\n", "directed"),
        ("source,target\n", "at least two nodes"),
        ("0,1,1\n1,0,x\n1,0,0\n", "or edges below the header source,target"),
    ],
)
def test_a_bad_edge_table_is_told_in_one_line(tmp_path, text, said):
    (tmp_path / "net.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        load(str(tmp_path / "net.csv"))


def test_an_edge_list_has_weights_commas_comments_and_tables(tmp_path):
    (tmp_path / "g.edges").write_text("# head\n\n0 1 2.5\n1,2,3.5 # tail\n")
    assert load(str(tmp_path / "g.edges")).edge_attributes["weight"].tolist() == [2.5, 3.5]
    (tmp_path / "g.edges").write_text("0 1 {'latency': 0.5}\n1 2 {'latency': 1}\n")
    assert load(str(tmp_path / "g.edges")).edge_attributes["latency"].tolist() == [0.5, 1.0]


def test_an_adjacency_list_may_name_edges_at_both_ends(tmp_path):
    (tmp_path / "once.adjlist").write_text("0 1 2\n1 2\n2\n")
    (tmp_path / "both.adjlist").write_text("0 1 2\n1 0 2\n2 0 1\n")
    once, both = (load(str(tmp_path / f"{name}.adjlist")) for name in ("once", "both"))
    assert once.fingerprint == both.fingerprint


BAD = {
    "directed.graphml": '<graphml><graph edgedefault="directed"><node id="0"/><node id="1"/>'
    '<edge source="0" target="1"/></graph></graphml>',
    "multi.graphml": '<graphml><graph edgedefault="undirected"><node id="0"/><node id="1"/>'
    '<edge source="0" target="1"/><edge source="0" target="1"/></graph></graphml>',
    "torn.graphml": "<graphml><graph>",
    "empty.graphml": "",
    "none.graphml": "<graphml></graphml>",
    "directed.gml": "graph [ directed 1 node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 ] ]",
    "multi.gml": "graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 ] edge [ source 1 target 0 ] ]",
    "torn.gml": "graph [ node [",
    "empty.gml": "",
    "weight.gml": 'graph [ node [ id 0 ] node [ id 1 ] edge [ source 0 target 1 weight "much" ] ]',
    "one.gml": "graph [ node [ id 0 ] ]",
    "empty.edges": "# nothing\n",
    "apart.edges": "0 1\n2 3\n",
    "loop.edges": "0 1\n1 1\n",
    "multi.edges": "0 1\n1 0\n",
    "word.edges": "0 1 heavy\n",
    "nan.edges": "0 1 nan\n",
    "inf.edges": "0 1 inf\n",
    "negative.edges": "0 1 -2\n",
    "zero.edges": "0 1 0\n",
    "some.edges": "0 1 1.0\n1 2\n",
    "single.edges": "0\n",
    "four.edges": "0 1 2 3\n",
    "table.edges": "0 1 {'latency': }\n",
    "latency.edges": "0 1 {'latency': -1}\n",
    "one.adjlist": "0\n",
    "loop.adjlist": "0 0 1\n",
    "multi.adjlist": "0 1 1\n",
    "directed.adjlist": "0 1 2\n1 0\n2\n",
    "apart.adjlist": "0 1\n2\n",
    "torn.json": '{"nodes": [',
    "list.json": "[1, 2]",
    "edgeless.json": '{"nodes": [{"id": 0}, {"id": 1}]}',
    "directed.json": '{"directed": true, "nodes": [{"id": 0}, {"id": 1}], "links": [{"source": 0, "target": 1}]}',
    "stranger.json": '{"nodes": [{"id": 0}, {"id": 1}], "links": [{"source": 0, "target": 2}]}',
    "nameless.json": '{"nodes": [{"name": 0}], "links": []}',
    "twins.json": '{"nodes": [{"id": 1}, {"id": "1"}], "links": []}',
    "half.json": '{"nodes": [{"id": 0}, {"id": 1}], "links": [{"source": 0}]}',
    "text.json": '{"nodes": [{"id": 0}, {"id": 1}], "links": [{"source": 0, "target": 1, "weight": "2"}]}',
    "huge.json": '{"nodes": [{"id": 0}, {"id": 1}], "links": [{"source": 0, "target": 1, "weight": 1'
    + "0" * 400
    + "}]}",
    "eta.json": '{"nodes": [{"id": 0, "eta": 1}, {"id": 1, "eta": 0}], "links": [{"source": 0, "target": 1}]}',
    "some-eta.json": '{"nodes": [{"id": 0, "eta": 1}, {"id": 1}], "links": [{"source": 0, "target": 1}]}',
    "null.json": '{"nodes": [{"id": null}, {"id": 1}], "links": []}',
    "graph.png": "0 1\n",
    "words.csv": "a,b\nb,a\n",
    "torn.csv": "0,1\n1\n",
    "empty.csv": "",
    "directed.csv": "0,1\n0,0\n",
    "loop.csv": "1,1\n1,0\n",
    "negative.csv": "0,-1\n-1,0\n",
    "nan.csv": "0,nan\nnan,0\n",
    "twins.csv": ",a,a\na,0,1\na,1,0\n",
    "text.npy": "0,1\n1,0\n",
    "torn.gexf": "<gexf>",
    "directed.net": '*vertices 2\n1 "a"\n2 "b"\n*arcs\n1 2\n',
    "multi.txt": "0 1\n1 0\n",
    "graph": "0 1\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, name):
    path = tmp_path / name
    path.write_text(BAD[name])
    with pytest.raises(InputError) as caught:
        load(str(path))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_of_two_words_is_no_weight(tmp_path):
    (tmp_path / "cities.txt").write_text("New York Paris\nParis Rome\n")
    with pytest.raises(InputError, match=r"edge New-York is 'Paris'.*names that hold blanks go into a \.csv"):
        load(str(tmp_path / "cities.txt"))


def test_a_file_without_nodes_is_empty_and_not_directed(tmp_path):
    (tmp_path / "none.net").write_text("hello\n")
    with pytest.raises(InputError, match=r"none\.net: the graph is empty"):
        load(str(tmp_path / "none.net"))


def test_what_is_no_text_or_no_file_is_refused(tmp_path):
    (tmp_path / "raw.edges").write_bytes(b"\xff\xfe0 1")
    (tmp_path / "folder.json").mkdir()
    np.save(tmp_path / "pickled.npy", np.array([[None]]), allow_pickle=True)
    np.save(tmp_path / "line.npy", np.ones(4))
    np.save(tmp_path / "complex.npy", 1j * (1 - np.eye(3)))
    for name in ("raw.edges", "folder.json", "absent.gml", "pickled.npy", "line.npy", "complex.npy"):
        with pytest.raises(InputError, match=name):
            load(str(tmp_path / name))


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(list(FORMATS)), st.text(max_size=60))
def test_no_text_whatever_raises_anything_else(tmp_path_factory, suffix, text):
    path = tmp_path_factory.mktemp("any") / f"any{suffix}"
    path.write_text(text)
    with contextlib.suppress(InputError):
        load(str(path))


def test_every_kind_and_every_format_is_bundled():
    assert {file.suffix for file in bundled().values()} == {".graphml", ".gml", ".edges", ".adjlist", ".json"}
    kinds = [
        "ring",
        "path",
        "star",
        "complete",
        "grid",
        "torus",
        "hypercube",
        "regular",
        "er5",
        "er20",
        "ws",
        "ba",
    ]
    for kind in [*kinds, "barbell", "karate"]:
        assert any(name.startswith(kind) for name in bundled()), kind
    for name, file in bundled().items():
        assert load(name).fingerprint == load(file.name).fingerprint
        assert len(provenance(file)) > 20


def test_the_package_and_the_checkout_hold_the_same_files():
    endings = (".graphml", ".gml", ".edges", ".adjlist", ".json")
    checkout = [file for file in (ROOT / "topologies").iterdir() if file.suffix in endings]
    assert {f.name: f.read_bytes() for f in bundled().values()} == {f.name: f.read_bytes() for f in checkout}


def test_the_script_makes_the_bundled_networks_again(tmp_path):
    where = importlib.util.spec_from_file_location("make", ROOT / "topologies" / "make.py")
    make = importlib.util.module_from_spec(where)
    where.loader.exec_module(make)
    make.main(tmp_path)
    made = {file.name for file in tmp_path.iterdir()}
    assert made == {file.name for file in bundled().values()}
    for name, file in bundled().items():
        assert load(str(tmp_path / file.name)).fingerprint == load(name).fingerprint
        assert provenance(tmp_path / file.name) == provenance(file)


def test_the_real_networks_are_those_of_networkx():
    graph = nx.karate_club_graph()
    assert load("karate").edges.tolist() == sorted(sorted(edge) for edge in graph.edges())
    families = load("florentine")
    named = {frozenset(families.names[i] for i in edge) for edge in families.edges}
    assert named == {frozenset(edge) for edge in nx.florentine_families_graph().edges()}
