"""Sparse rows: the local objective of those that stay so, whose Hessian is never formed, and sums of their outer
products, where it is."""

from typing import Any

import numpy as np

from distadmm.errors import InputError
from distadmm.problems.consensus import Linear
from distadmm.problems.losses import Array, Loss

_COMMON = 0.06  # a column in which a larger share of the rows has an entry is taken as dense
_SINGLE = 1 << 17  # rows up to which sums in single precision lose little


class SparseLinear(Linear):
    """Of rows that are in compressed sparse rows (scipy)."""

    matrix_free = True

    def __init__(self, X: Any, y: Array, loss: Loss, **shared: Any):
        # By rows, the transpose makes as quick a product with slopes as X with models.
        super().__init__(X, X.T.tocsr(), np.asarray(y, dtype=float), loss, **shared)
        self.labels: Array | None = y if loss.labels else None
        self._bent: tuple[Array, Array] | None = None  # the latest f, and the curvature of each row there

    def hessp(self, f: Array, v: Array) -> Array:
        """The Hessian at f times v."""
        if self._bent is None or not np.array_equal(self._bent[0], f):
            self._bent = f.copy(), self.scale * self.loss.curvature(self.scores(f), self.y)
        return self._backward @ (self._bent[1] * (self._forward @ v)) + self.ridge * v  # type: ignore[no-any-return]

    def hess(self, f: Array) -> Array:
        raise _refused(self)

    def records(self) -> tuple[Array, Array]:
        raise _refused(self)

    @property
    def A(self) -> Array:
        raise _refused(self)


def _refused(objective: SparseLinear) -> InputError:
    d = objective.dimension
    return InputError(
        f"this works with a dense table or a matrix of {d} x {d}, and rows of {d} columns stay sparse; radmm's admm, "
        "madmm, radmm and mradmm do without: leave this out, or give a file with fewer columns"
    )


class Outer:
    """sum_n w_n x_n x_n': products of the common columns as arrays, all others as sparse matrices."""

    def __init__(self, columns: Any):
        """`columns`: the transpose of the rows in compressed sparse rows (scipy)."""
        rows = columns.shape[1]
        common = np.diff(columns.indptr) > _COMMON * rows
        kind: Any = np.float32 if rows <= _SINGLE else float
        self._dense = np.ascontiguousarray(columns[np.flatnonzero(common)].astype(kind).toarray().T)
        self._rare = columns[np.flatnonzero(~common)].astype(kind)
        self._rows = self._rare.T.tocsr()
        self._entries = self._rare.data.copy()
        self._place = np.empty(len(common), np.int64)
        self._place[np.argsort(~common, kind="stable")] = np.arange(len(common))

    def sum(self, weights: Array) -> Array:
        weights = weights.astype(self._dense.dtype)
        f, H = self._dense.shape[1], np.empty((len(self._place),) * 2)
        root = self._dense * np.sqrt(weights)[:, None]
        H[:f, :f] = root.T @ root
        np.multiply(self._entries, weights[self._rare.indices], out=self._rare.data)
        H[f:, :f] = self._rare @ self._dense
        H[:f, f:] = H[f:, :f].T
        H[f:, f:] = (self._rare @ self._rows).toarray()
        return H[self._place[:, None], self._place]  # type: ignore[no-any-return]
