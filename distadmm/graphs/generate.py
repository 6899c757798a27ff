"""Networks made from a line of text such as `ring:20` or `er:20:p=0.3:seed=1`.

Every generator returns (number of nodes, list of edges).  Random ones draw nothing but uniform numbers,
from `SeedSequence(entropy=seed, spawn_key=(purpose, attempt))`, so a line means the same graph for every
version of every library.  A random graph that comes out disconnected is drawn again with the next attempt.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from distadmm.errors import InputError, require, told

Array = np.ndarray
Edges = tuple[int, Array]

NODES_MOST = 1_000_000
EDGES_MOST = 20_000_000
ATTEMPTS = 1000


def ring(n: int) -> Edges:
    """ring:N -- node i next to i-1 and i+1"""
    require(n >= 3, f"a ring has at least 3 nodes, not {n}; for two nodes use path:2")
    return n, np.array([(i, (i + 1) % n) for i in range(_nodes(n))])


def path(n: int) -> Edges:
    """path:N -- a ring that is not closed"""
    return n, np.array([(i, i + 1) for i in range(_nodes(n) - 1)])


def star(n: int) -> Edges:
    """star:N -- node 0 in the middle, N-1 leaves"""
    return n, np.array([(0, i) for i in range(1, _nodes(n))])


def complete(n: int) -> Edges:
    """complete:N -- every node next to every other"""
    _few_edges(_nodes(n) * (n - 1) / 2)
    return n, np.transpose(np.triu_indices(n, 1))


def grid(shape: tuple[int, ...]) -> Edges:
    """grid:AxB -- a rectangle, row by row (AxBxC: a box)"""
    return _lattice(shape, closed=False)


def torus(shape: tuple[int, ...]) -> Edges:
    """torus:AxB -- a grid whose opposite sides meet"""
    require(min(shape) >= 3, f"each side of a torus is at least 3, not {min(shape)}; for less use grid:AxB")
    return _lattice(shape, closed=True)


def hypercube(d: int) -> Edges:
    """hypercube:D -- 2^D nodes, neighbours differ in one bit"""
    require(1 <= d <= 20, f"hypercube:{d} is not between 1 and 20; it has 2^D nodes")
    nodes = np.arange(2**d)
    without = [(nodes[nodes & bit == 0], bit) for bit in 1 << np.arange(d)]
    return 2**d, np.concatenate([np.stack([low, low | bit], axis=1) for low, bit in without])


def tree(n: int, b: int = 2) -> Edges:
    """tree:N:b=2 -- node i hangs below node (i-1)//b"""
    require(b >= 1, f"b={b} children a node; give at least 1")
    return n, np.array([((i - 1) // b, i) for i in range(1, _nodes(n))])


def barbell(m: int, length: int = 0) -> Edges:
    """barbell:M:L -- two complete graphs of M nodes, joined by a path of L nodes"""
    require(m >= 3, f"each bell has at least 3 nodes, not {m}; for less use path:N")
    require(length >= 0, f"the bar has {length} nodes; give 0 or more")
    _few_edges(m * (m - 1) + length + 1)
    n = _nodes(2 * m + length)
    _, bell = complete(m)
    return n, np.concatenate([bell, [(i, i + 1) for i in range(m - 1, m + length)], bell + m + length])


def regular(n: int, d: int = 4, seed: int = 0) -> Edges:
    """regular:N:d=4:seed=1 -- random, every node has d neighbours"""
    require(1 <= d < _nodes(n), f"regular:{n} with d={d}; give d between 1 and {n - 1}")
    require(n * d % 2 == 0, f"regular:{n}:d={d} is impossible: N times d must be even")
    require(d >= 2 or n == 2, f"regular:{n}:d=1 is pairs of nodes and never connected; give d of at least 2")
    _few_edges(n * d / 2)
    if d > (n - 1) / 2 and n > 2:  # few pairs are absent, so draw those; the pairing below would get stuck
        return n, _connected(n, seed, lambda rng: _absent(n, _pairing(rng, n, n - 1 - d)), "raise d")
    return n, _connected(n, seed, lambda rng: _pairing(rng, n, d), "raise d")


def er(n: int, p: float = 0.3, seed: int = 0) -> Edges:
    """er:N:p=0.3:seed=1 -- Erdos-Renyi: each pair joined with probability p"""
    require(0 < p <= 1, f"p={p} is no probability of an edge; give 0 < p <= 1")
    _few_edges(_nodes(n) * (n - 1) / 2 * p)

    def draw(rng: np.random.Generator) -> Array:
        rows = [np.flatnonzero(rng.random(n - 1 - i) < p) + i + 1 for i in range(n - 1)]
        return np.stack([np.repeat(np.arange(n - 1), [r.size for r in rows]), np.concatenate(rows)], axis=1)

    return n, _connected(n, seed, draw, f"raise p (above ln(N)/N = {math.log(n) / n:.3g})")


def ws(n: int, k: int = 4, p: float = 0.1, seed: int = 0) -> Edges:
    """ws:N:k=4:p=0.1:seed=1 -- Watts-Strogatz: a ring of k nearest neighbours, edges rewired with probability p"""
    require(
        k >= 2 and k % 2 == 0 and k < _nodes(n), f"k={k} of ws:{n} must be even, at least 2 and below {n}"
    )
    require(0 <= p <= 1, f"p={p} is no probability of rewiring; give 0 <= p <= 1")
    _few_edges(n * k / 2)

    def draw(rng: np.random.Generator) -> Array:
        near: list[set[int]] = [{(i + s) % n for s in range(-(k // 2), k // 2 + 1) if s} for i in range(n)]
        for step in range(1, k // 2 + 1):
            for i, chance in enumerate(rng.random(n).tolist()):
                j = (i + step) % n
                if chance >= p or len(near[i]) == n - 1 or j not in near[i]:
                    continue
                new = i
                while new == i or new in near[i]:
                    new = int(rng.random() * n)
                near[i] ^= {j, new}
                near[j].remove(i)
                near[new].add(i)
        return np.array([(i, j) for i in range(n) for j in sorted(near[i]) if i < j])

    return n, _connected(n, seed, draw, "raise k")


def ba(n: int, m: int = 2, seed: int = 0) -> Edges:
    """ba:N:m=2:seed=1 -- Barabasi-Albert: each new node joins m old ones, the likelier the more edges they have"""
    require(1 <= m < _nodes(n), f"m={m} of ba:{n} must be at least 1 and below {n}")
    _few_edges(n * m)
    rng = _generator(seed, 0)
    edges = [(0, i) for i in range(1, m + 1)]
    ends = [node for edge in edges for node in edge]  # a node stands here once for each of its edges
    for new in range(m + 1, n):
        old: set[int] = set()
        while len(old) < m:
            old.add(ends[int(rng.random() * len(ends))])
        for node in sorted(old):
            edges.append((node, new))
            ends += (node, new)
    return n, np.array(edges)


GENERATORS: dict[str, Callable[..., Edges]] = {
    make.__name__: make
    for make in (ring, path, star, complete, grid, torus, hypercube, tree, barbell, regular, er, ws, ba)
}


def make(text: str) -> Edges:
    name, *parts = text.split(":")
    if name not in GENERATORS:
        near = difflib.get_close_matches(name, GENERATORS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"unknown generator {name!r} in {text!r}; {hint}known: {', '.join(GENERATORS)}")
    function = GENERATORS[name]
    known = inspect.signature(function).parameters
    usage = (function.__doc__ or "").split(" -- ")[0]
    values: dict[str, Any] = {}
    for position, part in enumerate(parts):
        key, equals, value = part.partition("=")
        if not equals:
            require(position < len(known), f"{text}: {part!r} is one value too many; write {usage}")
            key, value = list(known)[position], part
        require(key in known, f"{text}: unknown {key!r}; write {usage}")
        require(key not in values, f"{text}: {key} is given twice; write {usage}")
        values[key] = _value(str(known[key].annotation), key, value, text, usage)
    for key, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and key not in values:
            raise InputError(f"{text}: the number of nodes is missing; write {usage}")
    with told(f"{text}: REASON", InputError):
        return function(**values)


def _value(kind: str, key: str, value: str, text: str, usage: str) -> Any:
    needed = {"int": "a whole number", "float": "a number"}.get(kind, "AxB with whole A, B")
    with told(f"{text}: {key} is {value!r}; needed: {needed}, as in {usage}", ValueError):
        if kind == "int":
            require(int(value) >= 0, f"{text}: {key}={int(value)} is negative; write {usage}")
            return int(value)
        if kind == "float":
            return float(value)
        sides = tuple(int(side) for side in value.split("x"))
        whole = len(sides) >= 2 and min(sides) >= 1
        require(whole, f"{text}: {value!r} is no AxB with whole A, B; write {usage}")
        return sides


def _nodes(n: int) -> int:
    require(n >= 2, f"a network has at least 2 nodes, not {n}")
    require(n <= NODES_MOST, f"{n} nodes are too many; at most {NODES_MOST}")
    return n


def _few_edges(m: float) -> None:
    require(m <= EDGES_MOST, f"about {m:.3g} edges are too many; at most {EDGES_MOST}")


def _lattice(shape: tuple[int, ...], closed: bool) -> Edges:
    n = _nodes(math.prod(shape))
    label = np.arange(n).reshape(shape)
    edges = []
    for axis in range(len(shape)):
        ahead = np.roll(label, -1, axis)
        keep = label if closed else np.delete(label, -1, axis)
        ahead = ahead if closed else np.delete(ahead, -1, axis)
        edges.append(np.stack([keep.ravel(), ahead.ravel()], axis=1))
    return n, np.concatenate(edges)


def _generator(seed: int, attempt: int) -> np.random.Generator:
    purpose = 2  # graphs
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(purpose, attempt))
    return np.random.Generator(np.random.PCG64(sequence))


def _connected(n: int, seed: int, draw: Callable[[np.random.Generator], Array | None], remedy: str) -> Array:
    """The first connected graph of the attempts 0, 1, 2, ..."""
    for attempt in range(ATTEMPTS):
        edges = draw(_generator(seed, attempt))
        if edges is not None and not components(n, edges).any():
            return edges
    raise InputError(f"none of {ATTEMPTS} draws was connected; {remedy}")


def components(n: int, edges: Array) -> Array:
    """For each node the least node it is connected to: every node takes the least label it sees, and so on."""
    label = np.arange(n)
    while True:
        least = label.copy()
        if len(edges):
            np.minimum.at(least, edges[:, 0], label[edges[:, 1]])
            np.minimum.at(least, edges[:, 1], label[edges[:, 0]])
        least = least[least]
        if np.array_equal(least, label):
            return label
        label = least


def _pairing(rng: np.random.Generator, n: int, d: int) -> Array | None:
    """Steger and Wormald's pairing: d stubs a node, joined at random, unfit pairs thrown back; None if stuck."""
    stubs = np.repeat(np.arange(n), d)
    taken = np.zeros(0, dtype=np.int64)
    while stubs.size:
        a, b = stubs[np.argsort(rng.random(stubs.size), kind="stable")].reshape(-1, 2).T
        code = np.minimum(a, b) * n + np.maximum(a, b)
        first = np.zeros(code.size, dtype=bool)
        first[np.unique(code, return_index=True)[1]] = True
        fit = (a != b) & first & ~np.isin(code, taken)
        taken = np.concatenate([taken, code[fit]])
        stubs = np.concatenate([a[~fit], b[~fit]])
        if not fit.any():
            nodes = np.unique(stubs)
            i, j = np.triu_indices(nodes.size, 1)
            if np.isin(nodes[i] * n + nodes[j], taken).all():  # no pair that is left would fit
                return None
    return np.stack([taken // n, taken % n], axis=1)


def _absent(n: int, edges: Array | None) -> Array | None:
    """The pairs that are not among `edges`."""
    if edges is None:
        return None
    i, j = np.triu_indices(n, 1)
    absent = ~np.isin(i * n + j, edges.min(axis=1) * n + edges.max(axis=1)) if len(edges) else slice(None)
    return np.stack([i[absent], j[absent]], axis=1)
