"""What floats may hide of a gradient: how far the one that a solver sees may be from the one of its problem.

    O'(f) + l + Qf,    O(f) = w sum_n loss_n(f) + r/2 |f|^2 over B rows no longer than 1

Sums of vectors, l itself among them: its noise stands beside what is released, and a penalty of 1e16 leaves nothing of
it.  The rows' part is a sum of B numbers at scores that are sums of d: in whatever order, it is off by B u of what is
added at most (u = 2^-53), and comes close where rows are alike.  Where that is too much, the gradient is taken anew
where the solve ended, in sums of a few numbers and then of pairs, which are off by less.
"""

import time
from functools import cached_property
from math import ceil, log2
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.problems.consensus import GeneralisedLinear, Linear, Problem, Softmax
from distadmm.problems.losses import LOSSES, Array
from distadmm.problems.newton import solver_of

_EPS = float(np.finfo(float).eps)  # 2 u
_RUN = 16  # numbers that are added one after the other
_FINER = float(np.finfo(np.longdouble).eps) / _EPS
_CALLS = 4.0  # u of a loss's slope, and of what it is multiplied by
_REFINED = 3  # solves anew by a better gradient


class Certain(Problem):
    """Whose `residual` bounds the gradient that is left, and not only the one that floats show.

    Half of the tolerance is for what they hide; where that is more, no solve is certain.
    """

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        self.goal, self._widest = self.tolerance / 2, dict[int, int]()
        worst = (each * (_CALLS + min(_turns(rows), rows)) for rows, _, each, _, _ in self._sizes.T.tolist())
        least = _EPS / 2 * max(worst)
        require(
            least <= self.tolerance,  # of slopes as steep as they get, which few of a node's are
            f"rounding of sums over the rows may hide a gradient of {least:.2g}, and half of --tolerance "
            f"{self.tolerance:g} is for that; lower --weight, or give --tolerance {4 * least:.1g}",
        )

    def argmin(self, linear: Array, quadratic: Array, start: Array) -> Array:
        f = super().argmin(linear, quadratic, start)
        began = time.perf_counter()
        rows, columns, slopes, bends, ridge = self._sizes
        long = np.linalg.norm(f, axis=1)
        pull = np.abs(quadratic).sum(axis=tuple(range(1, np.ndim(quadratic))))
        sums = 2 * (pull + ridge) * long + np.linalg.norm(linear, axis=1)
        hidden = slopes * (_CALLS + rows) + bends * (_CALLS + columns) * (1 + long)
        short = self.residual <= self.goal
        self.residual += _EPS / 2 * (sums + hidden)
        for i in np.flatnonzero(short & (self.residual > self.tolerance)).tolist():
            if isinstance(self.objectives[i], Linear | Softmax):
                Q = (
                    quadratic[i]
                    if np.ndim(quadratic) == 3
                    else np.broadcast_to(quadratic, (len(f), 1))[i].item()
                )
                f[i] = self._closer(i, linear[i], Q, f[i], _EPS / 2 * float(sums[i]))
        self.seconds += time.perf_counter() - began
        return f

    def _closer(self, i: int, linear: Array, Q: Any, f: Array, sums: float) -> Array:
        """Where the solve of this node ends by a better gradient, of which `residual` is told."""
        objective = self.objectives[i]
        found, trial = f, f
        for _ in range(_REFINED):
            known = linear + (Q @ trial if np.ndim(Q) == 2 else Q * trial)
            if i not in self._widest:
                self._widest[i] = _widest(objective)
            rows, hidden = _gradient(objective, trial, self._widest[i])
            g = rows + objective.ridge * trial + known
            left = float(np.linalg.norm(g)) + hidden + sums
            if left < self.residual[i]:
                self.residual[i], found = left, trial
            if self.residual[i] <= self.tolerance or hidden + sums > self.goal:
                break
            off = g - objective.grad(trial) - known
            trial = solver_of(objective).minimise(linear + off, Q, trial, self.goal / 2).f
        return found

    @cached_property
    def _sizes(self) -> Array:
        """Rows, columns, w B |loss'|, w B loss'' (0 without a bound, nothing is claimed then) and ridge of nodes."""
        return np.array([_size(each) for each in self.objectives]).T


def _size(objective: Any) -> tuple[float, ...]:
    rows, scale = getattr(objective, "rows", 0), getattr(objective, "scale", 0.0)
    loss = getattr(objective, "loss", LOSSES["softmax"])
    slope, bend = (getattr(loss, name, np.inf) for name in ("max_slope", "max_curvature"))
    slope, bend = (scale * rows * bound if np.isfinite(bound) else 0.0 for bound in (slope, bend))
    return rows, objective.dimension, slope, bend, getattr(objective, "ridge", 0.0)


def _widest(objective: Any) -> int:
    """Entries of a row that are not 0, at most."""
    if isinstance(objective, GeneralisedLinear | Softmax):
        return int(np.count_nonzero(objective.A, axis=1).max())
    return int(objective.widest)


def _gradient(objective: Any, f: Array, wide: int) -> tuple[Array, float]:
    """The rows' part of the gradient at f, and what may be hidden of it."""
    long = 1 + float(np.linalg.norm(f))
    if isinstance(objective, Softmax):
        slopes, curved = objective.probabilities(f), objective.scale * objective.rows
        slopes[np.arange(objective.rows), objective.y] -= 1.0
        slopes *= objective.scale
        sizes = float(np.sqrt(np.einsum("ij,ij->i", slopes, slopes)).sum())
    else:
        scores = objective.scores(f)
        slopes = objective.scale * objective.loss.slope(scores, objective.y)
        curved = objective.scale * float(np.abs(objective.loss.curvature(scores, objective.y)).sum())
        sizes = float(np.abs(slopes).sum())
    if isinstance(objective, GeneralisedLinear | Softmax):
        total, turns = _summed(objective.A, slopes.reshape(len(slopes), -1)).ravel(), _turns(objective.rows)
    else:
        total, turns = objective.finely(slopes), 1 + _FINER * objective.rows
    hidden = (_CALLS + turns) * sizes + (_CALLS + wide) * curved * long
    return total, _EPS / 2 * hidden


def _summed(A: Array, weights: Array) -> Array:
    """weights' A, in runs and then in pairs."""
    whole = len(A) // _RUN * _RUN
    rest = weights[whole:].T @ A[whole:]
    if not whole:
        return rest
    runs = weights[:whole].reshape(-1, _RUN, weights.shape[1]).transpose(0, 2, 1)
    parts = np.matmul(runs, A[:whole].reshape(-1, _RUN, A.shape[1]))
    while len(parts) > 1:
        half = len(parts) // 2
        odd, parts = parts[2 * half :], parts[:half] + parts[half : 2 * half]
        parts[: len(odd)] += odd
    return parts[0] + rest


def _turns(rows: float) -> float:
    """Through how many additions a number goes in `_summed` at most, its product included."""
    return _RUN + 1 + 2 * ceil(log2(max(rows / _RUN, 1)))
