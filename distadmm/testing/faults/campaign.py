"""Many trials, some at a time."""

import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from distadmm.testing.faults.kinds import Fault
from distadmm.testing.faults.trial import Stage, Verdict, trial

_stage: list[Stage] = []  # of this process


def verdicts(faults: Sequence[Fault], limit: float, jobs: int = 1) -> Iterator[Verdict]:
    """What became of each, in their order."""
    with tempfile.TemporaryDirectory(prefix="distadmm-faults-") as place:
        if jobs == 1:
            _begin(place, limit)
            yield from map(_one, faults)
            return
        forks = multiprocessing.get_context("fork")
        workers = ProcessPoolExecutor(jobs, mp_context=forks, initializer=_begin, initargs=(place, limit))
        try:
            yield from workers.map(_one, faults)
        finally:
            workers.shutdown(cancel_futures=True)  # those that have begun are waited for


def _begin(place: str, limit: float) -> None:
    _stage[:] = [Stage(Path(tempfile.mkdtemp(dir=place)), limit)]


def _one(fault: Fault) -> Verdict:
    verdict = trial(_stage[0], fault)
    _stage[0].clear()
    return verdict
