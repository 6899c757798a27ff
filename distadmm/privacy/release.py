"""What stands between a node's data and its neighbours."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


class Unprotected:
    """No noise: every message that depends on data is an open release, of infinite cost."""

    private = False
    epsilon = float("inf")

    def draw(self, k: int, penalty: Array) -> Array | float:
        return 0.0

    def seal(self, k: int, f: Array, residual: Array, penalty: Array) -> Array:
        return f

    def recycle(self, k: int) -> None:
        """A function of what was sent in the clear reveals nothing more."""

    def expose(self, k: int, what: str) -> None:
        """Already infinite."""
