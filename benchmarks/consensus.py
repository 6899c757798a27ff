# ruff: noqa: E402 - threads are set before numpy is imported
"""The product beside the floor of `floor.py`, alternated in one job of one node a rank.

    python benchmarks/consensus.py [--nodes 5|20] [--data synthetic|adult] [--rounds 7] [--out FILE]

Product: the command's own path with history, observation of every iteration, progress and ledgers.
Also R-ADMM's pair of iterations against two of ADMM, without and with noise, and against two of the floor; and
its even iterations against a bare exchange of 8 d bytes between neighbours.  All of these without an observer.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import consensus_setting as setting
import numpy as np

ETA = {("synthetic", 5): 0.0015, ("synthetic", 20): 0.001, ("adult", 5): 0.5, ("adult", 20): 0.5}
ITERATIONS = {5: 40, 20: 40}  # of the product beside the floor
PRIVATE = {"alpha": "1", "adjacency": "replace"}
PAIRS = 50  # of R-ADMM, beside twice as many iterations of ADMM


class Bench:
    """One job: the product's flags and the floor's node on the same rows, timed between barriers."""

    def __init__(self, nodes: int, data: str, folder: str):
        from distadmm.ranks.world import connect

        self.world = connect()  # before mpi4py is imported: how both arms wait is chosen by load
        from floor import Floor

        from distadmm.radmm import configure
        from distadmm.run.setup import prepare

        self.comm = self.world.comm
        folder = self.comm.bcast(folder)
        self.nodes, self.folder, self.iterations = nodes, Path(folder), ITERATIONS[nodes]
        # An account of its own: the user's would grow, and be read in every turn.
        os.environ["XDG_STATE_HOME"] = folder
        self.eta = ETA[data, nodes]
        if data == "synthetic":
            flags = self.world.on_root(lambda: setting.write(self.folder, nodes))
        else:
            flags = {"data": "adult", "topology": f"er{nodes}"}
        self.flags = {**flags, "iterations": self.iterations, "eta": str(self.eta), "stall_timeout": 60.0}
        config = configure("admm", **self.flags, tune=False)
        prepared = prepare(config, self.world)
        self.objective = prepared.node.problem.objectives[0]
        self.network = prepared.node.network
        self.floor = Floor(
            self.comm,
            self.objective.A,
            self.objective.scale,
            self.network.indices.tolist(),
            self.eta,
            self.objective.ridge,
        )

    def timed(self, work: Callable[[], Any]) -> tuple[float, float]:
        """Wall seconds of `work` on all ranks together, and their CPU seconds summed."""
        self.comm.Barrier()
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        cpu = time.process_time() - cpu
        self.comm.Barrier()
        return time.perf_counter() - wall, sum(self.comm.allgather(cpu))

    def run_floor(self) -> tuple[float, float, np.ndarray, float]:
        self.floor.reset()
        self.floor.run(1)  # as the product's first exchange, outside the clock
        self.floor.reset()
        wall, cpu = self.timed(lambda: self.floor.run(self.iterations))
        return wall, cpu, self.floor.f, self.kkt(self.floor)

    def kkt(self, floor: Any) -> float:
        """Worst gradient norm that one more primal solve leaves: both stop at 1e-10."""
        pull = 2 * floor.lam - floor.eta * (floor.V * floor.f + floor.s)
        from floor import newton

        q = floor.ridge + 2 * floor.eta * floor.V
        f = newton(floor.A, floor.weight, pull, q, floor.f, floor.tolerance)
        g = self.objective.grad(f) + pull + 2 * floor.eta * floor.V * f
        return max(self.comm.allgather(float(np.linalg.norm(g))))

    def run_product(self, algorithm: str, **flags: Any) -> tuple[float, float, np.ndarray, float]:
        """The command with these flags; the clock runs over the loop alone."""
        from distadmm.radmm import PROGRAMME, configure
        from distadmm.run import loop as runs
        from distadmm.run import shell

        out = str(self.folder / "out")
        config = configure(
            algorithm, **{**self.flags, "out": out, "force": True, "progress": "lines", **flags}
        )
        loop_run, kept = runs.Loop.go, {}

        def run(loop: Any) -> Any:
            kept["time"] = self.timed(lambda: kept.update(result=loop_run(loop)))
            kept["kkt"] = max(self.comm.allgather(float(loop.place.problem.residual.max())))
            return kept["result"]

        runs.Loop.go = run  # type: ignore[method-assign]
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                shell.work(PROGRAMME, config, self.world)
        finally:
            runs.Loop.go = loop_run  # type: ignore[method-assign]
        return *kept["time"], kept["result"][1].f[0], kept["kkt"]

    def run_protocol(self, algorithm: str, **flags: Any) -> tuple[float, float, np.ndarray, float]:
        """The algorithm's iterations and nothing else: no observer, and a ledger, in memory, under noise alone."""
        from distadmm.algorithm import find
        from distadmm.methods.consensus import private as protect
        from distadmm.radmm import configure
        from distadmm.run.loop import Course, Loop
        from distadmm.run.observe import Observer
        from distadmm.run.running import unwritten
        from distadmm.run.setup import prepare

        config = configure(
            algorithm,
            **{**self.flags, "observe": "none", "progress": "none", "iterations": 2 * PAIRS, **flags},
        )
        prepared = prepare(config, self.world)
        run = unwritten(config.run, self.world)
        node = protect.armed(prepared, protect.plan_of(prepared), run)
        course = Course(config.loop.iterations, 0, None, find(algorithm).phases)
        watcher = Observer(node, self.world, prepared.source.test)
        loop, kept = Loop(config.algorithm, node, watcher, run, course), {}
        wall, cpu = self.timed(lambda: kept.update(result=loop.go()))
        node.network.close()
        kkt = max(self.comm.allgather(float(node.problem.residual.max())))
        return wall, cpu, kept["result"][1].f[0], kkt

    def even_against_exchange(self, rounds: int, repeat: int = 200) -> tuple[list[float], list[float]]:
        """Seconds of an even iteration and of a bare Isend/Irecv of 8 d bytes with every neighbour."""
        from distadmm.radmm import configure
        from distadmm.run.setup import prepare

        config = configure("radmm", **self.flags, observe="none", progress="none")
        node = prepare(config, self.world).node
        state = config.algorithm.step(1, config.algorithm.init(node), node)

        def even() -> None:
            for _ in range(repeat):
                config.algorithm.step(2, state, node)

        def exchange() -> None:
            for _ in range(repeat):
                self.floor.exchange()

        pairs = [(self.timed(even)[0] / repeat, self.timed(exchange)[0] / repeat) for _ in range(rounds + 1)][
            1:
        ]
        node.network.close()
        return [a for a, _ in pairs], [b for _, b in pairs]


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Median over the rounds of the ratio within a round."""
    return float(np.median(np.array(ours) / np.array(theirs)))


def measure(bench: Bench, rounds: int) -> list[dict[str, Any]]:
    arms: dict[str, Callable[[], Any]] = {
        "floor": bench.run_floor,
        "product": lambda: bench.run_product("admm", tune=False),
        "product, default (self-tuned)": lambda: bench.run_product("admm", eta="auto"),
        "ADMM, protocol": lambda: bench.run_protocol("admm", tune=False),
        "R-ADMM, protocol": lambda: bench.run_protocol("radmm"),
        "private ADMM, protocol": lambda: bench.run_protocol("admm", tune=False, **PRIVATE),
        "private R-ADMM, protocol": lambda: bench.run_protocol("radmm", **PRIVATE),
    }
    walls: dict[str, list[float]] = {name: [] for name in arms}
    cpus: dict[str, list[float]] = {name: [] for name in arms}
    models, kkt = {}, {}
    for _ in range(rounds):
        for name, arm in arms.items():
            wall, cpu, models[name], kkt[name] = arm()
            iterations = 2 * PAIRS if name.endswith("protocol") else bench.iterations
            walls[name].append(wall / iterations)
            cpus[name].append(cpu / iterations)
    apart = float(np.abs(models["product"] - models["floor"]).max())
    apart = max(bench.comm.allgather(apart))
    rows = []
    for name in ("product", "product, default (self-tuned)"):
        rows.append(
            {
                "what": f"{name} / floor, an iteration",
                "ours": np.median(walls[name]),
                "theirs": np.median(walls["floor"]),
                "ratio": ratio(walls[name], walls["floor"]),
                "cpu_ratio": ratio(cpus[name], cpus["floor"]),
                "goal": {5: 0.25, 20: 0.3}[bench.nodes],
                "note": f"KKT {kkt[name]:.0e} and {kkt['floor']:.0e}"
                + (f"; models agree to {apart:.0e}" if name == "product" else ""),
            }
        )
    for name, ours, theirs in (
        ("two iterations of ADMM", "R-ADMM, protocol", "ADMM, protocol"),
        ("two iterations of ADMM, both private", "private R-ADMM, protocol", "private ADMM, protocol"),
        ("two iterations of the floor", "R-ADMM, protocol", "floor"),
    ):
        rows.append(
            {
                "what": f"R-ADMM pair / {name}",
                "ours": 2 * np.median(walls[ours]),
                "theirs": 2 * np.median(walls[theirs]),
                "ratio": ratio(walls[ours], walls[theirs]),
                "cpu_ratio": ratio(cpus[ours], cpus[theirs]),
                "goal": 0.6,
                "note": f"KKT {kkt[ours]:.0e} and {kkt[theirs]:.0e}",
            }
        )
    even, bare = bench.even_against_exchange(rounds)
    rows.append(
        {
            "what": "R-ADMM even iteration / bare exchange",
            "ours": np.median(even),
            "theirs": np.median(bare),
            "ratio": ratio(even, bare),
            "cpu_ratio": float("nan"),
            "goal": 2.0,
            "note": "8 d bytes to and from each neighbour",
        }
    )
    return rows


def show(rows: list[dict[str, Any]], title: str) -> None:
    print(f"\n{title}\n\n| what | ours, s | theirs, s | ratio (wall) | ratio (CPU) | goal | |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        print(
            f"| {r['what']} | {r['ours']:.5f} | {r['theirs']:.5f} | **{r['ratio']:.2f}** | {r['cpu_ratio']:.2f} "
            f"| {r['goal']} | {r['note']} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5, choices=(5, 20))
    parser.add_argument("--data", default="synthetic", choices=("synthetic", "adult"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", help="also write the table as JSON")
    options = parser.parse_args()
    setting.ranks_or_launch(options.nodes, sys.argv)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.nodes, options.data, folder)
        rows = measure(bench, options.rounds)
        bench.comm.Barrier()
    if bench.world.is_root:
        show(
            rows,
            f"{options.nodes} nodes on {options.nodes} ranks, {options.data} rows, medians of {options.rounds} rounds",
        )
        if options.out:
            Path(options.out).write_text(json.dumps(rows, indent=1, default=float))
    bench.comm.Barrier()


if __name__ == "__main__":
    main()
