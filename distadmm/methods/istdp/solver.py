"""The whole solve without privacy: GIST, on the columns that matter, finished by Newton on the support.

Coordinate j may stay at zero when |grad_j L(theta)| <= lambda, the slope of every penalty here at zero.  So
on larger problems GIST runs on the support and the worst violators only, and the others are looked at once
it has settled.  Both accelerations leave GIST's own test of stationarity the last word; without them
(`accelerate=False`) this is the bare iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from distadmm.losses import Loss
from distadmm.methods.istdp.gist import State, Steps, iterate
from distadmm.methods.istdp.newton import refine
from distadmm.methods.istdp.penalties import Penalty, WithIntercept

Array = np.ndarray

_SMALL = 50_000  # entries of X below which a pass over all of them is cheaper than choosing columns
_FEW = 10  # columns taken in at least, at a time
_LOOSE = 0.1  # residual, in units of lambda, at which the columns left out are looked at
_PATIENCE = 1  # thresholding steps that leave the support as it is, before a Newton step


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


@dataclass
class _Trace:
    """F after every step, and the steps, across working sets."""

    budget: int
    history: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)

    def add(self, F: float, step: float) -> None:
        self.history.append(F)
        self.steps.append(step)

    @property
    def spent(self) -> bool:
        return len(self.steps) >= self.budget


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
    accelerate: bool = True,
) -> Solution:
    """Iterate until the residual is at most `tol` times lambda (times max |grad L(theta^0)| if lambda is 0)."""
    n, d = X.shape
    theta = np.zeros(d) if start is None else np.array(start, dtype=float)
    rule = Steps() if steps is None else steps
    trace = _Trace(iterations)
    some = accelerate and X.size > _SMALL and penalty.lam > 0
    unit = penalty.lam
    if some or not unit:
        g = loss.slope(X @ theta, y) @ X / n
        unit = unit or float(np.abs(g).max(initial=0.0)) or 1.0
    if some:
        columns, target = _grown(_always(theta, penalty), np.abs(g) - penalty.lam), max(tol, _LOOSE)
    else:
        columns, target = np.arange(d), tol
    while True:
        part = X if len(columns) == d else X[:, columns]
        state = _descend(part, y, loss, penalty, rule, theta[columns], target * unit, trace, accelerate)
        theta[columns] = state.theta
        residual = state.residual
        if len(columns) < d:
            excess = np.abs(loss.slope(state.z, y) @ X / n) - penalty.lam
            excess[columns] = 0.0
            outside = float(excess.max(initial=0.0))
            residual = max(residual, outside)
        if residual <= tol * unit or not state.accepted or trace.spent:
            break
        if len(columns) < d and outside > target * unit:
            columns = _grown(columns, excess)
        else:
            target = tol
        rule = replace(rule, first=state.step)
    return Solution(
        theta=theta + 0.0,  # no negative zeros
        objective=state.F,
        history=np.array(trace.history),
        steps=np.array(trace.steps),
        residual=residual,
        converged=residual <= tol * unit,
    )


def _descend(
    X: Array,
    y: Array,
    loss: Loss,
    penalty: Penalty,
    rule: Steps,
    theta: Array,
    target: float,
    trace: _Trace,
    newton: bool,
) -> State:
    """GIST from theta until the residual is at most `target`, with Newton steps now and then."""
    free = [len(theta) - 1] if isinstance(penalty, WithIntercept) else []
    patience = _PATIENCE if newton else trace.budget
    while True:
        states = iterate(X, y, loss, penalty, rule, theta)
        state = next(states)
        if not trace.history:
            trace.history.append(state.F)
        settled, support = 0, b""
        while settled < patience:
            state = next(states)
            if not state.accepted:
                return state
            trace.add(state.F, state.step)
            if state.residual <= target or trace.spent:
                return state
            before = support
            support = (state.theta != 0).tobytes()
            settled = settled + 1 if support == before else 0
        theta, F = refine(X, y, loss, penalty, state.theta, state.F, free=free, target=target)
        if F < state.F:
            trace.add(F, 0.0)
        else:
            patience *= 2
        rule = replace(rule, first=state.step)


def _always(theta: Array, penalty: Penalty) -> Array:
    """The columns that are never left out: the support, and an intercept, which is the last."""
    kept = theta != 0
    if isinstance(penalty, WithIntercept):
        kept[-1] = True
    return np.flatnonzero(kept)


def _grown(columns: Array, excess: Array) -> Array:
    """`columns` and as many of the worst others (at least a few); all of them once that is every other one."""
    d = len(excess)
    size = min(max(len(columns), _FEW), int((excess > 0).sum()))
    if 2 * (len(columns) + size) > d:
        return np.arange(d)
    return np.union1d(columns, np.argsort(excess)[d - size :])
