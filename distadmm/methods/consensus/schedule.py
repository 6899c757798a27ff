"""Penalties eta_i(k) and noise parameters alpha_i(k) over the iterations: constant, growing to a cap, or tabled.

    eta_i(k) = min(eta_i q_i^k, cap_i),   k = 1, 2, ... counting the iterations that read data

A penalty that grows without bound freezes every node where it stands, short of the optimum; therefore growth
stops at `cap` (by default ten times the start, which the growth rates of the paper's figures do not reach in
fifty iterations).
"""

from __future__ import annotations

import numpy as np

from distadmm.errors import InputError, require
from distadmm.structs import struct

Array = np.ndarray
DEFAULT_CAP = 10.0  # times the start


@struct
class Growing:
    start: Array  # one entry a node, as a column
    growth: Array
    cap: Array

    def __call__(self, k: int) -> Array:
        return np.minimum(self.start * self.growth**k, self.cap)

    @property
    def uniform(self) -> bool:
        """Whether all nodes have the same value at every k."""
        return bool(np.ptp(self.start) == 0 and np.ptp(self.growth) == 0)


@struct
class Tabled:
    """Row k-1 holds the values of the k-th solve, one entry a node."""

    rows: Array

    def __call__(self, k: int) -> Array:
        if k > len(self.rows):
            raise InputError(
                f"the schedule's table ends after {len(self.rows)} solves and solve {k} was reached; "
                "give one value a solve, or fewer --iterations"
            )
        return self.rows[k - 1][:, None]

    @property
    def uniform(self) -> bool:
        return bool(np.all(np.ptp(self.rows, axis=1) == 0))


Schedule = Growing | Tabled


def schedule(
    values: Array, growth: Array | float = 1.0, cap: float | None = None, *, name: str = "--eta"
) -> Schedule:
    """The schedule of all nodes: `values` has one entry a node, or one row a solve of one entry a node."""
    values = np.asarray(values, dtype=float)
    require(
        np.all(np.isfinite(values)) and np.all(values > 0),
        f"{name} has the value {values.min():g}; needed: above 0",
    )
    if values.ndim == 2:
        require(
            np.all(np.diff(values, axis=0) >= 0),
            f"{name} decreases between solves; needed: values that never do",
        )
        return Tabled(values)
    start = values.reshape(-1, 1)
    growth = np.broadcast_to(np.asarray(growth, dtype=float).reshape(-1, 1), start.shape)
    require(
        np.all(np.isfinite(growth)) and np.all(growth >= 1),
        f"{name}-growth is {growth.min() if not growth.min() >= 1 else growth.max():g}; needed: a finite number, "
        "1 or more (penalties never decrease)",
    )
    limit = start * DEFAULT_CAP if cap is None else np.full_like(start, float(cap))
    require(
        np.all(limit >= start), f"{name}-cap {limit.min():g} is below the start {start.max():g}; raise it"
    )
    return Growing(start, growth, limit)
