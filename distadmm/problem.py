"""The local objectives O_i of the nodes of this rank, and their primal solves.

    O_i(f) = C/B_i sum_n l(f.x_n; y_n) + rho/(2N) |f|^2

An `Objective` of your own needs `dimension`, `value(f)`, `grad(f)` and one of `hess(f)` (a d x d matrix)
or `hessp(f, v)`; everything else here works with it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from distadmm.losses import Loss

Array = np.ndarray

# Below this share of non-zeros, and above this many entries, gradients use the sparse form of the data.
_SPARSE_SHARE = 0.3
_SPARSE_ENTRIES = 400_000


class Objective(Protocol):
    dimension: int

    def value(self, f: Array) -> float: ...

    def grad(self, f: Array) -> Array: ...

    def hess(self, f: Array) -> Array: ...


class GeneralisedLinear:
    """weight/B sum_n l(f.x_n; y_n) + ridge/2 |f|^2 over one node's rows; B is their number, or `divisor`."""

    def __init__(
        self,
        X: Array,
        y: Array,
        loss: Loss,
        *,
        weight: float = 1.0,
        ridge: float = 0.0,
        divisor: int | None = None,
    ):
        self.loss, self.ridge = loss, ridge
        self.rows, self.dimension = X.shape
        # The weight w = C/B of one record.  A public divisor B keeps it the same when a record comes or goes.
        self.scale = weight / (divisor or self.rows)
        # With labels +-1 the loss depends on y f.x alone: fold y into the rows once.
        if loss.labels:
            self.A, self.y = np.ascontiguousarray(X * y[:, None]), np.ones(1)
            self.labels: Array | None = y
        else:
            self.A, self.y = np.ascontiguousarray(X), np.asarray(y, dtype=float)
            self.labels = None
        self._forward, self._backward = self.A, self.A.T
        if self.A.size > _SPARSE_ENTRIES and np.count_nonzero(self.A) < _SPARSE_SHARE * self.A.size:
            from scipy.sparse import csr_array

            self._forward = csr_array(self.A)
            self._backward = csr_array(self.A.T)

    def data_loss(self, f: Array) -> float:
        """Mean loss of the rows."""
        return float(np.mean(self.loss.value(self._forward @ f, self.y)))

    def value(self, f: Array) -> float:
        return self.scale * self.rows * self.data_loss(f) + 0.5 * self.ridge * float(f @ f)

    def grad(self, f: Array) -> Array:
        return self._backward @ (self.scale * self.loss.slope(self._forward @ f, self.y)) + self.ridge * f

    def hess(self, f: Array) -> Array:
        curvature = self.scale * self.loss.curvature(self._forward @ f, self.y)
        H = (self.A * curvature[:, None]).T @ self.A
        H.flat[:: self.dimension + 1] += self.ridge
        return H


class Problem:
    """The objectives of this rank's nodes; `argmin` solves each node's primal step."""

    def __init__(self, objectives: Sequence[Any], tolerance: float = 1e-10):
        from distadmm.newton import solver_of

        self.objectives = list(objectives)
        self.tolerance = tolerance
        self.dimension: int = self.objectives[0].dimension
        self.solvers = [solver_of(objective) for objective in self.objectives]
        self.residual: Array = np.zeros(len(self.objectives))  # of each node's latest solve
        self.seconds = 0.0  # spent in solves

    def argmin(self, linear: Array, quadratic: Array, start: Array) -> Array:
        """argmin_f O_i(f) + <linear_i, f> + 1/2 f'Q_i f for each node i, warm-started at `start_i`.

        Q_i is quadratic[i], a number (standing for a multiple of the identity) or a matrix.
        """
        began = time.perf_counter()
        f = np.empty_like(start)
        for i, solver in enumerate(self.solvers):
            Q = quadratic[i] if np.ndim(quadratic[i]) == 2 else float(np.ravel(quadratic[i])[0])
            f[i], self.residual[i] = solver.minimise(linear[i], Q, start[i], self.tolerance)
        self.seconds += time.perf_counter() - began
        return f

    def values(self, f: Array) -> Array:
        return np.array([objective.value(row) for objective, row in zip(self.objectives, f)])

    def data_losses(self, f: Array) -> Array:
        """Mean loss over each node's rows; NaN where an objective has no such notion."""
        return np.array(
            [o.data_loss(row) if hasattr(o, "data_loss") else np.nan for o, row in zip(self.objectives, f)]
        )

    def memory(self) -> tuple[Array, Array, Array]:
        """What the solvers carry from one iteration to the next: (anchors, quadratics, whether taken)."""
        taken = np.array([solver.anchor is not None for solver in self.solvers])
        anchors = np.stack([np.zeros(self.dimension) if s.anchor is None else s.anchor for s in self.solvers])
        return anchors, np.stack([np.asarray(s.quadratic, dtype=float) for s in self.solvers]), taken

    def restore(self, anchors: Array, quadratics: Array, taken: Array) -> None:
        for solver, anchor, quadratic, was in zip(self.solvers, anchors, quadratics, taken):
            solver.remember(
                anchor if was else None, quadratic if np.ndim(quadratic) == 2 else float(quadratic)
            )

    def gradients(self, f: Array) -> Array:
        return np.stack([objective.grad(row) for objective, row in zip(self.objectives, f)])
