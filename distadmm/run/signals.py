"""SIGTERM and SIGUSR1, with which schedulers announce the end of a job."""

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any, Self


class Signals:
    """They are only noted until all is written: they reach the ranks at different moments and may come twice."""

    def __init__(self) -> None:
        self.heard = 0  # the number of the first
        self._afterwards: dict[int, Any] = {}

    def __enter__(self) -> Self:
        with contextlib.suppress(ValueError):  # not the main thread: a notebook's business
            for number in (signal.SIGTERM, signal.SIGUSR1):
                self._afterwards[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._afterwards.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self.heard = self.heard or number

    def hand_on(self) -> None:
        """Afterwards, to whoever is told of it without this: a handler of the script, or its end."""
        if self.heard:
            signal.raise_signal(self.heard)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """For work that cannot be left in the middle, and loses nothing when it is done again: a signal ends it."""
        kept = {number: signal.signal(number, _end) for number in self._afterwards}
        try:
            if self.heard:
                _end(self.heard, None)
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    def ignore_from_now_on(self) -> None:
        """For a job that is about to end by one: it may still be on its way to this rank."""
        self._afterwards = dict.fromkeys(self._afterwards, signal.SIG_IGN)


def _end(number: int, frame: Any) -> None:
    os._exit(128 + number)
