"""Writes the network files beside it: python topologies/make.py [FOLDER]

Each file names its provenance in one line, from the table below.  The five formats are spread over the files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import networkx as nx

from distadmm.graphs import generate

# Random networks of 5 and 20 nodes are what the experiments of Recycled ADMM use; their edges are not published.
ER5 = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (1, 4), (2, 3), (3, 4)]
ER20 = [
    *[(0, 4), (0, 8), (1, 2), (1, 5), (1, 9), (1, 14), (1, 15), (1, 19), (2, 3), (2, 7), (2, 13), (2, 16)],
    *[(3, 4), (3, 5), (3, 9), (3, 17), (4, 9), (4, 14), (5, 11), (5, 14), (6, 9), (6, 17), (6, 18), (7, 16)],
    *[
        (8, 12),
        (8, 14),
        (9, 13),
        (9, 18),
        (9, 19),
        (10, 14),
        (11, 18),
        (12, 15),
        (12, 16),
        (12, 18),
        (14, 18),
    ],
    (18, 19),
]
PAPER = "Erdos-Renyi, {} nodes: the size in Zhang, Khalili and Liu, Recycled ADMM (2019), whose edges are unpublished"


def generated(spec: str) -> nx.Graph:
    """The graph of one line, with its provenance."""
    n, edges = generate.make(spec)
    graph = nx.empty_graph(n)
    graph.add_edges_from(edges.tolist())
    what = (generate.GENERATORS[spec.split(":")[0]].__doc__ or "").split(" -- ")[1]
    graph.graph["provenance"] = f"generated, {spec} ({what})"
    return graph


def listed(edges: Any, provenance: str) -> nx.Graph:
    graph = nx.empty_graph(1 + max(max(edge) for edge in edges))
    graph.add_edges_from(edges)
    graph.graph["provenance"] = provenance
    return graph


def real(graph: nx.Graph, provenance: str) -> nx.Graph:
    """Names and edges of a graph that networkx ships, without its weights."""
    plain = nx.Graph(provenance=provenance)
    plain.add_nodes_from(graph)
    plain.add_edges_from(graph.edges())
    return plain


def sites() -> nx.Graph:
    """Six sites; seconds of latency and bytes a second on the edges, a penalty eta at each node."""
    graph = nx.Graph(
        provenance="made up, an example of node attributes (eta) and edge attributes (latency, bandwidth)"
    )
    for name, eta in [
        ("Oslo", 0.5),
        ("Delft", 0.5),
        ("Lyon", 1.0),
        ("Turin", 1.0),
        ("Graz", 1.5),
        ("Porto", 2.0),
    ]:
        graph.add_node(name, eta=eta)
    for a, b, latency, bandwidth in [
        ("Oslo", "Delft", 0.012, 1.25e8),
        ("Delft", "Lyon", 0.009, 1.25e8),
        ("Lyon", "Turin", 0.004, 1.25e9),
        ("Turin", "Graz", 0.008, 1.25e8),
        ("Graz", "Oslo", 0.019, 2.5e7),
        ("Lyon", "Porto", 0.016, 2.5e7),
    ]:
        graph.add_edge(a, b, latency=latency, bandwidth=bandwidth)
    return graph


def networks() -> dict[str, nx.Graph]:
    """File name -> graph."""
    return {
        "er5.edges": listed(ER5, PAPER.format(5)),
        "er20.edges": listed(ER20, PAPER.format(20)),
        "path10.edges": generated("path:10"),
        "star20.edges": generated("star:20"),
        "ring20.adjlist": generated("ring:20"),
        "complete8.adjlist": generated("complete:8"),
        "tree15.adjlist": generated("tree:15:b=2"),
        "grid4x5.graphml": generated("grid:4x5"),
        "torus4x5.graphml": generated("torus:4x5"),
        "sites6.graphml": sites(),
        "hypercube4.gml": generated("hypercube:4"),
        "ba20.gml": generated("ba:20:m=2:seed=1"),
        "karate.gml": real(
            nx.karate_club_graph(),
            "friendships in a karate club, W. W. Zachary, J. Anthropological Research 33 (1977), from networkx",
        ),
        "regular20d4.json": generated("regular:20:d=4:seed=1"),
        "ws20.json": generated("ws:20:k=4:p=0.1:seed=1"),
        "barbell5x2.json": generated("barbell:5:2"),
        "florentine.json": real(
            nx.florentine_families_graph(),
            "marriages of Florentine families, R. Breiger and P. Pattison, Social Networks 8 (1986), from networkx",
        ),
    }


def edge_list(graph: nx.Graph) -> str:
    return comment(graph) + "".join(f"{a} {b}\n" for a, b in sorted(graph.edges()))


def adjacency_list(graph: nx.Graph) -> str:
    lines = [" ".join(map(str, [a, *sorted(b for b in graph[a] if b > a)])) for a in sorted(graph)]
    return comment(graph) + "\n".join(lines) + "\n"


def comment(graph: nx.Graph) -> str:
    return f"# provenance: {graph.graph['provenance']}\n"


def graphml(graph: nx.Graph) -> str:
    plain = graph.copy()
    provenance = plain.graph.pop("provenance")
    head, *body = nx.generate_graphml(plain)
    return "\n".join(
        ['<?xml version="1.0" encoding="utf-8"?>', f"<!-- provenance: {provenance} -->", head, *body, ""]
    )


def gml(graph: nx.Graph) -> str:
    return "\n".join([*nx.generate_gml(graph), ""])


def node_link(graph: nx.Graph) -> str:
    """networkx 3.4 and later write "edges", most other programs "links": one file of either is enough."""
    links = "edges" if "Medici" in graph else "links"
    rows = {
        "nodes": [{"id": node, **table} for node, table in graph.nodes(data=True)],
        links: [{"source": a, "target": b, **table} for a, b, table in graph.edges(data=True)],
    }
    lists = [
        f'  "{key}": [\n    ' + ",\n    ".join(map(json.dumps, items)) + "\n  ]"
        for key, items in rows.items()
    ]
    head = '  "directed": false,\n  "multigraph": false,\n  "graph": {\n    "provenance": '
    return "{\n" + head + json.dumps(graph.graph["provenance"]) + "\n  },\n" + ",\n".join(lists) + "\n}\n"


WRITERS = {
    ".edges": edge_list,
    ".adjlist": adjacency_list,
    ".graphml": graphml,
    ".gml": gml,
    ".json": node_link,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, graph in networks().items():
        (folder / name).write_text(WRITERS[Path(name).suffix](graph))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
