"""Newton's method on the support: how the last digits are reached once the thresholds have chosen it.

On the set A of coordinates that are not zero, and as long as none changes its piece of the penalty, F is
smooth with

    gradient  g_A + phi'(theta_A),    Hessian  1/n X_A^T diag(l'') X_A + diag(phi''(theta_A)).

A step is kept only if the Hessian is positive definite, no sign changes and F falls, so a call can only
improve theta; the thresholding iteration goes on from there and has the last word on stationarity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distadmm.losses import Loss
from distadmm.methods.istdp.penalties import Penalty

Array = np.ndarray

_STEPS = 20


def refine(
    X: Array,
    y: Array,
    loss: Loss,
    penalty: Penalty,
    theta: Array,
    F: float,
    *,
    free: Sequence[int] = (),
    target: float = 0.0,
) -> tuple[Array, float]:
    """theta and F after Newton steps on the support and the columns `free`, which no penalty holds.

    They end when no entry of the gradient there exceeds `target`, or when one is not kept.
    """
    n = len(y)
    chosen = theta != 0
    chosen[list(free)] = True
    A = np.flatnonzero(chosen)
    X_A = X[:, A]
    z = X_A @ theta[A]
    for _ in range(_STEPS):
        first, second = penalty.derivatives(theta)
        slope = loss.slope(z, y) @ X_A / n + first[A]
        if np.abs(slope).max(initial=0.0) <= target:
            break
        H = X_A.T @ (loss.curvature(z, y)[:, None] * X_A) / n
        H.flat[:: len(A) + 1] += second[A]
        try:
            np.linalg.cholesky(H)  # raises unless H is positive definite
            moved = theta.copy()
            moved[A] -= np.linalg.solve(H, slope)
        except np.linalg.LinAlgError:
            break
        z_moved = X_A @ moved[A]
        F_moved = float(loss.value(z_moved, y).sum()) / n + penalty.value(moved)
        if not F_moved < F or (moved[A] * theta[A] < 0).any():
            break
        theta, z, F = moved, z_moved, F_moved
    return theta, F
