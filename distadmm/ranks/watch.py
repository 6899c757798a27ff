"""A watchdog: ends the job when no rank gets on for too long, and says which is behind.

MPI gives no error when a rank stalls or a host is cut off; the others wait for ever.  Each rank writes how many
moves it has made and its iteration into memory that all ranks of its host share, and a thread of each looks at it.
"""

import _thread
import contextlib
import os
import struct
import sys
import time
from types import TracebackType
from typing import Any, Self

from distadmm.errors import STALLED
from distadmm.ranks.world import World

_SLOT = struct.Struct("=qq")  # moves, the first of which is to enter; the iteration


class Watchdog:
    """From `with` to its end every stretch of work has to end within `timeout` seconds, on one rank at least."""

    def __init__(self, world: World, timeout: float = 0.0):
        self.world, self.timeout = world, timeout
        self._done = False
        self._board: Any | None = None
        self._moves = self._k = 0
        self._rank, self._size = world.rank, world.size  # by which the job knows this one, whoever is left

    def beat(self, k: int | None = None) -> None:
        """A stretch of work is done here: iteration k, or another."""
        if self._board is not None:
            self._moves, self._k = self._moves + 1, self._k if k is None else k
            _SLOT.pack_into(self._board, _SLOT.size * self._rank, self._moves, self._k)

    def __enter__(self) -> Self:
        if self.timeout and self.world.size > 1:
            path = os.path.join(_memory(), f"distadmm-{self.world.broadcast(os.urandom(8).hex())}")
            try:
                self._board = self._shared_board(path)
                self.beat()
                self.world.barrier()
            finally:  # all ranks have entered: shared memory needs no names any more
                with contextlib.suppress(FileNotFoundError):  # another rank of this host was faster
                    os.unlink(path)
            _unname_memory_of_the_library()
            # Not `threading`: it is a module more on every rank, and nobody joins this thread.
            _thread.start_new_thread(self._watch, ())
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done = True

    def _shared_board(self, path: str) -> Any:
        """Shared memory of this host's ranks: a slot a rank, and one by which a single rank speaks."""
        import mmap

        size = _SLOT.size * (self.world.size + 1)
        handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            os.ftruncate(handle, size)  # the same size from every rank
            return mmap.mmap(handle, size)
        finally:
            os.close(handle)

    def _read(self) -> dict[int, tuple[int, int]]:
        assert self._board is not None
        slots = {rank: _SLOT.unpack_from(self._board, _SLOT.size * rank) for rank in range(self._size)}
        return {rank: slot for rank, slot in slots.items() if slot[0]}

    def _watch(self) -> None:
        pause = min(1.0, self.timeout / 4)
        latest, looked, silence = self._read(), time.monotonic(), 0.0
        while True:
            time.sleep(pause)
            if self._done:
                return
            before, looked, at = looked, time.monotonic(), self._read()
            # A job that was suspended (Ctrl-Z, scontrol suspend) has been silent for one look, however long.
            silence = silence + min(looked - before, 2 * pause) if at == latest else 0.0
            latest = at
            if silence > self.timeout:
                self._end(latest)

    def _end(self, at: dict[int, tuple[int, int]]) -> None:
        assert self._board is not None
        last = _SLOT.size * self._size
        if _SLOT.unpack_from(self._board, last)[0] == 0:
            _SLOT.pack_into(self._board, last, 1, 0)
            least = min(k for _, k in at.values())
            behind = [rank for rank, (_, k) in at.items() if k == least]
            fewest = min(at[rank][0] for rank in behind)  # moves besides iterations
            slowest = [rank for rank in behind if at[rank][0] == fewest]
            ahead = max(k for _, k in at.values())
            others = f", others at {ahead}" if ahead > least else ""
            sys.stderr.write(
                f"distadmm: no progress for {self.timeout:g} s; slowest rank(s) {slowest} of this host at iteration "
                f"{least}{others}; ending the job (--stall-timeout)\n"
            )
            sys.stderr.flush()
            _end_launcher(after=5)
        os._exit(STALLED)


def _memory() -> str:
    """A folder whose files are memory, or at least of this host alone."""
    if os.path.isdir("/dev/shm"):
        return "/dev/shm"
    import tempfile

    return tempfile.gettempdir()


def _unname_memory_of_the_library() -> None:
    """MPICH removes the name of its shared memory when it ends; a job that is killed would leave it behind."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split()[-1]
            if path.startswith("/dev/shm/mpich_shm_"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)


def _launcher() -> tuple[int, str] | None:
    """The mpiexec among this process's ancestors: there is one on the host from which the job was started."""
    pid = os.getppid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1:
            with open(f"/proc/{pid}/stat") as file:
                before, _, rest = file.read().rpartition(")")
            name = before.partition("(")[2]
            if name.startswith(("mpiexec", "mpirun", "prterun", "orterun")):
                return pid, name
            pid = int(rest.split()[1])
    return None


def _end_launcher(after: int) -> None:
    """End mpiexec if it is still there then: it would wait for ever for a host that was cut off."""
    import subprocess

    found = _launcher()
    if found is None:
        return
    pid, name = found
    still = f'[ "$(cat /proc/{pid}/comm 2>/dev/null)" = "{name}" ]'
    wait = f"sleep {after}; {still} && kill {pid}; sleep {after}; {still} && kill -9 {pid}"
    with contextlib.suppress(OSError):
        subprocess.Popen(
            ["sh", "-c", wait],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
