"""A tap on every message between ranks: nothing crosses the wire but rows of the stated size to neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distadmm import radmm
from distadmm.algorithm import find, names
from distadmm.audit.play import record
from distadmm.methods.consensus import private as protect
from distadmm.privacy.noise.sources import Simulation
from distadmm.ranks import graph_network as networks
from distadmm.ranks.world import World
from distadmm.run.running import unwritten
from distadmm.run.setup import prepare
from tests.common import SMALL

PRIVATE: dict[str, Any] = {**SMALL, "alpha": "1", "adjacency": "label", "rng": "simulation"}
HEAD = 32  # bytes of a ledger's head


class Tap:
    """A communicator that writes down every use of it, and the bytes of every message as it leaves."""

    def __init__(self, comm: Any):
        self._comm = comm
        self.calls: list[str] = []
        self.sends: dict[int, tuple[Any, int]] = {}  # request -> (buffer, destination)
        self.receives: dict[int, tuple[int, int]] = {}  # request -> (source, bytes)
        self.left: list[tuple[int, bytes]] = []  # (destination, what went there), in order

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._comm, name)
        if not callable(found) or name in ("Get_rank", "Get_size"):
            return found

        def use(*given: Any, **named: Any) -> Any:
            self.calls.append(name)
            made = found(*given, **named)
            if name == "Send_init":
                self.sends[id(made)] = (given[0], named["dest"])
            if name == "Recv_init":
                self.receives[id(made)] = (named["source"], given[0].nbytes)
            return made

        return use

    def listen(self, monkeypatch: Any) -> None:
        start = networks._start_all()

        def starting(requests: list[Any]) -> None:
            for request in requests:
                if id(request) in self.sends:
                    buffer, to = self.sends[id(request)]
                    self.left.append((to, np.asarray(buffer).tobytes()))
                else:
                    assert id(request) in self.receives
            start(requests)

        monkeypatch.setattr(networks, "_start_all", lambda: starting)


def play(
    world: World, tap: Tap, name: str, flags: dict[str, Any]
) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    """The protocol alone: the rows each exchange was given, and the heads that the ledgers had then."""
    prepared = prepare(radmm.configure(name, **flags), world)
    node = protect.armed(prepared, protect.plan_of(prepared), unwritten(prepared.config.run, world))
    rows: list[np.ndarray] = []
    heads: list[np.ndarray] = []
    through = node.network.exchange

    def exchange(F: np.ndarray) -> np.ndarray:
        rows.append(np.array(F))
        heads.append(
            node.release.books.heads.copy() if node.release.private else np.zeros((len(F), 0), np.uint8)
        )
        return through(F)

    node.network.exchange = exchange
    world.comm = tap
    tap.calls.clear()
    state = prepared.config.algorithm.init(node)
    for k in range(1, prepared.config.loop.iterations + 1):
        node.network.begin(k)
        state = prepared.config.algorithm.step(k, state, node)
    node.network.close()
    return prepared, rows, heads


@pytest.mark.mpi(min_size=2, sizes=[2, 5])
def test_nothing_but_rows_to_neighbours_crosses_the_wire(world: World, monkeypatch: Any) -> None:
    """Every registered algorithm, bare and private; of those on a tree: test_tree, of noisy gradients: test_gossip."""
    of = {name: find(name).cls for name in names()}
    for name in [name for name in of if not of[name].tree and of[name].house == of["admm"].house]:
        for private in (False, True)[: 1 + find(name).private]:
            with monkeypatch.context() as patched:
                check(name, private, World(world.comm), patched)


def check(name: str, private: bool, world: World, monkeypatch: Any) -> None:
    tap = Tap(world.comm)
    tap.listen(monkeypatch)
    prepared, rows, heads = play(world, tap, name, PRIVATE if private else SMALL)
    # Persistent requests are all that the protocol makes of the communicator: no collective, no third rank.
    assert set(tap.calls) <= {"Send_init", "Recv_init"}
    network = prepared.node.network
    host = host_of(prepared, world.size)
    neighbours = {int(host[j]) for j in network.indices if host[j] != world.rank}
    assert {to for _, to in tap.sends.values()} == neighbours
    assert {source for source, _ in tap.receives.values()} == neighbours
    # Each exchange: one message to each neighbour rank, which holds the rows it asked for and their heads.
    assert len(tap.left) == len(neighbours) * len(rows)
    assert len(rows) == SMALL["iterations"] + 1
    for number, (F, head) in enumerate(zip(rows, heads)):
        for to, content in tap.left[number * len(neighbours) : (number + 1) * len(neighbours)]:
            asked = [a for a in range(network.n_local) if to in host[around(network, a)]]
            assert content == b"".join(F[a].tobytes() + head[a].tobytes() for a in asked)
            assert len(content) == len(asked) * (8 * F.shape[1] + (HEAD if private else 0))
    assert all(F.shape[1] == prepared.node.problem.dimension for F in rows)


def around(network: Any, a: int) -> np.ndarray:
    return network.indices[network.indptr[a] : network.indptr[a + 1]]


def host_of(prepared: Any, size: int) -> np.ndarray:
    """The rank of each node, worked out again from the graph."""
    from distadmm.graphs import topology as topologies

    found = topologies.load(prepared.config.problem.topology)
    host = np.empty(found.n, dtype=int)
    for rank, block in enumerate(topologies.blocks(found, size)):
        host[block] = rank
    return host


@pytest.mark.mpi(min_size=2, sizes=[5])
def test_a_neighbour_learns_what_the_transcript_says(world: World, monkeypatch: Any) -> None:
    """The bytes on the wire are the rows that a transcript of the same flags lists, and the heads beside them."""
    tap = Tap(world.comm)
    tap.listen(monkeypatch)
    play(World(world.comm), tap, "radmm", PRIVATE)
    config = radmm.configure("radmm", **PRIVATE)
    alone = prepare(config, World())
    plan = protect.plan_of(alone)
    assert plan is not None
    recording = record(config.algorithm, plan.node, plan.recipe, 6, Simulation(0), 2)
    assert recording.messages is not None
    neighbours = len(tap.left) // len(recording.messages)
    for place, (_, content) in enumerate(tap.left):
        message = recording.messages[place // neighbours]
        assert content[:-HEAD] == message.rows[world.rank].tobytes()
