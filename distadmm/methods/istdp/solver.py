"""The whole solve without privacy: GIST, its last digits by Newton on the support.

Whenever a thresholding step has left the support as it was, Newton's method is tried on it; if that fails,
it is tried half as often, and boldly once 32 steps in a row have to leave the support alone.  GIST has the
first word, so it chooses among the stationary points of a nonconvex F, and the last, its test of
stationarity.  With `newton=False` this is the bare iteration.

Newton (`refine`): on the set A of coordinates that are not zero, and as long as none changes its piece of the
penalty, F is smooth with

    gradient  g_A + phi'(theta_A),    Hessian  H = 1/n X_A^T diag(l'') X_A + diag(phi''(theta_A)).

Where H is positive definite the whole step is tried, and kept if no sign changes and F falls.  Where it is
not (the columns are dependent, or the penalty is more concave than the loss is convex), `bold` steps go
along  -|H|^-1 gradient, shortened until F falls; a coordinate that would change its sign stops at zero.  So
a call can only improve theta.

Working sets, which make coordinate descent fast, are left out on purpose: on correlated columns (Adult in
105 of them) they end at objectives up to a tenth worse than the same steps on all columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distadmm.methods.istdp.gist import Steps, iterate
from distadmm.problems.concave import Penalty, WithIntercept
from distadmm.problems.losses import Array, Loss, least_curvature, smoothness

_BOLD = 32  # patience from which Newton steps are bold


@dataclass(frozen=True)
class Solution:
    theta: Array  # the coefficients
    objective: float  # F = L + R there
    history: Array  # F at theta^0, theta^1, ...
    steps: Array  # accepted alpha_1, alpha_2, ...; 0 where Newton steps on the support stood in
    residual: float  # largest entry of one element of dF(theta): the stationarity reached
    converged: bool  # residual <= tol * lambda

    @property
    def iterations(self) -> int:
        return len(self.steps)


def solve(
    X: Array,
    y: Array,
    loss: Loss,
    penalty: Penalty,
    *,
    steps: Steps | None = None,
    start: Array | None = None,
    iterations: int = 10_000,
    tol: float = 1e-6,
    newton: bool = True,
    stop: Callable[[], object] = bool,
) -> Solution:
    """Iterate until the residual is at most `tol` times lambda (times max |grad L(theta^0)| if lambda is 0).

    `stop` is asked after each iteration whether to leave it at that.
    """
    theta = np.zeros(X.shape[1]) if start is None else np.array(start, dtype=float)
    rule = _steps_for(X, loss) if steps is None else steps
    free = [len(theta) - 1] if isinstance(penalty, WithIntercept) else []
    target, patience = tol * penalty.lam, 1 if newton else iterations
    stopped = False
    history: list[float] = []
    taken: list[float] = []
    while True:
        states = iterate(X, y, loss, penalty, rule, theta)
        state = next(states)
        if not history:
            history.append(state.F)
            target = target or tol * float(np.abs(state.g).max(initial=0.0))
        settled, support = 0, b""
        while settled < patience and len(taken) < iterations:
            state = next(states)
            if not state.accepted:
                break
            history.append(state.F)
            taken.append(state.step)
            if state.residual <= target or (stopped := bool(stop())):
                break
            before = support
            support = (state.theta != 0).tobytes()
            settled = settled + 1 if support == before else 0
        if stopped or state.residual <= target or not state.accepted or len(taken) >= iterations:
            break
        bold = patience >= _BOLD
        theta, F = refine(X, y, loss, penalty, state.theta, state.F, free=free, target=target, bold=bold)
        if F < state.F:
            history.append(F)
            taken.append(0.0)
        else:
            patience *= 2
        rule = replace(rule, first=state.step)
    theta, settled_at = state.theta + 0.0, state.residual <= target  # no negative zeros
    return Solution(theta, state.F, np.array(history), np.array(taken), state.residual, settled_at)


def _steps_for(X: Array, loss: Loss) -> Steps:
    """Of a loss that is not convex none longer than 1/L: where it curves downwards Barzilai-Borwein takes the longest.

    That may land where the loss is flat, at a stationary point that calls every row the more frequent class.
    """
    if least_curvature(loss) == 0:
        return Steps()
    n, d = X.shape
    largest = float(np.linalg.eigvalsh(X @ X.T if d > n else X.T @ X).max(initial=0.0)) / n
    longest = min(Steps.longest, 1 / max(smoothness(loss) * largest, 1e-300))
    return Steps(first=min(Steps.first, longest), longest=longest)


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
    if not size.any():  # F is linear here, and goes down as far as thresholding steps like
        return slope, 0.0
    return -basis @ ((basis.T @ slope) / np.maximum(size, _FLAT * size.max())), 1.0
