"""SIGTERM and SIGUSR1, with which schedulers announce the end of a job, and Ctrl-C.

start-up      nothing is begun yet: whoever is told first ends the job with 128 + n
a solve       they are noted, and obeyed after an iteration: what is done is saved, written down, and can be resumed

They reach the ranks at different moments and may come twice; only Ctrl-C has a second meaning: stop at once.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

TOLD = (signal.SIGTERM, signal.SIGUSR1)
_HELD = (*TOLD, signal.SIGINT)  # while the library starts, which a Ctrl-C would leave halfway
# Seconds after which another Ctrl-C is the user's second, and not the launcher's copy of the first.
_TWICE = 0.5


def hold_back() -> None:
    """Until `Signals.take_over`: what comes meanwhile is told then, whatever handlers a library makes of its own."""
    with contextlib.suppress(AttributeError, ValueError):
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)


class Signals:
    """What this process was told.  `tell` passes it on to rank 0, `told` is what others passed on."""

    def __init__(self, tell: Callable[[int], None] | None = None, told: Callable[[], int] | None = None):
        self._tell, self._told = tell or (lambda number: None), told or (lambda: 0)
        self._own = self._since = 0.0
        self._numbers: tuple[int, ...] = TOLD if tell is None else (*TOLD, signal.SIGINT)
        self._afterwards: dict[int, Any] = {}

    @property
    def heard(self) -> int:
        """The number of the first; 0: none."""
        return int(self._own) or self._told()

    def take_over(self, leave: Callable[[int], Any]) -> None:
        """For a command that has begun nothing: TERM and USR1 make it `leave`, also those that came before."""
        with contextlib.suppress(ValueError):  # not the main thread
            for number in TOLD:
                signal.signal(number, lambda number, frame: leave(number))
        self.let_through()

    @staticmethod
    def let_through() -> None:
        """What was held back does what it does to any process."""
        with contextlib.suppress(AttributeError, ValueError):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)

    @staticmethod
    def stop_hearing() -> None:
        """For ranks that leave with a code of their own: a launcher that ends the others for it makes no other one."""
        with contextlib.suppress(ValueError):  # not the main thread
            for number in TOLD:
                signal.signal(number, signal.SIG_IGN)

    def __enter__(self) -> Self:
        with contextlib.suppress(ValueError):  # not the main thread: a notebook's business
            for number in self._numbers:
                if number == signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN:
                    continue  # in the background of a shell: Ctrl-C is not meant for it
                self._afterwards[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._afterwards.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if number == signal.SIGINT and self._own == number and now - self._since > _TWICE:
            raise KeyboardInterrupt
        if not self._own:
            self._own, self._since = number, now
            self._tell(number)

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
        """For a job that is about to end: what is still on its way to this rank comes too late."""
        self._afterwards = dict.fromkeys(self._afterwards, signal.SIG_IGN)


def _end(number: int, frame: Any) -> None:
    os._exit(128 + number)
