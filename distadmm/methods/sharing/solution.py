"""A trained model and how it came about."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distadmm.methods.sharing.seat import Seat

Array = np.ndarray


class Solution(NamedTuple):
    """Of the parties hosted by this rank; what is known to all is the same on every rank."""

    models: dict[int, Array]
    means: dict[int, Array]  # column means of these parties, taken off before the model is applied
    intercept: float
    iterations: int
    converged: bool = False
    failure: str | None = None  # why it did not converge and what to do
    theta: float | None = None
    tau: float = 0.0
    rho: float = float("nan")
    private: bool = False  # models are for plain columns


def solution_of(algorithm: Any, k: int, state: Any, seat: Seat, *, private: bool = False) -> Solution:
    """What the last state of a star algorithm says."""
    means = {m: block.mean for m, block in seat.blocks.items()}
    theta = getattr(state, "theta", float("nan"))
    explain = getattr(algorithm, "explain", None)
    return Solution(
        state.x, means, state.b, k, algorithm.ended(state) == "converged", explain and explain(state, seat),
        None if np.isnan(theta) else theta, getattr(state, "tau", 0.0), getattr(state, "rho", float("nan")), private,
    )  # fmt: skip
