"""Start-up of twenty ranks to the first iteration, beside twenty ranks that only import numpy and mpi4py.

    python benchmarks/startup.py [--ranks 20] [--topology ring:64] [--rounds 5] [--private] [--out FILE]

The arms alternate.  Wall seconds run from the launch to the slowest rank's mark; CPU seconds are those of all
ranks up to their marks, which a busy machine disturbs less.  With --private, also private runs of 100 iterations, whose
noise is chosen for a budget and priced before the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BARE_ARM = "numpy and mpi4py imported"
PRIVATE = ("admm", "radmm", "mradmm", "madmm", "gossip", "masked")
PLAIN = "the default command"
DEALT = 20  # nodes of its network
MARK = """
import os, time
def mark():
    cpu = os.times()
    open(os.path.join({folder!r}, os.environ["PMI_RANK"]), "w").write(f"{{time.time()}} {{cpu.user + cpu.system}}")
"""
BARE = (
    MARK
    + """
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
import numpy
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
mark()
"""
)
# The command itself; the mark is set where the first iteration is about to begin.
PRODUCT = (
    MARK
    + """
from distadmm.flags import entering
entering("__main__")
from distadmm import radmm
def first(loop_run):
    def run(loop):
        step = type(loop.algorithm).step
        def marked(algorithm, k, st, node):
            mark()
            type(algorithm).step = step
            return step(algorithm, k, st, node)
        type(loop.algorithm).step = marked
        return loop_run(loop)
    return run
import distadmm.run.loop
distadmm.run.loop.Loop.go = first(distadmm.run.loop.Loop.go)
raise SystemExit(radmm.main({argv!r}))
"""
)


def launch(code: str, ranks: int, folder: Path, *, known: bool = True) -> tuple[float, float]:
    """(wall seconds to the last mark, CPU seconds of all ranks to theirs); `known`: with prices that are kept."""
    for old in folder.iterdir():
        old.unlink()
    mpiexec = Path(sys.executable).with_name("mpiexec")
    began = time.time()
    command = [str(mpiexec), "-n", str(ranks), sys.executable, "-c", code]
    # Compiled files are kept, as in any installation; the first round, which is not counted, writes them.
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder.parent / "compiled")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env |= {
        "XDG_STATE_HOME": str(folder.parent / f"state-{time.time_ns()}")
    }  # an account that nothing was entered in
    env |= {"DISTADMM_PRICES": str(folder.parent / "prices") if known else "off"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command, check=True, env=env, **quiet)
    marks = np.array([[float(x) for x in path.read_text().split()] for path in folder.iterdir()])
    assert len(marks) == ranks
    return float(marks[:, 0].max() - began), float(marks[:, 1].sum())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=20)
    parser.add_argument("--topology", help="default: that of the command, or a ring where the ranks are more")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--private", action="store_true", help="also runs with --epsilon 2")
    parser.add_argument("--algorithms", default=",".join(PRIVATE), help="which of them")
    parser.add_argument(
        "--cold", action="store_true", help="also once each without the prices of earlier runs"
    )
    parser.add_argument("--out", help="also write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as top:
        marks, out = Path(top, "marks"), Path(top, "run")
        marks.mkdir()
        argv = ["--progress", "none", "--out", str(out), "--force"]
        topology = options.topology or (f"ring:{options.ranks}" if options.ranks > DEALT else None)
        argv += ["--topology", topology] if topology else []
        commands = {PLAIN: [*argv, "--iterations", "1"]}
        if options.private:
            budget = [*argv, "--epsilon", "2", "--adjacency", "replace"]
            for name in options.algorithms.split(","):
                others = ["--trust", "coalition:5"] if name == "masked" else []
                commands[f"private {name}"] = ["--algorithm", name, *budget, *others]
        arms = {BARE_ARM: BARE.format(folder=str(marks))} | {
            f"first iteration of {name}": PRODUCT.format(folder=str(marks), argv=command)
            for name, command in commands.items()
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
        for turn in range(options.rounds + 1):
            for name, code in arms.items():
                seconds = launch(code, options.ranks, marks)
                if turn:  # the first fills the page cache, and the cache of prices
                    found[name].append(seconds)
        unknown = {
            name: launch(code, options.ranks, marks, known=False)
            for name, code in arms.items()
            if options.cold
        }
    bare = np.array(found[BARE_ARM])
    print(
        f"\nstart-up of {options.ranks} ranks, medians of {options.rounds} rounds; goal of the default command: 1.3\n"
    )
    plain = np.array(found[f"first iteration of {PLAIN}"])
    print("| | wall, s | CPU of all ranks, s | wall, CPU / import alone | wall, CPU / default command |")
    print("|---|---|---|---|---|")
    for name, times in found.items():
        wall, cpu = np.median(times, axis=0)
        (w, c), (w1, c1) = (np.median(np.array(times) / other, axis=0) for other in (bare, plain))
        print(f"| {name} | {wall:.2f} | {cpu:.2f} | **{w:.2f}**, **{c:.2f}** | **{w1:.2f}**, **{c1:.2f}** |")
    for name, (wall, cpu) in unknown.items():
        print(f"| {name}, no price known | {wall:.2f} | {cpu:.2f} | | |")
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
