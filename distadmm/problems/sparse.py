"""The local objective of rows that stay sparse: gradients and products with the Hessian, which is never formed."""

from typing import Any

import numpy as np

from distadmm.errors import InputError
from distadmm.problems.consensus import Linear
from distadmm.problems.losses import Array, Loss


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
