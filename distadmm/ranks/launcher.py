"""What the launcher of a job says of it, and how this process enters it."""

import contextlib
import os

from distadmm.ranks.waiting import local_ranks

# What the launchers of the field set in the environment of a rank: the number of ranks they started.
_LAUNCHED_SIZE = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_LAUNCHED_HERE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")  # how many of them on this host
_LAUNCHED_RANK = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
LAUNCHED = (*_LAUNCHED_SIZE, *_LAUNCHED_RANK, "PMI_FD")
_SHARED_MEMORY = 8 << 20  # bytes of /dev/shm that a rank may take
_ONE_HOST = {"UCX_TLS": "posix,cma,self", "UCX_MEM_EVENTS": "n", "UCX_VFS_ENABLE": "n"}


def launched_size() -> int | None:
    """How many ranks the launcher says it started; None when there was no launcher."""
    for name in _LAUNCHED_SIZE:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


def place() -> tuple[int, int, int | None]:
    """(rank, ranks, ranks on this host) of this process, as its launcher says; None: it does not say."""
    rank, here = (
        next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), None)
        for names in (_LAUNCHED_RANK, _LAUNCHED_HERE)
    )
    size = launched_size()
    if rank is None or size is None:
        return rank or 0, 1, None
    return rank, size, size if here is None and on_one_host() else here


def on_one_host() -> bool:
    """Whether the launcher says that all of the job's ranks are on this host."""
    for name in _LAUNCHED_HERE:
        if name in os.environ:
            return os.environ[name] == str(launched_size())
    return os.environ.get("SLURM_STEP_NUM_NODES") == "1"  # srun


def start_library() -> None:
    """MPI_Init, and MPI_Finalize at exit, as mpi4py does; but others of this process go on while the library waits.

    mpi4py keeps the interpreter locked, so that a watchdog would be deaf to a rank that never comes.
    """
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    from mpi4py import MPI

    if MPI.Is_initialized():
        return
    import atexit
    import ctypes

    try:
        with open("/proc/self/maps") as maps:
            paths = (line.split()[-1] for line in maps)
            library = ctypes.CDLL(next(path for path in paths if "/libmpi.so" in path))
        start, end = library.MPI_Init_thread, library.MPI_Finalize
    except (OSError, AttributeError, StopIteration):  # it goes by another name here
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
        atexit.register(MPI.Finalize)
        return
    if start(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int())):
        raise RuntimeError("MPI_Init_thread failed")
    for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):  # as mpi4py does: a rank that died is an exception
        comm.Set_errhandler(MPI.ERRORS_RETURN)
    atexit.register(end)


def choose_transports() -> None:
    """Tell UCX, on which MPICH and others stand, what this job needs; what the user's environment says wins.

    On one host that is shared memory: looking for networks and watching memory for them takes longer than
    all the rest of the library's start.  Where /dev/shm is small (64 MB in a container), it is everything but
    shared memory of that kind, which would fill it up and crash.
    """
    here = local_ranks()
    with contextlib.suppress(OSError, AttributeError):
        there = os.statvfs("/dev/shm")
        if there.f_bavail * there.f_frsize < here * _SHARED_MEMORY:
            os.environ.setdefault("UCX_TLS", "^posix")
        elif on_one_host():
            for name, value in _ONE_HOST.items():
                os.environ.setdefault(name, value)
