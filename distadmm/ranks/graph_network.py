"""What a rank sees of the graph: its own nodes, their neighbours, and the messages between them.

A rank hosts one node or many; every array of node state has a leading axis "the nodes of this rank".
One process is simply a network whose one rank hosts all nodes, so code cannot tell serial from MPI.

Held up by tests:
  * the only protocol message is a node's row to its neighbours, point to point between the ranks that
    host them: no row passes through a third rank;
  * all rows that go from one rank to another in an iteration travel as one message, each row once;
  * neighbour sums add in ascending order of the neighbours' numbers, so the bits of a result do not
    depend on where the nodes live;
  * a `guard`, where there is one, has seen every row before it leaves;
  * every message sent has been received when `close` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from distadmm.ranks.fabric import Awaited, Fabric
from distadmm.ranks.rounds import Part, parts_of
from distadmm.ranks.world import World
from distadmm.structs import mutable_struct

if TYPE_CHECKING:  # most networks are perfect and need none of it
    from distadmm.ranks.conditions import Conditions, Moment

Array = np.ndarray
_TAG = 2719


class Roster(NamedTuple):
    """The graph, the rank that owns each of its nodes and the host of each rank; all ranks have the same, no data."""

    indptr: Array  # neighbours of node i: indices[indptr[i]:indptr[i+1]], ascending
    indices: Array
    owner: Array
    hosts: tuple[str, ...] = ()

    @classmethod
    def alone(cls, indptr: Array, indices: Array) -> Self:
        """One process owns all nodes."""
        return cls(indptr, indices, np.zeros(len(indptr) - 1, dtype=np.int64))

    def named(self, nodes: Iterable[int]) -> str:
        """Nodes, and where they are, for whoever has to look there."""
        ranks: dict[int, list[int]] = {}
        for node in sorted({i for i in nodes if i < len(self.owner)}):
            ranks.setdefault(int(self.owner[node]), []).append(node)
        return "; ".join(
            f"node{'s' * (len(here) > 1)} {', '.join(map(str, here))} (rank {rank}"
            + (f" on host {self.hosts[rank]})" if self.hosts else ")")
            for rank, here in ranks.items()
        )


@mutable_struct
class Traffic:
    """Protocol messages of this rank's nodes, as the paper's nodes would count them."""

    messages: int = 0  # one a directed edge and iteration, also between nodes that share a rank
    bytes: int = 0
    lost: int = 0  # messages that did not arrive
    wire_messages: int = 0  # what really left this rank: one a neighbour rank and iteration
    wire_bytes: int = 0


@mutable_struct
class _Channel:
    """Buffers and persistent requests for rows of one width."""

    visible: Array  # rows of this rank's nodes, then the rows of their neighbours elsewhere
    sends: list[tuple[Array, Array]]  # (which of my rows, buffer), one a distinct set that is not all of them
    start_all: Callable[[list[Any]], Any]  # of the MPI library, looked up once
    requests: list[Any] = field(default_factory=list)
    late: Callable[[float], None] = lambda waited: None
    wire_bytes: int = 0  # that leave this rank in an exchange


class Network(Fabric):
    """The nodes of this rank and the edges that touch them."""

    def __init__(self, roster: Roster, world: World | None = None):
        self.world, self.roster, self.n_nodes = world or World(), roster, len(roster.owner)
        self.nodes = np.flatnonzero(roster.owner == self.world.rank)
        self.n_local = len(self.nodes)
        degrees = np.diff(roster.indptr)[self.nodes]
        self.degree: Array = degrees.astype(float)[:, None]
        # Of this rank's nodes, as `roster.indptr` of all.
        self.indptr = np.concatenate(([0], np.cumsum(degrees)))
        self.indices = roster.indices if self.n_local == self.n_nodes else roster.indices[self._slots()]
        self.conditions: Conditions | None = None  # None: every message arrives, every edge stays
        self._moment: Moment | None = None
        self._last: Array | None = None  # under conditions, the last row received at each edge
        self._met: Array | None = None  # and the sum of both its rows when it was there last
        self.traffic = Traffic()
        self._by_all = 0  # bytes that every edge here carried, and what some carried besides
        self._by_some: Array | None = None
        # Who signs messages: `stamp()` gives four numbers a row to send along, `notice` gets those that came.
        self.stamp: Callable[[], Array] | None = None
        self.notice: Callable[[Array], None] = lambda stamps: None
        self._channels: dict[int, _Channel] = {}
        self._by_rank: list[tuple[int, Array, Array]] | None = None  # the routes of edges

        hosts = roster.owner[self.indices]
        elsewhere = hosts != self.world.rank
        ghosts: list[Array] = []  # per neighbour rank, the global numbers of the rows it sends
        self._peers: list[tuple[int, Array, int]] = []  # (rank, my rows it needs, how many it sends)
        owner_of_edge = np.repeat(np.arange(self.n_local), degrees)
        for rank in _distinct(hosts[elsewhere]):
            there = hosts == rank
            ghosts.append(_distinct(self.indices[there]))
            self._peers.append((int(rank), _distinct(owner_of_edge[there]), len(ghosts[-1])))
        order = np.concatenate([self.nodes, *ghosts]) if ghosts else self.nodes
        self.ghosts = order[self.n_local :]  # nodes elsewhere whose rows arrive here, in that order
        self._n_visible = len(order)
        self.world.dog.holds("node", self.nodes.tolist())
        place = np.empty(self.n_nodes, dtype=np.int64)
        place[order] = np.arange(len(order))
        self.columns = self.indices if self.n_local == self.n_nodes else place[self.indices]
        self._neighbours = _as_slice(self.columns)  # where they all are, for a rank of one node
        self._parts = parts_of(self.indptr, self.columns)

    def _channel(self, width: int) -> _Channel:
        channel = _Channel(np.empty((self._n_visible, width)), [], _start_all())
        buffers: dict[bytes, Array] = {}
        start = self.n_local
        for rank, rows, count in self._peers:
            if len(rows) == self.n_local:
                buffers[rows.tobytes()] = channel.visible[: self.n_local]
            elif rows.tobytes() not in buffers:
                buffers[rows.tobytes()] = np.empty((len(rows), width))
                channel.sends.append((rows, buffers[rows.tobytes()]))
            channel.requests.append(
                self.world.comm.Recv_init(channel.visible[start : start + count], source=rank, tag=_TAG)
            )
            channel.requests.append(self.world.comm.Send_init(buffers[rows.tobytes()], dest=rank, tag=_TAG))
            start += count
            channel.wire_bytes += channel.visible.itemsize * width * len(rows)
        channel.late = Awaited(self, list(zip(channel.requests[::2], self._senders())))
        self._channels[width] = channel
        return channel

    def _senders(self) -> list[Array]:
        """Whose rows come from each of the ranks that host neighbours."""
        return np.split(self.ghosts, np.cumsum([count for _, _, count in self._peers])[:-1])

    def named(self, nodes: Iterable[int]) -> str:
        return self.roster.named(nodes)

    def exchange(self, F: Array) -> Array:
        """Send each node's row of `F` to its neighbours; the rows this rank can now see.

        Row `columns[e]` of the result is the row of the neighbour at edge e (edges in the order of
        `indices`).  The result is a buffer that the next exchange of this width overwrites.
        """
        F = self.send("row", F, size=self.n_local * F.shape[1])
        if self.stamp is None or not self._peers:  # nobody elsewhere reads stamps, which count all the same
            return self._exchange(F, unsent=0 if self.stamp is None else 4)
        visible = self._exchange(np.concatenate((F, self.stamp()), axis=1))
        self.notice(visible[self.n_local :, F.shape[1] :])
        return visible[:, : F.shape[1]]

    def _exchange(self, F: Array, unsent: int = 0) -> Array:
        width, traffic, there = F.shape[1] + unsent, self.traffic, self.edges
        count = len(self.columns) if there is None else int(there.sum())
        traffic.messages += count
        traffic.bytes += F.itemsize * width * count
        if there is None:
            self._by_all += F.itemsize * width
        else:
            self.carried = self.carried + F.itemsize * width * there[:, None]
        if not self._peers:
            return F
        channel = self._channels.get(width) or self._channel(width)
        channel.visible[: self.n_local] = F
        for rows, buffer in channel.sends:
            np.take(F, rows, axis=0, out=buffer, mode="clip")
        channel.start_all(channel.requests)
        self.world.complete(channel.requests, channel.late)
        traffic.wire_messages += len(self._peers)
        traffic.wire_bytes += channel.wire_bytes
        return channel.visible

    def exchange_over_edges(self, rows: Array, sent: Array) -> Array:
        """Send another row to each neighbour: row e of `rows` along edge e; the rows that came, an edge a row.

        `sent` says of every slot of the whole network whether its sender has anything to say; what comes from one
        that has not is no message.
        """
        rows = self.send("row", rows, size=len(self.indices) * rows.shape[1])
        width, size = rows.shape[1], rows.itemsize * rows.shape[1]
        came, requests, buffers, hosts = np.empty_like(rows), [], [], []
        for rank, out, into in self._routes():
            if rank == self.world.rank:
                came[into] = rows[out]
                continue
            buffer, leaving = np.empty((len(into), width)), rows[out]
            requests += [
                self.world.comm.Irecv(buffer, source=rank, tag=_TAG + 1),
                self.world.comm.Isend(leaving, dest=rank, tag=_TAG + 1),
            ]
            buffers.append((into, buffer, leaving))
            hosts.append(self.indices[into])
        if requests:
            self.world.complete(requests, Awaited(self, list(zip(requests[::2], hosts))))
        for into, buffer, _ in buffers:
            came[into] = buffer
            self.traffic.wire_messages += 1
            self.traffic.wire_bytes += size * len(into)
        said = sent[self.conditions.reverse[self.slots]] if self.conditions else np.ones(len(rows), bool)
        self.traffic.messages += int(said.sum())
        self.traffic.bytes += size * int(said.sum())
        self.carried = self.carried + size * said[:, None]
        return came

    def _routes(self) -> list[tuple[int, Array, Array]]:
        """(rank, edges whose rows go there, edges whose rows come from there), both in the senders' order."""
        if self._by_rank is None:
            owner, hosts = np.repeat(self.nodes, np.diff(self.indptr)), self.roster.owner[self.indices]
            self._by_rank = []
            for rank in _distinct(hosts):
                there = np.flatnonzero(hosts == rank)
                self._by_rank.append(
                    (int(rank), there, there[np.lexsort((owner[there], self.indices[there]))])
                )
        return self._by_rank

    def sum_over_neighbours(self, visible: Array) -> Array:
        """sum_j visible_j over the neighbours j of each node, added in ascending order of j."""
        # The same sum at once; of a column, numpy would add pairs.
        if self.n_local == 1 and visible.shape[1] > 1:
            return np.add.reduce(visible[self._neighbours], axis=0, keepdims=True, initial=0.0)
        return self._summed(visible, Part.add_neighbours)

    def sum_over_edges(self, rows: Array) -> Array:
        """Sum of `rows`, one an edge, over the edges of each node, in the order of the neighbours."""
        return self._summed(rows, Part.add_edges)

    def _summed(self, rows: Array, add: Callable[[Part, Array, Array], None]) -> Array:
        total = np.zeros((self.n_local, rows.shape[1]))
        for part in self._parts:
            add(part, total[part.nodes], rows)
        return total

    def neighbour_sum(self, F: Array) -> Array:
        """sum_j F_j over the neighbours j of each node, whose rows are exchanged."""
        visible = self.exchange(F)
        return self.sum_over_neighbours(visible) if self.conditions is None else self._sum_of_heard(visible)

    def endure(self, conditions: Conditions) -> None:
        """From now on messages get lost, edges go and nodes drop out as `conditions` say."""
        if not conditions.perfect:
            self.conditions = conditions

    def begin(self, k: int) -> None:
        """Iteration k starts; under conditions, the network is now what it is at k."""
        if self.conditions is not None:
            self._moment = self.conditions.at(k)

    @property
    def absent(self) -> Array | None:
        """Which nodes of this rank sit out this iteration; None when none does."""
        if self._moment is None or self._moment.present.all():
            return None
        return ~self._moment.present[self.nodes]

    @property
    def edges(self) -> Array | None:
        """Which edges of the nodes here are there in this iteration; None when all are."""
        return None if self._moment is None else self._moment.edges[self.slots]

    def meet(self, F: Array) -> tuple[Array, Array]:
        """sum_j (F_i + F_j) and sum_j (F_i - F_j) over the neighbours j of each node i, whose rows are exchanged.

        Across an edge that is not there, the two nodes stay at the sum at which they last met, and do not differ.
        So each edge keeps its part of the method's state while it is away, and any of them may be away: what is
        computed is a step of the same method in some of its coordinates.
        """
        if self.conditions is None:
            visible = self.exchange(F)
            if len(self._parts) == 1:
                own, others = self.degree * F, self.sum_over_neighbours(visible)
                return own + others, own - others
            together, apart = np.empty_like(F), np.empty_like(F)
            for part in self._parts:
                at = part.nodes
                own = self.degree[at] * F[at]
                others = np.zeros_like(own)
                part.add_neighbours(others, visible)
                np.add(own, others, out=together[at])
                np.subtract(own, others, out=apart[at])
            return together, apart
        heard, edges, own = self._hear(self.exchange(F))
        if self._met is None or self._met.shape[1] != F.shape[1]:
            self._met = np.zeros_like(heard)
        self._met[edges] = own[edges] + heard[edges]
        return self.sum_over_edges(self._met), self.sum_over_edges(np.where(edges[:, None], own - heard, 0.0))

    def _sum_of_heard(self, visible: Array) -> Array:
        """The sum over neighbours, of which one that is not there now is taken to agree."""
        heard, edges, own = self._hear(visible)
        return self.sum_over_edges(np.where(edges[:, None], heard, own))

    def _hear(self, visible: Array) -> tuple[Array, Array, Array]:
        """Of each edge: the last row received, whether it is there now, and the row of its own node.

        A row that was lost is replaced by the one before it; before the first, by the common start, zero.
        """
        if self._last is None or self._last.shape[1] != visible.shape[1]:
            self._last = np.zeros((len(self.columns), visible.shape[1]))
        edges = received = np.ones(len(self.columns), bool)
        if self._moment is not None:
            edges, received = self._moment.edges[self.slots], self._moment.received[self.slots]
        self._last[received] = visible[self.columns[received]]
        self.traffic.lost += int(edges.sum() - received.sum())
        return self._last, edges, visible[np.repeat(np.arange(self.n_local), np.diff(self.indptr))]

    @cached_property
    def slots(self) -> Array:
        """Where the entries of `indices` stand in the neighbour lists of the whole network."""
        return self._slots()

    def _slots(self) -> Array:
        first = np.repeat(self.roster.indptr[self.nodes] - self.indptr[:-1], np.diff(self.indptr))
        return first + np.arange(self.indptr[-1])  # type: ignore[no-any-return]

    @property
    def carried(self) -> Array:
        """Bytes from a node here to its neighbour, by edge."""
        by_all = np.full((len(self.indices), 1), float(self._by_all))
        return by_all if self._by_some is None else by_all + self._by_some

    @carried.setter
    def carried(self, carried: Array) -> None:
        self._by_all, self._by_some = 0, carried

    def memory(self) -> dict[str, Array]:
        """What later iterations depend on besides the algorithm's state, one row a node."""
        kept = {"last": self._last, "met": self._met, "carried": self.carried}
        return {name: self.by_node(rows) for name, rows in kept.items() if rows is not None}

    def by_node(self, edges: Array) -> Array:
        """Rows of edges as (node, neighbour, column), filled up with zeros."""
        rows = np.zeros((self.n_local, int(np.diff(self.indptr).max()), edges.shape[1]))
        for i in range(self.n_local):
            own = edges[self.indptr[i] : self.indptr[i + 1]]
            rows[i, : len(own)] = own
        return rows

    def by_edge(self, rows: Array) -> Array:
        """What `by_node` was given, on whatever rank the node was."""
        return np.concatenate([row[:n] for row, n in zip(rows, np.diff(self.indptr))])

    def restore(self, memory: Mapping[str, Array]) -> None:
        """Take back what `memory` gave."""
        for name, of in {"last": "_last", "met": "_met", "carried": "carried"}.items():
            if name in memory:
                setattr(self, of, self.by_edge(memory[name]))

    def sent(self, sender: int, receiver: int, size: int) -> None:
        """A message that did not pass `exchange` went along this edge."""
        a = int(np.searchsorted(self.nodes, sender))
        first, end = self.indptr[a], self.indptr[a + 1]
        if self._by_some is None:
            self._by_some = np.zeros((len(self.indices), 1))
        self._by_some[first + np.searchsorted(self.indices[first:end], receiver)] += size

    def close(self) -> None:
        """Free the requests.  Nothing is in flight: every exchange waits for all it sent and all it awaits."""
        for channel in self._channels.values():
            for request in channel.requests:
                request.Free()
        self._channels.clear()


def _as_slice(numbers: Array) -> Array | slice:
    """Consecutive ones as a slice, which copies nothing."""
    first = int(numbers[0]) if len(numbers) else 0
    whole = np.array_equal(numbers, np.arange(first, first + len(numbers)))
    return slice(first, first + len(numbers)) if whole else numbers


def _distinct(numbers: Array) -> Array:
    """The different ones, ascending; np.unique would load numpy's masked arrays on every rank."""
    ordered = np.sort(numbers)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]


def _start_all() -> Any:
    from mpi4py import MPI

    return MPI.Prequest.Startall
