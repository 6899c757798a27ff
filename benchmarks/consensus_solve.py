# ruff: noqa: E402 - threads are set before numpy is imported
"""Primal solves of private runs beside Newton-Cholesky, and R-ADMM's pairs beside two iterations of ADMM.

    python benchmarks/consensus_solve.py [--rounds 3] [--out FILE]

All nodes in one process, CPU seconds, so that no figure depends on how ranks wait for one another.
Private: Adult, N = 5, eta = 0.5 and 2, gamma noise in every solve; the rival solves the same subproblems, warm-started
alike, with a fresh Hessian and Cholesky factor a step, to the same 1e-10.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from adaptive import Noisy, node_of
from floor import newton

from distadmm.data.source import open_source
from distadmm.graphs import topology
from distadmm.methods.consensus.admm import ADMM
from distadmm.methods.consensus.recycled import RADMM
from distadmm.problems.consensus import GeneralisedLinear
from distadmm.problems.losses import Logistic

C, RHO, PAIRS = 1750.0, 0.22, 50


def adult(n: int, eta: float) -> Any:
    source, graph = open_source("adult"), topology.load(f"er{n}")
    made = [GeneralisedLinear(*source.node(i, n), Logistic(), weight=C, ridge=RHO / n) for i in range(n)]
    node = node_of(graph, made, RHO / n, C)
    node.problem.tolerance = 1e-10
    node.table["eta"] = np.full(n, eta)
    return node


def private_solves(alpha: float, eta: float, solves: int) -> dict[str, Any]:
    """CPU seconds of R-ADMM's noisy solves by the product's solver and by the rival, node by node in turn."""
    node = adult(5, eta)
    noise, algorithm, problem = Noisy(alpha, 0, 5, 105), RADMM(eta=str(eta)), node.problem
    ours = theirs = worst = 0.0
    kkt = [0.0, 0.0]
    argmin = problem.argmin

    def both(linear: np.ndarray, quadratic: np.ndarray, start: np.ndarray) -> np.ndarray:
        nonlocal ours, theirs, worst
        linear = linear + noise.noise(solve)
        began = time.process_time()
        f = argmin(linear, quadratic, start)
        ours += time.process_time() - began
        kkt[0] = max(kkt[0], float(problem.residual.max()))
        for i, o in enumerate(problem.objectives):
            q = float(quadratic[i, 0])
            began = time.process_time()
            g = newton(o.A, o.scale, linear[i], o.ridge + q, start[i], 1e-10)
            theirs += time.process_time() - began
            kkt[1] = max(kkt[1], float(np.linalg.norm(o.grad(g) + linear[i] + q * g)))
            worst = max(worst, float(np.abs(f[i] - g).max()))
        return f

    problem.argmin = both
    state = algorithm.init(node)
    for solve in range(1, solves + 1):
        state = algorithm.step(2 * solve - 1, state, node)
        state = algorithm.step(2 * solve, state, node)
    return {"ours": ours / solves / 5, "theirs": theirs / solves / 5, "kkt": kkt, "apart": worst}


def seconds(algorithm: Any, n: int, eta: float) -> float:
    node = adult(n, eta)
    state = algorithm.init(node)
    began = time.process_time()
    for k in range(1, 2 * PAIRS + 1):
        state = algorithm.step(k, state, node)
    return (time.process_time() - began) / PAIRS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", help="also write the figures as JSON")
    options = parser.parse_args()
    rows = []
    print("\n| CPU seconds | ours | theirs | ratio | goal | |\n|---|---|---|---|---|---|")
    for alpha, eta, solves in ((1.0, 0.5, 25), (1.0, 2.0, 10), (0.5, 2.0, 10)):
        runs = [private_solves(alpha, eta, solves) for _ in range(options.rounds)]
        ratio = float(np.median([r["ours"] / r["theirs"] for r in runs]))
        r = runs[-1]
        what = f"private solve, alpha {alpha:g}, eta {eta:g} / Newton-Cholesky"
        print(
            f"| {what} | {r['ours']:.5f} | {r['theirs']:.5f} | **{ratio:.2f}** | 0.35 "
            f"| KKT {r['kkt'][0]:.0e} and {r['kkt'][1]:.0e}; minimisers agree to {r['apart']:.0e} |"
        )
        rows.append({"what": what, "ratio": ratio, **r})
    for n in (5, 20):
        pairs = [
            (seconds(RADMM(eta="0.5"), n, 0.5), seconds(ADMM(eta="0.5", tune=False), n, 0.5))
            for _ in range(options.rounds)
        ]
        ratio = float(np.median([a / b for a, b in pairs]))
        what = f"R-ADMM pair / two of ADMM, Adult N={n}"
        print(f"| {what} | {pairs[-1][0]:.5f} | {pairs[-1][1]:.5f} | **{ratio:.2f}** | 0.6 | {PAIRS} pairs |")
        rows.append({"what": what, "ratio": ratio, "pairs": pairs})
    if options.out:
        Path(options.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
