"""Sums of one vector a node over a spanning tree of the graph: the root adds them up, and tells everybody.

    tree = node.tree                             an algorithm with `tree = True` has it
    total = tree.sum(rows)                       rows (nodes here, k), int64, uint64 or float64; total (k,)
    total = tree.up(rows)                        the same at the rank of the root, None elsewhere
    a, b = tree.up((rows, more))                 of arrays of several types, which travel in one message
    a, b = tree.up((rows, more), codes=(RAW, c)) of which the second is rounded before it leaves a node
    words = tree.down(words or None, k, dtype)   what the root has, at every node
    facts = tree.flood({node: bytes, ...})       what every node says of itself, by node; over all edges, at set-up

Root: the node of largest degree (ties: the smallest number); breadth first, neighbours ascending.  A leaf sends its
vector to its parent; an inner node adds its children's, in ascending order, to its own and sends one vector on.

Held up by tests:
  * 2 (N - 1) messages a sum of N nodes, and one to each node that is not on the tree any more; only along edges of
    the graph, point to point between the ranks that host their ends; no collective takes place in a round;
  * integers wrap modulo 2^64; floats are added in the tree's order, which no placement of nodes changes;
  * what does not arrive in time, is of another length or bears another mark ends the sum with `Lost`, which names
    nodes; no partial sum goes on, and no answer depends on data.  What the root lacks it tells over all edges of the
    graph, so that nodes behind one that is gone hear of it;
  * a `guard` of the network, where there is one, has seen each node's own row before it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from distadmm.errors import require
from distadmm.ranks.fabric import Fabric, Lost
from distadmm.ranks.graph_network import Array, Network, Traffic
from distadmm.ranks.post import NO_MARK, Name, Post, packed, unpacked

if TYPE_CHECKING:
    from distadmm.ranks.conditions import Conditions

_UP, _DOWN, _GONE, _OVER, _FLOOD = b"up  ", b"down", b"gone", b"over", b"tell"
_MANY = 400  # nodes up to which the graph's diameter is worked out; above, a bound serves


class Code(Protocol):
    """How a row travels; what it is rounded to depends on it alone, so that placement changes no bit."""

    def size(self, row: Array) -> int: ...

    def pack(self, row: Array) -> bytes: ...

    def unpack(self, payload: bytes, like: Array) -> Array: ...


class _Raw:
    """As it is."""

    def size(self, row: Array) -> int:
        return row.nbytes

    def pack(self, row: Array) -> bytes:
        return row.tobytes()

    def unpack(self, payload: bytes, like: Array) -> Array:
        return np.frombuffer(payload, dtype=like.dtype)


RAW = _Raw()


class Shape(NamedTuple):
    """A rooted tree on some of the nodes; the same for whoever knows the graph."""

    root: int
    parent: dict[int, int | None]  # of each node of the tree
    children: dict[int, list[int]]  # ascending
    height: dict[int, int]  # edges down to the furthest leaf
    depth: dict[int, int]


def spanning(indptr: Array, indices: Array, roster: Sequence[int]) -> Shape:
    """The tree of the part of the graph on `roster`; of its neighbours, a node hangs on the one found first."""
    members = {int(i) for i in roster}
    require(members, "nobody is left")
    near = {i: [j for j in indices[indptr[i] : indptr[i + 1]].tolist() if j in members] for i in members}
    root = min(members, key=lambda i: (-len(near[i]), i))
    parent: dict[int, int | None] = {root: None}
    depth, order = {root: 0}, [root]
    for i in order:
        for j in near[i]:
            if j not in parent:
                parent[j], depth[j] = i, depth[i] + 1
                order.append(j)
    apart = sorted(members - set(order))
    require(not apart, f"the graph is not connected: there is no way from node {root} to node {apart[:1]}")
    children: dict[int, list[int]] = {i: [] for i in members}
    height = dict.fromkeys(members, 0)
    for i in reversed(order):
        above = parent[i]
        if above is not None:
            children[above].append(i)
            height[above] = max(height[above], height[i] + 1)
    return Shape(root, parent, {i: sorted(below) for i, below in children.items()}, height, depth)


def largest_part(indptr: Array, indices: Array, nodes: Sequence[int]) -> list[int]:
    """The largest connected part of the graph on `nodes`; of equal ones that with the smallest number."""
    left, best = set(nodes), list[int]()
    for start in sorted(left):
        if start in left:
            left.discard(start)
            part = [start]
            for i in part:
                near = [j for j in indices[indptr[i] : indptr[i + 1]].tolist() if j in left]
                left.difference_update(near)
                part += near
            best = part if len(part) > len(best) else best
    return sorted(best)


class Tree(Fabric):
    """What the nodes of this rank do in a tree over the whole graph."""

    def __init__(self, network: Network, within: float = 600.0):
        """`within`: seconds after which a sum has come or is lost, whoever is gone; 0: it is waited for."""
        self.network, self.within = network, within or math.inf
        self.n_nodes = network.n_nodes
        self.indptr, self.indices, owner, _ = network.roster
        self.post = Post(network.world, owner)
        self.setup = Traffic()  # what set-up sends, which rounds do not
        self.traffic = network.traffic
        self._number = 0
        self.conditions: Conditions | None = None  # who drops out, where that is tried out
        self.of(range(self.n_nodes))

    def of(self, roster: Sequence[int]) -> None:
        """From now on the tree is that of these nodes."""
        self.shape = spanning(self.indptr, self.indices, roster)
        here = {int(i) for i in self.network.nodes}
        self._inwards = sorted(here & self.shape.parent.keys(), key=lambda i: (-self.shape.depth[i], i))
        # From whom a node hears: those off the tree listen to one on it.
        self._above = dict(self.shape.parent)
        order = sorted(self.shape.parent, key=lambda i: (self.shape.depth[i], i))
        for i in order:
            for j in self._near(i):
                if j not in self._above and j not in self.lost:
                    self._above[j] = i
                    order.append(j)
        self._outwards = [i for i in order if i in here]  # one behind those who are out hears nothing
        self._below: dict[int, list[int]] = {i: [] for i in here}
        for j in sorted(self._above):
            above = self._above[j]
            if above is not None and above in here:
                self._below[above].append(j)

    def survive(self) -> None:
        """From now on a rank that is stopped or gone is out, in bounded time, and the others go on."""
        self.survives = self.network.world.dog.survives = True
        self.network.world.patience = self.patience / 2

    def _near(self, i: int) -> list[int]:
        return self.indices[self.indptr[i] : self.indptr[i + 1]].tolist()

    def without(self, nodes: Collection[int]) -> list[int]:
        """The nodes of the tree that are left, and hang together, when these are gone."""
        return largest_part(self.indptr, self.indices, sorted(self.shape.parent.keys() - set(nodes)))

    @property
    def patience(self) -> float:
        """Seconds that a node waits for another one that has nobody to wait for itself."""
        return self.within / (2 * self.shape.height[self.shape.root] + 8)

    @property
    def messages(self) -> int:
        """Of one sum, all nodes together."""
        return 2 * (len(self.shape.parent) - 1)

    def sum(self, rows: Array, marks: Sequence[bytes] = (), away: Collection[int] = ()) -> Array:
        """The sum of all nodes' rows, at every node; `marks` (a node) must agree between neighbours."""
        return self._told(self.up(rows, marks, away), rows.shape[1], rows.dtype, marks)

    def up(
        self,
        rows: Array | tuple[Array, ...],
        marks: Sequence[bytes] = (),
        away: Collection[int] = (),
        codes: Sequence[Code] = (),
    ) -> Any:
        """The sum at the rank of the root; it may be `Lost` already, which `down` tells everybody.

        Nodes here that are `away` send nothing; their rank says so, and nobody waits for them.
        """
        parts = rows if isinstance(rows, tuple) else (rows,)
        codes = codes or [RAW] * len(parts)
        self._number += 1
        self.post.begin(self._number)
        for part in parts:
            self.network.send("row", part)
        total = None
        self._blamed: list[int] = []
        for i in self._inwards:
            at, mark = int(np.searchsorted(self.network.nodes, i)), self._mark(i, marks)
            found, blamed = self._with_children(i, [part[at].copy() for part in parts], codes, mark)
            if i in away:
                blamed = [i, *blamed]
            above = self.shape.parent[i]
            if above is None:
                total, self._blamed = tuple(found) if isinstance(rows, tuple) else found[0], blamed
            elif blamed:
                self._send(_GONE, i, above, np.array(blamed, dtype=">u4").tobytes(), mark)
            else:
                self._send(_UP, i, above, b"".join(code.pack(part) for code, part in zip(codes, found)), mark)
        return total

    def _with_children(
        self, i: int, total: list[Array], codes: Sequence[Code], mark: bytes
    ) -> tuple[list[Array], list[int]]:
        """A node's row plus its children's sums, and whom to blame where there is none."""
        blamed: list[int] = []
        sizes = [code.size(part) for code, part in zip(codes, total)]
        for child in self.shape.children[i]:
            limit = self.patience * (1 + self.shape.height[child])
            payload, those = self._heard(_UP, _GONE, child, i, limit, sum(sizes), mark)
            blamed += those
            if payload is not None:
                at = 0
                for code, part, size in zip(codes, total, sizes):
                    part += code.unpack(payload[at : at + size], part)
                    at += size
        return total, blamed

    def down(self, words: Array | None, k: int, dtype: Any, marks: Sequence[bytes] = ()) -> Array:
        """The root's k words at every node; where there are none, the root says so over every edge of the graph."""
        if words is not None:
            root = self.shape.root
            words = self.network.send("row", np.atleast_2d(words), dtype, member=root, size=k)[0]
        return self._told(words, k, dtype, marks)

    def _told(self, words: Array | None, k: int, dtype: Any, marks: Sequence[bytes] = ()) -> Array:
        """The same of words that hold nothing but what the guard has seen, as a sum of rows does."""
        dtype = np.dtype(dtype)
        told = None if words is None else words.astype(dtype).tobytes()
        if self.shape.root in self._below and (told is None or self._blamed):
            raise self._over(self._blamed, marks)
        over = [Name(_OVER, j, i, self._number) for i in self._outwards for j in self._near(i)]
        for i in self._outwards:
            mark, above = self._mark(i, marks), self._above[i]
            if above is not None:
                letter, which = self.post.fetch([Name(_DOWN, above, i, self._number), *over], self.longest)
                if letter is not None and which > 0:  # by whichever way it came first
                    raise self._over(_numbers(letter.payload), marks)
                listens = i not in self.shape.parent  # it has no history any more to compare
                if (
                    letter is None
                    or len(letter.payload) != k * dtype.itemsize
                    or (letter.mark != mark and not listens)
                    or letter.twice
                    or told not in (None, letter.payload)  # nodes of one rank compare
                ):
                    raise self._blame([above])
                told = letter.payload
            assert told is not None
            for j in self._below[i]:
                self._send(_DOWN, i, j, told, mark)
        if told is None:
            raise Lost([], "nobody near is left to hear a sum from")
        return np.frombuffer(told, dtype=dtype).copy()

    def _over(self, blamed: Sequence[int], marks: Sequence[bytes]) -> Lost:
        """Pass on what the root says of a sum that is lost."""
        words = np.array(sorted(set(blamed)), dtype=">u4").tobytes()
        for i in self._outwards:
            for j in self._near(i):
                self._send(_OVER, i, j, words, self._mark(i, marks))
        return self._blame(blamed, told=True)

    def _blame(self, nodes: Sequence[int], told: bool = False) -> Lost:
        who = self.network.roster.named(nodes) or "nobody that is known"
        return Lost(
            nodes,
            f"a sum over the tree is lost: {who} sent nothing in time ({self.within:g} s), or nothing that fits; take "
            "the run up again with --resume",
            told,
        )

    def _mark(self, i: int, marks: Sequence[bytes]) -> bytes:
        return marks[int(np.searchsorted(self.network.nodes, i))] if marks else NO_MARK

    @property
    def longest(self) -> float:
        """A word from the root has come by then: all have waited for their children, and it has come down."""
        return self.patience * (2 * self.shape.height[self.shape.root] + 2)

    def _heard(
        self, good: bytes, bad: bytes, sender: int, receiver: int, limit: float, size: int, mark: bytes
    ) -> tuple[bytes | None, list[int]]:
        """What came, if it fits: `size` bytes of the same history; else whom to blame."""
        names = [Name(kind, sender, receiver, self._number) for kind in (good, bad)]
        letter, which = self.post.fetch(names, limit)
        if letter is None:  # its rank is asleep, or gone, with all its nodes
            return None, [j for j in self.shape.parent if self.post.hosts[j] == self.post.hosts[sender]]
        if which == 1:
            return None, _numbers(letter.payload) or [sender]
        if len(letter.payload) != size or letter.mark != mark or letter.twice:
            return None, [sender]
        return letter.payload, []

    def _send(self, kind: bytes, sender: int, receiver: int, payload: bytes, mark: bytes = NO_MARK) -> None:
        if receiver in self.lost:
            return
        before = self.post.sent, self.post.sent_bytes
        self.post.send(Name(kind, sender, receiver, self._number), payload, mark)
        traffic = self.setup if kind == _FLOOD else self.traffic
        traffic.messages += 1
        traffic.bytes += len(payload)
        if kind != _FLOOD:
            self.network.sent(sender, receiver, len(payload))
        traffic.wire_messages += self.post.sent - before[0]
        traffic.wire_bytes += self.post.sent_bytes - before[1]

    def flood(self, said: Mapping[int, bytes]) -> dict[int, bytes]:
        """What all nodes say, passed on over every edge; refused where one is said to have said two things."""
        here = [int(i) for i in self.network.nodes if int(i) in self.shape.parent]
        near = {i: [j for j in self._near(i) if j in self.shape.parent] for i in here}
        known = {i: {i: said[i]} for i in here}
        fresh = {i: dict(known[i]) for i in here}
        for _ in range(self._sweeps):
            self._number += 1
            self.post.begin(self._number)
            for i in here:
                for j in near[i]:
                    self._send(_FLOOD, i, j, packed(fresh[i]))
            fresh = {i: {} for i in here}
            for i in here:
                for j in near[i]:
                    letter, _ = self.post.fetch([Name(_FLOOD, j, i, self._number)], self.within)
                    if letter is None:
                        raise self._blame([j])
                    for of, words in unpacked(letter.payload, j).items():
                        require(
                            of in self.shape.parent, f"node {j} tells of a node {of} that nobody configured"
                        )
                        require(
                            known[i].get(of, words) == words,
                            f"two different things are told in the name of node {of}; somebody changes messages",
                        )
                        if of not in known[i]:
                            known[i][of] = fresh[i][of] = words
        for i in here:
            silent = sorted(self.shape.parent.keys() - known[i].keys())
            require(not silent, f"node {i} has not heard of node {silent[:1]}")
        return dict(sorted(known[here[0]].items())) if here else {}

    @property
    def _sweeps(self) -> int:
        """After so many, what one node says is everywhere."""
        members = sorted(self.shape.parent)
        if len(members) > _MANY:
            return 2 * self.shape.height[self.shape.root]
        near = {i: [j for j in self._near(i) if j in self.shape.parent] for i in members}
        longest = 0
        for start in members:
            depth, order = {start: 0}, [start]
            for i in order:
                for j in near[i]:
                    if j not in depth:
                        depth[j] = depth[i] + 1
                        order.append(j)
            longest = max(longest, depth[order[-1]])
        return longest

    def close(self) -> None:
        self.post.close()


def _numbers(payload: bytes) -> list[int]:
    """Who is to blame, as a letter tells that a sum is lost."""
    return np.frombuffer(payload[: len(payload) // 4 * 4], dtype=">u4").tolist()
