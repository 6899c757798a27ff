"""What Algorithm 1 does with the sign of its multiplier step (19) as printed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distadmm.methods.ias import admm
from distadmm.methods.ias.objective import Objective

VERDICT = (
    "claimed by the paper, not proved: (19) with + rho delta converges.  Refuted: L of (16) is maximised, so "
    "its multiplier must descend; with the printed sign delta does not vanish (Lemmas 6 and 8 need opposite "
    "signs, so the printed proof holds for neither)"
)


class Printed(NamedTuple):
    """The inner loop with one sign, after its last step."""

    steps: int
    delta: float  # |P_U - P^T P_Y|_1
    lam: float  # |Lambda|_1
    total: float  # sum of P_U
    passed: int | None  # the first step at which line 6 would stop: |P_U^t - P_U^{t-1}|_1 <= eta_p
    delta_then: float  # |delta|_1 at that step


def inner_loop(
    objective: Objective,
    P: np.ndarray,
    eps: float,
    rho: float,
    sign: float,
    *,
    steps: int = 120,
    eta_p: float = 1e-3,
) -> Printed:
    """`steps` inner steps from P, line 6's stop test noted but not obeyed; ended when P_U leaves 1e4."""
    state, passed, then = admm.init(objective, P[None]), None, np.nan
    done = 0
    while done < steps and np.abs(state.P_U).max() < 1e4:
        new = admm.inner_step(objective, state, rho, eps, sign=sign)
        done += 1
        moved = float(np.abs(new.P_U - state.P_U).sum())
        state = new
        if passed is None and moved <= eta_p:
            passed, then = done, float(admm.look(objective, state, rho).delta[0])
    seen = admm.look(objective, state, rho)
    return Printed(done, float(seen.delta[0]), float(seen.lam[0]), float(state.P_U.sum()), passed, then)


def told(objective: Objective, P: np.ndarray, eps: float, rho: float) -> list[str]:
    """Both signs from the same start, and the verdict."""
    lines = []
    for name, sign in (("(19) as printed", admm.PRINTED), ("(19) corrected ", admm.CORRECTED)):
        seen = inner_loop(objective, P, eps, rho, sign)
        stop = (
            f"line 6 stops at step {seen.passed} with |delta|_1 = {seen.delta_then:.2g}"
            if seen.passed
            else "line 6 never stops it"
        )
        lines.append(
            f"{name}: after {seen.steps} inner steps |delta|_1 = {seen.delta:.3g}, |Lambda|_1 = {seen.lam:.3g}, "
            f"sum of P_U = {seen.total:.3g}; {stop}"
        )
    return [*lines, VERDICT]
