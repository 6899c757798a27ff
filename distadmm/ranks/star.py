"""The centre and its parties on ranks: who sits where, and the only messages they exchange.

Rank 0 is the centre and ranks 1..M are the parties; with fewer ranks the parties are dealt to ranks 1,
2, ... in turn, and a single process hosts them all.  When party 1 is itself the centre, it sits on rank 0
too.  A message goes from its sender straight to its receiver: never through a tree, so
no party's vector is ever in another party's hands.

The same lines serve every placement, and every vector is rounded to the wire's precision and counted, also
when sender and receiver share a process:

    q = star.down(q, N)            every hosted party's copy of the centre's vector
    v = star.up({m: v_m, ...}, N)  at the centre all M vectors in the order of the parties, elsewhere None
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.ranks.fabric import Awaited, Fabric
from distadmm.ranks.world import World

Array = np.ndarray

CENTRE = 0  # among the members of a star, beside parties 1 to M
WIRES = {"float64": np.float64, "float32": np.float32}


@dataclass
class Traffic:
    """What this rank has sent, by kind of message ("vector", "control", "observer")."""

    messages: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def count(self, kind: str, size: int, messages: int = 1) -> None:
        self.messages[kind] += messages
        self.bytes[kind] += size


class Star(Fabric):
    """What one rank sees of a centre with `parties` parties around it."""

    def __init__(
        self,
        world: World | None = None,
        parties: int = 2,
        *,
        party_one_is_centre: bool = False,
        wire: str = "float64",
    ):
        self.world = world or World()
        self.parties = parties
        needed = parties + (0 if party_one_is_centre else 1)
        require(
            self.world.size <= needed,
            f"{self.world.size} ranks were started for {parties} parties; at most {needed} have work here; "
            f"start {needed}, or fewer (several parties then share a rank)",
        )
        require(wire in WIRES, f"--wire is {wire!r}; choose one of: {', '.join(WIRES)}")
        self.wire = np.dtype(WIRES[wire])
        remote = max(self.world.size - 1, 1)
        first = 2 if party_one_is_centre else 1
        self.home = {
            m: 0 if self.world.size == 1 or m < first else 1 + (m - first) % remote
            for m in range(1, parties + 1)
        }
        self.is_centre = self.world.rank == 0
        self.hosted = tuple(m for m, rank in self.home.items() if rank == self.world.rank)
        self._hosts = self.world.hosts()
        self.world.dog.holds("party", self.hosted)
        self.traffic = Traffic()
        self._kind = "vector"

    @contextmanager
    def counted_as(self, kind: str) -> Iterator[None]:
        """Messages inside the block are counted as `kind`."""
        before, self._kind = self._kind, kind
        try:
            yield
        finally:
            self._kind = before

    def down(self, message: Array | None, shape: int | tuple[int, ...], dtype: Any = None) -> Array:
        """The centre's `message`, sent to every party; what the parties of this rank receive."""
        messages = dict.fromkeys(self.home, message) if self.is_centre else None
        received = self.deal(messages, dict.fromkeys(self.home, shape), dtype)
        return next(iter(received.values())) if received else np.empty(0)

    def deal(
        self,
        messages: Mapping[int, Array | None] | None,
        shapes: Mapping[int, int | tuple[int, ...]],
        dtype: Any = None,
    ) -> dict[int, Array]:
        """A message of its own from the centre to each party in `shapes`; those of this rank's parties."""
        kind = np.dtype(dtype or self.wire)
        packets: dict[int, Array] = {}
        pending: dict[int, Any] = {}
        if self.is_centre and messages is not None:
            for m, shape in shapes.items():
                words: Any = messages[m]
                packets[m] = self.send(
                    f"{self._kind} down", words, kind, member=CENTRE, size=int(np.prod(shape))
                )
                self.traffic.count(self._kind + " down", packets[m].nbytes)
                if m not in self.hosted:
                    pending[m] = self.world.comm.Isend(packets[m], dest=self.home[m], tag=m)
        else:
            for m in (m for m in shapes if m in self.hosted):
                packets[m] = np.empty(shapes[m], dtype=kind)
                pending[m] = self.world.comm.Irecv(packets[m], source=0, tag=m)
        self._complete(pending)
        return {m: _widen(packet) for m, packet in packets.items() if m in self.hosted}

    def _complete(self, pending: Mapping[int, Any]) -> None:
        """Wait for messages to or from these parties, which come soon, or after long."""
        if pending:
            self.world.complete(list(pending.values()), partial(self._late, pending), share=0.0)

    def _late(self, pending: Mapping[int, Any], waited: float) -> None:
        """The centre waits for parties, and who is elsewhere for the centre."""
        Awaited(self, [(each, [m if self.is_centre else CENTRE]) for m, each in pending.items()])(waited)

    def named(self, nodes: Iterable[int]) -> str:
        at = {CENTRE: 0, **self.home}
        who = {m: "the centre" if m == CENTRE else f"party {m}" for m in at}
        return "; ".join(f"{who[m]} (rank {at[m]} on host {self._hosts[at[m]]})" for m in nodes)

    def up(
        self,
        messages: Mapping[int, Array],
        shapes: int | tuple[int, ...] | Mapping[int, Any],
        dtype: Any = None,
    ) -> dict[int, Array] | None:
        """Every party's message at the centre, by party in ascending order; None on other ranks.

        `shapes` is one shape for all parties, or one for each party that sends.
        """
        kind = np.dtype(dtype or self.wire)
        expected = shapes if isinstance(shapes, Mapping) else dict.fromkeys(self.home, shapes)
        packets: dict[int, Array] = {}
        pending: dict[int, Any] = {}
        for m in (m for m in expected if m in self.hosted):
            packets[m] = self.send(self._kind, messages[m], kind, member=m, size=int(np.prod(expected[m])))
            self.traffic.count(self._kind + " up", packets[m].nbytes)
            if not self.is_centre:
                pending[m] = self.world.comm.Isend(packets[m], dest=0, tag=m)
        if self.is_centre:
            for m in (m for m in expected if m not in self.hosted):
                packets[m] = np.empty(expected[m], dtype=kind)
                pending[m] = self.world.comm.Irecv(packets[m], source=self.home[m], tag=m)
        self._complete(pending)
        return {m: _widen(packets[m]) for m in sorted(packets)} if self.is_centre else None

    def texts_up(self, texts: Mapping[int, str]) -> dict[int, str] | None:
        """Every party's text at the centre; None on other ranks."""
        packets = {m: np.frombuffer(text.encode(), dtype=np.uint8) for m, text in texts.items()}
        sizes = self.up({m: np.array([packet.size]) for m, packet in packets.items()}, 1, np.int64)
        own = {m: packet.size for m, packet in packets.items()}
        shapes = {m: int(size[0]) for m, size in sizes.items()} if sizes else own
        received = self.up(packets, shapes, np.uint8)
        return {m: packet.tobytes().decode() for m, packet in received.items()} if received else None

    def memory(self) -> dict[str, Array]:
        """What this rank has sent so far, by kind: messages and bytes."""
        sent = self.traffic
        return {kind: np.array([count, sent.bytes[kind]]) for kind, count in sent.messages.items()}

    def restore(self, memory: Mapping[str, Array]) -> None:
        """What all ranks together have sent, the centre counts as its own from now on."""
        self.traffic = Traffic()
        for kind, (messages, size) in memory.items() if self.is_centre else ():
            self.traffic.count(kind, int(size), int(messages))

    def rounded(self, vector: Array) -> Array:
        """`vector` as its receiver reads it off the wire."""
        return _widen(np.asarray(vector, dtype=self.wire))

    def sent(self) -> dict[str, dict[str, int]] | None:
        """Messages and bytes by kind, summed over all ranks, at the centre; None elsewhere."""
        parts = self.world.gather((self.traffic.messages, self.traffic.bytes))
        if parts is None:
            return None
        messages, sizes = (sum(each, Counter[str]()) for each in zip(*parts))
        return {kind: {"messages": messages[kind], "bytes": sizes[kind]} for kind in sorted(messages)}


def _widen(packet: Array) -> Array:
    """A private copy at the precision the arithmetic is done in."""
    return packet.astype(np.float64 if packet.dtype.kind == "f" else packet.dtype)
