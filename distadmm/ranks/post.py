"""Letters between nodes: point to point, each named by sender, receiver and number, and waited for so long only.

A rank that waits takes whatever arrives for any of its nodes and puts it where it will be looked for; so nodes may
be ahead of one another, and one that is gone is missed by those who wait for its letter and by nobody else.

Held up by tests:
  * a letter goes straight from the rank of its sender to that of its receiver;
  * one for a number that is over is dropped; a second one of the same name spoils that name;
  * `fetch` returns by its limit, whether the other rank is slow, stopped or gone.
"""

import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.ranks.world import World, done, of_the_dead

Array = np.ndarray
_TAG = 2731
_HEAD = struct.Struct(">4sII8s8s")  # kind, sender, receiver, number, mark
NO_MARK = bytes(8)


class Name(NamedTuple):
    """What a letter is looked for by."""

    kind: bytes  # four bytes
    sender: int
    receiver: int
    number: int  # ascending: a smaller one than `begin` said is over


class Letter(NamedTuple):
    mark: bytes  # eight bytes, which the receiver compares with its own
    payload: bytes
    twice: bool = False  # another one of the same name came as well


class Post:
    """The letters of this rank's nodes; `hosts[i]` is the rank of node i."""

    def __init__(self, world: World, hosts: Array, tag: int = _TAG):
        self.hosts, self._tag = hosts, tag
        self._comm, self._rank, self._alone = world.comm, world.rank, world.size == 1  # the world may shrink
        self.sent = 0  # letters and bytes that left this rank, heads included
        self.sent_bytes = 0
        self._box: dict[Name, Letter] = {}
        self._open, self.since = 0, 0.0
        self._leaving: list[tuple[Any, bytes]] = []  # request and the bytes it reads

    def begin(self, number: int, since: float | None = None) -> None:
        """From now on letters of smaller numbers are late, and dropped; limits of `fetch` count from here."""
        self._open, self.since = number, time.monotonic() if since is None else since
        self._box = {name: letter for name, letter in self._box.items() if name.number >= number}
        self._leaving = [(request, whole) for request, whole in self._leaving if not done(request)]

    def send(self, name: Name, payload: bytes, mark: bytes = NO_MARK) -> None:
        to = int(self.hosts[name.receiver])
        if to == self._rank:
            self._keep(name, mark, payload)
            return
        kind, sender, receiver, number = name
        whole = _HEAD.pack(kind, sender, receiver, number.to_bytes(8, "big"), mark) + payload
        from mpi4py import MPI

        try:
            self._leaving.append((self._comm.Isend(whole, dest=to, tag=self._tag), whole))
        except MPI.Exception as error:
            of_the_dead(error)
        self.sent += 1
        self.sent_bytes += len(whole)

    def fetch(self, names: Sequence[Name], limit: float) -> tuple[Letter | None, int]:
        """The first letter that there is of these, and which name it has; (None, -1): none came in time."""
        end, pause = self.since + limit, 2e-5
        while True:
            arrived = not self._alone and self._take_in()
            for which, name in enumerate(names):
                if name in self._box:
                    return self._box.pop(name), which
            if self._alone or time.monotonic() > end:
                return None, -1
            if arrived:
                pause = 2e-5
            else:
                time.sleep(pause)  # the core may be wanted by the rank that is waited for
                pause = min(2 * pause, 1e-3)

    def _take_in(self) -> bool:
        """Receive whatever is there; whether anything was."""
        from mpi4py import MPI

        found, status = False, MPI.Status()
        while (message := self._next(status)) is not None:
            found, whole = True, bytearray(status.Get_count(MPI.BYTE))
            message.Recv(whole)
            if len(whole) < _HEAD.size:
                continue  # no letter
            kind, sender, receiver, number, mark = _HEAD.unpack_from(whole)
            name = Name(kind, sender, receiver, int.from_bytes(number, "big"))
            believed = sender < len(self.hosts) and self.hosts[sender] == status.Get_source()
            if believed:  # nobody writes in the name of a node of another rank
                self._keep(name, mark, bytes(whole[_HEAD.size :]))
        return found

    def _next(self, status: Any) -> Any:
        from mpi4py import MPI

        try:
            # MPICH's first look takes in what is there, and only the next one finds it.
            return self._comm.Improbe(MPI.ANY_SOURCE, self._tag, status) or self._comm.Improbe(
                MPI.ANY_SOURCE, self._tag, status
            )
        except MPI.Exception as error:
            of_the_dead(error)
            self._comm.Ack_failed()
            return None

    def _keep(self, name: Name, mark: bytes, payload: bytes) -> None:
        if name.number >= self._open:
            twice = name in self._box
            self._box[name] = self._box[name]._replace(twice=True) if twice else Letter(mark, payload)

    def close(self, limit: float = 1.0) -> None:
        """Wait for what is leaving, and take in what is left; whom nobody receives any more is given up after `limit`.

        A library that ends with letters unread takes the job down with it.
        """
        end = time.monotonic() + limit
        while not self._alone:
            self._take_in()
            self._leaving = [(request, whole) for request, whole in self._leaving if not done(request)]
            if not self._leaving or time.monotonic() > end:
                return
            time.sleep(1e-4)


def packed(said: Mapping[int, bytes]) -> bytes:
    """Words by number, in one letter."""
    return b"".join(np.array([i, len(words)], dtype=">u4").tobytes() + words for i, words in said.items())


def unpacked(payload: bytes, sender: int) -> dict[int, bytes]:
    found, at = {}, 0
    while at < len(payload):
        i, count = (
            np.frombuffer(payload[at : at + 8], dtype=">u4").tolist() if at + 8 <= len(payload) else (0, -1)
        )
        require(0 <= count <= len(payload) - at - 8, f"node {sender} sent what cannot be read at set-up")
        found[i] = payload[at + 8 : at + 8 + count]
        at += 8 + count
    return found
