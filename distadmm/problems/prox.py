"""The centre's z-update: one scalar problem a record, solved for all records at once.

    z = argmin_z  l(z) - y z + rho/2 (s - z)^2  =  prox_{l/rho}(s + y/rho)        (eq. 7)

Squared loss and hinge have closed forms; any other `Loss` is solved by Newton steps kept inside a bracket.  Of a
loss that is not convex the penalty has to outweigh how far l'' falls: then each scalar problem is strictly convex,
and what is found is its global minimum.
"""

import numpy as np

from distadmm.errors import require
from distadmm.problems.losses import Array, Hinge, Logistic, Loss, Squared, least_curvature


def prox(loss: Loss, target: Array, rho: float, n: Array, start: Array | None = None) -> Array:
    """argmin_z l(z; target) + rho/2 (z - n)^2, entry by entry; `start` warms it up."""
    if type(loss) is Squared:
        return (target + rho * n) / (1.0 + rho)
    if type(loss) is Hinge:
        margin = target * n
        return np.where(margin >= 1.0, n, np.where(margin <= 1.0 - 1.0 / rho, n + target / rho, target))
    require(
        rho + least_curvature(loss) > 0,
        f"rho is {rho:.4g} and the loss's curvature falls to {least_curvature(loss):.4g}; needed: a rho "
        "that outweighs it",
    )
    return _newton(loss, target, rho, n, n if start is None else start)


_PLAIN_STEPS = 8


def _newton(loss: Loss, target: Array, rho: float, n: Array, start: Array) -> Array:
    """The root of g(z) = l'(z) + rho (z - n), which rises by at least r = rho + min(l'', 0): between n and n - l'(n)/r.

    Nearly all records need a few plain Newton steps, kept between those ends; the rest are bracketed.
    """
    other = n - loss.slope(n, target) / (rho + least_curvature(loss))
    low, high = np.minimum(n, other), np.maximum(n, other)
    z = np.clip(start, low, high)
    for _ in range(_PLAIN_STEPS):
        g, bent, done = _equation(loss, target, rho, n, z)
        if done.all():
            return z
        z = np.clip(z - g / (bent + rho), low, high)
    todo = np.flatnonzero(~_equation(loss, target, rho, n, z)[2])
    if todo.size:
        z[todo] = _bracketed(loss, target[todo], rho, n[todo], z[todo], low[todo], high[todo])
    return z


def _bracketed(loss: Loss, target: Array, rho: float, n: Array, z: Array, low: Array, high: Array) -> Array:
    """Newton where it stays in the bracket and at least halves its step, else the bracket is halved.

    The ends are included: converged entries sit on them.  Steps must shrink where rho is tiny and g is nearly
    flat, or they would go back and forth.
    """
    last = high - low
    for _ in range(200):
        g, bent, done = _equation(loss, target, rho, n, z)
        low, high = np.where(g <= 0, z, low), np.where(g >= 0, z, high)
        newton = -g / (bent + rho)
        inside = (z + newton >= low) & (z + newton <= high) & (np.abs(newton) <= 0.5 * last)
        step = np.where(done, 0.0, np.where(inside, newton, 0.5 * (low + high) - z))
        if (np.abs(step) <= 1e-16 * np.abs(z)).all():
            break
        z, last = z + step, np.abs(step)
    return z


def _equation(loss: Loss, target: Array, rho: float, n: Array, z: Array) -> tuple[Array, Array, Array]:
    """(g, l'', whether g is zero up to its rounding)."""
    if type(loss) is Logistic:  # one exponential serves both derivatives
        margin = target * z
        decay = np.exp(-np.abs(margin))
        below = 1.0 + decay
        slope = -target * np.where(margin >= 0, decay, 1.0) / below
        bent = decay / (below * below)
    else:
        slope, bent = loss.slope(z, target), loss.curvature(z, target)
    pull = rho * (z - n)
    g = slope + pull
    return g, bent, np.abs(g) <= 4e-16 * (np.abs(slope) + rho * (np.abs(z) + np.abs(n)))
