"""One line of progress on rank 0's standard error: rewritten in place on a terminal, now and then elsewhere."""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

EVERY = 2.0  # seconds between lines where there is no terminal
_REDRAW = 0.1
_WIDTH = 20  # of the bar
_LAUNCHERS = ("mpiexec", "mpirun", "hydra", "orte", "prte")


class Progress:
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
