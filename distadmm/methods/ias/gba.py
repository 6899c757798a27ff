"""Generalised Blahut-Arimoto: mirror ascent on eq. (1), without an inner loop.

    g   = A^T log(p(s|u)/p(s)) - beta (h(t) + sum_y p(y) f'(t)),   t = p(u)/p(u|y),  h = f - t f'
    P^+ = projection of  P exp(eta g)  on  {p(u|y) >= eps, rows sum to 1}

Both I(S;U) and E[d] are convex in P, and the curvature of E[d] is at most sup t^2 f'' times that of the
entropy, so eta <= 1/(beta sup t^2 f'') never descends; with -log and eta = 1/beta it is Blahut and
Arimoto's information bottleneck.  Longer steps are tried and kept when they climb: eta grows by 1.5 on
success and shrinks by 0.4, the step undone, when F drops.
"""

from typing import NamedTuple

import numpy as np

from distadmm.methods.ias.objective import Array, Objective, Value, project_entropic

GROW, SHRINK = 1.5, 0.4
SHORTEST = 1e-15  # a step below this moves nothing
WINDOW = 10  # F is compared over this many steps


class Ascent(NamedTuple):
    """A batch of mappings after their ascent; one entry a start."""

    P: Array
    F: Array
    iterations: Array
    converged: Array
    history: list[Array]  # F of all starts, iteration by iteration, when asked for


def first_step(objective: Objective) -> float:
    """The longest step that is proved never to descend; a short guess where there is none (Hellinger)."""
    bound = objective.measure.curvature_bound
    return 1 / (objective.beta * bound) if np.isfinite(bound) else 0.5 / objective.beta


def step(P: Array, g: Array, eta: Array, eps: float) -> Array:
    pull = eta[:, None, None] * g
    pull -= pull.max(-1, keepdims=True)
    return project_entropic(P * np.exp(pull), eps)


def ascend(
    objective: Objective,
    P: Array,
    eps: float,
    *,
    iterations: int = 1000,
    tolerance: float = 1e-9,
    adaptive: bool = True,
    trace: bool = False,
) -> Ascent:
    """Climb from every mapping of the batch P[start, y, u] until F gains less than `tolerance` in 10 steps."""
    best_P, n = P.copy(), len(P)
    best_F, used = np.empty(n), np.full(n, iterations)
    converged, history = np.zeros(n, dtype=bool), []
    active = np.arange(n)  # the starts still climbing; the arrays below hold only these
    value = objective(P)
    best_F[:] = value.F
    eta, mark = np.full(n, first_step(objective)), value.F
    eta_mark = eta
    for k in range(1, iterations + 1):
        P_new = step(P, value.g, eta, eps)
        new = objective(P_new)
        if adaptive:
            better = new.F >= value.F
            P, value = (P_new, new) if better.all() else _chosen(better, P_new, new, P, value)
            eta = np.where(better, eta * GROW, eta * SHRINK)
        else:
            P, value = P_new, new
        if trace:
            best_F[active] = value.F
            history.append(best_F.copy())
        if k % WINDOW == 0:
            # Standing still while the step still shrinks, every trial undone, is not the end.
            tried = (eta > 1e-3 * eta_mark) | (eta < SHORTEST)
            done = (value.F - mark < tolerance) & tried
            mark, eta_mark = value.F, eta
            if done.any():
                finished = active[done]
                best_P[finished], best_F[finished] = P[done], value.F[done]
                used[finished], converged[finished] = k, True
                keep = ~done
                active, P, mark = active[keep], P[keep], mark[keep]
                eta = eta_mark = eta[keep]
                value = Value(*(a[keep] for a in value))
                if not len(active):
                    break
    best_P[active], best_F[active] = P, value.F
    return Ascent(best_P, best_F, used, converged, history)


def _chosen(new_is: Array, P_new: Array, new: Value, P: Array, value: Value) -> tuple[Array, Value]:
    """Start by start, the new mapping with its value, or the old."""

    def choose(a: Array, b: Array) -> Array:
        return np.where(new_is.reshape(-1, *[1] * (b.ndim - 1)), a, b)

    return choose(P_new, P), Value(*(choose(a, b) for a, b in zip(new, value)))
