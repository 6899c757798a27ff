"""What a run has besides its programme: ranks, directory, clock, signals, watchdog."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distadmm.ranks.world import World
from distadmm.run.ends import End
from distadmm.structs import mutable_struct

MANY = 4096  # nodes of a rank of which start-up leaves much behind
# Of malloc.h; how many large arrays have places of their own, given back when they are freed, and from how many bytes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_PLACES, _LARGE = 1 << 16, 1 << 22


@mutable_struct
class Running:
    """Handed to a programme's `solve`; `flags` is the run group of its options, or None."""

    world: World
    flags: Any
    name: str  # a name no other run has, the same on every rank
    folder: Path | None = None  # None: nothing is written
    data_id: str = ""  # keyed name of the data; empty where nothing is written
    account: Any = None  # `ledger.account.Account`, once the run is entered in one
    earlier: str = ""  # what was spent on its rows before, in words
    prog: str = ""  # what it was started as: python -m PROG
    held: Any = ()  # the lock of its directory, on rank 0
    waits: Any = ()  # what a resumed run writes first when all that is left of it was looked at, on rank 0
    made: bool | None = None  # whether its directory was made for it; None: it was resumed, or there is none
    _started: float = 0.0

    @property
    def going_on(self) -> str:
        """What to type to take it up again."""
        ranks = f"mpiexec -n {self.world.size} " if self.world.size > 1 else ""
        return f"to go on: {ranks}python -m {self.prog} --resume {self.folder}"

    @property
    def resumed(self) -> bool:
        return getattr(self.flags, "resume", None) is not None

    def goes_on(self) -> None:
        """Nothing that was left refuses it: ledgers and state are taken up."""
        while self.waits:
            self.waits.pop()()

    def start_clock(self) -> None:
        """What --time-limit allows begins now, or began with an earlier loop of this run."""
        self._started = self._started or time.monotonic()

    def asked_to_stop(self) -> str:
        """Why this rank should end the run here; empty while it may go on."""
        if heard := self.world.heard():
            return f"{End.SIGNAL.word} {heard}"
        limit = self.flags.time_limit
        if limit is not None and time.monotonic() - self._started > limit:
            return End.TIME_LIMIT.word
        return ""


def unwritten(flags: Any, world: World | None = None) -> Running:
    """A run that leaves nothing behind."""
    world = world or World()
    return Running(world, flags, world.broadcast(os.urandom(8).hex()))


@contextlib.contextmanager
def iterating(nodes: int) -> Iterator[None]:
    """Iterations over many nodes, which keep what they free."""
    give_back(nodes, iterating=True)
    try:
        yield
    finally:
        give_back(nodes)


def give_back(nodes: int, *, iterating: bool = False) -> None:
    """What was freed, to the system, where nodes are many; the C library would keep it as long as the process lasts.

    `iterating`: from now on it does, for every iteration takes as much as the one before the last has freed, and pages
    that are given back and taken again are cleared each time.
    """
    if nodes > MANY:
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # not glibc
            library = ctypes.CDLL(None)
            for name, value in ((_TRIM_THRESHOLD, _LARGE), (_MMAP_THRESHOLD, _LARGE), (_MMAP_MAX, _PLACES)):
                library.mallopt(name, value)
            library.malloc_trim(0)
            if iterating:
                library.mallopt(_MMAP_MAX, 0)
                library.mallopt(_TRIM_THRESHOLD, -1)
