"""How a rank waits: busy, politely, or asleep.

MPICH and its kin poll while they wait, which is the fastest way as long as every rank has a core of its own.
With more ranks than cores a polling rank takes the core from one that still computes, perhaps the very one it
waits for: sleeping between looks then makes iterations with real solves up to a third faster (a bare exchange
between idle ranks is slower), and several times faster where others' work shares the cores.  The library reads its
setting when it is loaded, so `choose_waiting` must come before that.
"""

import os
import stat
import sys
import time
from collections.abc import Callable
from typing import Any

# What makes each library yield the core in every round of polling.
_YIELDING = {
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": ("0", "1"),  # MPICH: (spin, yield)
    "OMPI_MCA_mpi_yield_when_idle": ("0", "1"),
    "I_MPI_THREAD_YIELD": ("0", "3"),
}
LATE = 1 / 8  # by this share of a wait, at most, a rank that sleeps hears later,
_BRIEF = 0.05  # and in the usual waits of an iteration, seconds,
_SOON = 3e-4  # by no more than this
_ASIDE = 2e-4  # seconds for which a rank only steps aside before it sleeps: most of what ends so soon it hears at once
_let_others: Callable[[], Any] = getattr(os, "sched_yield", lambda: time.sleep(0))  # on this core, go first
_SUSPENDED = 0.5  # seconds between two looks, of which no more count
_LOCAL_RANKS = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE")


def choose_waiting(mode: str = "auto") -> bool:
    """Set how the MPI library, not yet loaded, will wait; what the user's environment says wins.

    Whether a rank is to sleep where it waits for others in an iteration.
    """
    if mode == "auto":
        if local_ranks() <= cores():
            return False  # the library's own default
        mode = "yield"
    for name, (spin, polite) in _YIELDING.items():
        os.environ.setdefault(name, polite if mode == "yield" else spin)
    return mode == "yield"


def patiently(done: Callable[[], bool]) -> None:
    """Wait until `done()` without holding the core: for start-up, where waits last milliseconds."""
    pause = 2e-5
    while not done():
        time.sleep(pause)
        pause = min(2 * pause, 4e-3)


def looking(done: Callable[[], bool], late: Callable[[float], Any], share: float | None = LATE) -> None:
    """Wait until `done()`; of a wait that is not brief `late` hears for how long it has been, at each look.

    Between two looks this rank lets others go first, then sleeps a `share` of that time, for the core belongs to ranks
    that compute; None: neither.
    """
    if done():
        return
    began = time.monotonic()
    while not done():
        waited = time.monotonic() - began
        if waited > _BRIEF:
            break
        if share is not None:
            if waited < _ASIDE:
                _let_others()
            else:
                time.sleep(min(max(waited * share, 2e-5), _SOON))
    else:
        return
    waited, looked = _BRIEF, time.monotonic()
    while not done():
        before, looked = looked, time.monotonic()
        waited += min(looked - before, _SUSPENDED)  # the time in which all were suspended is no wait
        late(waited)
        if share is not None:
            time.sleep(5e-3)


def until_read(*files: int, limit: float = 1.0) -> None:
    """Wait until the readers of these pipes have taken what was written, `limit` seconds at most.

    A launcher that is told to abort throws away what it has not read yet.
    """
    end = time.monotonic() + limit
    patiently(lambda: time.monotonic() > end or not any(map(_unread, files)))


def _unread(file: int) -> int:
    """Bytes in a pipe that its reader has not taken; of anything else, 0."""
    try:
        if not stat.S_ISFIFO(os.fstat(file).st_mode):
            return 0
        import fcntl
        import termios

        return int.from_bytes(fcntl.ioctl(file, termios.FIONREAD, bytes(4)), sys.byteorder)
    except (ImportError, OSError):
        return 0


def cores() -> int:
    """Cores that the ranks of this host may use together.

    A launcher may have tied each rank to a core of its own; the launcher itself still has them all.
    """
    try:
        return max(len(os.sched_getaffinity(process)) for process in (0, os.getppid()))
    except (AttributeError, OSError):  # not on Linux; or the launcher has gone
        return os.cpu_count() or 1


def local_ranks() -> int:
    """Ranks of this job on this host, as the launcher counts them."""
    for name in _LOCAL_RANKS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 1
