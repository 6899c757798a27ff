"""What floats may hide of a gradient: how far the one that a solver sees may be from the one of its problem.

    O'(f) + l + Qf,    O(f) = w sum_n loss_n(f) + r/2 |f|^2 over B rows no longer than 1

Sums of vectors, l itself among them: its noise stands beside what is released, and a penalty of 1e16 leaves nothing of
it.  The rows' part is a sum of B numbers at scores that are sums of d: in whatever order, it is off by B u of what is
added at most (u = 2^-53), and comes close where rows are alike.  Where that is too much, the gradient is taken anew
where the solve ended, in sums of a few numbers and then of pairs, which are off by less; where that is, too, in more
digits, which takes longer.
"""

import time
from functools import cached_property
from math import ceil, log2
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.problems.consensus import Linear, Problem, Softmax
from distadmm.problems.losses import LOSSES, Array
from distadmm.problems.newton import solver_of
from distadmm.problems.sparse import SparseLinear

_EPS = float(np.finfo(float).eps)  # 2 u
_RUN = 16  # numbers that are added one after the other
_MORE: Any = np.longdouble
_FINER = float(np.finfo(_MORE).eps) / _EPS
_AT_ONCE = 4096  # rows that are taken in more digits
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
        objective, (rows, columns, slopes, bends, ridge) = self.objectives[i], self._sizes[:, i]
        found = trial = f
        for _ in range(_REFINED):
            known = linear + (Q @ trial if np.ndim(Q) == 2 else Q * trial)
            g, hidden = np.full_like(f, np.nan), np.inf
            if not isinstance(objective, SparseLinear):
                if i not in self._widest:
                    self._widest[i] = int(np.count_nonzero(objective.A, axis=1).max())
                part, hidden = _gradient(objective, trial, self._widest[i])
                g, hidden = part + ridge * trial + known, hidden + sums
            if not np.linalg.norm(g) + hidden <= self.tolerance:
                more = trial.astype(_MORE)
                pull = (Q @ more if np.ndim(Q) == 2 else Q * more) + linear
                g = (_finely(objective, more) + ridge * more + pull).astype(float)
                most = slopes * (_CALLS + rows) + bends * (_CALLS + columns) * (1 + np.linalg.norm(trial))
                # The linear term was rounded before it came here.
                hidden = _EPS / 2 * (np.linalg.norm(linear) + _FINER * (most + 2 * sums / _EPS))
            left = float(np.linalg.norm(g) + hidden)
            if left < self.residual[i]:
                self.residual[i], found = left, trial
            if self.residual[i] <= self.tolerance or hidden > self.goal:
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
    total = _summed(objective.A, slopes.reshape(len(slopes), -1)).ravel()
    hidden = (_CALLS + _turns(objective.rows)) * sizes + (_CALLS + wide) * curved * long
    return total, _EPS / 2 * hidden


def _finely(objective: Any, f: Array) -> Array:
    """The same at an f of more digits, in as many."""
    if isinstance(objective, SparseLinear):
        return objective.rows_grad(f)
    if isinstance(objective, Softmax):
        slopes = objective.probabilities(f)
        slopes[np.arange(objective.rows), objective.y] -= 1.0
        return (objective.scale * slopes.T @ objective.A).ravel()  # type: ignore[no-any-return]
    total = np.zeros_like(f)
    for at in range(0, objective.rows, _AT_ONCE):
        part = slice(at, at + _AT_ONCE)
        A, y = objective.A[part].astype(_MORE), objective.y[part] if len(objective.y) > 1 else objective.y
        total += objective.loss.slope(A @ f, y) @ A
    return objective.scale * total  # type: ignore[no-any-return]


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
