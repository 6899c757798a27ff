"""One line of progress on rank 0's standard error: rewritten in place on a terminal, now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

from distadmm.observe import Measurement

EVERY = 2.0  # seconds between lines where there is no terminal
_REDRAW = 0.1


class Progress:
    """Under mpiexec standard error is no terminal even inside one; a launcher of ours that saw a terminal
    says so in DISTADMM_TERMINAL, because a carriage return does pass through."""

    def __init__(self, iterations: int, mode: str = "auto", stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        if mode == "auto":
            terminal = self.stream.isatty() or os.environ.get("DISTADMM_TERMINAL") == "1"
            mode = "bar" if terminal else "lines"
        self.iterations, self.mode = iterations, mode
        self.started = self._last = time.monotonic()
        self._drawn = False

    def show(self, k: int, seen: Measurement | None) -> None:
        now = time.monotonic()
        if self.mode == "none" or now - self._last < (_REDRAW if self.mode == "bar" else EVERY):
            return
        self._last = now
        self._write(k, seen, now)

    def _write(self, k: int, seen: Measurement | None, now: float) -> None:
        rate = (now - self.started) / max(k, 1)
        text = f"iteration {k}/{self.iterations}"
        if seen is not None:
            text += f"  objective {seen.objective:.6g}  disagreement {seen.consensus_error:.2g}"
            if seen.test_error == seen.test_error:
                text += f"  test error {100 * seen.test_error:.2f} %"
        text += f"  {_span(rate * (self.iterations - k))} left"
        if self.mode == "bar":
            width = 20
            full = round(width * k / max(self.iterations, 1))
            text = f"\r\033[K[{'#' * full}{'.' * (width - full)}] {text}"
        else:
            text += "\n"
        self.stream.write(text)
        self.stream.flush()
        self._drawn = True

    def close(self) -> None:
        if self._drawn and self.mode == "bar":
            self.stream.write("\r\033[K")
            self.stream.flush()


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
