"""A watchdog: ends the job when no rank gets on for too long, or one is stopped, and says which, where and in what.

MPI gives no error when a rank stalls or a host is cut off; the others wait for ever.  From before MPI is there until
all of a host's ranks leave, each writes into memory that they share how far it is, and a thread of each looks at it.
There they also meet before the library starts, and before it ends.
"""

import _thread
import contextlib
import math
import os
import signal
import struct
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from distadmm.errors import STALLED
from distadmm.ranks.waiting import patiently, until_read

# What a rank is at, and how many times --stall-timeout the ranks of a host may go without a move in it: where that is
# not once, at least `LEAST`, however short an iteration is.  What tells of no moves moves by taking processor time.
PHASES = {
    "start-up": 10.0,
    "reading rows": 10.0,
    "pricing": 10.0,
    "set-up": 10.0,
    "iterating": 1.0,
    "solving": 10.0,
    "writing": 10.0,
    "leaving": 10.0,
}
LEAST = 10.0  # seconds
_BY_TIME = ("reading rows", "pricing", "solving", "writing")
_NAMES = tuple(PHASES)
_LEAVING = _NAMES.index("leaving")
_SLOT = struct.Struct("=qqqqqqq80s120s")  # `At`; looks is the watching thread's, the rest the rank's
_FIRST, _REST = struct.Struct("=q"), struct.Struct("=qqqqq80s")  # a number of it; what follows the looks
_LAST = struct.Struct("=120s")  # what follows that
_LOOKS = 8  # where in it
LAUNCHERS = ("mpiexec", "mpirun", "prterun", "orterun")
STARTERS = (*LAUNCHERS, "hydra_pmi_proxy", "prted", "orted", "slurmstepd")  # of the ranks of a host
_entered = 0  # so many in this process: each has a board of its own


class At(NamedTuple):
    """How far a rank is."""

    process: int
    looks: int
    phase: int
    k: int  # iterations that are done
    moves: int  # in this phase or since then
    waits: int  # 1: for others
    heard: int  # a signal that it was told of
    hosts: bytes  # its nodes or parties, in words
    misses: bytes  # of whom nothing came for long, in words

    @property
    def phase_name(self) -> str:
        return _NAMES[self.phase]

    def place(self, rank: int) -> str:
        hosts = self.hosts.rstrip(b"\0").decode(errors="replace")
        done = f"after iteration {self.k}, {self.phase_name}" if self.k else f"at {self.phase_name}"
        return f"rank {rank}{f' ({hosts})' if hosts else ''} {done}"


class Watchdog:
    """One a process; `here`: how many ranks of the job are on this host, if the launcher tells."""

    def __init__(self, timeout: float = 0.0, rank: int = 0, size: int = 1, here: int | None = None):
        self.timeout, self.rank, self.size, self.here = timeout, rank, size, here
        self.survives = False  # the fabric iterates without a rank that is stopped: it is not missed
        self.remedy = "nothing was begun; start it again"  # what to do once the job is ended
        self._board: Any | None = None
        self._file = -1  # of the board
        self._looks = _thread.allocate_lock()  # held by the thread that looks
        self._phase = self._k = self._moves = self._waits = self._heard = 0
        self._hosts = self._misses = b""
        self._done = False
        self._name = ""

    # -- what the rank says ----------------------------------------------------------------------------

    def enter(self, phase: str) -> None:
        """From now on this rank is at `phase`."""
        self._phase, self._moves, self._waits = _NAMES.index(phase), 0, 0
        self._write()

    def beat(self, k: int | None = None, *, waits: bool = False) -> None:
        """A stretch of work is done here, iteration k or a part of one; maybe this rank now waits for others."""
        if self._board is not None:
            self._waits = waits
            if k is None:
                self._moves += 1
            else:
                self._k, self._moves = k, 0
            self._write()

    def holds(self, what: str, numbers: Sequence[int]) -> None:
        """This rank hosts these nodes or parties, by which it is named."""
        few = ", ".join(map(str, numbers[:8])) + (f" to {numbers[-1]}" if len(numbers) > 8 else "")
        self._hosts = f"{what} {few}".encode()[:80] if len(numbers) else b""
        self._write()

    @property
    def allowed(self) -> float:
        """For how many seconds this rank may wait in an iteration, or in whatever it is at."""
        return _allowed(self.timeout, _NAMES[self._phase]) if self.timeout else math.inf

    @property
    def iterates(self) -> bool:
        return _NAMES[self._phase] == "iterating"

    def misses(self, whom: str) -> None:
        """Of these nodes or parties nothing has come for long; of nobody any more."""
        told = whom.encode()[:120]
        if told != self._misses:
            self._misses = told
            if self._board is not None:
                _LAST.pack_into(self._board, _SLOT.size * (self.rank + 1) - _LAST.size, told)

    @property
    def name(self) -> str:
        """Of this rank, to those who look for it."""
        hosts = f" ({self._hosts.decode()})" if self._hosts else ""
        return f"rank {self.rank}{hosts} on host {os.uname().nodename}"

    def tell(self, number: int) -> None:
        """This rank was told by signal `number`; rank 0 of the same host looks for that."""
        self._heard = number
        self._write()

    def told(self) -> int:
        """The signal that a rank of this host was told by; 0: none was."""
        return next((at.heard for at in self._read().values() if at.heard), self._heard)

    def _write(self) -> None:
        if self._board is not None:
            at = _SLOT.size * self.rank + 16
            _REST.pack_into(
                self._board, at, self._phase, self._k, self._moves, self._waits, self._heard, self._hosts
            )

    def _read(self) -> dict[int, At]:
        if self._board is None:
            return {}
        slots = {rank: At(*_SLOT.unpack_from(self._board, _SLOT.size * rank)) for rank in range(self.size)}
        return {rank: at for rank, at in slots.items() if at.process}

    # -- from before MPI is there until all leave ------------------------------------------------------

    def __enter__(self) -> Self:
        global _entered
        _entered += 1
        starter = ancestor(STARTERS) if self.size > 1 else None
        if starter is not None:
            name = f"distadmm-{os.getuid()}-{starter[0]}-{starter[2]}-{_entered}"
            self._name = os.path.join(_memory(), name)
            with contextlib.suppress(OSError):
                self._board = self._shared_board(self._name)
        if self._board is not None:
            self.enter("start-up")
            _FIRST.pack_into(self._board, _SLOT.size * self.rank, os.getpid())  # from now on it is read
            # Not `threading`: it is a module more on every rank, and nobody joins this thread.
            _thread.start_new_thread(self._watch, ())
            if self.here is not None:
                patiently(lambda: len(self._read()) == self.here)
        return self

    def met(self) -> None:
        """All ranks have entered: shared memory needs no names any more."""
        if self._board is not None:
            with contextlib.suppress(OSError):  # another rank of this host was faster
                os.unlink(self._name)
            _unname_memory_of_the_library()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._board is not None and error is None:
            self.enter("leaving")
            patiently(lambda: all(at.phase == _LEAVING for at in self._read().values()))
        self._done = True

    def until_the_end(self) -> None:
        """At exit: the library waits for all ranks once more."""
        if self._board is not None:
            self.stop()
            self._done = False
            # Python 3.12 starts no thread so late: that wait is unwatched there.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(self._watch, ())

    def _shared_board(self, path: str) -> Any:
        """Shared memory of this host's ranks: a slot a rank, and one by which a single rank speaks."""
        import mmap

        size = _SLOT.size * (self.size + 1)
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(handle, size)  # the same size from every rank
            board = mmap.mmap(handle, size)
        except BaseException:
            os.close(handle)
            raise
        self._file = handle  # stays open, to be locked
        return board

    # -- the thread that looks -------------------------------------------------------------------------

    def _watch(self) -> None:
        with self._looks:
            self._watched()

    def stop(self) -> None:
        """After the library: a thread that wakes while the interpreter ends can end it with a fault."""
        self._done = True
        with self._looks:
            pass

    def _watched(self) -> None:
        latest, looked, silence = self._read(), time.monotonic(), 0.0
        worked: dict[int, int] = {}
        still: dict[int, float] = {}  # ranks that are stopped, and for how long they have been
        while not self._done:
            pause = min(1.0, (self.timeout or 1.0) / 8)
            for _ in range(20):  # who leaves does not wait for the whole of it
                time.sleep(pause / 20)
                if self._done:
                    break
            if self._done or not self.timeout:
                continue
            self._look()
            before, looked, at = looked, time.monotonic(), self._read()
            # A job that was suspended (Ctrl-Z, scontrol suspend) has been silent for one look, however long.
            passed = min(looked - before, 2 * pause)
            moved = any(rank not in latest or at[rank][2:8] != latest[rank][2:8] for rank in at)
            before_that, worked = worked, {rank: _ticks(at[rank].process) for rank in at if _works(at[rank])}
            moved |= any(ticks != before_that.get(rank) for rank, ticks in worked.items())
            silence = 0.0 if moved else silence + passed
            asleep = [
                r for r in at if r in latest and at[r].looks == latest[r].looks and _stopped(at[r].process)
            ]
            still = {rank: still.get(rank, 0.0) + passed for rank in asleep}
            latest = at
            lost = [rank for rank, long in still.items() if long > self.timeout]
            if self.survives:
                lost = [rank for rank in lost if at[rank].phase_name != "iterating"]
            if lost or silence > max(_allowed(self.timeout, each.phase_name) for each in at.values()):
                self._end(at, lost, silence)

    def _look(self) -> None:
        assert self._board is not None
        place = _SLOT.size * self.rank + _LOOKS
        (looks,) = _FIRST.unpack_from(self._board, place)
        _FIRST.pack_into(self._board, place, looks + 1)

    def speaks(self) -> bool:
        """Whether this rank is the first of its host to say why the job ends here."""
        if self._board is None:
            return True
        import fcntl

        last = _SLOT.size * self.size
        with contextlib.suppress(OSError):  # no locks here: two may speak at the same moment
            fcntl.flock(self._file, fcntl.LOCK_EX)
        first = not _FIRST.unpack_from(self._board, last)[0]
        _FIRST.pack_into(self._board, last, 1)
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return first

    def _end(self, at: dict[int, At], lost: list[int], silence: float) -> None:
        if self.speaks():
            if lost:
                what = f"stopped for {self.timeout:g} s: "
            else:
                # Who waits is not to blame, unless all do.
                busy = [rank for rank, each in at.items() if not each.waits] or list(at)
                least = min(at[rank][2:5] for rank in busy)
                lost = [rank for rank in busy if at[rank][2:5] == least]
                what = f"no progress for {silence:.0f} s, least far: "
            who = ", ".join(at[rank].place(rank) for rank in lost[:4]) + (", ..." if len(lost) > 4 else "")
            rest = sorted({(each.phase, each.k) for rank, each in at.items() if rank not in lost})
            others = f" (others {_NAMES[rest[-1][0]]}, iteration {rest[-1][1]})" if rest else ""
            waits = [(rank, each.misses.rstrip(b"\0").decode(errors="replace")) for rank, each in at.items()]
            missed = "".join([f"; rank {rank} waits for {whom}" for rank, whom in waits if whom][:4])
            sys.stderr.write(
                f"distadmm: {what}{who} on host {os.uname().nodename}{others}{missed}; ending the job "
                f"(--stall-timeout {self.timeout:g}); {self.remedy}\n"
            )
            sys.stderr.flush()
            until_read(2)
            _end_launcher(after=5)
        end_job(STALLED, [at[rank].process for rank in at if _stopped(at[rank].process)])


def end_job(code: int, stopped: list[int]) -> None:
    """End all ranks from any thread of one, whatever this rank or the library is about: with `code` if it can be."""
    with contextlib.suppress(ValueError, OSError):
        # If the library does not come back, this process ends by it.
        signal.setitimer(signal.ITIMER_REAL, 3.0)
    with contextlib.suppress(Exception):
        MPI = sys.modules["mpi4py.MPI"]
        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.COMM_WORLD.Abort(code)
    # There is no library yet: its launcher is told as the library would tell it, and else waits for who is stopped.
    with contextlib.suppress(KeyError, OSError, ValueError):
        os.write(int(os.environ["PMI_FD"]), f"cmd=abort exitcode={code}\n".encode())
        time.sleep(0.5)
    if stopped:
        _later(f"sleep 1.5; kill -9 {' '.join(map(str, stopped))}")
    os._exit(code)


def _later(script: str) -> None:
    """Have it done by a process that is no part of the job."""
    import subprocess

    null = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        subprocess.Popen(["sh", "-c", script], stdin=null, stdout=null, stderr=null, start_new_session=True)


def _stopped(process: int) -> bool:
    """Whether it was stopped by a signal, or by a debugger."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


def _works(at: At) -> bool:
    return at.phase_name in _BY_TIME and not at.waits


def _allowed(timeout: float, phase: str) -> float:
    """How long the ranks of a host may go without a move where one of them is at this."""
    times = PHASES[phase]
    return timeout if times == 1 else max(timeout * times, LEAST)


def _ticks(process: int) -> int:
    """The processor time that its main thread has taken; where nobody tells, as if it always took some."""
    try:
        with open(f"/proc/{process}/task/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return time.monotonic_ns()


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


def ancestor(names: tuple[str, ...]) -> tuple[int, str, str] | None:
    """The nearest one of this process with such a name: its number, its name and when it began."""
    pid = os.getppid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1:
            with open(f"/proc/{pid}/stat") as file:
                before, _, rest = file.read().rpartition(")")
            name, fields = before.partition("(")[2], rest.split()
            if name.startswith(names):
                return pid, name, fields[19]
            pid = int(fields[1])
    return None


def _end_launcher(after: int) -> None:
    """End mpiexec if it is still there then: it would wait for ever for a host that was cut off."""
    found = ancestor(LAUNCHERS)  # there is one on the host from which the job was started
    if found is None:
        return
    pid, name, _ = found
    still = f'[ "$(cat /proc/{pid}/comm 2>/dev/null)" = "{name}" ]'
    _later(f"sleep {after}; {still} && kill {pid}; sleep {after}; {still} && kill -9 {pid}")
