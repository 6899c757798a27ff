# ruff: noqa: E402 - threads are set before numpy is imported
"""Many nodes in one process, without noise or with: start-up and loop, beside what they cannot do without.

    python benchmarks/nodes.py [--nodes 1000,10000,100000] [--ranks 1] [--epsilon 1] [--out FILE]

A random 4-regular graph, 20 columns, 4 rows a node; all in CPU seconds, of all ranks together, which a busy machine
disturbs less than wall time.  Start-up (rows, objectives, network, ledgers) stands beside the sum of what it cannot do
without: making the graph, reading the rows node by node, and one write of the ledgers' bytes with one sync.  The loop
is that of plain ADMM as the command runs it, its ledger lines included.  Memory is the most that was resident at any
time of the whole run, beyond what a small run before it left loaded.  With several ranks both are those of the first.
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
import time
from pathlib import Path
from typing import Any

import numpy as np

D, ROWS, ITERATIONS, STATE = 20, 4, 12, 4  # vectors of a node that an iteration hands to the next


def table(n: int, folder: Path) -> Path:
    """Rows of a public direction, as a file of one's own."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((ROWS * n, D))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ rng.standard_normal(D) + 0.3 * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
    path = folder / f"rows-{n}.npz"
    np.savez(path, X=X, y=y)
    return path


def resident(name: str = "VmRSS") -> int:
    """Bytes in memory now; `VmHWM`: the most since `clear_refs` was told to forget it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def measure(n: int, path: str, folder: str, epsilon: str | None) -> dict[str, Any]:
    """In a process of its own."""
    from distadmm import radmm
    from distadmm.data.source import open_source
    from distadmm.graphs import topology
    from distadmm.ranks.world import connect
    from distadmm.run import loop as loops

    world, marks, held, began = connect(), {}, 0, 0.0
    go = loops.Loop.go

    def timed(loop: Any) -> Any:
        marks["start"] = time.process_time() - began
        step, each = type(loop.algorithm).step, []

        def stepped(algorithm: Any, k: int, st: Any, node: Any) -> Any:
            before = time.process_time()
            found = step(algorithm, k, st, node)
            each.append(time.process_time() - before)
            return found

        type(loop.algorithm).step = stepped
        try:
            return go(loop)
        finally:
            type(loop.algorithm).step = step
            marks["iteration"] = float(np.median(each[2:]))

    loops.Loop.go = timed  # type: ignore[method-assign]
    quiet = ["--progress", "none", "--observe", "none"]
    noise = f"--epsilon {epsilon} --adjacency replace" if epsilon else "--eta 0.01"
    flags = f"--topology regular:{n}:d=4:seed=1 --no-intercept --weight 1 {noise}"
    argv = ["--algorithm", "admm", "--data", path, "--iterations", str(ITERATIONS), *flags.split(), *quiet]
    radmm.main(
        ["--algorithm", "admm", "--data", "tiny", "--iterations", "1", *quiet, "--out", folder + "/warm"]
    )
    marks.clear()
    Path("/proc/self/clear_refs").write_text("5")
    held, began = resident(), time.process_time()
    radmm.main([*argv, "--out", folder + "/run"])
    marks["memory"] = resident("VmHWM") - held
    marks["start"] = sum(world.allgather(marks["start"]))
    if not world.is_root:
        return {}
    began = time.process_time()
    topology.load(f"regular:{n}:d=4:seed=1")
    graph = time.process_time() - began
    began = time.process_time()
    source = open_source(path, clip=1.0, intercept=False, seed=0)
    for i in range(n):
        source.node(i, n)
    rows = time.process_time() - began
    ledger = b"".join(file.read_bytes() for file in Path(folder, "run", "ledger").glob("*.jsonl"))
    began = time.process_time()
    with open(Path(folder, "bytes"), "wb") as out:
        out.write(ledger)
        out.flush()
        os.fsync(out.fileno())
    write = time.process_time() - began
    start, loop, memory = (
        marks["start"],
        1e6 * marks["iteration"] / n,
        marks["memory"] / (n * ROWS * (D + 1) * 8),
    )
    parts = {"graph": graph, "rows": rows, "write": write}
    told = {"nodes": n, "start": start, "us": loop, "memory": memory, "ledger": len(ledger) / n}
    return {**told, **parts, "floor": sum(parts.values())}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", default="1000,10000,100000")
    parser.add_argument("--ranks", type=int, default=1, help="a loop's figures are those of the first")
    parser.add_argument("--epsilon", help="with noise; default: none")
    parser.add_argument("--out", help="also write the figures as JSON")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        n, path, folder = options.one
        if told := measure(int(n), path, folder, options.epsilon):
            print(json.dumps(told))
        return
    print(
        "| nodes | start-up | graph, rows, write | ratio (goal 3) | us a node, iteration | memory / rows "
        "| / rows and state | ledger, B |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    found = []
    for n in map(int, options.nodes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "XDG_STATE_HOME": folder + "/state"}
            env.pop("DISTADMM_ACCOUNT", None)
            command = [sys.executable, __file__, "--one", str(n), str(table(n, Path(folder))), folder]
            command += ["--epsilon", options.epsilon] if options.epsilon else []
            if options.ranks > 1:
                command = ["mpiexec", "-n", str(options.ranks), *command]
            told = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        r = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
        found.append(r)
        floor, ratio = f"{r['graph']:.2f} + {r['rows']:.2f} + {r['write']:.3f}", r["start"] / r["floor"]
        line = f"| {n} | {r['start']:.2f} | {floor} | **{ratio:.2f}** | {r['us']:.1f} | {r['memory']:.1f} "
        both = r["memory"] * ROWS * (D + 1) / (ROWS * (D + 1) + STATE * D)
        print(f"{line}| {both:.1f} | {r['ledger']:.0f} |", flush=True)
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
