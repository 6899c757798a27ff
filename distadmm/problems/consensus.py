"""The local objectives O_i of the nodes of this rank, and their primal solves.

    O_i(f) = C/B_i sum_n l(f.x_n; y_n) + rho/(2N) |f|^2

An `Objective` of your own needs `dimension`, `value(f)`, `grad(f)` and one of `hess(f)` (a d x d matrix)
or `hessp(f, v)`; everything else here works with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from operator import is_
from typing import Any, Protocol

import numpy as np

from distadmm.problems.losses import Array, Loss, task_of

# Below this share of non-zeros, and above this many entries, gradients use the sparse form of the data.
_SPARSE_SHARE = 0.3
_SPARSE_ENTRIES = 400_000
_ONE = np.ones(1)  # the target of rows that labels are folded into: many nodes share it
# Entries of rows that are copied for a Hessian: all, or of more so many at once.
_WHOLE, _AT_ONCE = 1 << 20, 1 << 18
_ENOUGH = 64  # rows a column from which a sample of them will do


class Objective(Protocol):
    dimension: int

    def value(self, f: Array) -> float: ...

    def grad(self, f: Array) -> Array: ...

    def hess(self, f: Array) -> Array: ...


class Weighted:
    """weight/B sum_n loss_n(f) + ridge/2 |f|^2 over one node's rows; B is their number, or `divisor`."""

    def __init__(
        self, rows: int, dimension: int, *, weight: float = 1.0, ridge: float = 0.0, divisor: int | None = None,
    ):  # fmt: skip
        self.rows, self.dimension, self.ridge = rows, dimension, ridge
        # The weight w = C/B of one record.  A public divisor B keeps it the same when a record comes or goes.
        self.scale = weight / (divisor or rows)

    def data_loss(self, f: Array) -> float:
        """Mean loss of the rows."""
        raise NotImplementedError

    def rows_grad(self, f: Array, most: float = np.inf) -> Array:
        """The gradient without the ridge's part; `most`: to which each slope is cut, and so that of a row of norm 1."""
        raise NotImplementedError

    def grad(self, f: Array, most: float = np.inf) -> Array:
        return self.rows_grad(f, most) + self.ridge * f

    def value(self, f: Array) -> float:
        return self.scale * self.rows * self.data_loss(f) + 0.5 * self.ridge * float(f @ f)


class Linear(Weighted):
    """Of losses l(f.x_n; y_n): `forward` and `backward` are the rows and their transpose, dense or sparse."""

    def __init__(self, forward: Any, backward: Any, y: Array, loss: Loss, **shared: Any):
        super().__init__(*forward.shape, **shared)
        self._forward, self._backward, self.y, self.loss = forward, backward, y, loss
        self.seen: tuple[bytes, Array] | None = None  # the latest f, and A f
        self._loss: tuple[bytes, float] | None = None  # the latest f whose loss was asked for, and that

    def scores(self, f: Array) -> Array:
        """A f, kept for the next call: a solve, its Hessian and an observer often ask at the same f."""
        known = f.tobytes()
        if self.seen is None or self.seen[0] != known:
            self.seen = known, self._forward @ f
        return self.seen[1]

    def data_loss(self, f: Array) -> float:
        if self._loss is None or self._loss[0] != f.tobytes():
            scores = self.scores(f)
            self._loss = f.tobytes(), float(np.add.reduce(self.loss.value(scores, self.y))) / self.rows
        return self._loss[1]

    def rows_grad(self, f: Array, most: float = np.inf) -> Array:
        slope = self.loss.slope(self.scores(f), self.y)
        if most < np.inf:
            slope = np.clip(slope, -most, most)
        return self._backward @ (self.scale * slope)  # type: ignore[no-any-return]


class GeneralisedLinear(Linear):
    """Of rows in one array, whose Hessian is a matrix."""

    def __init__(
        self, X: Array, y: Array, loss: Loss, *, own: bool = False, folded: bool = False, **shared: Any
    ):
        """`own`: X is nobody else's, and may be changed; `folded`: y is in it already, where it will be."""
        # With labels +-1 the loss depends on y f.x alone: fold y into the rows once.
        if loss.labels:
            A = X if folded else np.multiply(X, y[:, None], out=X if own else None)
            self.A, targets = np.ascontiguousarray(A), _ONE
        else:
            self.A, targets = np.ascontiguousarray(X), np.asarray(y, dtype=float)
        super().__init__(self.A, self.A.T, targets, loss, **shared)
        self.labels: Array | None = y if loss.labels else None
        self.price = hessian_price(self.dimension)
        self._sample: GeneralisedLinear | None = None
        self._outer: Any = None  # sums of outer products of sparse rows, once they are asked for
        if self.A.size > _SPARSE_ENTRIES:
            share = np.count_nonzero(self.A) / self.A.size
            if share < _SPARSE_SHARE:
                self._make_sparse(share)

    def _make_sparse(self, share: float) -> None:
        from scipy.sparse import csr_array

        self._forward, self._backward = csr_array(self.A), csr_array(self.A.T)
        self.price *= 0.2 / share

    def records(self) -> tuple[Array, Array]:
        """The rows and their targets; labels +-1 are folded into the rows, and the targets are 1."""
        return self.A, np.ones(self.rows) if self.labels is not None else self.y

    def share(self, rows: Array) -> None:
        """Take `rows`, equal to A, in its place: a view of somebody else's copy of them."""
        self.A = self._forward = rows
        self._backward = rows.T

    def sample(self, every: int) -> GeneralisedLinear:
        """The same of one row in so many, each of which counts for as many; of few rows, all."""
        if self.rows < _ENOUGH * self.dimension:
            return self
        if self._sample is None:
            y = self.y if self.labels is not None else self.y[::every]
            weight = self.scale * self.rows
            self._sample = GeneralisedLinear(self.A[::every], y, self.loss, weight=weight, ridge=self.ridge)
        return self._sample

    def steepest(self, f: Array, single: bool = False) -> Array:
        """A matrix that no Hessian exceeds; the one at f where the loss has no bound."""
        bound = self.loss.max_curvature
        return (
            self._hessian(np.full(self.rows, bound), single) if np.isfinite(bound) else self.hess(f, single)
        )

    def hess(self, f: Array, single: bool = False) -> Array:
        """The Hessian at f, summed in single precision where that will do."""
        return self._hessian(self.loss.curvature(self.scores(f), self.y), single)

    def _hessian(self, curvature: Array, single: bool) -> Array:
        if single and self._forward is not self.A:
            if self._outer is None:
                from distadmm.problems.sparse import Outer

                self._outer = Outer(self._backward)
            H = self._outer.sum(self.scale * curvature)
        else:
            kind: Any = np.float32 if single else float
            root = np.sqrt(self.scale * curvature)[:, None]
            size = max(self.rows if self.A.size <= _WHOLE else _AT_ONCE // self.dimension, 1)
            H = np.zeros((self.dimension, self.dimension))
            for at in range(0, self.rows, size):
                part = slice(at, at + size)
                B = np.multiply(self.A[part], root[part], dtype=kind, casting="same_kind")
                # A product of a matrix with its own transpose costs half of another one.
                H = B.T @ B if not at else H + B.T @ B
            H = H.astype(float, copy=False)
        H.flat[:: self.dimension + 1] += self.ridge
        return H


class Softmax(Weighted):
    """Several classes: one linear score each, f = the columns of F (d x K) below one another.

        O_i(f) = C/B_i sum_n [log sum_k exp(F_k.x_n) - F_{y_n}.x_n] + rho/(2N) |f|^2

    The gradient of one record's loss has norm at most sqrt(2) |x|, so output perturbation has a proved price.
    Its Hessian has rank K - 1 a record, which the theorem for objective perturbation does not cover.
    """

    def __init__(self, X: Array, y: Array, classes: int, **shared: Any):
        super().__init__(len(X), X.shape[1] * classes, **shared)
        self.A, self.y, self.classes = np.ascontiguousarray(X), np.asarray(y, dtype=np.int64), classes

    def records(self) -> tuple[Array, Array]:
        """The rows and the numbers of their classes."""
        return self.A, self.y

    def _scores(self, f: Array) -> Array:
        return self.A @ f.reshape(self.classes, -1).T

    def probabilities(self, f: Array) -> Array:
        scores = self._scores(f)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def data_loss(self, f: Array) -> float:
        scores = self._scores(f)
        top = scores.max(axis=1)
        total = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        return float(np.mean(total - scores[np.arange(self.rows), self.y]))

    def rows_grad(self, f: Array, most: float = np.inf) -> Array:
        excess = self.probabilities(f)
        excess[np.arange(self.rows), self.y] -= 1.0
        if most < np.inf:
            excess *= np.minimum(1.0, most / np.maximum(np.linalg.norm(excess, axis=1), 1e-300))[:, None]
        return self.scale * (excess.T @ self.A).ravel()  # type: ignore[no-any-return]

    def hess(self, f: Array) -> Array:
        p, K, d = self.probabilities(f), self.classes, self.A.shape[1]
        H = np.empty((K, d, K, d))
        for a in range(K):
            for b in range(a, K):
                weights = p[:, a] * ((a == b) - p[:, b])
                H[a, :, b, :] = H[b, :, a, :] = self.scale * ((self.A * weights[:, None]).T @ self.A)
        flat = H.reshape(K * d, K * d)
        flat.flat[:: K * d + 1] += self.ridge
        return flat


def objective(X: Any, y: Array, loss: Loss, classes: int, *, own: bool = False, **shared: Any) -> Any:
    """The local objective of these rows under this loss; rows that are nobody else's (`own`) are not copied.

    X is an array, or a sparse matrix of scipy, which stays one.
    """
    if not isinstance(X, np.ndarray):
        from distadmm.problems.sparse import SparseLinear

        return SparseLinear(X, y, loss, **shared)
    if task_of(loss) == "multiclass":
        return Softmax(X, y, classes, **shared)
    return GeneralisedLinear(X, y, loss, own=own, **shared)


def classes_of(f: Array, X: Array) -> Array:
    """The class of the highest score for each row of X."""
    return np.argmax(X @ f.reshape(-1, X.shape[1]).T, axis=1)


def hessian_price(dimension: int) -> float:
    """What a Hessian and its inverse cost, in gradients, over dense rows (measured for 20 to 105 columns)."""
    return 2.0 + dimension / 8.0


class Problem:
    """The objectives of this rank's nodes; `argmin` solves each node's primal step.

    One that is not `warm` keeps nothing of a solve: where noise is put on minimisers, minimisers are no state.
    """

    def __init__(self, objectives: Iterable[Any], tolerance: float = 1e-10, *, warm: bool = True):
        from distadmm.problems.newton import solver_of
        from distadmm.problems.newton_batched import blocks

        # Small nodes of one shape are solved side by side, each as if it were alone.
        self.objectives, self.blocks = blocks(objectives)
        self.tolerance, self.goal, self.warm = tolerance, tolerance, warm
        self.dimension: int = self.objectives[0].dimension
        self.residual: Array = np.zeros(len(self.objectives))  # of each node's latest solve
        self.seconds = 0.0  # spent in solves
        alone = np.ones(len(self.objectives), dtype=bool)
        for rows, _ in self.blocks:
            alone[rows] = False
        self.solvers = {i: solver_of(self.objectives[i]) for i in np.flatnonzero(alone).tolist()}

    def anew(self, objectives: Iterable[Any] | None = None) -> Problem:
        """Solvers that remember nothing yet, over the same objectives or over others."""
        return type(self)(objectives or self.objectives, self.tolerance, warm=self.warm)

    def argmin(self, linear: Array, quadratic: Array, start: Array) -> Array:
        """argmin_f O_i(f) + <linear_i, f> + 1/2 f'Q_i f for each node i.

        A node's first solve begins at `start_i`, and so does any other where the problem is not `warm`, else where the
        last one ended.  Q_i is quadratic[i], a multiple of the identity or a matrix; one number is that of all.
        """
        began = time.perf_counter()
        quadratic = np.full((len(start), 1), quadratic) if np.ndim(quadratic) == 0 else quadratic
        f = np.empty_like(start)
        for rows, block in self.blocks:
            f[rows], self.residual[rows] = block.minimise(
                linear[rows], quadratic[rows], start[rows], self.goal
            )
        for i, solver in self.solvers.items():
            Q = quadratic[i] if quadratic.ndim == 3 else quadratic[i].item()
            f[i], self.residual[i] = solver.minimise(linear[i], Q, start[i], self.goal)
        self.seconds += time.perf_counter() - began
        if not self.warm:
            self.forget()
        return f

    @property
    def matrix_free(self) -> bool:
        """Whether Hessians are too large to be formed: rows stay sparse."""
        return any(getattr(objective, "matrix_free", False) for objective in self.objectives[:1])

    def sample(self, every: int) -> Problem:
        """Of one row in so many at each node that has rows enough; this one if none has."""
        chosen = [o.sample(every) if isinstance(o, GeneralisedLinear) else o for o in self.objectives]
        return self if all(map(is_, chosen, self.objectives)) else self.anew(chosen)

    @property
    def scales(self) -> Array:
        """The weight of one record of each node."""
        found = np.empty(len(self.objectives))
        for rows, block in self.blocks:
            found[rows] = block.scale[:, 0]
        for i in self.solvers:
            found[i] = self.objectives[i].scale
        return found

    def values(self, f: Array) -> Array:
        """O_i(f_i) of each node."""
        return self._each(f, "values", lambda objective, row: objective.value(row))

    def values_at(self, points: Array) -> Array:
        """O_i at every one of these points, one row a node."""
        found = np.empty((len(self.objectives), len(points)))
        for rows, block in self.blocks:
            for p, point in enumerate(points):
                found[rows, p] = block.values(np.broadcast_to(point, (block.n, self.dimension)))
        for i in self.solvers:
            found[i] = [self.objectives[i].value(point) for point in points]
        return found

    def data_losses(self, f: Array) -> Array:
        """Mean loss over each node's rows; NaN where an objective has no such notion."""
        return self._each(
            f, "data_losses", lambda o, row: o.data_loss(row) if hasattr(o, "data_loss") else np.nan
        )

    def scores(self, f: Array) -> dict[int, Any]:
        """Those that objectives keep at f, for `recall_scores` to put back when losses there are asked for later."""
        linear = [i for i in self.solvers if isinstance(self.objectives[i], Linear)]
        return {i: (f[i].tobytes(), self.objectives[i].scores(f[i])) for i in linear}

    def recall_scores(self, known: dict[int, Any]) -> None:
        for i, seen in known.items():
            self.objectives[i].seen = seen

    def gradients(self, f: Array) -> Array:
        return np.stack([objective.grad(row) for objective, row in zip(self.objectives, f)])

    def hessians(self, f: Array, single: bool = False, steepest: bool = False) -> Iterator[Array]:
        """O_i''(f_i), one node after the other, from products where an objective gives no more.

        Where an objective knows how: summed in single precision, or a matrix that no Hessian exceeds.
        """
        for objective, row in zip(self.objectives, f):
            began = time.perf_counter()
            if isinstance(objective, GeneralisedLinear):
                H = (objective.steepest if steepest else objective.hess)(row, single)
            elif hasattr(objective, "hess"):
                H = objective.hess(row)
            else:
                H = np.stack([objective.hessp(row, v) for v in np.eye(len(row))])
            self.seconds += time.perf_counter() - began
            yield H

    def _each(self, f: Array, of_block: str, of_one: Callable[[Any, Array], float]) -> Array:
        found = np.empty(len(self.objectives))
        for rows, block in self.blocks:
            found[rows] = getattr(block, of_block)(f[rows])
        for i in self.solvers:
            found[i] = of_one(self.objectives[i], f[i])
        return found

    def memory(self) -> dict[str, Array]:
        """What the solvers carry from one iteration to the next, one row a node."""
        from distadmm.problems.newton import stacked

        parts = [(where, block.memory()) for where, block in self.blocks]
        if self.solvers:
            alone = [solver.memory() for solver in self.solvers.values()]
            parts.append(([*self.solvers], stacked(alone, self.dimension)))
        found: dict[str, Array] = {}
        for where, part in parts:
            for name, rows in part.items():
                whole = np.empty((len(self.objectives), *rows.shape[1:]), rows.dtype)
                found.setdefault(name, whole)[where] = rows
        return found

    def restore(self, memory: dict[str, Array]) -> None:
        """Take back what `memory` gave, for these nodes."""
        from distadmm.problems.newton import unstacked

        if self.warm:  # else of a run of the last release, which kept what this one forgets
            for where, block in self.blocks:
                block.remember({name: rows[where] for name, rows in memory.items()})
            for i, solver in self.solvers.items():
                solver.remember(unstacked({name: rows[i : i + 1] for name, rows in memory.items()})[0])

    def forget(self) -> None:
        """Keep nothing of the solves so far."""
        for each in (*(block for _, block in self.blocks), *self.solvers.values()):
            each.forget()
