# ruff: noqa: E402 - threads are set before numpy is imported
"""ISTDP's cost: without privacy against skglm at equal objective, and private against its bare gradient passes.

    python benchmarks/istdp.py [--out FILE] [--repeat 5]

All figures are process-CPU ratios; the rivals take turns within one run.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data import rows as synthetic
from distadmm.data.source import open_source
from distadmm.methods.istdp import solver
from distadmm.problems.concave import MCP
from distadmm.problems.losses import Logistic, Squared

PROBLEMS = (
    ("squared", 150, 0.2, 3.0),
    ("squared", 500, 0.15, 3.0),
    ("logistic", 500, 0.03, 30.0),
    ("logistic", 2000, 0.02, 30.0),
)
SEEDS = 5
T = 50


def cpu(work: Callable[[], Any]) -> float:
    """CPU seconds of one call, from as many as fill a twentieth of a second."""
    count = 0
    begin = time.process_time()
    while True:
        work()
        count += 1
        spent = time.process_time() - begin
        if spent > 0.05:
            return spent / count


def alternated(ours: Callable[[], Any], theirs: Callable[[], Any], repeat: int) -> tuple[float, float, float]:
    """Median CPU seconds of both and the median of the paired ratios."""
    ours(), theirs()  # compile and warm up
    pairs = np.array([(cpu(ours), cpu(theirs)) for _ in range(repeat)])
    return (
        float(np.median(pairs[:, 0])),
        float(np.median(pairs[:, 1])),
        float(np.median(pairs[:, 0] / pairs[:, 1])),
    )


def against_skglm(repeat: int) -> list[dict[str, Any]]:
    """Both solve to a residual of 1e-6 lambda; the difference of their objectives is in the table."""
    from skglm import GeneralizedLinearEstimator
    from skglm.datafits import Logistic as LogisticDatafit
    from skglm.datafits import Quadratic
    from skglm.penalties import MCPenalty
    from skglm.solvers import AndersonCD

    warnings.simplefilter("ignore")
    rows = []
    for name, n, lam, alpha in PROBLEMS:
        loss, penalty = (Logistic() if name == "logistic" else Squared()), MCP(lam, alpha)
        ratios, gaps, bare_ratios, seconds = [], [], [], []
        for seed in range(SEEDS):
            data = synthetic.problem(name, n, test=1, seed=seed)
            columns = np.asfortranarray(data.X)  # the order skglm wants

            def objective(theta: np.ndarray, data=data, loss=loss, penalty=penalty) -> float:
                return float(loss.value(data.X @ theta, data.y).mean()) + penalty.value(theta)

            def rival(data=data, columns=columns, name=name, lam=lam, alpha=alpha) -> np.ndarray:
                datafit = LogisticDatafit() if name == "logistic" else Quadratic()
                method = AndersonCD(tol=1e-6 * lam, fit_intercept=False, max_iter=200)
                model = GeneralizedLinearEstimator(datafit, MCPenalty(lam, alpha), method)
                return np.ravel(model.fit(columns, data.y).coef_)

            def ours(data=data, loss=loss, penalty=penalty) -> np.ndarray:
                return solver.solve(data.X, data.y, loss, penalty, tol=1e-6).theta

            def bare(data=data, loss=loss, penalty=penalty) -> np.ndarray:
                return solver.solve(data.X, data.y, loss, penalty, tol=1e-6, newton=False).theta

            gaps.append(objective(ours()) - objective(rival()))
            ours_s, rival_s, ratio = alternated(ours, rival, repeat)
            ratios.append(ratio)
            seconds.append((ours_s, rival_s))
            bare_ratios.append(alternated(bare, rival, 1)[2])
        rows.append(
            {
                "problem": f"{name} n={n} d=200",
                "ratio": float(np.median(ratios)),
                "worst_ratio": float(np.max(ratios)),
                "bare_ratio": float(np.median(bare_ratios)),
                "ms": float(np.median(seconds, axis=0)[0] * 1e3),
                "skglm_ms": float(np.median(seconds, axis=0)[1] * 1e3),
                "largest_gap": float(np.max(gaps)),
            }
        )
    return rows


def private_on_adult(repeat: int) -> dict[str, Any]:
    """T = 50 private iterations, ledger and noise included, against T clipped gradients in plain numpy."""
    from distadmm import istdp

    X, y = open_source("adult").everything()
    n, d = X.shape

    def ours() -> Any:
        return istdp.solve_private(
            X, y, epsilon=1.0, delta=1e-5, adjacency="replace", lam=2e-4, alpha=2000.0, seed=0
        )

    def passes() -> np.ndarray:
        norms = np.sqrt((X * X).sum(axis=1))
        theta = np.zeros(d)
        for _ in range(T):
            margin = y * (X @ theta)
            slope = -y / (1.0 + np.exp(margin))
            gradient = X.T @ np.clip(slope, -1.0 / norms, 1.0 / norms) / n
            theta = theta - 4.0 * gradient
        return theta

    ours_s, passes_s, ratio = alternated(ours, passes, max(repeat, 7))
    return {
        "problem": f"adult n={n} d={d} T={T}",
        "ratio": ratio,
        "ms": ours_s * 1e3,
        "passes_ms": passes_s * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="write the figures as JSON here")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    found: dict[str, Any] = {"private": private_on_adult(given.repeat)}
    try:
        found["skglm"] = against_skglm(given.repeat)
    except ImportError as error:
        print(f"skglm is not installed ({error}); its comparison is left out")
    print("| problem | ours / skglm (median, worst) | without Newton steps | ms | skglm ms | F - F_skglm |")
    print("|---|---|---|---|---|---|")
    for row in found.get("skglm", []):
        print(
            f"| {row['problem']} | {row['ratio']:.2f}, {row['worst_ratio']:.2f} | {row['bare_ratio']:.2f} "
            f"| {row['ms']:.2f} | {row['skglm_ms']:.2f} | {row['largest_gap']:.1e} |"
        )
    row = found["private"]
    print(f"\n| problem | ours / {T} clipped gradient passes in numpy | ms | passes ms |\n|---|---|---|---|")
    print(f"| {row['problem']} | {row['ratio']:.3f} | {row['ms']:.0f} | {row['passes_ms']:.0f} |")
    if given.out:
        given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
