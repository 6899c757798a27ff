# ruff: noqa: E402 - threads are set before numpy is imported
"""Newton's method on sums over a tree beside self-tuned ADMM, and beside scikit-learn on the pooled rows.

    python benchmarks/newton.py [--part rounds|cpu|ranks|all] [--quick]

rounds: Adult; rounds, bytes and CPU until the worst node's relative gap is below 1e-3, 1e-6 and 1e-12, rows dealt at
random, label-skewed (nine of ten of one label) and one class a node; ADMM's set-up messages count, too; with five
nodes, medians of five turns.
cpu: all nodes in one process to a gap of 1e-6 and 1e-10, and LogisticRegression(solver="newton-cholesky") on the pooled
rows at the loosest of its tolerances that gets as far; the two take turns, medians.
ranks: `mpiexec -n 20`, er20; seconds of iterations to 1e-6, taking turns.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from adaptive import DEALS, RHO, C, dealt, posed

from distadmm.graphs import topology
from distadmm.methods.consensus.admm import ADMM
from distadmm.methods.consensus.newton import Newton

Array = np.ndarray
GAPS = (1e-3, 1e-6, 1e-12)
GRAPHS = {5: "er5", 20: "er20", 100: "er:100:p=0.06:seed=1"}
MOST = 400


def course(
    algorithm: Any, node: Any, worst: Callable[[Array], float], goal: float
) -> list[tuple[float, int, float]]:
    """(gap, bytes, CPU seconds) after every iteration up to `goal`, measurements not counted."""
    traffic, found, began = node.network.traffic, [], time.process_time()
    state, spent = algorithm.init(node), 0.0
    while not found or (found[-1][0] >= goal and len(found) < MOST and not algorithm.ended(state)):
        state = algorithm.step(len(found) + 1, state, node)
        spent += time.process_time() - began
        found.append((worst(state.f), traffic.bytes, spent))
        began = time.process_time()
    return found


def so_far(found: list[tuple[float, int, float]]) -> tuple[int, float, float]:
    return len(found), found[-1][1] / 1e6, found[-1][2]


def at(found: list[tuple[float, int, float]], goal: float) -> tuple[int, float, float] | None:
    """Iterations, megabytes and CPU seconds to a gap."""
    k = next((k for k, (gap, _, _) in enumerate(found, 1) if gap < goal), None)
    return None if k is None else so_far(found[:k])


def rounds(quick: bool) -> None:
    print(
        "\n| N | rows | newton: rounds to 1e-3 / 1e-6 / 1e-12 | ADMM to 1e-3 / 1e-6 | MB to 1e-6, newton / ADMM "
        "| ratio | CPU to 1e-6, ADMM / newton |\n|---|---|---|---|---|---|---|"
    )
    for n in (5, 20) if quick else GRAPHS:
        graph = topology.load(GRAPHS[n])
        for deal in DEALS:
            fresh, worst = posed(graph, dealt("adult", n, deal), RHO / n, C)
            newton, admm, ratios = [], [], list[float]()
            for _ in range(5 if n == 5 and not quick else 1):
                newton = course(Newton(), fresh(), worst, GAPS[-1])
                admm = course(ADMM(tune=True), fresh(), worst, GAPS[1])
                ratios.append(
                    (at(admm, GAPS[1]) or so_far(admm))[2] / (at(newton, GAPS[1]) or so_far(newton))[2]
                )
            counts = " / ".join(str(found[0]) if (found := at(newton, goal)) else "-" for goal in GAPS)
            theirs = " / ".join(
                str(found[0]) if (found := at(admm, goal)) else f"> {MOST}" for goal in GAPS[:2]
            )
            least = "" if at(admm, GAPS[1]) else "> "  # ADMM is not there yet
            mb, mb_admm = ((at(found, GAPS[1]) or so_far(found))[1] for found in (newton, admm))
            sent = f"{mb:.2f} / {least}{mb_admm:.2f} | {'< ' if least else ''}{mb / mb_admm:.2f}"
            print(
                f"| {n} | {deal} | {counts} | {theirs} | {sent} | {least}{np.median(ratios):.1f} |",
                flush=True,
            )


def cpu(quick: bool) -> None:
    from sklearn.linear_model import LogisticRegression

    data = dealt("adult", 20, DEALS[0])
    fresh, worst = posed(topology.load("er20"), data, RHO / 20, C)
    X, y = (np.concatenate(part) for part in zip(*data))
    weights = np.concatenate([np.full(len(labels), C / len(labels)) for _, labels in data])
    print(
        "\n| gap | newton, 20 nodes in one process, CPU s | scikit-learn, pooled rows, CPU s | ratio |"
        "\n|---|---|---|---|"
    )
    for goal in (1e-6, 1e-10):
        for tol in 10.0 ** np.arange(1, -10, -1.0):

            def fit(tol: float = tol) -> Array:
                made = LogisticRegression(
                    solver="newton-cholesky", C=1 / RHO, fit_intercept=False, tol=tol, max_iter=100
                )
                return made.fit(X, y, sample_weight=weights).coef_

            if worst(fit()) < goal:
                break
        ours, theirs = [], []
        for _ in range(3 if quick else 7):
            found = at(course(Newton(), fresh(), worst, goal), goal)
            assert found is not None
            ours.append(found[2])
            began = time.process_time()
            fit()
            theirs.append(time.process_time() - began)
        a, b = float(np.median(ours)), float(np.median(theirs))
        print(f"| {goal:g} | {a:.3f} | {b:.3f} (tol {tol:g}) | {a / b:.2f} |", flush=True)


def ranks(quick: bool) -> None:
    here = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(here) if here.exists() else "mpiexec"
    seconds: dict[str, list[float]] = {"newton": [], "admm": []}
    for _ in range(1 if quick else 3):
        for name, most in (("newton", 20), ("admm", 180)):
            with tempfile.TemporaryDirectory() as folder:
                words = ["--algorithm", name, "--iterations", str(most), "--out", f"{folder}/run"]
                command = [sys.executable, "-m", "distadmm.radmm", *words, "--progress", "none"]
                subprocess.run([mpiexec, "-n", "20", *command], check=True, capture_output=True, timeout=600)
                with open(Path(folder) / "run" / "history.csv", newline="") as file:
                    lines = list(csv.DictReader(file))
            seconds[name].append(
                next(float(row["seconds"]) for row in lines if float(row["mean_model_gap"]) < 1e-6)
            )
    newton, admm = (float(np.median(seconds[name])) for name in ("newton", "admm"))
    print(
        f"\n20 ranks to 1e-6: newton {newton:.3f} s, self-tuned ADMM {admm:.2f} s; ratio {admm / newton:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", default="all", choices=("rounds", "cpu", "ranks", "all"))
    parser.add_argument("--quick", action="store_true", help="no N = 100, fewer turns")
    options = parser.parse_args()
    for name, part in (("rounds", rounds), ("cpu", cpu), ("ranks", ranks)):
        if options.part in (name, "all"):
            part(options.quick)


if __name__ == "__main__":
    main()
