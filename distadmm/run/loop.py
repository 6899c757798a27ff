"""The one loop of both families: step, measure, stop, checkpoint, resume.

Algorithms know nothing of files, clocks or flags; this module knows all three and nothing of what a step computes.
"""

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np

from distadmm.algorithm import Array, begin, stepped
from distadmm.errors import BudgetExhausted, InputError
from distadmm.ranks.fabric import Fabric, Lost, require_fabric
from distadmm.ranks.uplink import Uplink
from distadmm.run import checkpoint, history, running
from distadmm.run.ends import End, end_of

EVERY = 2.0  # seconds between lines where there is no terminal
_REDRAW = 0.1
_WIDTH = 20  # of the bar
_LAUNCHERS = ("mpiexec", "mpirun", "hydra", "orte", "prte")


class Progress:
    """One line on rank 0's standard error: rewritten in place on a terminal, now and then elsewhere."""

    def __init__(self, iterations: int, mode: str = "auto", stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        if mode == "auto":
            mode = "bar" if self.stream.isatty() or launched_at_terminal() else "lines"
        self.iterations, self.mode = iterations, mode
        self.started = self._last = time.monotonic()
        self._drawn = False

    def show(self, k: int, seen: Any | None) -> None:
        now = time.monotonic()
        if self.mode == "none" or now - self._last < (_REDRAW if self.mode == "bar" else EVERY):
            return
        self._last = now
        self._write(k, seen, now)

    def _write(self, k: int, seen: Any | None, now: float) -> None:
        rate = (now - self.started) / max(k, 1)
        details = [] if seen is None else seen.details()
        first, last = f"iteration {k}/{self.iterations}", f"{_span(rate * (self.iterations - k))} left"
        if self.mode == "bar":
            full = round(_WIDTH * k / max(self.iterations, 1))
            first = f"[{'#' * full}{'.' * (_WIDTH - full)}] {first}"
            # A line that wraps could not be rewritten in place, so what does not fit is left out.
            while details and len("  ".join([first, *details, last])) >= columns(self.stream):
                details.pop(0)
        text = "  ".join([first, *details, last])
        self.stream.write(f"\r\033[K{text}" if self.mode == "bar" else f"{text}\n")
        self.stream.flush()
        self._drawn = True

    def close(self) -> None:
        if self._drawn and self.mode == "bar":
            self.stream.write("\r\033[K")
            self.stream.flush()


def launched_at_terminal() -> bool:
    """Whether the launcher of this rank writes to a terminal: the rank's own stream is a pipe to it there.

    The launcher is the topmost of the ancestors that are one; a carriage return does pass through it.
    """
    there, pid = "", os.getppid()
    # Where there is no /proc, and for ancestors of other users.
    with contextlib.suppress(OSError, ValueError):
        while pid > 1:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(") ")
            if not name.startswith(_LAUNCHERS):
                break
            there, pid = os.readlink(f"/proc/{pid}/fd/2"), int(rest.split()[1])
    return there.startswith(("/dev/pts/", "/dev/tty"))


def columns(stream: TextIO) -> int:
    """How wide the terminal is; under mpiexec COLUMNS or 80, for the stream is a pipe there."""
    with contextlib.suppress(OSError, ValueError):
        wide = os.get_terminal_size(stream.fileno()).columns
        if wide:
            return wide
    import shutil

    return shutil.get_terminal_size().columns


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# What the ranks say to each other beside the protocol is said now and then: every so many iterations at most, and after
# so many seconds, for a signal to be heard and a line to be shown in time.
CONTROL_EVERY = 16
_IN_TIME = 0.1


class Line(Protocol):
    """One measurement: a NamedTuple whose fields are the columns of `history.csv`."""

    @property
    def diverged(self) -> bool: ...

    @property
    def residual(self) -> float:
        """What --stop-tolerance is compared with."""
        ...

    def details(self) -> list[str]:
        """For the progress line, the least important first."""
        ...


class Watcher(Protocol):
    """What an onlooker measures; nothing of it is protocol traffic and no iterate depends on it."""

    uplink: Uplink  # by which rank 0 tells the others to stop

    @property
    def columns(self) -> tuple[str, ...]:
        """Of history.csv."""
        ...

    def measure(
        self, k: int, phase: str, state: Any, before: Any, seconds: float, later: bool
    ) -> Sequence[Line]:
        """Called by every rank; the lines since the last ones on rank 0, or none where `later` will do."""
        ...

    def lines(self) -> Sequence[Line]:
        """Called by every rank: on rank 0, what was measured and not told yet."""
        ...


class Place(Protocol):
    """What the members of this rank, nodes of a graph or parties of a star, can see."""

    @property
    def fabric(self) -> Fabric: ...

    @property
    def members(self) -> Array: ...

    @property
    def release(self) -> Any: ...

    def keep(self, state: Any) -> dict[str, Array]: ...

    def take_up(self, parts: list[dict[str, Array]], state: Any) -> Any: ...


class Course(NamedTuple):
    """How far and how closely watched; the flags of the run, without their spelling."""

    iterations: int
    every: int = 1  # iterations between measurements; 0: none
    stop_tolerance: float | None = None
    phases: int = 1  # 2: every second iteration reads no data


class Stop(Exception):
    """Raised inside the loop, on every rank at once, to leave it."""


class Loop:
    """The iterations of one prepared run."""

    def __init__(self, algorithm: Any, place: Place, watcher: Watcher, run: running.Running, course: Course):
        require_fabric(place)
        self.algorithm, self.place, self.watcher = algorithm, place, watcher
        self.run, self.course = run, course
        self.history: list[Any] = []
        self._fresh: list[Line] = []  # lines since rank 0 last decided whether to go on
        self._look, self._looked = 0, (0, 0.0)  # when the ranks next look at its word; when it last spoke
        self.ended, self.reason = End.ITERATIONS.word, ""
        self.seconds = 0.0  # of protocol time, measurements excluded
        self.began = 0

    def go(self) -> tuple[int, Any]:
        """(last iteration, final state): what the algorithm makes of the last one, where the run came to its end."""
        try:
            with self.run.world.together(talks=True):
                k, state = self._begin()
                self.run.goes_on()
        except InputError as refusal:
            if refusal.shared:  # all ranks leave, and the MPI library would list what they left open
                self.watcher.uplink.close()
                self.place.fabric.close()
            raise
        self.run.world.dog.enter("iterating")
        self.run.start_clock()
        progress = Progress(
            self.course.iterations, self.run.flags.progress if self.run.world.is_root else "none"
        )
        self._looked = k, time.perf_counter()
        ended = self._finished(k, state)
        try:
            if word := self.algorithm.ended(state):  # a run taken up again at its end
                raise Stop(word)
            while k < self.course.iterations:
                k += 1
                before, began = state, time.perf_counter()
                self.place.fabric.begin(k)
                state = sitting_out(self.place, before, stepped(self.algorithm, k, before, self.place))
                ended = self._finished(k, state)
                self.seconds += time.perf_counter() - began
                self.run.world.dog.beat(k)
                self._after(k, state, ended, before, progress)
                if word := self.algorithm.ended(state):
                    raise Stop(word)
        except Stop as reason:
            self.ended = str(reason)
        except Lost as loss:
            loss.args = (f"iteration {k}: {loss}",)
            raise
        except BudgetExhausted as reason:
            # Raised before iteration k sent anything; `state` is still that of k - 1.
            self.ended, self.reason, k = End.BUDGET.word, str(reason), k - 1
            ended = state
        finally:
            progress.close()
        self.history += self.watcher.lines()
        if end_of(self.ended) is not End.DIVERGED:
            try:
                self._require_numbers(k, ended, "it is no result")
            except Stop as reason:
                self.ended = str(reason)
        self.run.world.dog.enter("writing")
        self.watcher.uplink.close()
        # A resumed run that went no further leaves the checkpoint as it is: other ranks wrote it, maybe.
        told = end_of(self.ended)
        wanted = self.run.flags.checkpoint_every and told not in (End.ITERATIONS, End.DIVERGED)
        if (wanted or told in (End.SIGNAL, End.TIME_LIMIT)) and (k > self.began or not k):
            try:
                self._save(k, state)
            except Stop as reason:
                self.ended = str(reason)
        return k, ended

    def _finished(self, k: int, state: Any) -> Any:
        return self.algorithm.finish(k, state, self.place) if k == self.course.iterations else state

    def _begin(self) -> tuple[int, Any]:
        """The state before the first iteration, or after the last one that a checkpoint holds."""
        state = begin(self.algorithm, self.place)
        folder = self.run.folder / "checkpoint" if self.run.folder is not None else None
        if self.run.resumed and folder is not None and checkpoint.is_there(folder):
            self.began, self.seconds = checkpoint.latest(folder), checkpoint.seconds(folder)
            state = self.place.take_up(checkpoint.load(folder), state)
        self._sound = [name for name, value in state._asdict().items() if not spoilt(value)]
        return self.began, state

    def _after(self, k: int, state: Any, ended: Any, before: Any, progress: Progress) -> None:
        """Measure, show, save and decide whether to go on; every rank decides alike.

        What is measured is what the nodes would end with, and what is saved is what they go on from.
        """
        every, watcher = self.course.every, self.watcher
        phase = "recycle" if self.course.phases == 2 and k % 2 == 0 else "solve"
        looks = self._looks(k)
        saves = self.run.flags.checkpoint_every and k % self.run.flags.checkpoint_every == 0
        later = not (looks or saves or k == self.course.iterations)
        new: Sequence[Line] = ()
        if every and (k % every == 0 or k == self.course.iterations):
            new = watcher.measure(k, phase, ended, before, self.seconds, later)
        elif not later:
            new = watcher.lines()
        if new:
            self.history += new
            self._fresh += new
        progress.show(k, self.history[-1] if self.history else None)
        if saves:
            self._save(k, state)
        if looks:
            self._control(k)

    @property
    def _closely(self) -> bool:
        """Whether measurements are acted on at once, ranks may be lost on the way, or one is alone and asks itself."""
        world = self.run.world
        return self.course.stop_tolerance is not None or world.patience is not None or world.size == 1

    def _looks(self, k: int) -> bool:
        """Whether all ranks hear rank 0 after iteration k."""
        if not self._closely:
            return k >= self._look
        every = self.course.every
        return (every > 0 and k % every == 0) or k % CONTROL_EVERY == 0

    def _control(self, k: int) -> None:
        """Stop where rank 0 says so; else go on until the next look, which it sets by how long iterations take.

        Only a tolerance must be obeyed at once.  The clock and signals are obeyed at the next look:
        by then rank 0's word has arrived, and nobody has waited for it.
        """
        uplink, at_once = self.watcher.uplink, self.course.stop_tolerance is not None
        pause, _, reason = ("", "", "") if at_once else uplink.hear().partition(" ")
        self._look = k + int(pause or 1)
        if not reason:
            uplink.announce(f"{self._pause(k)} {self._reason_to_stop(k)}")
            reason = uplink.hear().partition(" ")[2] if at_once else ""
        if reason:
            raise Stop(reason)

    def _pause(self, k: int) -> int:
        """Iterations from the next look to the one after it."""
        (before, then), now = self._looked, time.perf_counter()
        self._looked = k, now
        return min(max(int(_IN_TIME * (k - before) / max(now - then, 1e-6)), 1), CONTROL_EVERY)

    def _reason_to_stop(self, k: int) -> str:
        seen, self._fresh = self._fresh, []
        asked = self.run.asked_to_stop()
        if asked or not self.run.world.is_root:
            return asked
        if any(line.diverged for line in seen):
            return End.DIVERGED.word
        # Of a recycling pair only the solve's residual tells; the second half moves by a rule of its own.
        tolerance = self.course.stop_tolerance
        if tolerance is None or not seen or k % self.course.phases != 0:
            return ""
        return End.CONVERGED.word if seen[-1].residual <= tolerance else ""

    def _call(self, said: bytes) -> dict[int, bytes]:
        """What all ranks that are there say; where ranks may be lost, they are called one by one."""
        call = getattr(self.place.release, "call", None)
        return call(said) if call is not None else dict(enumerate(self.run.world.allgather(said)))

    def _require_numbers(self, k: int, state: Any, what: str) -> None:
        """What began with finite numbers has them still, on all ranks; else the checkpoint before is kept."""
        bad = any(spoilt(getattr(state, name)) for name in self._sound)
        heard = self._call(self.run.world.dog.name.encode() if bad else b"")
        told = [heard[rank].decode() for rank in sorted(heard) if heard[rank]]
        if told:
            self.reason = f"no finite numbers after iteration {k} on {', '.join(told[:4])}; {what}"
            raise Stop(End.DIVERGED.word)

    def _save(self, k: int, state: Any) -> None:
        if self.run.folder is not None:
            self._require_numbers(k, state, "that state was not saved")
            if self.run.world.is_root:  # first: who goes on from here measures no earlier iteration again
                history.write(self.run.folder, self.watcher.columns, self.history, self.began, sync=True)
            kept, world = self.place.keep(state), self.run.world
            folder, name = self.run.folder / "checkpoint", self.run.name
            if checkpoint.save(folder, k, kept, world, self._call, self.seconds, name):
                self.place.release.checkpoint(k)
            self.run.world.dog.remedy = self.run.going_on


def spoilt(value: Any) -> bool:
    """Whether a field of a state, maybe one with a part for each member, holds what is no finite number."""
    parts = [np.asarray(part) for part in (value.values() if isinstance(value, dict) else (value,))]
    return any(part.dtype.kind == "f" and not np.isfinite(part).all() for part in parts)


def sitting_out(place: Place, before: Any, after: Any) -> Any:
    """`after`, but members that have dropped out keep the state they had."""
    absent = place.fabric.absent
    if absent is None:
        return after
    kept = ((absent.reshape(-1, *([1] * (np.ndim(new) - 1))), old, new) for old, new in zip(before, after))
    return type(after)(*(np.where(*each) for each in kept))
