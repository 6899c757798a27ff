"""Rows from every rank to rank 0 and a word back: the observer's traffic, which must not hold up the protocol.

A rank that posts goes on at once.  Rank 0 waits for the rows, decides, and answers with a word; the others
hear it where they need it, which may be an iteration later, when it has long arrived.
"""

import time
from typing import Any

import numpy as np

from distadmm.ranks.world import World, done

Array = np.ndarray
_ROWS, _ANSWER = 2722, 2723  # tags
_LONGEST = 64  # bytes of a word


class Uplink:
    def __init__(self, world: World, count: int, width: int):
        """`count` rows of `width` numbers from this rank at every post."""
        self.world, self.count, self._width = world, count, width
        self._given_up: list[Any] = []  # memory into which a rank that is out might still write
        self._open()

    def _open(self) -> None:
        world, count, width = self.world, self.count, self._width
        self._size = world.size
        counts = world.gather(count) or []
        self.rows = np.empty((sum(counts) if world.is_root else count, width))
        self._word = np.zeros(_LONGEST, dtype=np.uint8)
        self._incoming: list[Any] = []
        self._outgoing: list[Any] = []
        self._sending = self._awaited = self._listening = False
        self._announced = ""
        if world.size == 1:
            return
        comm = world.comm
        if world.is_root:
            ends = np.cumsum(counts)
            for rank in range(1, world.size):
                rows = self.rows[ends[rank - 1] : ends[rank]]
                self._incoming.append(comm.Recv_init(rows, source=rank, tag=_ROWS))
                self._outgoing.append(comm.Send_init(self._word, dest=rank, tag=_ANSWER))
        else:
            self._outgoing.append(comm.Send_init(self.rows, dest=0, tag=_ROWS))
            self._incoming.append(comm.Recv_init(self._word, source=0, tag=_ANSWER))

    def _of_those_left(self) -> None:
        """Begin again where ranks have gone; all others come by here before they next speak or listen."""
        if self._size != self.world.size:
            self._given_up += [self.rows, self._word, *self._incoming, *self._outgoing]
            self._open()

    def _arrived(self, request: Any) -> bool:
        """Wait for it; False where the world has a patience, and it is over."""
        if self.world.patience is None:
            self.world.complete([request])
            return True
        end = time.monotonic() + self.world.patience
        while not done(request):
            if time.monotonic() > end:
                return False
            time.sleep(2e-5)
        return True

    def post(self, rows: Array) -> Array | None:
        """All rows, in the order of the ranks, on rank 0, or None where a rank is silent; None elsewhere, at once."""
        self._of_those_left()
        if self.world.is_root:
            for request in self._incoming:
                request.Start()
            self.rows[: self.count] = rows
            self.world.dog.beat(waits=True)
            for rank, request in enumerate(self._incoming, 1):
                if not self._arrived(request):
                    self.world.silent.add(rank)
            self.world.dog.beat()
            return None if self.world.silent else self.rows
        if self._sent():
            self.rows[:] = rows
            self._send()
        return None

    def announce(self, word: str) -> None:
        """Rank 0 says `word`; the others get ready to hear it.  A word before it that nobody heard is lost."""
        self.hear()
        self._of_those_left()
        self._awaited = True
        if self.world.is_root:
            self._announced = word
            if not self._outgoing or not self._sent():  # nobody to tell
                return
            self._word[:] = np.frombuffer(word.encode()[:_LONGEST].ljust(_LONGEST, b"\0"), dtype=np.uint8)
            self._send()
        elif not self._listening:
            self._incoming[0].Start()
            self._listening = True

    def hear(self) -> str:
        """The word announced last, if it has not been heard yet; else an empty one."""
        if not self._awaited:
            return ""
        self._awaited = False
        if self.world.is_root:
            return self._announced
        if self._size != self.world.size or not self._arrived(self._incoming[0]):
            return ""  # whoever spoke is out
        self._listening = False
        return self._word.tobytes().rstrip(b"\0").decode()

    def _send(self) -> None:
        for request in self._outgoing:
            request.Start()
        self._sending = True

    def _sent(self) -> bool:
        if self._sending:
            self._sending = not all([self._arrived(request) for request in self._outgoing])
        return not self._sending

    def close(self) -> None:
        """Nothing is in flight any more.  To be called by all ranks."""
        if self.world.gone:  # requests at those who are out end with the job
            return
        self.hear()
        self._sent()
        for request in (*self._incoming, *self._outgoing):
            request.Free()
        self._incoming, self._outgoing = [], []
