"""Sparse problems with a known answer: what the penalties and the private runs are measured on.

x ~ N(0, Sigma),  Sigma_ij = rho^|i-j|;   theta has `support` entries of +-`size`, the others are 0
squared:   y = <x, theta> + noise;        logistic:   P(y = 1) = 1 / (1 + exp(-<x, theta>))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distadmm.errors import require

Array = np.ndarray

_PURPOSE = 0x53594E5448  # of the random streams below


@dataclass(frozen=True)
class Problem:
    X: Array
    y: Array  # real targets, or labels -1/+1
    theta: Array  # the truth
    X_test: Array
    y_test: Array

    @property
    def bayes_accuracy(self) -> float:
        """What the truth itself gets right of noisy labels, on the test rows."""
        return float((1.0 / (1.0 + np.exp(-np.abs(self.X_test @ self.theta)))).mean())

    def accuracy(self, theta: Array) -> float:
        """Expected accuracy of sign(<x, theta>) on the test rows, the labels' own noise averaged out."""
        agrees = np.sign(self.X_test @ theta) * (self.X_test @ self.theta)
        return float((1.0 / (1.0 + np.exp(-agrees))).mean())

    def disagreement(self, theta: Array) -> float:
        """Share of the test rows where sign(<x, theta>) is not the sign of the truth."""
        return float((np.sign(self.X_test @ theta) != np.sign(self.X_test @ self.theta)).mean())

    def excess(self, theta: Array) -> float:
        """Mean squared error of the predictions on the test rows, the targets' own noise left out."""
        return float(((self.X_test @ (theta - self.theta)) ** 2).mean())

    def support_f1(self, theta: Array) -> float:
        """Harmonic mean of precision and recall of the chosen columns."""
        chosen, true = theta != 0, self.theta != 0
        return float(2 * (chosen & true).sum() / (chosen.sum() + true.sum()))


def problem(
    loss: str,
    n: int,
    d: int = 200,
    *,
    support: int = 10,
    rho: float = 0.3,
    size: float = 1.5,
    noise: float = 0.5,
    test: int = 20_000,
    seed: int = 0,
) -> Problem:
    """The problem of that loss and size; every part of it depends on `seed` alone."""
    require(loss in ("logistic", "squared"), f"the loss is {loss!r}; choose logistic or squared")
    require(n >= 1, f"the synthetic problem has {n} rows; needed: at least 1")
    require(1 <= support <= d, f"{support} of {d} columns are to matter; needed: 1 to {d}")
    truth, training, testing = (
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PURPOSE, part))) for part in range(3)
    )
    theta = np.zeros(d)
    theta[truth.choice(d, support, replace=False)] = size * truth.choice([-1.0, 1.0], support)

    def rows(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        X = rng.standard_normal((count, d))
        for j in range(1, d):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
        z = X @ theta
        if loss == "squared":
            return X, z + noise * rng.standard_normal(count)
        return X, np.where(rng.random(count) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)

    return Problem(*rows(training, n), theta, *rows(testing, test))
