"""The ranks of a job: who is here, who speaks for all, and how all leave together.

A `World` is what a command sees of MPI.  Without a launcher it is a single rank that needs no MPI
library at all, so a notebook and a laptop without MPI run the same code.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from distadmm.errors import InputError
from distadmm.files import sha256
from distadmm.ranks.launcher import LAUNCHED, choose_transports, launched_size, on_one_host, start_library
from distadmm.ranks.signals import Signals
from distadmm.ranks.waiting import LATE, choose_waiting, cores, looking, patiently, until_read
from distadmm.ranks.watch import Watchdog
from distadmm.structs import text_of

T = TypeVar("T")
R = TypeVar("R")

# Tags: rank 0 has something to say; a rank has something to tell it; a rank of another host was told by a signal.
_WORD, _STATUS, _TOLD = 2720, 2721, 2724


def done(request: Any) -> bool:
    """Whether it is over, also where a library that survives dead ranks (ULFM) says that its other end is dead."""
    from mpi4py import MPI

    try:
        return bool(request.Test())
    except MPI.Exception as error:
        return of_the_dead(error)


def of_the_dead(error: Any) -> bool:
    """Whether a library that survives dead ranks tells of one; anything else is raised again."""
    from mpi4py import MPI

    if error.Get_error_class() not in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING):
        raise error
    return True


class Store(Protocol):
    """Where results are kept from one run to the next."""

    def find(self, items: Iterable[Any]) -> dict[Any, Any]: ...

    def keep(self, results: Mapping[Any, Any]) -> None: ...


class World:
    """All ranks of this job; `comm` is None when the job is this one process."""

    def __init__(self, comm: Any = None, *, sleeps: bool = False):
        self.comm = comm
        self.sleeps = sleeps  # where it waits for messages of an iteration
        self.rank: int = comm.Get_rank() if comm is not None else 0
        self.size: int = comm.Get_size() if comm is not None else 1
        self.gone: list[int] = []  # ranks of the job that are out; nothing here waits for them
        # Seconds that onlookers wait for a rank; None: as long as it takes.
        self.patience: float | None = None
        self.silent: set[int] = set()  # ranks of this world that an onlooker has waited for in vain
        self._knows_the_dead = False  # a library with ULFM, which ends without them
        self._counts: list[int] | None = None  # rows that each rank gathers
        self._far = self.size > 1 and not on_one_host()  # there are ranks whose board rank 0 does not see
        self._passed: Any = None  # the message by which rank 0 was told of a signal
        self.dog = Watchdog()  # of a command under a launcher, one that is awake
        self.signals = Signals()

    def heard(self) -> int:
        """The signal that a rank was told by, on rank 0's host or, once it has passed that on, on another; 0: none."""
        if self._far and not self.is_root and self.signals.heard and self._passed is None:
            self._passed = self.comm.isend(self.signals.heard, dest=0, tag=_TOLD)
        if self._far and self.is_root and self.comm.iprobe(tag=_TOLD):
            self._passed = self.comm.recv(tag=_TOLD)
        return self.signals.heard or (self._passed if self.is_root and self._passed else 0)

    def alone(self) -> "World":
        """This rank as a world of its own, with the same ear and the same watchdog."""
        mine = World()
        mine.dog, mine.signals = self.dog, self.signals
        return mine

    def hosts(self) -> tuple[str, ...]:
        """The host of each rank, on every rank; where all are on one nobody is asked."""
        here = os.uname().nodename
        return (here,) * self.size if self.size == 1 or on_one_host() else tuple(self.allgather(here))

    @property
    def is_root(self) -> bool:
        return self.rank == 0

    @property
    def library(self) -> str:
        """The name and version of the MPI library, in one line."""
        from mpi4py import MPI

        return MPI.Get_library_version().strip("\0 \n").splitlines()[0]

    def complete(
        self, requests: list[Any], late: Callable[[float], Any] = lambda waited: None, share: float = LATE
    ) -> None:
        """Wait for these messages, which belong to an iteration, as `looking` says."""
        from mpi4py import MPI

        done = partial(MPI.Request.Testall, requests)
        self._wait(looking, done, late, share if self.sleeps else None)
        self.dog.misses("")

    def broadcast(self, value: T) -> T:
        """Rank 0's `value`, on every rank."""
        return value if self.size == 1 else self._wait(self.comm.bcast, value)

    def gather(self, value: T) -> list[T] | None:
        """The values of all ranks in rank order on rank 0; None elsewhere."""
        return [value] if self.size == 1 else self._wait(self.comm.gather, value)

    def barrier(self) -> None:
        if self.size > 1:
            self._agree(None)

    def _wait(self, call: Callable[..., Any], *given: Any) -> Any:
        """What may have to wait for other ranks, as the watchdog is told."""
        self.dog.beat(waits=True)
        found = call(*given)
        self.dog.beat()
        return found

    def scatter(self, values: Sequence[T] | None) -> T:
        """The rank-th of rank 0's `values`."""
        if self.size == 1:
            assert values is not None
            return values[0]
        return self._wait(self.comm.scatter, values)

    def broadcast_array(self, array: Any) -> Any:
        """Rank 0's numpy `array`, in place, on every rank (same shape everywhere)."""
        if self.size > 1:
            self._wait(self.comm.Bcast, array)
        return array

    def rows_order(self, numbers: Any) -> Any:
        """How to sort rows that were gathered in the order of the ranks by their `numbers`; rank 0 only."""
        import numpy as np

        gathered = self.gather(np.asarray(numbers))
        return None if gathered is None else np.argsort(np.concatenate(gathered), kind="stable")

    def gather_rows(self, rows: Any, count: int) -> Any:
        """All ranks' rows (of one width, `count` of them here) below one another on rank 0; None elsewhere."""
        if self.size == 1:
            return rows
        import numpy as np

        if self._counts is None:
            self._counts = self.allgather(count)
        rows = np.ascontiguousarray(rows, dtype=float)
        if not self.is_root:
            self._wait(self.comm.Gatherv, rows, None)
            return None
        whole = np.empty((sum(self._counts), rows.shape[1]))
        self._wait(self.comm.Gatherv, rows, (whole, [n * rows.shape[1] for n in self._counts]))
        return whole

    def allgather(self, value: T) -> list[T]:
        """The values of all ranks in rank order, on every rank."""
        return [value] if self.size == 1 else self._wait(self.comm.allgather, value)

    def on_root(self, function: Callable[[], T]) -> T:
        """Run `function` on rank 0 only; its result, or the InputError it raised, reaches every rank."""
        value: Any = None
        problem: tuple[type[InputError], str] | None = None
        if self.is_root:
            try:
                value = function()
            except InputError as error:
                problem = type(error), str(error)
        value, problem = self._announce((value, problem))
        if problem is not None:
            raise problem[0](problem[1], shared=True)
        return value

    @contextmanager
    def together(self, *, named: bool = True, talks: bool = False) -> Iterator[None]:
        """A block that every rank enters; if any rank meets an InputError in it, every rank raises it.

        `named`: with the rank that met it, unless all did.  `talks`: ranks wait for each other's messages in it, so
        that one whose file fails, as no other's need, can agree on nothing and raises at once.
        """
        error: InputError | None = None
        try:
            yield
        except InputError as caught:
            if self.size == 1 or (talks and isinstance(caught.__context__, OSError)):
                raise
            error = caught
        if self.size == 1:
            return
        found = self._agree(None if error is None else (type(error), str(error)))
        bad = [(rank, what) for rank, what in enumerate(found) if what is not None]
        if bad:
            rank, (kind, message) = bad[0]
            if named and (len({what for _, what in bad}) > 1 or len(bad) < self.size):
                message = f"rank {rank}: {message}"
            raise kind(message, shared=True)

    def _announce(self, value: T) -> T:
        """`broadcast` for when rank 0 may take long."""
        self._await_root()
        return self.broadcast(value)

    def _await_root(self) -> None:
        """The others sleep until rank 0 is here too, for it may need their core."""
        if self.size > 1 and self.is_root:
            for rank in range(1, self.size):
                self.comm.send(None, dest=rank, tag=_WORD)
        elif self.size > 1:
            self._wait(patiently, partial(self.comm.iprobe, source=0, tag=_WORD))
            self.comm.recv(source=0, tag=_WORD)

    def _agree(self, value: T) -> list[T]:
        """`allgather` for when ranks may arrive far apart."""
        if not self.is_root:
            self.comm.send(value, dest=0, tag=_STATUS)
            return self._announce([])
        found = [value]
        for rank in range(1, self.size):
            self._wait(patiently, partial(self.comm.iprobe, source=rank, tag=_STATUS))
            found.append(self.comm.recv(source=rank, tag=_STATUS))
        return self._announce(found)

    def share_out(self, function: Callable[[T], R], items: Sequence[T]) -> list[R] | None:
        """`[function(item) for item in items]` on rank 0, the work dealt round-robin to as many ranks as have a core.

        The result does not depend on the number of ranks as long as `function` depends on its item alone.
        """
        mine: list[R] = []
        workers = self.broadcast(min(self.size, cores()) if on_one_host() else self.size)
        with self.together():
            if self.rank < workers:
                mine = [function(item) for item in items[self.rank :: workers]]
        parts = self.gather(mine)
        if parts is None:
            return None
        return [parts[index % workers][index // workers] for index in range(len(items))]

    def each_once(
        self, function: Callable[[T], R], items: Sequence[T], kept: Store | None = None
    ) -> dict[T, R]:
        """function(item) for this rank's items, told apart by `text_of` them; not of those whose result is `kept`.
        Rank 0 of one host has the results of all.

        Ranks of one host belong together: equal items are worked on once, dealt out to them.  Over several hosts a
        rank works for itself, for it need not believe what another says of its noise or of what it has spent.
        """
        mine = list(dict.fromkeys(items))
        if self.size == 1 or not on_one_host():
            known: dict[T, R] = {} if kept is None else kept.find(mine)
            with self.together():
                found = {item: function(item) for item in mine if item not in known}
            if kept is not None:
                kept.keep(found)
            return {item: known[item] if item in known else found[item] for item in mine}
        # An item may be large: its name goes round, and the item itself to rank 0 alone, from one rank that has it.
        names = [sha256(text_of(item).encode()).digest() for item in mine]
        first: dict[bytes, int] = {}
        everyones = self.allgather(names)
        for rank, some in enumerate(everyones):
            for name in some:
                first.setdefault(name, rank)
        parts = self.gather([item for item, name in zip(mine, names) if first[name] == self.rank])
        distinct = [item for part in parts or [] for item in part]
        known = kept.find(distinct) if kept is not None and self.is_root else {}

        def dealt(rest: list[T] | None) -> list[Any] | None:
            """For each rank the results of its items, and what is left to do."""
            if not self.is_root:
                return None
            of = {name: known.get(item) for name, item in zip(first, distinct)}
            return [([of[name] for name in some], rest) for some in everyones]

        self._await_root()
        results, rest = self.scatter(dealt([item for item in distinct if item not in known]))
        if rest:
            if len(rest) == 1:
                done_here: list[R] | None = [self.on_root(lambda: function(rest[0]))]
            else:
                done_here = self.share_out(function, rest)
            if self.is_root:
                fresh = dict(zip(rest, done_here or []))
                known |= fresh
                if kept is not None:
                    kept.keep(fresh)
            results, _ = self.scatter(dealt(None))
        return {item: known[item] for item in distinct} if self.is_root else dict(zip(mine, results))

    def without(self, ranks: Sequence[int], named: Sequence[int]) -> None:
        """Go on without these ranks, which hear nothing of it; the others all call this.  `named`: by the job."""
        from mpi4py import MPI

        left = self.comm.Get_group().Excl(list(ranks))
        try:
            self.comm = self.comm.Create_group(left)
        except MPI.Exception as error:  # of a world with dead ranks a library with ULFM makes none
            self._knows_the_dead = of_the_dead(error)
            self.comm = self.comm.Shrink().Create_group(left)
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self._counts, self.silent, self.gone = None, set(), sorted([*self.gone, *named])

    def leave(self, code: int) -> None:
        """End the job where ranks are out: the library would wait for them.  Called by all others, at the end."""
        if not self.gone:
            return
        from mpi4py import MPI

        dead = MPI.COMM_WORLD.Get_failed().Get_size() if self._knows_the_dead else 0
        self.barrier()
        if dead == len(self.gone):
            sys.stdout.flush()
            os._exit(code)
        if self.is_root:
            self.abort(code)

    def abort(self, code: int) -> None:
        """End every rank at once.  Used when this rank cannot go on and the others cannot know."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self.comm is not None:
            from mpi4py import MPI

            until_read(1, 2)
            MPI.COMM_WORLD.Abort(code)
        os._exit(code)

    def report_failure(self) -> None:
        """Print the current exception's traceback, every line prefixed with this rank."""
        import traceback

        prefix = f"[rank {self.rank}] " if self.size > 1 else ""
        lines = traceback.format_exc().rstrip().splitlines()
        sys.stderr.write("".join(f"{prefix}{line}\n" for line in lines))


def connect(waiting: str = "auto") -> World:
    """The world this process was launched into; `waiting` is what --yield says: auto, spin or yield.

    A launcher that belongs to another MPI library starts N processes that each believe they are alone;
    they would do the job N times over.  That is refused, and the message says which launcher to use.
    """
    if not any(name in os.environ for name in LAUNCHED):
        return World()
    expected = launched_size()
    sleeps = choose_waiting(waiting)
    choose_transports()
    try:
        start_library()
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"started under an MPI launcher, but no MPI library could be loaded ({error}); "
            "install one with: pip install 'distadmm[mpich]'"
        ) from None
    comm = MPI.COMM_WORLD
    if expected is not None and expected > 1 and comm.Get_size() == 1:
        raise InputError(
            f"the launcher started {expected} processes but each of them is alone: it belongs to another MPI "
            f"than {MPI.Get_library_version().split(',')[0].splitlines()[0].strip()}; use its own mpiexec "
            f"({os.path.join(os.path.dirname(sys.executable), 'mpiexec')}), or srun --mpi=pmi2"
        )
    return World(comm, sleeps=sleeps)
