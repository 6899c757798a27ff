"""Multi-class classification: one linear score a class, f = the columns of F (d x K) below one another.

    O_i(f) = C/B_i sum_n [log sum_k exp(F_k.x_n) - F_{y_n}.x_n] + rho/(2N) |f|^2

The gradient of one record's loss has norm at most sqrt(2) |x|, so output perturbation has a proved price.
Its Hessian has rank K - 1 a record, which the theorem for objective perturbation does not cover.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray
MAX_SLOPE = float(np.sqrt(2.0))


class Softmax:
    def __init__(
        self,
        X: Array,
        y: Array,
        classes: int,
        *,
        weight: float = 1.0,
        ridge: float = 0.0,
        divisor: int | None = None,
    ):
        self.A, self.y = np.ascontiguousarray(X), np.asarray(y, dtype=np.int64)
        self.rows, self.classes, self.ridge = len(X), classes, ridge
        self.dimension = X.shape[1] * classes
        self.scale = weight / (divisor or self.rows)

    def _scores(self, f: Array) -> Array:
        return self.A @ f.reshape(self.classes, -1).T

    def _probabilities(self, f: Array) -> Array:
        scores = self._scores(f)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def data_loss(self, f: Array) -> float:
        """Mean loss of the rows."""
        scores = self._scores(f)
        top = scores.max(axis=1)
        total = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        return float(np.mean(total - scores[np.arange(self.rows), self.y]))

    def value(self, f: Array) -> float:
        return self.scale * self.rows * self.data_loss(f) + 0.5 * self.ridge * float(f @ f)

    def grad(self, f: Array) -> Array:
        excess = self._probabilities(f)
        excess[np.arange(self.rows), self.y] -= 1.0
        return self.scale * (excess.T @ self.A).ravel() + self.ridge * f

    def hess(self, f: Array) -> Array:
        p, K, d = self._probabilities(f), self.classes, self.A.shape[1]
        H = np.empty((K, d, K, d))
        for a in range(K):
            for b in range(a, K):
                weights = p[:, a] * ((a == b) - p[:, b])
                H[a, :, b, :] = H[b, :, a, :] = self.scale * ((self.A * weights[:, None]).T @ self.A)
        flat = H.reshape(K * d, K * d)
        flat.flat[:: K * d + 1] += self.ridge
        return flat


def classes_of(f: Array, X: Array) -> Array:
    """The class of the highest score for each row of X."""
    return np.argmax(X @ f.reshape(-1, X.shape[1]).T, axis=1)
