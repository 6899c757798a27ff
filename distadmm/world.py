"""The ranks of a job: who is here, who speaks for all, and how all leave together.

A `World` is what a command sees of MPI.  Without a launcher it is a single rank that needs no MPI
library at all, so a notebook and a laptop without MPI run the same code.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from distadmm.errors import InputError

T = TypeVar("T")
R = TypeVar("R")

# What the launchers of the field set in the environment of a rank: the number of ranks they started.
_LAUNCHED_SIZE = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_LAUNCHED = (*_LAUNCHED_SIZE, "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_FD")


def launched_size() -> int | None:
    """How many ranks the launcher says it started; None when there was no launcher."""
    for name in _LAUNCHED_SIZE:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


class World:
    """All ranks of this job; `comm` is None when the job is this one process."""

    def __init__(self, comm: Any = None):
        self.comm = comm
        self.rank: int = comm.Get_rank() if comm is not None else 0
        self.size: int = comm.Get_size() if comm is not None else 1

    @property
    def is_root(self) -> bool:
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Rank 0's `value`, on every rank."""
        return value if self.size == 1 else self.comm.bcast(value, root=0)

    def gather(self, value: T) -> list[T] | None:
        """The values of all ranks in rank order on rank 0; None elsewhere."""
        return [value] if self.size == 1 else self.comm.gather(value, root=0)

    def on_root(self, function: Callable[[], T]) -> T:
        """Run `function` on rank 0 only; its result, or the InputError it raised, reaches every rank."""
        outcome: tuple[str, Any]
        outcome = ("value", None)
        if self.is_root:
            try:
                outcome = ("value", function())
            except InputError as error:
                outcome = ("error", (type(error), str(error)))
        kind, content = self.broadcast(outcome)
        if kind == "error":
            raise content[0](content[1], shared=True)
        return content

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that every rank enters; if any rank meets an InputError in it, every rank raises it."""
        error: InputError | None = None
        try:
            yield
        except InputError as caught:
            error = caught
        if self.size == 1:
            if error is not None:
                raise error
            return
        found = self.comm.allgather(None if error is None else (type(error), str(error)))
        bad = [(rank, what) for rank, what in enumerate(found) if what is not None]
        if bad:
            rank, (kind, message) = bad[0]
            if len({what for _, what in bad}) > 1 or len(bad) < self.size:
                message = f"rank {rank}: {message}"
            raise kind(message, shared=True)

    def share_out(self, function: Callable[[T], R], items: Sequence[T]) -> list[R] | None:
        """`[function(item) for item in items]` on rank 0, the work dealt round-robin to the ranks.

        The result does not depend on the number of ranks as long as `function` depends on its item alone.
        """
        mine: list[R] = []
        with self.together():
            mine = [function(item) for item in items[self.rank :: self.size]]
        parts = self.gather(mine)
        if parts is None:
            return None
        return [parts[index % self.size][index // self.size] for index in range(len(items))]

    def abort(self, code: int) -> None:
        """End every rank at once.  Used when this rank cannot go on and the others cannot know."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self.size > 1:
            self.comm.Abort(code)
        os._exit(code)

    def report_failure(self) -> None:
        """Print the current exception's traceback, every line prefixed with this rank."""
        prefix = f"[rank {self.rank}] " if self.size > 1 else ""
        lines = traceback.format_exc().rstrip().splitlines()
        sys.stderr.write("".join(f"{prefix}{line}\n" for line in lines))


def connect() -> World:
    """The world this process was launched into.

    A launcher that belongs to another MPI library starts N processes that each believe they are alone;
    they would do the job N times over.  That is refused, and the message says which launcher to use.
    """
    if not any(name in os.environ for name in _LAUNCHED):
        return World()
    expected = launched_size()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"started under an MPI launcher, but no MPI library could be loaded ({error}); "
            "install one with: pip install 'distadmm[mpich]'"
        ) from None
    comm = MPI.COMM_WORLD
    if expected is not None and expected > 1 and comm.Get_size() == 1:
        raise InputError(
            f"the launcher started {expected} processes but each of them is alone: it belongs to another MPI than "
            f"{MPI.Get_library_version().split(',')[0].splitlines()[0].strip()}; use the mpiexec of this MPI "
            f"({os.path.join(os.path.dirname(sys.executable), 'mpiexec')}), or srun --mpi=pmi2"
        )
    return World(comm)
