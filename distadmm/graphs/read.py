"""Graph files as texts: edge list, adjacency list or matrix, node-link JSON.  What they hold is checked elsewhere.

`Changing` is a network whose edges come and go, as a file of several graphs or a random process tells it.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distadmm.errors import InputError, require, told

if TYPE_CHECKING:
    from distadmm.graphs.topology import Topology


class Raw(NamedTuple):
    """A graph as a file tells it."""

    nodes: dict[str, dict[str, Any]]  # name -> attributes, in the order of the file
    edges: list[tuple[str, str, dict[str, Any]]]  # each edge once; twice means a multigraph
    directed: bool = False


def edge_list(text: str, source: str) -> Raw:
    """Lines `a b`, `a b 1.5` (a weight) or `a b {'latency': 0.02}`; blank or comma between; # starts a comment."""
    nodes: dict[str, dict[str, Any]] = {}
    edges = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        ends, brace, table = line.partition("{")
        parts = ends.replace(",", " ").split()
        if len(parts) not in ((2,) if brace else (2, 3)):
            raise InputError(f"{source}, line {number}: found {line[:60]!r}; needed: two nodes, as in: 0 1")
        attributes: dict[str, Any] = {}
        if brace:
            wrong = f"{source}, line {number}: {line[:60]!r} has no readable {{...}}; write: 0 1 {{'latency': 0.02}}"
            with told(wrong, ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                attributes = dict(ast.literal_eval(brace + table))
        elif len(parts) == 3:
            attributes = {"weight": _number(parts[2])}
        a, b = parts[:2]
        nodes.setdefault(a, {})
        nodes.setdefault(b, {})
        edges.append((a, b, attributes))
    return Raw(nodes, edges)


def adjacency_list(text: str, source: str) -> Raw:
    """Lines `a b c d`: a is next to b, c and d.  Each edge stands at one of its ends, or every edge at both."""
    nodes: dict[str, dict[str, Any]] = {}
    listed: dict[tuple[str, str], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = line.split("#", 1)[0].replace(",", " ").split()
        for name in parts:
            nodes.setdefault(name, {})
        for b in parts[1:]:
            a = parts[0]
            if (a, b) in listed:
                raise InputError(
                    f"{source}, line {number}: edge {a}-{b} was already in line {listed[a, b]}; "
                    "a multigraph is no network here, list it once"
                )
            listed[a, b] = number
    both = {edge for edge in listed if edge[::-1] in listed}
    once = [edge for edge in listed if edge not in both]
    if once and any(a != b for a, b in both):
        (a, b), (c, d) = once[0], next((a, b) for a, b in listed if (b, a) in listed and a != b)
        raise InputError(
            f"{source}: {c}-{d} is listed at both ends but {a}-{b} only at {a}, so the graph looks directed; "
            "list every edge at one end, or every edge at both"
        )
    rank = {name: place for place, name in enumerate(nodes)}
    return Raw(nodes, [(a, b, {}) for a, b in listed if once or rank[a] <= rank[b]])


def node_link(text: str, source: str) -> Raw:
    """{"nodes": [{"id": 0}, ...], "links": [{"source": 0, "target": 1}, ...]}; "edges" for "links" is the same."""
    with told(f"{source} is not valid JSON (REASON); needed: node-link JSON", ValueError, RecursionError):
        content = json.loads(text)
    shape = 'needed: {"nodes": [{"id": ...}], "links" or "edges": [{"source": ..., "target": ...}]}'
    require(
        isinstance(content, dict) and isinstance(content.get("nodes"), list),
        f'{source} has no "nodes"; {shape}',
    )
    links = content.get("links", content.get("edges"))
    require(isinstance(links, list), f'{source} has neither "links" nor "edges"; {shape}')
    nodes: dict[str, dict[str, Any]] = {}
    for node in content["nodes"]:
        name = node.get("id") if isinstance(node, dict) else None
        require(_is_name(name), f"{source}: {str(node)[:60]} is no node with an id; {shape}")
        require(str(name) not in nodes, f"{source}: node {name} is there twice; give each node its own id")
        nodes[str(name)] = {key: value for key, value in node.items() if key != "id"}
    edges = []
    for link in links:
        a, b = (link.get("source"), link.get("target")) if isinstance(link, dict) else (None, None)
        require(_is_name(a) and _is_name(b), f"{source}: {str(link)[:60]} is no edge; {shape}")
        for end in (str(a), str(b)):
            require(
                end in nodes, f"{source}: the edge {a}-{b} ends at {end}, which is no node; add it to nodes"
            )
        rest = {key: value for key, value in link.items() if key not in ("source", "target", "key")}
        edges.append((str(a), str(b), rest))
    return Raw(nodes, edges, content.get("directed", False) is not False)


def table(text: str, source: str) -> Raw:
    """A square of numbers, 0 for no edge; with an empty first cell, names of the nodes stand above and before it.

    Or an edge a line: below a header such as source,target, or two names, or two and a weight, in lines that make no
    square.
    """
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    comma = next((mark for mark in ",;\t" if lines and mark in lines[0]), ",")
    rows = [[cell.strip().strip('"') for cell in line.split(comma)] for line in lines]
    heads = [cell.lower() for cell in rows[0]] if rows else []
    headed = len(_FROM & {*heads}) == len(_TO & {*heads}) == 1
    width = {len(row) for row in rows}
    if headed or (width in ({2}, {3}) and len(rows) not in width):
        return _edge_table(rows[headed:], heads if headed else ["source", "target", "weight"], source, headed)
    names = rows[0][1:] if rows and rows[0][0] == "" else None
    if names is not None:
        rows = [row[1:] for row in rows[1:]]
    with told(f"{source} is no table of numbers; {_SQUARE}", ValueError):
        return _matrix(np.array(rows, float), names, source)


_FROM, _TO = {"source", "from", "src", "u"}, {"target", "to", "dst", "v"}


def _edge_table(rows: list[list[str]], heads: list[str], source: str, headed: bool) -> Raw:
    """An edge a row; what stands in the other columns are its attributes."""
    a, b = (next(j for j, head in enumerate(heads) if head in ends) for ends in (_FROM, _TO))
    nodes: dict[str, dict[str, Any]] = {}
    edges, directed = [], False
    for number, row in enumerate(rows, 1 + headed):
        right = len(row) <= len(heads) and min(len(row) - a, len(row) - b) > 0 and row[a] and row[b]
        require(
            right, f"{source}, line {number}: found {','.join(row)[:60]!r}; needed: two nodes, as in: 0,1"
        )
        told = {head: _number(cell) for head, cell in zip(heads, row) if cell and head not in _FROM | _TO}
        directed |= str(told.pop("type", "")).lower() == "directed"
        nodes |= {row[end]: {} for end in (a, b)}
        edges.append((row[a], row[b], told))
    return Raw(nodes, edges, directed)


def adjacency_array(text: str, source: str) -> Raw:
    """The same as an array of numpy's; `text` has one character a byte."""
    none = (
        *(ValueError, TypeError, EOFError, OSError, AttributeError, SyntaxError),
        *(tokenize.TokenError, zipfile.BadZipFile),
    )
    with told(f"{source} is no array of numbers as numpy.save writes it; {_SQUARE}", *none):
        matrix = np.load(io.BytesIO(text.encode("latin-1")), allow_pickle=False)
        matrix = matrix.astype(complex if matrix.dtype.kind == "c" else float)
    require(not np.iscomplexobj(matrix), f"{source} holds complex numbers; {_SQUARE}")
    return _matrix(matrix, None, source)


_SQUARE = (
    "needed: a square adjacency matrix, a row a node, 0 for no edge, or edges below the header source,target"
)


def _matrix(matrix: np.ndarray, names: list[str] | None, source: str) -> Raw:
    n = len(matrix) if matrix.ndim else 0
    require(matrix.shape == (n, n), f"{source} is of shape {matrix.shape}; {_SQUARE}")
    odd = matrix[~((matrix >= 0) & np.isfinite(matrix))]
    require(not odd.size, f"{source} holds {odd[:1]}; {_SQUARE}")
    known = [str(i) for i in range(n)] if names is None else names
    require(len(set(known)) == n, f"{source} has {n} rows for {len(set(known))} names; {_SQUARE}")
    plain = bool(np.isin(matrix, (0, 1)).all())
    edges = [
        (known[i], known[j], {} if plain else {"weight": float(matrix[i, j])})
        for i, j in np.argwhere(np.triu(matrix)).tolist()
    ]
    return Raw({name: {} for name in known}, edges, not np.array_equal(matrix, matrix.T))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _is_name(value: Any) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


@dataclass(frozen=True, eq=False)
class Changing:
    """At step t the edges of graph t mod T, each of them with probability `p`, both directions or none."""

    union: Topology  # every edge that ever is; connected
    graphs: np.ndarray  # (T, m) booleans: is edge e of the union in graph t
    p: float = 1.0
    seed: int = 0

    @property
    def constant(self) -> bool:
        return self.p == 1.0 and bool(self.graphs.all())

    def active(self, step: int) -> np.ndarray:
        """m booleans: which of `union.edges` are there at `step` = 0, 1, 2, ...; the same on every rank."""
        here = self.graphs[step % len(self.graphs)]
        if self.p == 1.0:
            return here
        purpose = 3  # links
        sequence = np.random.SeedSequence(entropy=self.seed, spawn_key=(purpose, step))
        return here & (np.random.Generator(np.random.PCG64(sequence)).random(here.size) < self.p)


def _pajek(text: str, source: str) -> Raw:
    raw = _by_networkx("parse_pajek", text, source)
    plain = all(table.get("weight") == 1 for *_, table in raw.edges)  # what is written there for none
    edges = [(a, b, {}) for a, b, _ in raw.edges] if plain else raw.edges
    nodes: dict[str, dict[str, Any]] = {name: {} for name in raw.nodes}  # it tells where to draw them
    return raw._replace(nodes=nodes, edges=edges)


def _by_networkx(parser: str, text: str, source: str, **how: Any) -> Raw:
    import networkx

    require(text.strip(), f"{source}: the file is empty; give a graph with at least two nodes and an edge")
    try:
        graph = getattr(networkx, parser)(io.BytesIO(text.encode()) if parser == "read_gexf" else text, **how)
    except Exception as error:  # whatever a parser of foreign text raises, the text is the reason
        what = str(error) or type(error).__name__
        raise InputError(
            f"{source} is not readable as {Path(source).suffix[1:]} ({what}); mend the file"
        ) from None
    return of_graph(graph)


def of_graph(graph: Any) -> Raw:
    """What a networkx graph tells; its labels are the names, where no two are alike."""
    labels = [str(table.get("label", node)) for node, table in graph.nodes(data=True)]
    if len(set(labels)) < len(labels):
        labels = [str(node) for node in graph]
    label = dict(zip(graph, labels))
    nodes = {label[node]: dict(table) for node, table in graph.nodes(data=True)}
    edges = [(label[a], label[b], dict(table)) for a, b, table in graph.edges(data=True)]
    return Raw(nodes, edges, graph.is_directed())


FORMATS: dict[str, Callable[[str, str], Raw]] = {
    ".graphml": partial(_by_networkx, "parse_graphml"),
    ".gml": partial(_by_networkx, "parse_gml", label="id"),
    ".gexf": partial(_by_networkx, "read_gexf"),
    ".net": _pajek,
    ".edges": edge_list,
    ".edgelist": edge_list,
    ".txt": edge_list,
    ".adjlist": adjacency_list,
    ".json": node_link,
    ".csv": table,
    ".npy": adjacency_array,
}
