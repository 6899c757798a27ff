"""A node-solve over sparse rows / scikit-learn's newton-cg on the same rows, CPU to the same gradient.

    python benchmarks/columns.py                    20,000 rows of 100,000 columns, 20 entries a row
    python benchmarks/columns.py --nodes 4          each node has a quarter of them, as in a run on a ring

Both minimise sum_n log(1 + exp(-y_n f.x_n)) + 1/(2 c) |f|^2 from zero.  scikit-learn stops by the largest entry of its
gradient, so it is asked for less until the 2-norm of ours is reached; what is timed is its last, whole fit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from distadmm.problems.consensus import Problem, objective
from distadmm.problems.losses import LOSSES


def rows(n: int, d: int, entries: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Rows of norm one at most, as a run clips them."""
    rng = np.random.default_rng(seed)
    columns = np.stack([np.sort(rng.choice(d, entries, replace=False)) for _ in range(n)])
    values = rng.normal(size=(n, entries))
    values /= np.maximum(1.0, np.linalg.norm(values, axis=1, keepdims=True))
    truth = rng.normal(size=d)
    y = np.where((values * truth[columns]).sum(axis=1) + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    ends = np.arange(0, n * entries + 1, entries)
    return csr_array(
        (values.ravel(), columns.ravel().astype(np.int32), ends.astype(np.int32)), shape=(n, d)
    ), y


def cpu(call: Any) -> tuple[float, Any]:
    began = time.process_time()
    found = call()
    return time.process_time() - began, found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=100_000)
    parser.add_argument("--entries", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--residual", type=float, default=1e-8, help="2-norm of the gradient of the mean loss"
    )
    asked = parser.parse_args()
    X, y = rows(asked.rows, asked.columns, asked.entries)
    X, y = X[:: asked.nodes], y[:: asked.nodes]
    n, d = X.shape
    print(f"{n} rows, {d} columns, {asked.entries} entries a row; load {os.getloadavg()[0]:.0f}")
    for c in (1.0, 100.0):
        node = objective(X, y, LOSSES["logistic"], 2)
        quadratic, nothing = np.array([[1.0 / (c * n)]]), np.zeros((1, d))

        def ours(node: Any = node, quadratic: Any = quadratic, nothing: Any = nothing) -> Any:
            problem = Problem([node], asked.residual)
            return problem.argmin(nothing, quadratic, nothing)[0], problem.residual[0]

        def gradient(f: np.ndarray, node: Any = node, quadratic: Any = quadratic) -> float:
            return float(np.linalg.norm(node.grad(f) + quadratic[0, 0] * f))

        tolerance = asked.residual * n
        while True:
            model = LogisticRegression(
                solver="newton-cg", C=c, tol=tolerance, fit_intercept=False, max_iter=1000
            )
            fitted = model.fit(X, y).coef_[0]
            if gradient(fitted) <= asked.residual:
                break
            tolerance /= 2
        found = []
        for _ in range(asked.rounds):
            mine, (f, residual) = cpu(ours)
            theirs, _ = cpu(lambda model=model: model.fit(X, y))
            found.append(mine / theirs)
        apart = float(np.abs(f - fitted).max())
        print(
            f"c = {c:g}: CPU ratio {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f}; goal 3); "
            f"gradients {residual:.1e} and {gradient(fitted):.1e}; models {apart:.1e} apart"
        )


if __name__ == "__main__":
    main()
