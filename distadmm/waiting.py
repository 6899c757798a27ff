"""How a rank waits: busy, politely, or asleep.

MPICH and its kin poll while they wait, which is the fastest way as long as a waiting rank takes the core from
nobody but its own job.  With more ranks than cores *and* other people's work on those cores, polling ranks
hold up the ranks they wait for: yielding is then several times faster, but slower in every other case.  The
library reads its setting when it is loaded, so `choose_waiting` must come before that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

MODES = ("auto", "spin", "yield")

# What makes each library yield the core in every round of polling.
_YIELDING = {
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": ("0", "1"),  # MPICH: (spin, yield)
    "OMPI_MCA_mpi_yield_when_idle": ("0", "1"),
    "I_MPI_THREAD_YIELD": ("0", "3"),
}
_LOCAL_RANKS = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE")
_LOOKS, _APART = 3, 0.002  # looks at the load, and seconds between them


def choose_waiting(mode: str = "auto") -> None:
    """Set how the MPI library, not yet loaded, will wait; what the user's environment says wins."""
    if mode == "auto":
        if not _crowded():
            return  # the library's own default
        mode = "yield"
    for name, (spin, polite) in _YIELDING.items():
        os.environ.setdefault(name, polite if mode == "yield" else spin)


def patiently(done: Callable[[], bool]) -> None:
    """Wait until `done()` without holding the core: for start-up, where waits last milliseconds."""
    pause = 2e-5
    while not done():
        time.sleep(pause)
        pause = min(2 * pause, 4e-3)


def _crowded() -> bool:
    """Whether this host has more ranks of ours than cores, and others' work on them too."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return local_ranks() > cores and foreign_load()


def local_ranks() -> int:
    """Ranks of this job on this host, as the launcher counts them."""
    for name in _LOCAL_RANKS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 1


def foreign_load() -> bool:
    """Whether some process that is not of this job wants a core, at each of a few looks in a row."""
    busy = _runnable()
    for _ in range(_LOOKS - 1):
        if not busy:
            return False
        time.sleep(_APART)
        busy &= _runnable()
    return bool(busy)


def _runnable() -> set[int]:
    """Runnable processes that have another parent than this one: the ranks of a host share theirs."""
    ours, kernel = os.getppid(), 2
    found: set[int] = set()
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:  # no /proc: nothing is known of the load
        return found
    for name in numbers:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # pid (command, which may hold anything) state parent ...
                state, parent = file.read().rpartition(b")")[2].split(None, 2)[:2]
        except (OSError, ValueError):  # it has just ended
            continue
        if state == b"R" and int(parent) not in (ours, kernel) and int(name) not in (os.getpid(), ours):
            found.add(int(name))
    return found
