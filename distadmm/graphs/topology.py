"""The network: which node talks to which.

A network here is an undirected, connected graph of at least two nodes without loops and parallel edges;
anything else is refused in one line.  Rank 0 alone uses this module, before the first iteration, so it
imports nothing but numpy until a file (GraphML, GML) or a question (facts) needs more.
"""

import contextlib
import difflib
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.errors import InputError, require, told
from distadmm.files import held, read_bytes
from distadmm.graphs import generate
from distadmm.graphs.facts import Array, Facts, blocks, cut, facts
from distadmm.graphs.generate import GENERATORS
from distadmm.graphs.read import FORMATS, Changing, Raw, of_graph

__all__ = [
    "GENERATORS", "Changing", "Facts", "Topology", "blocks", "bundled", "cut", "facts", "from_edges",
    "load", "load_changing", "provenance",
]  # fmt: skip

BUNDLE = Path(__file__).parent.parent / "data" / "topologies"

# What a number on a node or an edge may be: these have a meaning, any other numeric attribute is kept as it is.
POSITIVE, NOT_NEGATIVE = "a number above 0", "a number of at least 0"
NODE_MEANING = {"eta": POSITIVE, "alpha": POSITIVE, "theta": POSITIVE, "q": POSITIVE, "gamma": NOT_NEGATIVE}
EDGE_MEANING = {"weight": POSITIVE, "latency": NOT_NEGATIVE, "bandwidth": POSITIVE}


@dataclass(frozen=True, eq=False)
class Topology:
    """An undirected connected graph; node i's neighbours are indices[indptr[i]:indptr[i+1]], ascending."""

    names: tuple[str, ...]  # of the nodes; whole numbers ascend, other names keep the file's order
    edges: Array  # (m, 2), i < j in each row, rows ascending
    indptr: Array
    indices: Array
    edge_index: Array  # for each entry of `indices`, the row of `edges` it belongs to
    node_attributes: dict[str, Array]  # n numbers each, NaN where the file is silent
    edge_attributes: dict[str, Array]  # m numbers each, likewise
    source: str

    @property
    def n(self) -> int:
        return len(self.names)

    @cached_property
    def degrees(self) -> Array:
        return np.diff(self.indptr)

    def neighbours(self, i: int) -> Array:
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def adjacency(self) -> Any:
        """A, as a scipy sparse array."""
        from scipy.sparse import csr_array

        return csr_array((np.ones(self.indices.size), self.indices, self.indptr), shape=(self.n, self.n))

    def laplacian(self) -> Any:
        """D - A, as a scipy sparse array."""
        from scipy.sparse import diags_array

        return (diags_array(self.degrees.astype(float)) - self.adjacency()).tocsr()

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal names, edges and attributes: tells on resume that a file has been changed."""
        digest = hashlib.sha256(repr(self.names).encode() + self.edges.tobytes())
        for table in (self.node_attributes, self.edge_attributes):
            for key in sorted(table):
                digest.update(key.encode() + b"\0" + table[key].tobytes())
        return digest.hexdigest()


def from_edges(
    n: int,
    edges: Any,
    *,
    names: Sequence[str] | None = None,
    node_attributes: Mapping[str, Array] | None = None,
    edge_attributes: Mapping[str, Array] | None = None,
    source: str = "the given edges",
    connected: bool = True,
) -> Topology:
    """The checked network of n nodes with these (i, j); `connected=False` waives that one demand."""
    names = tuple(map(str, range(n))) if names is None else tuple(names)
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    require(n >= 1, f"{source}: the graph is empty; give at least two nodes and an edge")
    require(n >= 2, f"{source}: one node ({names[0]}) is no network; give at least two nodes and an edge")
    require(
        edges.size == 0 or (edges.min() >= 0 and edges.max() < n),
        f"{source}: an edge ends at a node outside 0..{n - 1}; number the nodes from 0",
    )
    loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
    if loops.size:
        raise InputError(
            f"{source}: self-loops: found {loops.size}, the first at node {names[edges[loops[0], 0]]}; remove them, "
            "a node needs no message to itself"
        )
    edges = np.sort(edges, axis=1)
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    edges = edges[order]
    twice = np.flatnonzero((np.diff(edges, axis=0) == 0).all(axis=1))
    if twice.size:
        i, j = edges[twice[0]]
        raise InputError(
            f"{source}: parallel edges: found {twice.size}, the first between {names[i]} and {names[j]}; list each "
            "edge once, a multigraph is no network here"
        )
    if connected:
        part = generate.components(n, edges)
        parts, sizes = np.unique(part, return_counts=True)
        if parts.size > 1:
            small = parts[np.argmin(sizes)]
            inside = names[int(np.argmax(part == small))]
            raise InputError(
                f"{source}: not connected: found {parts.size} parts, the smallest of {sizes.min()} of {n} nodes "
                f"(with {inside}); join them with an edge or remove them"
            )
    ends = np.concatenate([edges, edges[:, ::-1]])
    slots = np.lexsort((ends[:, 1], ends[:, 0]))
    return Topology(
        names=names,
        edges=edges,
        indptr=np.concatenate([[0], np.cumsum(np.bincount(ends[:, 0], minlength=n))]),
        indices=ends[slots, 1],
        edge_index=slots % max(len(edges), 1),
        node_attributes={key: np.asarray(value, float) for key, value in (node_attributes or {}).items()},
        edge_attributes={
            key: np.asarray(value, float)[order] for key, value in (edge_attributes or {}).items()
        },
        source=source,
    )


def load(text: str, *, connected: bool = True) -> Topology:
    """The network that `text` names: a file, a bundled network (`er20`) or a generator's line (`ring:20`)."""
    if (graph := held(text)) is not None:
        return of_networkx(graph, connected=connected)
    text = text.strip()
    known = bundled()
    if text in known:
        return _read(known[text], text, connected)
    path = Path(text)
    exists = os.path.exists(text)
    if exists or path.suffix.lower() in FORMATS:
        here = {file.name: file for file in known.values()}
        return _read(here[text] if text in here and not exists else path, text, connected)
    if text.startswith(("seq:", "links:")):
        raise InputError(
            f"{text} changes from step to step; needed here: one network that stays, such as er20"
        )
    if text in GENERATORS or (":" in text and "/" not in text):
        n, edges = generate.make(text)
        return from_edges(n, edges, source=text, connected=connected)
    near = difflib.get_close_matches(text, [*known, *GENERATORS], n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError(
        f"no network {text!r}; {hint}give a file ({', '.join(FORMATS)}), a generator such as ring:20, "
        f"or one of: {', '.join(known)}"
    )


def bundled() -> dict[str, Path]:
    """The networks that come with the package: name -> file."""
    if not BUNDLE.is_dir():
        return {}
    return {file.stem: file for file in sorted(BUNDLE.iterdir()) if file.suffix in FORMATS}


def provenance(path: Path) -> str:
    """Where a bundled file comes from: the rest of its line that says `provenance`."""
    for line in path.read_text().splitlines():
        if "provenance" in line:
            return line.split("provenance", 1)[1].replace("-->", "").strip('":, \t')
    return ""


def load_changing(text: str) -> Changing:
    """A network that may change from step to step; plain networks, which do not, are fine too.

    seq:a.edges,b.edges       step t has the edges of graph t mod 2; the graphs together must be connected
    links:p=0.8:seed=1:er20   each edge of er20 is there with probability 0.8, anew in each step
    """
    kind, colon, rest = text.strip().partition(":")
    if kind == "seq" and colon:
        return _together([load(part, connected=False) for part in rest.split(",")], text)
    if kind == "links" and colon:
        values = {"p": "", "seed": "0"}
        while (part := rest.partition(":"))[0].partition("=")[1]:
            key, _, value = part[0].partition("=")
            require(key in values, f"{text}: unknown {key!r}; write links:p=0.8:seed=1:NETWORK")
            values[key], rest = value, part[2]
        with told(f"{text}: found p={values['p']!r}; write links:p=0.8:seed=1:NETWORK", ValueError):
            p, seed = float(values["p"]), int(values["seed"])
        require(0 < p <= 1, f"{text}: p={p} is no probability of a link; give 0 < p <= 1")
        require(seed >= 0, f"{text}: seed={seed} is negative; give 0 or more")
        union = load(rest)
        return Changing(union, np.ones((1, len(union.edges)), bool), p, seed)
    union = load(text)
    return Changing(union, np.ones((1, len(union.edges)), bool))


def _together(graphs: Sequence[Topology], text: str) -> Changing:
    """The sequence of `graphs` on the union of their nodes and edges."""
    names = _sorted_names(dict.fromkeys(name for graph in graphs for name in graph.names))
    place = {name: i for i, name in enumerate(names)}
    at = [np.array([place[name] for name in graph.names]) for graph in graphs]
    edges = [np.sort(where[graph.edges], axis=1) for where, graph in zip(at, graphs)]
    rows, of = np.unique(np.concatenate(edges), axis=0, return_inverse=True)
    rows_of = np.split(of.ravel(), np.cumsum([len(e) for e in edges])[:-1])
    union = from_edges(
        len(names),
        rows,
        names=names,
        node_attributes=_merge(len(names), at, [graph.node_attributes for graph in graphs]),
        edge_attributes=_merge(len(rows), rows_of, [graph.edge_attributes for graph in graphs]),
        source=text,
    )
    for key in NODE_MEANING.keys() & union.node_attributes.keys():
        silent = np.flatnonzero(np.isnan(union.node_attributes[key]))
        require(
            not silent.size,
            f"{text}: {key} is missing for node {names[(*silent, 0)[0]]}; give it to all nodes",
        )
    active = np.zeros((len(graphs), len(rows)), bool)
    for here, mine in zip(active, rows_of):
        here[mine] = True
    return Changing(union, active)


def _merge(size: int, at: Sequence[Array], tables: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Columns of `size` numbers from those of several graphs; the first graph that gives a number decides."""
    columns: dict[str, Array] = {}
    for where, table in reversed(list(zip(at, tables))):
        for key, values in table.items():
            column = columns.setdefault(key, np.full(size, math.nan))
            column[where] = np.where(np.isnan(values), column[where], values)
    return columns


def _read(path: Path, source: str, connected: bool) -> Topology:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(
            f"{source}: the ending {suffix or '(none)'} does not say what it holds; rename it to one of: "
            f"{', '.join(FORMATS)}"
        )
    with told(f"cannot read {source}: REASON; see: python -m distadmm topology list"):
        content = read_bytes(path)
    with told(f"{source} is no text file (not UTF-8); give one of: {', '.join(FORMATS)}", UnicodeDecodeError):
        text = content.decode("latin-1" if suffix == ".npy" else "utf-8")
    return _checked(FORMATS[suffix](text, source), source, connected)


def of_networkx(graph: Any, *, connected: bool = True) -> Topology:
    """The network of a networkx graph: nodes whose names are whole numbers ascend, others keep its order."""
    if isinstance(graph, Topology):
        return graph
    require(
        hasattr(graph, "nodes") and hasattr(graph, "edges"),
        f"the network is of type {type(graph).__name__}; give a networkx graph, or a text such as ring:20",
    )
    return _checked(of_graph(graph), "the graph", connected)


def _checked(raw: Raw, source: str, connected: bool) -> Topology:
    undirected = not (raw.directed and raw.nodes)  # networkx reads a Pajek file without vertices as directed
    require(
        undirected, f"{source}: the graph is directed; neighbours talk both ways, so save it as undirected"
    )
    names = _sorted_names(raw.nodes)
    place = {name: i for i, name in enumerate(names)}
    return from_edges(
        len(names),
        [(place[a], place[b]) for a, b, _ in raw.edges],
        names=names,
        node_attributes=_columns([(f"node {a}", raw.nodes[a]) for a in names], NODE_MEANING, source),
        edge_attributes=_columns(
            [(f"edge {a}-{b}", table) for a, b, table in raw.edges], EDGE_MEANING, source
        ),
        source=source,
        connected=connected,
    )


def _sorted_names(names: Mapping[str, Any]) -> tuple[str, ...]:
    if all(name.isascii() and name.isdigit() for name in names):
        return tuple(sorted(names, key=int))
    return tuple(names)


def _columns(
    tables: Sequence[tuple[str, Mapping[str, Any]]], meaning: Mapping[str, str], source: str
) -> dict[str, Array]:
    """The numeric attributes of nodes or edges, as arrays; those with a meaning must be complete and sane."""
    columns = {}
    for key in dict.fromkeys(key for _, table in tables for key in table):
        column = np.array([_number(table.get(key)) for _, table in tables])
        if key in meaning:
            good = (column > 0 if meaning[key] == POSITIVE else column >= 0) & np.isfinite(column)
            for where, table in [tables[bad] for bad in np.flatnonzero(~good)[:1]]:
                found = repr(table[key]) if key in table else "missing"
                listed = source.endswith((".txt", ".edges", ".edgelist")) and isinstance(table.get(key), str)
                names = "; names that hold blanks go into a .csv" * listed
                raise InputError(
                    f"{source}: {key} of {where} is {found}; needed: {meaning[key]}, or no {key} anywhere{names}"
                )
        if all(np.isfinite(number) or table.get(key) is None for number, (_, table) in zip(column, tables)):
            columns[key] = column
    return columns


def _number(value: Any) -> float:
    """NaN for what is none."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
    return math.nan
