"""Algorithm 1: the alternating direction method of multipliers inside, P_{S|U} outside.

    D     = sum_s p(s|y) log(p(s|y)/p(s|u))                                  KL[P_{S|y} || P_{S|u}]
    x_y   = argmax L[x_y, ...]          y = 1..|Y|, one after the other       (20)
    P_U   = argmax L[..., P_U]                                               (21)
    lam   = lam - rho delta,   delta = P_U - sum_y p(y) x_y                  (19), sign corrected
    L     = F + lam.delta - rho/2 |delta|^2                                  (16)

With the Lagrangian (16), which is maximised, the multiplier must descend; (19) as printed ascends, and then
delta does not go to zero.  `sign` = +1 is the printed form.

The two sub-problems are solved exactly and for a whole batch at once.  Row y, eq. (20), has for every u the
optimality condition G(x) = nu or x = eps with G(x) <= nu, where

    G(x) = -beta h(a/x) - D - lam + rho (a - r - w x),    w = p(y),   r = sum of p(y') p(u|y') over y' != y,

falls in x.  P_U, eq. (21), is one scalar root per u of

    -beta sum_y p(y) f'(a/x_y) + lam - rho (a - m) = 0,   m = sum_y p(y) x_y,   falling in a.
"""

from typing import NamedTuple

import numpy as np

from distadmm.methods.ias.measures import Measure
from distadmm.methods.ias.objective import Array, Objective, marginals

PRECISION, SMALLEST = 1e-14, 1e-30


def solve_row(
    measure: Measure, beta: float, a: Array, drift: Array, pull: Array, eps: float, start: Array
) -> Array:
    """The row x >= eps of sum one with -beta h(a/x) + drift - pull x = nu off the bound, for each of a batch.

    `drift` = -D - lam + rho (a - r) and `pull` = rho w > 0; Newton on (x, nu) together, its step kept within
    [x/5, max(4x, 1/4)]; bisection on nu where that has not settled.
    """
    K = start.shape[-1]
    if eps * K >= 1 - 1e-12:
        return np.full_like(start, 1 / K)
    x = np.maximum(start, eps)
    x = x / x.sum(-1, keepdims=True)
    residual = np.full(x.shape[:-1], np.inf)
    for _ in range(60):
        t = a / x
        G = drift - beta * measure.h(t) - pull * x
        H = beta * t * t * measure.f2(t) / x + pull
        held = np.zeros(x.shape, dtype=bool)
        for _ in range(K):  # the bound entries are those that the multiplier of the others pushes down
            free = np.where(held, 0.0, 1 / H)
            nu = ((free * G).sum(-1) + np.where(held, eps, x).sum(-1) - 1) / free.sum(-1)
            new_held = held | ((x <= eps) & (nu[..., None] > G))
            if np.array_equal(new_held, held):
                break
            held = new_held
        residual = np.abs(np.where(held, 0.0, (G - nu[..., None]) / H)).max(-1)
        move = np.where(held, eps - x, (G - nu[..., None]) / H)
        x = np.maximum(np.clip(x + move, 0.2 * x, np.maximum(4 * x, 0.25)), eps)
        if (residual <= PRECISION).all():
            break
    off = (residual > 1e-10) | (np.abs(x.sum(-1) - 1) > 1e-12)
    if off.any():
        x = np.where(off[..., None], _row_by_bisection(measure, beta, a, drift, pull, eps, K), x)
    return x


def _row_by_bisection(
    measure: Measure, beta: float, a: Array, drift: Array, pull: Array, eps: float, K: int
) -> Array:
    """The same row, slowly and surely: bisection on nu, and within it on every x."""

    def G(x: Array) -> Array:
        return drift - beta * measure.h(a / x) - pull * x

    def row(nu: Array) -> Array:
        low, high = np.full(drift.shape, np.log(eps)), np.zeros(drift.shape)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = G(np.exp(middle)) > nu[..., None]
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.exp(0.5 * (low + high))

    one = np.ones_like(drift)
    nu_low, nu_high = G(one).min(-1), G(eps * one).max(-1)
    for _ in range(100):
        nu = 0.5 * (nu_low + nu_high)
        large = row(nu).sum(-1) > 1
        nu_low, nu_high = np.where(large, nu, nu_low), np.where(large, nu_high, nu)
    x = np.maximum(row(0.5 * (nu_low + nu_high)), eps)
    free = x > eps * (1 + 1e-9)
    return np.where(free, x * ((1 - eps * (~free).sum(-1)) / np.where(free, x, 0).sum(-1))[..., None], eps)


def solve_marginal(
    measure: Measure, beta: float, p: Array, P: Array, lam: Array, rho: float, m: Array, start: Array
) -> Array:
    """p(u) > 0 of eq. (21), unconstrained: Newton within a bracket that every step narrows.

    Where f'(0+) is finite (Le Cam) the root may not exist: then p(u) is the smallest number of the bracket.
    """
    low, high = np.full_like(start, SMALLEST), np.maximum(start, 1.0)

    def slope(a: Array) -> Array:
        return lam - rho * (a - m) - beta * np.matmul(p, measure.f1(a[..., None, :] / P))

    while (rising := slope(high) > 0).any():
        low, high = np.where(rising, high, low), np.where(rising, 2 * high, high)
    a = np.clip(start, low, high)
    for _ in range(100):
        s = slope(a)
        low, high = np.where(s >= 0, a, low), np.where(s <= 0, a, high)
        curve = rho + beta * np.matmul(p, measure.f2(a[..., None, :] / P) / P)
        newton = a + s / curve
        inside = (newton > low) & (newton < high)
        new = np.where(inside, newton, np.sqrt(low * high))
        if (np.abs(new - a) <= PRECISION * np.abs(a)).all():
            break
        a = new
    return new


CORRECTED, PRINTED = -1.0, 1.0
VERDICT = (
    "claimed by the paper, not proved: (19) with + rho delta converges.  Refuted: L of (16) is maximised, so "
    "its multiplier must descend; with the printed sign delta does not vanish (Lemmas 6 and 8 need opposite "
    "signs, so the printed proof holds for neither)"
)


class State(NamedTuple):
    """A batch of Algorithm 1's iterates."""

    P: Array  # P_{U|Y}: [start, y, u]
    P_U: Array  # its own variable, equal to P^T P_Y only in the limit
    lam: Array  # Lambda
    D: Array  # KL[P_{S|y} || P_{S|u}] at the last outer step: [start, y, u]


def init(objective: Objective, P: Array) -> State:
    P_U, _ = marginals(objective.problem, P)
    return State(P, P_U, np.zeros_like(P_U), divergences(objective, P))


def divergences(objective: Objective, P: Array) -> Array:
    """KL[P_{S|y} || P_{S|u}] with P_{S|U} the posterior of P itself (eq. 9 with its own marginal)."""
    A = objective.problem.A
    _, P_SU = marginals(objective.problem, P)
    own = np.where(A > 0, A * np.log(np.where(A > 0, A, 1)), 0).sum(0)
    return own[:, None] - np.matmul(A.T, np.log(P_SU))


def inner_step(
    objective: Objective,
    state: State,
    rho: float,
    eps: float,
    *,
    sign: float = CORRECTED,
    jacobi: bool = False,
) -> State:
    """Lines 7-9: the rows in turn (or, with `jacobi`, all at once), then P_U, then Lambda."""
    measure, beta, p = objective.measure, objective.beta, objective.problem.P_Y
    P, a, lam, D = state.P.copy(), state.P_U, state.lam, state.D
    if jacobi:
        w = p[:, None]
        rest = np.matmul(p, P)[..., None, :] - w * P
        drift = -D - lam[..., None, :] + rho * (a[..., None, :] - rest)
        P = solve_row(measure, beta, a[..., None, :], drift, rho * w, eps, P)
    else:
        for y, w in enumerate(p):
            rest = np.matmul(p, P) - w * P[..., y, :]
            drift = -D[..., y, :] - lam + rho * (a - rest)
            P[..., y, :] = solve_row(measure, beta, a, drift, np.asarray(rho * w), eps, P[..., y, :])
    m = np.matmul(p, P)
    a = solve_marginal(measure, beta, p, P, lam, rho, m, a)
    return State(P, a, lam + sign * rho * (a - m), D)


def outer_step(objective: Objective, state: State) -> State:
    """Line 11: P_{S|U} anew; P_U and Lambda are carried over."""
    return state._replace(D=divergences(objective, state.P))


class Look(NamedTuple):
    """What there is to see of an iterate."""

    F3: Array  # F[P_{U|Y}, P_U | P_{S|U}], eq. (14)
    F: Array  # F[P_{U|Y}], eq. (1), of the mapping with its own marginal
    L: Array  # the augmented Lagrangian (16)
    delta: Array  # |delta|_1
    lam: Array  # |Lambda|_1


def look(objective: Objective, state: State, rho: float) -> Look:
    problem, p = objective.problem, objective.problem.P_Y
    leakage = (p[:, None] * state.P * objective.measure.f(state.P_U[..., None, :] / state.P)).sum((-2, -1))
    lost = (p[:, None] * state.P * state.D).sum((-2, -1))
    F3 = problem.I_SY - lost - objective.beta * leakage
    delta = state.P_U - np.matmul(p, state.P)
    L = F3 + (state.lam * delta).sum(-1) - rho / 2 * (delta**2).sum(-1)
    return Look(F3, objective(state.P).F, L, np.abs(delta).sum(-1), np.abs(state.lam).sum(-1))


class Run(NamedTuple):
    state: State
    inner: int  # inner steps in all
    outer: int
    converged: bool


def run(
    objective: Objective,
    P: Array,
    eps: float,
    *,
    rho: float = 1.0,
    sign: float = CORRECTED,
    jacobi: bool = False,
    eta: float = 1e-6,
    eta_p: float = 1e-8,
    eta_d: float = 1e-6,
    inner: int = 300,
    outer: int = 100,
) -> Run:
    """Algorithm 1 from one mapping P[y, u], with at most `outer` times `inner` steps.

    The inner loop ends when P_U moves less than eta_p and |delta|_1 <= eta_d (the paper names eta_d and
    never uses it: without it the printed form "converges" with delta of one); the outer loop when P_{S|U}
    moves less than eta.
    """
    state, steps = init(objective, P[None]), 0
    P_SU, converged = marginals(objective.problem, state.P)[1], False
    for j in range(outer):
        for _ in range(inner):
            new = inner_step(objective, state, rho, eps, sign=sign, jacobi=jacobi)
            moved = np.abs(new.P_U - state.P_U).sum()
            state, steps = new, steps + 1
            if not np.isfinite(state.P_U).all() or np.abs(state.P_U).max() > 1e12:
                return Run(state, steps, j + 1, False)
            off = np.abs(state.P_U - np.matmul(objective.problem.P_Y, state.P)).sum()
            if moved <= eta_p and (off <= eta_d or sign == PRINTED):
                break
        before, P_SU = P_SU, marginals(objective.problem, state.P)[1]
        state = outer_step(objective, state)
        if np.linalg.norm(P_SU - before) <= eta:
            converged = True
            break
    return Run(state, steps, j + 1, converged)


class Printed(NamedTuple):
    """The inner loop with one sign, after its last step."""

    steps: int
    delta: float  # |P_U - P^T P_Y|_1
    lam: float  # |Lambda|_1
    total: float  # sum of P_U
    passed: int | None  # the first step at which line 6 would stop: |P_U^t - P_U^{t-1}|_1 <= eta_p
    delta_then: float  # |delta|_1 at that step


def inner_loop(objective: Objective, P: Array, eps: float, rho: float, sign: float) -> Printed:
    """120 inner steps from P, line 6's stop test noted but not obeyed; ended when P_U leaves 1e4."""
    state, passed, then, done = init(objective, P[None]), None, np.nan, 0
    while done < 120 and np.abs(state.P_U).max() < 1e4:
        before, state, done = state, inner_step(objective, state, rho, eps, sign=sign), done + 1
        if passed is None and np.abs(state.P_U - before.P_U).sum() <= 1e-3:  # eta_p
            passed, then = done, float(look(objective, state, rho).delta[0])
    seen = look(objective, state, rho)
    return Printed(done, float(seen.delta[0]), float(seen.lam[0]), float(state.P_U.sum()), passed, then)


def told(objective: Objective, P: Array, eps: float, rho: float) -> list[str]:
    lines = []
    for name, sign in (("(19) as printed", PRINTED), ("(19) corrected ", CORRECTED)):
        seen = inner_loop(objective, P, eps, rho, sign)
        stop = "line 6 never stops it"
        if seen.passed:
            stop = f"line 6 stops at step {seen.passed} with |delta|_1 = {seen.delta_then:.2g}"
        lines.append(
            f"{name}: after {seen.steps} inner steps |delta|_1 = {seen.delta:.3g}, |Lambda|_1 = {seen.lam:.3g}, "
            f"sum of P_U = {seen.total:.3g}; {stop}"
        )
    return [*lines, VERDICT]
