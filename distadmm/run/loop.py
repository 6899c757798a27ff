"""The one loop: step, measure, stop, checkpoint, resume.

A `Run` is what comes out.  Algorithms know nothing of files, clocks or flags; this module knows all three
and nothing of what a step computes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.algorithm import begin
from distadmm.errors import BudgetExhausted, InputError
from distadmm.ranks.watch import Watchdog
from distadmm.run import checkpoint, history
from distadmm.run.config import Config
from distadmm.run.observe import Measurement, Observer, optimum
from distadmm.run.progress import Progress
from distadmm.run.setup import Prepared
from distadmm.structs import mutable_struct

Array = np.ndarray
DIVERGED = "divergence"
CONTROL_EVERY = 16  # iterations between looks at the clock and at signals where nothing is measured


@mutable_struct
class Run:
    """A finished run; on ranks other than 0 only `ended`, `iterations` and `seconds` are known."""

    config: Config
    ended: str  # why: "iterations", "converged", "time limit", "signal 15", "divergence"
    iterations: int
    seconds: float  # of protocol time, that before a resume included
    models: Array | None = None  # one row a node
    history: list[Measurement] = field(default_factory=list)
    optimum: float | None = None  # of the pooled problem; None where no process may see all rows
    summary: dict[str, Any] = field(default_factory=dict)
    reason: str = ""  # in words, where `ended` is not enough
    epsilon: float = float("inf")  # spent, by the node that has spent most
    published_epsilon: float = float("inf")  # the same by the paper's bound
    statement: str = "no noise was asked for"  # certificate, odometer, simulation, or why there is no bound
    path: Path | None = None
    messages: int = 0  # of the protocol, all nodes together
    bytes: int = 0
    lost: int = 0  # messages that did not arrive
    began: int = 0  # the iteration after which this part of the run began; 0 unless it is resumed

    @property
    def model(self) -> Array:
        """The mean of the nodes' models."""
        assert self.models is not None
        return self.models.mean(axis=0)

    def column(self, name: str) -> Array:
        """One column of the history, as an array."""
        return np.array([getattr(line, name) for line in self.history])


class Stop(Exception):
    """Raised inside the loop, on every rank at once, to leave it."""


def error_rate(f: Array, X: Any, y: Array) -> float:
    """Share of rows that the model gets wrong: by the sign of its score, or by the highest of several.

    NaN where the targets are numbers: there a row is not right or wrong.
    """
    if len(f) > X.shape[1]:
        from distadmm.problems.consensus import classes_of

        return float(np.mean(classes_of(f, X) != y))
    if not np.all(np.abs(y) == 1):
        return float("nan")
    return float(np.mean(np.where(X @ f > 0, 1, -1) != y))


def sitting_out(node: Any, before: Any, after: Any) -> Any:
    """`after`, but nodes that have dropped out keep the state they had."""
    absent = node.network.absent
    if absent is None:
        return after
    return type(after)(*(np.where(_as_rows(absent, new), old, new) for old, new in zip(before, after)))


def _as_rows(absent: Array, like: Array) -> Array:
    return absent.reshape(-1, *([1] * (np.ndim(like) - 1)))


class Loop:
    """The iterations of one prepared run."""

    def __init__(self, prepared: Prepared, folder: Path | None, signals: Signals | None = None):
        self.prepared, self.folder, self.signals = prepared, folder, signals or Signals()
        self.config, self.world, self.node = prepared.config, prepared.world, prepared.node
        self.phases = self.config.algorithm.phases
        self.observer = Observer(self.node, self.world, prepared.source.test, error_rate)
        self.history: list[Measurement] = []
        self.ended, self.reason = "iterations", ""
        self.seconds = 0.0
        self.began = 0

    def phase(self, k: int) -> str:
        return "recycle" if self.phases == 2 and k % 2 == 0 else "solve"

    def run(self) -> tuple[int, Any]:
        """(last iteration, final state)."""
        loop, algorithm = self.config.loop, self.config.algorithm
        name = self.prepared.run or self.world.broadcast(os.urandom(8).hex())
        with Watchdog(self.world, loop.stall_timeout, name) as dog:
            try:
                with self.world.together():
                    k, state = self._begin()
            except InputError:  # all ranks leave, and the MPI library would list what they left open
                self.observer.uplink.close()
                self.node.network.close()
                raise
            dog.everybody_here()
            self.started = time.monotonic()
            progress = Progress(loop.iterations, loop.progress if self.world.is_root else "none")
            try:
                while k < loop.iterations:
                    k += 1
                    before, began = state.f, time.perf_counter()
                    self.node.network.begin(k)
                    state = sitting_out(self.node, state, algorithm.step(k, state, self.node))
                    self.seconds += time.perf_counter() - began
                    dog.beat(k)
                    self._after(k, state, before, progress)
            except Stop as reason:
                self.ended = str(reason)
            except BudgetExhausted as reason:
                # Raised before iteration k sent anything; `state` is still that of k - 1.
                self.ended, self.reason, k = "privacy budget", str(reason), k - 1
            finally:
                progress.close()
        self.observer.uplink.close()
        # A resumed run that went no further leaves the checkpoint as it is: other ranks wrote it, maybe.
        if loop.checkpoint_every and self.ended != "iterations" and (k > self.began or not k):
            self._save(k, state)
        return k, state

    def _begin(self) -> tuple[int, Any]:
        """The state before the first iteration, or after the last one that a checkpoint holds."""
        state = begin(self.config.algorithm, self.node)
        if self.config.loop.resume is None or self.folder is None:
            return 0, state
        place = self.folder / "checkpoint"
        self.began, self.seconds = checkpoint.latest(place), checkpoint.seconds(place)
        return self.began, checkpoint.load(place, state, self.node)

    def _after(self, k: int, state: Any, before: Array, progress: Progress) -> None:
        """Measure, show, save and decide whether to go on; every rank decides alike."""
        loop = self.config.loop
        every = loop.observe_every
        seen = None
        if every and (k % every == 0 or k == loop.iterations):
            seen = self.observer.measure(k, self.phase(k), state.f, before, self.seconds)
            if seen is not None:
                self.history.append(seen)
        progress.show(k, seen)
        if loop.checkpoint_every and k % loop.checkpoint_every == 0:
            self._save(k, state)
        if (every and k % every == 0) or k % CONTROL_EVERY == 0:
            self._control(k, seen)

    def _control(self, k: int, seen: Measurement | None) -> None:
        """Stop where rank 0 says so.

        Only a tolerance must be obeyed at once.  The clock and signals are obeyed at the next control point:
        by then rank 0's word has arrived, and nobody has waited for it.
        """
        uplink, at_once = self.observer.uplink, self.config.loop.stop_tolerance is not None
        reason = "" if at_once else uplink.hear()
        if not reason:
            uplink.announce(self._reason_to_stop(k, seen) if self.world.is_root else "")
            reason = uplink.hear() if at_once else ""
        if reason:
            raise Stop(reason)

    def _reason_to_stop(self, k: int, seen: Measurement | None) -> str:
        loop = self.config.loop
        if self.signals.heard:
            return f"signal {self.signals.heard}"
        if loop.time_limit is not None and time.monotonic() - self.started > loop.time_limit:
            return "time limit"
        if seen is not None and not np.isfinite(seen.consensus_error):
            return DIVERGED
        # Of a recycling pair only the solve's residual tells; the second half moves by a rule of its own.
        if loop.stop_tolerance is None or seen is None or k % self.phases != 0:
            return ""
        worst = max(seen.primal_residual, seen.dual_residual)
        return "converged" if worst <= loop.stop_tolerance else ""

    def _save(self, k: int, state: Any) -> None:
        if self.folder is not None:
            if self.world.is_root:  # first: who goes on from here measures no earlier iteration again
                history.write(self.folder, self.history, self.began)
            checkpoint.save(self.folder / "checkpoint", k, state, self.node, self.world, self.seconds)
            self.node.release.checkpoint(k)


class Signals:
    """SIGTERM and SIGUSR1, with which schedulers announce the end: the loop stops at the next control point.

    They are only noted until all is written, for they reach the ranks at different moments and may come twice.
    """

    def __init__(self) -> None:
        self.heard = 0  # the number of the first
        self._afterwards: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        with contextlib.suppress(ValueError):  # not the main thread: a notebook's business
            for number in (signal.SIGTERM, signal.SIGUSR1):
                self._afterwards[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._afterwards.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self.heard = self.heard or number

    def ignore_from_now_on(self) -> None:
        """For a job that is about to end by one: it may still be on its way to this rank."""
        self._afterwards = dict.fromkeys(self._afterwards, signal.SIG_IGN)


def execute(prepared: Prepared, folder: Path | None = None, signals: Signals | None = None) -> Run:
    """Run to the end, or until one of `signals` is heard, and gather what rank 0 keeps."""
    loop = Loop(prepared, folder, signals)
    k, state = loop.run()
    run = Run(prepared.config, loop.ended, k, loop.seconds, reason=loop.reason, began=loop.began)
    models = loop.observer.gather(state.f)
    run.messages, run.bytes, run.lost = loop.observer.traffic()
    if prepared.world.broadcast(models is not None and not np.isfinite(np.vdot(models, models))):
        run.ended = DIVERGED
    if run.ended == DIVERGED:
        run.reason = (
            "the models are too large or no longer finite: with these penalties, on this network, it diverges"
        )
    best = None
    if prepared.source.pooled_allowed and prepared.config.loop.observe_every:
        best = optimum(prepared.node, loop.observer)[1]
        at_means = loop.observer.at_means()
    prepared.node.network.close()
    if models is None:
        return run
    run.models, run.optimum = models, best
    run.history = loop.history
    if best:  # a gap relative to nothing is none
        run.history = [
            line._replace(gap=float(value) / best - 1.0) for line, value in zip(loop.history, at_means)
        ]
    return run
