"""When the parallel x-updates are stable, the proximal weight that makes them so, and signs that they fail.

theta = lambda_max(sum_m P_m), P_m the projection on the columns of party m, lies in [1, M] and says how much
the parties overlap.  For a loss of curvature h and lambda -> 0 each mode obeys a 2 x 2 recursion, and the
Jury test gives

    stable  <=>  rho > h (3 theta/(1+tau) - 4) / 2,     for every rho  <=>  1 + tau >= 3/4 theta.
"""

from collections.abc import Mapping

import numpy as np

from distadmm.problems.columns import Columns
from distadmm.ranks.star import Array, Star

MARGIN = 1.02  # power iteration approaches theta from below


def proximal_weight(theta: float) -> float:
    """tau = max(0, 3/4 * 1.02 theta - 1): stable for every rho, as light as it can be."""
    return max(0.0, 0.75 * MARGIN * theta - 1.0)


def least_stable_rho(theta: float, tau: float, curvature: float) -> float:
    """The penalty above which iterations with weight tau are stable; 0 when every penalty is."""
    return max(0.0, curvature * (3.0 * theta / (1.0 + tau) - 4.0) / 2.0)


def overlap(
    star: Star, blocks: Mapping[int, Columns], rows: int, seed: np.random.SeedSequence, rounds: int = 15
) -> float:
    """theta by power iteration v -> sum_m P_m v; one vector down and one up a party and round.

    The same value on every rank, between 1 and M.
    """
    v = np.random.default_rng(seed).standard_normal(rows) if star.is_centre else None
    estimate = 1.0
    for _ in range(rounds):
        if v is not None:
            v = v / np.linalg.norm(v)
        received = star.down(v, rows)
        arrived = star.up({m: block.project(received) for m, block in blocks.items()}, rows)
        if arrived is not None:
            v = sum(arrived.values(), np.zeros(rows))
            estimate = float(np.linalg.norm(v))
    with star.counted_as("control"):
        told = star.down(np.array([estimate]) if star.is_centre else None, 1, np.float64)
    theta = float(told[0]) if told.size else estimate
    return min(max(theta, 1.0), float(star.parties))


def curvature_penalty(curvature: Array, rho: float) -> float:
    """rho = 0.3 * mean l''(z); rho is kept where the loss is flat."""
    mean = 0.3 * float(curvature.mean())
    return mean if mean > 0 else rho


CURVATURE_ROUNDS = (0, 1, 3, 6, 10, 15, 20)  # when the penalty is set anew; it is frozen afterwards


def trouble(residuals: Array) -> str | None:
    """Tells a run that will not converge from a slow one, by the relative primal residual |S - z| of its iterations.

    A converging run keeps lowering its best residual; a logistic run that fails settles on a limit cycle
    of bounded height, so waiting for an overflow would wait for ever.  Below `floor` the run is as good as there, and
    noise may hold it.
    """
    residual, count, floor = float(residuals[-1]), len(residuals), 3e-2
    if not np.isfinite(residual):
        return "the iterates overflowed"
    if residual > 10 and count > 5 and residual > 1e3 * max(float(residuals.min()), 1e-8):
        return f"the residual grew to {residual:.2g} times the predictions"
    if count >= 75:
        late = float(residuals[-count // 3 :].min()) if residual > floor else 0.0  # never above the last one
        if late > floor and late > 0.95 * float(residuals[count // 4 : -count // 3].min()):
            return f"the residual has circled at {late:.2g} of the predictions and no longer falls"
    return None


def remedy(theta: float, parties: int, tau: float, rho: float, curvature: float) -> str:
    known, bound = (float(parties), "at most theta") if np.isnan(theta) else (theta, "theta")
    weight = proximal_weight(known)
    if tau + 1e-12 < weight:
        least = least_stable_rho(known, tau, curvature)
        return (
            f"the parties overlap ({bound} = {known:.3g}) and need --tau {weight:.3g} (now {tau:.3g}), "
            f"or --penalty-rho above {least:.3g} (now {rho:.3g})"
        )
    return (
        f"tau = {tau:.3g} is stable ({bound} = {known:.3g}); "
        f"give another --penalty-rho (now {rho:.3g}) or scale the columns"
    )
