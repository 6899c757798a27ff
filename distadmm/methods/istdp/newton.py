"""Newton's method on the support: how the last digits are reached once the thresholds have chosen it.

On the set A of coordinates that are not zero, and as long as none changes its piece of the penalty, F is
smooth with

    gradient  g_A + phi'(theta_A),    Hessian  H = 1/n X_A^T diag(l'') X_A + diag(phi''(theta_A)).

Where H is positive definite the whole step is tried, and kept if no sign changes and F falls.  Where it is
not (the columns are dependent, or the penalty is more concave than the loss is convex), `bold` steps go
along  -|H|^-1 gradient, shortened until F falls; a coordinate that would change its sign stops at zero.  So
a call can only improve theta; the thresholding iteration goes on from there and has the last word on
stationarity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distadmm.problems.concave import Penalty
from distadmm.problems.losses import Loss

Array = np.ndarray

_STEPS = 20
_SHORTEST = 2.0**-11  # share of a bold step that is still tried
_FLAT = 1e-6  # curvature, as a share of the largest, that a bold step takes a direction to have at least


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
    bold: bool = False,
) -> tuple[Array, float]:
    """theta and F after Newton steps on the support and the columns `free`, which no penalty holds.

    They end when no entry of the gradient there exceeds `target`, or when one is not kept.
    """
    n = len(y)
    held = np.ones(len(theta), bool)
    held[list(free)] = False
    A = np.flatnonzero((theta != 0) | ~held)
    X_A, held = X[:, A], held[A]
    z = X_A @ theta[A]
    for _ in range(_STEPS):
        first, second = penalty.derivatives(theta)
        slope = loss.slope(z, y) @ X_A / n + first[A]
        stopped = held & (theta[A] == 0)  # at zero, by a bold step
        slope[stopped] = 0.0
        if np.abs(slope).max(initial=0.0) <= target:
            break
        H = X_A.T @ (loss.curvature(z, y)[:, None] * X_A) / n
        H.flat[:: len(A) + 1] += second[A]
        direction, share = _direction(H, slope, bold)
        direction[stopped] = 0.0
        while share >= _SHORTEST:
            at = theta[A] + share * direction
            crosses = held & (at * theta[A] < 0)
            moved = theta.copy()
            moved[A] = np.where(crosses, 0.0, at)
            z_moved = X_A @ moved[A]
            F_moved = float(loss.value(z_moved, y).sum()) / n + penalty.value(moved)
            if F_moved < F and (bold or not crosses.any()):
                break
            share = share / 2 if bold else 0.0
        if share < _SHORTEST:
            break
        theta, z, F = moved, z_moved, F_moved
    return theta, F


def _direction(H: Array, slope: Array, bold: bool) -> tuple[Array, float]:
    """-H^-1 slope, or -|H|^-1 slope if bold; and the share to begin with, 0 when there is no direction."""
    try:
        np.linalg.cholesky(H)  # raises unless H is positive definite
        return -np.linalg.solve(H, slope), 1.0
    except np.linalg.LinAlgError:
        if not bold:
            return slope, 0.0
    curvature, basis = np.linalg.eigh(H)
    size = np.abs(curvature)
    return -basis @ ((basis.T @ slope) / np.maximum(size, _FLAT * size.max())), 1.0
