"""What a run has besides its programme: ranks, directory, clock, signals, watchdog."""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from distadmm.ranks.world import World
from distadmm.run.ends import End
from distadmm.structs import mutable_struct

MANY = 4096  # nodes of a rank of which start-up leaves much behind
_MMAP_THRESHOLD, _LARGE = -3, 1 << 22  # of malloc.h; bytes from which what is freed is given back at once


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


def give_back(nodes: int) -> None:
    """What was freed, to the system, where nodes are many; the C library would keep it as long as the process lasts."""
    if nodes > MANY:
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # not glibc
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, _LARGE)
            library.malloc_trim(0)
