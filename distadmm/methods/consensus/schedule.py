"""Penalties eta_i(k) and noise parameters alpha_i(k) over the iterations: constant, or growing to a cap.

    eta_i(k) = min(eta_i q_i^k, cap_i),   k = 1, 2, ... counting the iterations that read data

A penalty that grows without bound freezes every node where it stands, short of the optimum; therefore growth
stops at `cap` (by default ten times the start, which the growth rates of the paper's figures do not reach in
fifty iterations).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distadmm.errors import require

Array = np.ndarray
DEFAULT_CAP = 10.0  # times the start


class Schedule(NamedTuple):
    start: Array  # one entry a node, as a column
    growth: Array
    cap: Array

    def __call__(self, k: int) -> Array:
        return np.minimum(self.start * self.growth**k, self.cap)

    @property
    def constant(self) -> bool:
        return bool(np.all(self.growth == 1.0))


def schedule(start: Array, growth: Array | float = 1.0, cap: float | None = None) -> Schedule:
    start = np.asarray(start, dtype=float).reshape(-1, 1)
    growth = np.broadcast_to(np.asarray(growth, dtype=float).reshape(-1, 1), start.shape)
    require(
        np.all(np.isfinite(start)) and np.all(start > 0), f"penalty is {start.min():g}; needed: above zero"
    )
    require(
        np.all(growth >= 1),
        f"penalty growth is {growth.min():g}; needed: 1 or more (penalties never decrease)",
    )
    limit = start * DEFAULT_CAP if cap is None else np.full_like(start, cap)
    require(
        np.all(limit >= start * growth), f"penalty cap {limit.min():g} is below the penalty; raise --eta-cap"
    )
    return Schedule(start, growth, limit)
