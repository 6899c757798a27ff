"""Losses and regularisers that are not convex: which penalty descends, how far from stationary, how soon it is near.

With u = y + rho (S - z), L the largest |l''|, w how far l'' falls below 0, and kappa how far lambda R'' does,

    Lag = l(z) + lambda sum_m R(x_m) + <y, S - z> + rho/2 |S - z|^2
    V   = sum_m |x_m - prox(x_m - D_m'u)|^2 + |1'u|^2 + |l'(z) - u|^2 + |S - z|^2

prox of lambda R on X_m (with a step of 1/(2 kappa) at most, and divided by it), 1'u of a free intercept; at a kink
l'(z) is the subgradient nearest u.  V = 0 is a stationary point.  Assumption 1 of the paper asks for full column rank
and for a modulus that no rho gives; neither is needed.  For delta_m = D_m (x_m+ - x_m) and theta
as in `stability` the steps of one iteration give

    x   - rho (1 + tau - theta/2) sum |delta_m|^2 - kappa sum |x_m+ - x_m|^2      (sum delta)^2 <= theta sum delta^2
    z   - (rho - w)/2 |z+ - z|^2                                                  h is (rho - w)-strongly convex
    y   + L^2/rho |z+ - z|^2                                                      y = l'(z): Lemma 2

so Lag falls whenever 1 + tau > theta/2 and rho > (w + sqrt(w^2 + 8 L^2))/2, and stays above the least objective for
rho >= L.  V after the step is at most a multiple K of that fall (K from `Rate`), hence

    min V over T iterations <= K (Lag_0 - least objective) / T.

The paper's own C_2 sums the moduli where the least counts, and drops rho/2 (docs/sharing.md).  Derived here, not
peer-reviewed; tests hold both inequalities against iterates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.problems.losses import Array, least_curvature, smoothness
from distadmm.problems.regularisers import into

if TYPE_CHECKING:
    from distadmm.methods.sharing.admm import Problem

SPARE = 1.05  # the penalty is so much above the least that descends
KINK = 1e-9  # scores so near a kink are at it


def least_descending(loss: Any) -> float:
    """The rho above which the z- and y-updates together lower the augmented Lagrangian."""
    w, L = -least_curvature(loss), smoothness(loss)
    return 0.5 * (w + math.sqrt(w * w + 8.0 * L * L))


def doubt(problem: Problem) -> str:
    """Why neither this proof nor Assumption 1 of the paper speaks of the problem; empty where one may."""
    if problem.convex or math.isfinite(smoothness(problem.loss)):
        return ""
    return (
        "Assumption 1 of the paper and the proof of descent take a loss with a Lipschitz slope, and this loss has a "
        "kink: under --reg mcp or scad nothing says that the run comes to rest, or where (smooth-hinge and huber "
        "are smooth)"
    )


def penalty(loss: Any, rho: float | None, scale: float = 1.0) -> float:
    """The penalty of a loss that is not convex: what was given, or one that descends; refused up to L."""
    L = smoothness(loss)
    require(
        math.isfinite(L),
        "the loss is neither convex nor smooth (its max_curvature is infinite): no penalty makes its z-update solvable",
    )
    require(
        rho is None or rho > L,
        f"--penalty-rho is {(rho or 0) / scale:.4g} and the loss is not convex; needed: more than L = {L / scale:.4g}, "
        f"and more than {least_descending(loss) / scale:.4g} for the proof to hold (the default is)",
    )
    return SPARE * least_descending(loss) if rho is None else rho


class Rate(NamedTuple):
    """What the proof makes of a setting: V after a step <= K times what the step lowers the Lagrangian by."""

    moved: float  # A: of sum |delta_m|^2
    turned: float  # B: of |z+ - z|^2
    bent: float  # kappa: of sum |x_m+ - x_m|^2
    K: float  # infinite where the Lagrangian need not fall

    @property
    def proved(self) -> bool:
        return math.isfinite(self.K)


def rate(
    problem: Problem, rho: float, tau: float, theta: float, squares: Mapping[int, float], rows: int
) -> Rate:
    """`squares` are the largest eigenvalues of D_m'D_m, by party; an intercept counts as a party of its own."""
    loss, kappa = problem.loss, problem.lam * problem.reg.dent
    w, L = -least_curvature(loss), smoothness(loss)
    A, B = rho * (1.0 + tau - 0.5 * theta), 0.5 * (rho - w) - L * L / rho
    sizes = [*squares.values(), *([float(rows)] if problem.intercept else [])]
    terms, factor = (4.0, 4.0) if kappa else (3.0, 1.0)
    by_moves = factor * terms * rho**2 * (theta * sum(sizes) + (1.0 + tau) ** 2 * max(sizes))
    by_turns = factor * terms * (L + rho) ** 2 * sum(sizes) + L * L * (1.0 + 1.0 / rho**2)
    falls = min(A, B) > 1e-12 * rho and rho >= L
    K = max(by_moves / A, by_turns / B, factor * terms * 4.0 * kappa) if falls else math.inf
    return Rate(A, B, kappa, K)


def lagrangian(problem: Problem, labels: Array, state: Any, models: Mapping[int, Array]) -> float:
    """Lag of a state of ADMM sharing; `models` are those of all parties."""
    apart = state.total - state.z
    worth = float(problem.loss.value(state.z, labels).sum() + state.y @ apart)
    penalties = problem.lam * sum(problem.reg.value(x) for x in models.values())
    return worth + penalties + 0.5 * state.rho * float(apart @ apart)


def measure(
    problem: Problem, labels: Array, state: Any, models: Mapping[int, Array], slopes: Mapping[int, Any]
) -> float:
    """V of a state; `slopes[m]` maps u to D_m'u."""
    apart = state.total - state.z
    u = state.y + state.rho * apart
    kappa = problem.lam * problem.reg.dent
    step = min(1.0, 0.5 / kappa) if kappa else 1.0
    V = float(np.sum(_off_slope(problem.loss, state.z, labels, u) ** 2)) + float(apart @ apart)
    if problem.intercept:
        V += float(u.sum()) ** 2
    for m, x in models.items():
        there = problem.reg.prox(x - step * slopes[m](u), step * problem.lam)
        V += float(np.sum(((x - into(problem.region, there)) / step) ** 2))
    return V


def _off_slope(loss: Any, z: Array, labels: Array, u: Array) -> Array:
    """How far u is from l'(z); at a kink from the nearest slope between those of its two sides."""
    if not getattr(loss, "kink", False):
        return loss.slope(z, labels) - u
    near = KINK * np.maximum(1.0, np.abs(z))
    return np.clip(u, loss.slope(z - near, labels), loss.slope(z + near, labels)) - u
