# ruff: noqa: E402 - threads are set before numpy is imported
"""The product beside DISROPT's ADMM, each in its own environment, job after job in turn.

    python3 -m venv peer && peer/bin/pip install disropt mpich cvxpy
    python benchmarks/disropt_admm.py --venv peer [--nodes 5|20] [--rounds 3] [--iterations 3] [--out FILE]

DISROPT runs so many iterations at the penalty that a serial mirror of its update equations (exact solves)
finds best, and the mirror, checked against those iterations, counts how many it needs.  The product is the
default of `--algorithm admm` with history, observation of every iteration and ledgers; it is timed over the
iterations that bring its worst node to the gap.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import consensus_setting as setting
import numpy as np

Array = np.ndarray
HERE = Path(__file__).parent
GAPS = (1e-3, 1e-6)
PENALTIES = {5: (0.001, 0.002, 0.004), 20: (0.001, 0.002, 0.004)}


def newton(A: Array, linear: Array, quadratic: float, x: Array) -> Array:
    """argmin mean log(1 + exp(-a.x)) + linear.x + quadratic/2 |x|^2."""
    for _ in range(50):
        sigma = 1.0 / (1.0 + np.exp(A @ x))
        g = linear + quadratic * x - A.T @ sigma / len(A)
        if np.sqrt(g @ g) < 1e-9:
            break
        B = A * np.sqrt(sigma * (1 - sigma) / len(A))[:, None]
        x = x - np.linalg.solve(B.T @ B + quadratic * np.eye(len(x)), g)
    return x


def mirror(signed: list[Array], edges: list[tuple[int, int]], rho: float, iterations: int) -> Array:
    """x_i of DISROPT's updates: models (iterations, N, d)."""
    n, d = len(signed), signed[0].shape[1]
    around = [
        sorted({i} | {b for a, b in edges if a == i} | {a for a, b in edges if b == i}) for i in range(n)
    ]
    lam = {(i, j): np.zeros(d) for i in range(n) for j in around[i]}
    z, x, found = np.zeros((n, d)), np.zeros((n, d)), []
    for _ in range(iterations):
        for i in range(n):
            pull = sum(lam[i, j] - rho * z[j] for j in around[i])
            x[i] = newton(signed[i], pull, setting.RIDGE + rho * len(around[i]), x[i])
        z = np.stack([sum(x[j] + lam[j, i] / rho for j in around[i]) / len(around[i]) for i in range(n)])
        for i, j in lam:
            lam[i, j] = lam[i, j] + rho * (x[i] - z[j])
        found.append(x.copy())
    return np.stack(found)


def first(gaps: list[float], goal: float) -> int | None:
    return next((k for k, gap in enumerate(gaps, 1) if gap < goal), None)


def best_penalties(pooled: setting.Pooled, signed: list[Array], n: int) -> dict[float, tuple[float, int]]:
    """gap -> (rho, iterations) of the fewest iterations on the grid."""
    best: dict[float, tuple[float, int]] = {}
    for rho in PENALTIES[n]:
        gaps = [pooled.worst_gap(models) for models in mirror(signed, setting.graph(n), rho, 70)]
        for goal in GAPS:
            k = first(gaps, goal)
            if k is not None and (goal not in best or k < best[goal][1]):
                best[goal] = rho, k
    return best


def inside() -> None:
    """A rank of the product's job: iterations to each gap, and seconds for them with all features on."""
    from consensus import Bench

    options = json.loads(sys.argv[2])
    bench = Bench(options["nodes"], "synthetic", options["folder"])
    from distadmm.radmm import configure
    from distadmm.run.setup import prepare

    prepared = prepare(configure("admm", **{**bench.flags, "eta": "auto", "observe": "none"}), bench.world)
    algorithm, node, rows = prepared.config.algorithm, prepared.node, []
    state = algorithm.init(node)
    for k in range(1, 41):
        state = algorithm.step(k, state, node)
        rows.append(state.f[0])
    node.network.close()
    every = bench.comm.gather(np.stack(rows))
    needed = None
    if bench.world.is_root:
        pooled = setting.Pooled([X * y[:, None] for X, y in map(setting.rows_of, range(bench.nodes))])
        gaps = [pooled.worst_gap(models) for models in np.stack(every, axis=1)]
        needed = {goal: first(gaps, goal) for goal in GAPS}
    needed = bench.comm.bcast(needed)
    found = {}
    for goal, k in needed.items():
        wall, cpu, _, kkt = bench.run_product("admm", eta="auto", iterations=k)
        found[str(goal)] = {"iterations": k, "wall": wall, "cpu": cpu, "kkt": kkt}
    if bench.world.is_root:
        Path(options["result"]).write_text(json.dumps(found))
    bench.comm.Barrier()


def job(python: Path, ranks: int, *words: str) -> None:
    command = [str(python.with_name("mpiexec")), "-n", str(ranks), str(python), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=HERE)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venv", required=True, type=Path, help="environment with disropt, mpich and cvxpy")
    parser.add_argument("--nodes", type=int, default=5, choices=(5, 20))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=3, help="of DISROPT in each round")
    parser.add_argument("--out", help="also write the figures as JSON")
    options = parser.parse_args()
    n = options.nodes
    signed = [X * y[:, None] for X, y in map(setting.rows_of, range(n))]
    pooled = setting.Pooled(signed)
    best = best_penalties(pooled, signed, n)
    rho = best[1e-3][0]
    reference = mirror(signed, setting.graph(n), rho, options.iterations)
    ours: list[dict[str, Any]] = []
    theirs, cpus, apart = [], [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            result = Path(folder, "ours.json")
            words = json.dumps({"nodes": n, "folder": folder, "result": str(result)})
            job(Path(sys.executable), n, str(Path(__file__).resolve()), "--inside", words)
            ours.append(json.loads(result.read_text()))
            out = Path(folder, "peer.npz")
            job(
                (options.venv / "bin" / "python").absolute(),
                n,
                "disropt_node.py",
                str(options.iterations),
                str(rho),
                str(out),
            )
            peer = np.load(out)
            theirs.append(float(peer["wall"]) / options.iterations)
            cpus.append(float(peer["cpu"]) / options.iterations)
            apart = max(apart, float(np.abs(peer["models"] - reference).max()))
    rows = []
    for goal in GAPS:
        if goal not in best:
            continue
        found = [o[str(goal)] for o in ours]
        k, each = found[0]["iterations"], np.array([o["wall"] / o["iterations"] for o in found])
        each_cpu = np.array([o["cpu"] / o["iterations"] for o in found])
        count = best[goal][1]
        rows.append(
            {
                "gap": goal,
                "iterations": [k, count],
                "rho": best[goal][0],
                "seconds_an_iteration": [float(np.median(each)), float(np.median(theirs))],
                "ratio_an_iteration": float(np.median(np.array(theirs) / each)),
                "cpu_ratio_an_iteration": float(np.median(np.array(cpus) / each_cpu)),
                "seconds_to_gap": [float(np.median(each)) * k, float(np.median(theirs)) * count],
                "ratio_to_gap": float(np.median(np.array(theirs) / each)) * count / k,
            }
        )
    print(
        f"\n{n} nodes on {n} ranks, medians of {options.rounds} rounds; "
        f"DISROPT's models agree with the mirror to {apart:.0e}\n"
    )
    print(
        "| gap | iterations, ours / DISROPT | s an iteration | ratio (wall) | ratio (CPU) | s to the gap | ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        print(
            "| {:.0e} | {} / {} | {:.4f} / {:.2f} | **{:.0f}** | {:.0f} | {:.3f} / {:.1f} | **{:.0f}** |".format(
                r["gap"],
                *r["iterations"],
                *r["seconds_an_iteration"],
                r["ratio_an_iteration"],
                r["cpu_ratio_an_iteration"],
                *r["seconds_to_gap"],
                r["ratio_to_gap"],
            )
        )
    if options.out:
        Path(options.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    inside() if sys.argv[1:2] == ["--inside"] else main()
