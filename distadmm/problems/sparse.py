"""The local objective of rows that stay sparse: gradients and products with the Hessian, which is never formed."""

from __future__ import annotations

from typing import Any

import numpy as np

from distadmm.errors import InputError
from distadmm.problems.losses import Array, Loss


class SparseLinear:
    """weight/B sum_n l(f.x_n; y_n) + ridge/2 |f|^2, the X of which is in compressed sparse rows (scipy)."""

    matrix_free = True

    def __init__(
        self,
        X: Any,
        y: Array,
        loss: Loss,
        *,
        weight: float = 1.0,
        ridge: float = 0.0,
        divisor: int | None = None,
    ):
        self.loss, self.ridge = loss, ridge
        self.rows, self.dimension = X.shape
        self.scale = weight / (divisor or self.rows)
        self._rows, self.y = X, np.asarray(y, dtype=float)
        self._columns = X.T.tocsr()  # as quick a product with slopes as with models
        self.labels: Array | None = y if loss.labels else None
        self._seen: tuple[Array, Array] | None = None  # the latest f, and X f
        self._bent: tuple[Array, Array] | None = None  # the latest f, and the curvature of each row there

    def scores(self, f: Array) -> Array:
        """X f, kept for the next call: a gradient and its Hessian are asked for at the same f."""
        if self._seen is None or not np.array_equal(self._seen[0], f):
            self._seen = f.copy(), self._rows @ f
        return self._seen[1]

    def data_loss(self, f: Array) -> float:
        """Mean loss of the rows."""
        return float(np.mean(self.loss.value(self.scores(f), self.y)))

    def value(self, f: Array) -> float:
        return self.scale * self.rows * self.data_loss(f) + 0.5 * self.ridge * float(f @ f)

    def grad(self, f: Array, most: float = np.inf) -> Array:
        """`most`: to which each slope is cut, and so the gradient of a row no longer than 1."""
        slope = np.clip(self.loss.slope(self.scores(f), self.y), -most, most)
        return self._columns @ (self.scale * slope) + self.ridge * f  # type: ignore[no-any-return]

    def hessp(self, f: Array, v: Array) -> Array:
        """The Hessian at f times v."""
        if self._bent is None or not np.array_equal(self._bent[0], f):
            self._bent = f.copy(), self.scale * self.loss.curvature(self.scores(f), self.y)
        return self._columns @ (self._bent[1] * (self._rows @ v)) + self.ridge * v  # type: ignore[no-any-return]

    def hess(self, f: Array, every: int = 1) -> Array:
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
