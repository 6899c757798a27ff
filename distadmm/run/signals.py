"""SIGTERM and SIGUSR1, with which schedulers announce the end of a job."""

from __future__ import annotations

import contextlib
import signal
from typing import Any


class Signals:
    """They are only noted until all is written: they reach the ranks at different moments and may come twice."""

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
