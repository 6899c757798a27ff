# ruff: noqa: E402 - threads are set before numpy is imported
"""Many nodes a rank: 10,000 nodes (random 4-regular graph, d = 20, 50 rows a node) on 2 ranks.

    python benchmarks/consensus_scale.py [--ranks 2] [--nodes 1250,2500,5000,10000] [--out FILE]

Time per iteration of plain ADMM against the sum of its bare solves (the floor's Newton, one node after the
other, on the same warm-started subproblems), and growth with the number of nodes.  Memory: what the
process has grown by once data are there, against the data.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import consensus_setting as setting
import numpy as np

newton: Any = None  # the floor's, imported once the ranks are connected
D, ROWS, ETA, WEIGHT, RIDGE, ITERATIONS = 20, 50, 0.01, 1.0, 1e-3, 20


def rss() -> float:
    """Megabytes that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def bare(objective: Any, linear: np.ndarray, quadratic: float, f: np.ndarray) -> np.ndarray:
    return newton(objective.A, objective.scale, linear, RIDGE + quadratic, f, 1e-10)


def measure(n: int, world: Any) -> dict[str, Any] | None:
    from distadmm.algorithm import Facts, Node
    from distadmm.graphs import topology
    from distadmm.graphs.facts import placed
    from distadmm.methods.consensus.admm import ADMM
    from distadmm.privacy.noise.release import Unprotected
    from distadmm.problems.consensus import GeneralisedLinear, Problem
    from distadmm.problems.losses import Logistic
    from distadmm.ranks.graph_network import Network, Roster

    def drawn() -> Roster:
        graph = topology.load(f"regular:{n}:d=4:seed=1")
        return Roster(graph.indptr, graph.indices, placed(graph, world.size))

    network = Network(world.on_root(drawn), world)
    before = rss()
    problem = Problem(
        GeneralisedLinear(*setting.rows_of(int(i), 1, ROWS, D), Logistic(), weight=WEIGHT, ridge=RIDGE)
        for i in network.nodes
    )
    objectives = problem.objectives
    facts = Facts(n, np.full(n, 4), 0.9, WEIGHT, RIDGE, 0.25)
    table = {"eta": np.full(n, ETA), "eta_growth": None}
    start = np.zeros((network.n_local, D))
    node = Node(network, problem, Unprotected(), facts, start, table)
    algorithm = ADMM(eta=str(ETA), tune=False)
    state = algorithm.init(node)
    calls: list[tuple[np.ndarray, np.ndarray]] = []
    argmin = problem.argmin

    def noted(linear: np.ndarray, quadratic: np.ndarray, start: np.ndarray) -> np.ndarray:
        f = argmin(linear, quadratic, start)
        if len(calls) < 8:
            calls.append((linear.copy(), start.copy()))
        return f

    for k in range(1, 4):  # warm
        state = algorithm.step(k, state, node)
    world.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    for k in range(4, ITERATIONS + 1):
        state = algorithm.step(k, state, node)
    cpu = (time.process_time() - cpu) / (ITERATIONS - 3)
    world.barrier()
    wall = (time.perf_counter() - wall) / (ITERATIONS - 3)
    grown = rss() - before
    problem.argmin = noted  # type: ignore[method-assign]
    for k in range(ITERATIONS + 1, ITERATIONS + 3):
        state = algorithm.step(k, state, node)
    sample = range(0, len(objectives), max(1, len(objectives) // 300))
    linear, start = calls[-1]
    began = time.process_time()
    for i in sample:
        bare(objectives[i], linear[i], 2 * ETA * 4, start[i])
    solves = (time.process_time() - began) / len(sample) * len(objectives)
    node.network.close()
    every = world.gather((cpu, solves, grown, float(problem.residual.max())))
    if every is None:
        return None
    cpus, bares, growths, residuals = zip(*every)
    data = n * ROWS * (D + 1) * 8 / 2**20
    return {
        "nodes": n,
        "wall": wall,
        "cpu": sum(cpus),
        "bare_solves": sum(bares),
        "ratio": sum(cpus) / sum(bares),
        "memory": sum(growths),
        "data": data,
        "memory_ratio": sum(growths) / data,
        "kkt": max(residuals),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", default="1250,2500,5000,10000")
    parser.add_argument("--out", help="also write the figures as JSON")
    options = parser.parse_args()
    setting.ranks_or_launch(options.ranks, sys.argv)
    from distadmm.ranks.world import connect

    world = connect()
    global newton
    from floor import newton

    # The largest first: later ones find memory that the process already holds.
    rows = [measure(int(n), world) for n in reversed(options.nodes.split(","))]
    if not world.is_root:
        return
    print(
        f"\nrandom 4-regular graph, d = {D}, {ROWS} rows a node, {options.ranks} ranks; seconds an iteration\n"
    )
    print(
        "| nodes | wall | CPU | us a node | bare solves, CPU | ratio (goal 2) | memory / data, MB | ratio (goal 2) |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for r in reversed(rows):
        assert r is not None
        print(
            f"| {r['nodes']} | {r['wall']:.4f} | {r['cpu']:.4f} | {1e6 * r['cpu'] / r['nodes']:.1f} "
            f"| {r['bare_solves']:.4f} | **{r['ratio']:.2f}** | "
            + (
                f"{r['memory']:.0f} / {r['data']:.0f} | **{r['memory_ratio']:.2f}** |"
                if r is rows[0]
                else "| |"
            )
        )
    if options.out:
        Path(options.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
