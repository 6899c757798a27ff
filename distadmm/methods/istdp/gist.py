"""GIST with Barzilai-Borwein steps: the method without privacy (Gong et al. 2013, section 2 of the paper).

    minimise  F(theta) = L(theta) + R(theta),   L(theta) = 1/n sum_i l(<x_i, theta>; y_i)      (2)

    g^k       = grad L(theta^k)
    alpha_k   = <d_theta, d_theta> / <d_theta, d_g>,  clipped to [alpha_min, alpha_max]
    theta^k+1 = prox_{alpha_k R}(theta^k - alpha_k g^k)                                        (4)
    accepted when  F(theta^k+1) <= F(theta^k) - beta / (2 alpha_k) ||theta^k+1 - theta^k||^2   (5)
    else alpha_k <- eta alpha_k and again

The paper prints ||d_g||^2 under the fraction, whose units are wrong, and beta alpha_k / 2 in (5), which
allows any long step; both stand here as in its references.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distadmm.problems.concave import Penalty
from distadmm.problems.losses import Array, Loss

# F is a mean of n terms; below this share of it a difference is rounding, not descent.
_ROUNDING = 8 * np.finfo(float).eps
_MAX_HALVINGS = 200


@dataclass(frozen=True)
class Steps:
    """How alpha_k is chosen and accepted."""

    first: float = 1.0  # alpha_1, before two gradients are there to compare
    shortest: float = 1e-8  # alpha_min
    longest: float = 1e8  # alpha_max
    beta: float = 1e-4  # share of the decrease that (5) asks for
    eta: float = 0.5  # factor of a refused step


class State(NamedTuple):
    theta: Array  # theta^k
    z: Array  # X theta^k
    g: Array  # grad L(theta^k)
    F: float  # L + R at theta^k
    step: float  # alpha that led here; 0 at the start
    residual: float  # largest entry of one element of dF(theta^k): zero at a stationary point
    accepted: bool  # False when no step passed (5) and theta stayed where it was


def iterate(
    X: Array, y: Array, loss: Loss, penalty: Penalty, steps: Steps | None = None, start: Array | None = None
) -> Iterator[State]:
    """theta^0, theta^1, ...; never stops by itself."""
    rule = Steps() if steps is None else steps
    n, d = X.shape
    theta = np.zeros(d) if start is None else np.array(start, dtype=float)
    z = X @ theta
    g = loss.slope(z, y) @ X / n
    F = float(loss.value(z, y).sum()) / n + penalty.value(theta)
    step = rule.first
    yield State(theta, z, g, F, 0.0, float("inf"), True)
    while True:
        for _ in range(_MAX_HALVINGS):
            theta_new = penalty.prox(theta - step * g, step)
            d_theta = theta_new - theta
            z_new = X @ theta_new
            F_new = float(loss.value(z_new, y).sum()) / n + penalty.value(theta_new)
            moved = float(d_theta @ d_theta)
            if F_new <= F - rule.beta / (2 * step) * moved + _ROUNDING * abs(F):
                break
            step *= rule.eta
        else:
            yield State(theta, z, g, F, step, float("inf"), False)
            continue
        g_new = loss.slope(z_new, y) @ X / n
        d_g = g_new - g
        # (theta^k - theta^k+1) / alpha - g^k lies in dR(theta^k+1); adding g^k+1 makes it one of dF.
        residual = float(np.abs(d_g - d_theta / step).max(initial=0.0))
        theta, z, g, F = theta_new, z_new, g_new, F_new
        yield State(theta, z, g, F, step, residual, True)
        step = barzilai_borwein(moved, float(d_theta @ d_g), rule.shortest, rule.longest)


def barzilai_borwein(moved: float, bend: float, shortest: float, longest: float) -> float:
    """<d_theta, d_theta> / <d_theta, d_g> within its bounds; the longest when the curvature is not positive."""
    if not bend > 0 or moved > longest * bend:
        return longest
    return max(moved / bend, shortest)
