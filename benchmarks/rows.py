"""Reading rows on several ranks: memory / the numbers kept, time / that of pyarrow's reader, or of numpy's.

    python benchmarks/rows.py               makes a CSV of 550 MB; 4 ranks and pyarrow take turns
    python benchmarks/rows.py --without-arrow   by the package's own reader, beside numpy.loadtxt
    python benchmarks/rows.py --parquet --rows 2000000
                                            a Parquet file of 100 columns on 4 ranks

Memory is counted from where a rank has loaded its libraries (numpy, mpi4py, pyarrow): the highest resident size until a
node has solved once, less that at the start, added up over the ranks.  Numbers: eight bytes for each feature of each
row.  Time: from opening the file to the rows of every rank.  CPU: of all ranks, which load changes less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COLUMNS = 100


def make_csv(path: Path, rows: int) -> None:
    """Six decimals a number, as programs write them; the target, 0 or 1, is the last column."""
    rng, truth = np.random.default_rng(0), np.random.default_rng(1).normal(size=COLUMNS)
    with open(path, "w") as file:
        file.write(",".join([*(f"x{j + 1}" for j in range(COLUMNS)), "y"]) + "\n")
        for at in range(0, rows, 4000):
            X = rng.normal(size=(min(4000, rows - at), COLUMNS))
            y = (X @ truth > 0).astype(int)
            np.savetxt(file, np.column_stack([X, y]), delimiter=",", fmt=["%.6f"] * COLUMNS + ["%d"])


def make_parquet(path: Path, rows: int) -> None:
    import pyarrow
    import pyarrow.parquet

    rng, truth = np.random.default_rng(0), np.random.default_rng(1).normal(size=COLUMNS)
    writer = None
    for at in range(0, rows, 50_000):
        X = rng.normal(size=(min(50_000, rows - at), COLUMNS))
        names = {f"x{j + 1}": X[:, j].copy() for j in range(COLUMNS)}
        table = pyarrow.table({**names, "y": (X @ truth > 0).astype(np.int64)})
        writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema, use_dictionary=False)
        writer.write_table(table)
    if writer:
        writer.close()


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def rank(path: str, deal: str, arrow: bool) -> None:
    """One rank: its rows, and the objective over them."""
    from distadmm.data import csvfile
    from distadmm.data.deal import Deal
    from distadmm.data.source import open_source
    from distadmm.problems.consensus import Problem, objective
    from distadmm.problems.losses import LOSSES
    from distadmm.ranks.world import connect

    world = connect()
    if not arrow:
        csvfile.arrow = lambda: None
    if loaded := csvfile.arrow():  # a library is loaded whole when it is first used
        loaded.csv.read_csv(loaded.BufferReader(b"a\n1\n"))
    world.barrier()
    began, cpu, clock = peak(), time.process_time(), time.perf_counter()
    source = open_source(path, world=world, deal=Deal.of(deal, 0))
    source.hold([world.rank], world.size, world)
    X, y = source.node(world.rank, world.size)
    seconds = world.allgather(time.perf_counter() - clock)
    cpus = world.allgather(time.process_time() - cpu)
    numbers = X.nbytes
    problem = Problem([objective(X, y, LOSSES["logistic"], 2, own=True)])
    del X
    problem.argmin(np.zeros((1, COLUMNS)), np.full((1, 1), 0.1), np.zeros((1, COLUMNS)))
    found = world.gather((peak() - began, peak(), numbers))
    if found:
        grown, whole, kept = (sum(part) for part in zip(*found))
        print(
            json.dumps(
                {"seconds": max(seconds), "cpu": sum(cpus), "memory": grown, "whole": whole, "numbers": kept}
            )
        )


def reference(path: str, kind: str) -> None:
    import pyarrow.csv

    cpu, clock = time.process_time(), time.perf_counter()
    if kind == "arrow":
        pyarrow.csv.read_csv(path)
    else:
        np.loadtxt(path, delimiter=",", skiprows=1)
    print(json.dumps({"seconds": time.perf_counter() - clock, "cpu": time.process_time() - cpu}))


def started(words: list[str], ranks: int = 0) -> dict[str, float]:
    beside = Path(sys.executable).with_name("mpiexec")
    launch = [str(beside if beside.exists() else "mpiexec"), "-n", str(ranks)] if ranks else []
    done = subprocess.run(
        [*launch, sys.executable, __file__, *words], capture_output=True, text=True, timeout=1800, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=592_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--deal", default="iid")
    parser.add_argument("--parquet", action="store_true")
    parser.add_argument("--without-arrow", action="store_true")
    parser.add_argument("--file", help="kept, and made if it is not there")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--reference", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_rank:
        return rank(asked.file, asked.deal, not asked.without_arrow)
    if asked.reference:
        return reference(asked.file, asked.reference)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(asked.file or Path(folder) / ("rows.parquet" if asked.parquet else "rows.csv"))
        if not path.exists():
            (make_parquet if asked.parquet else make_csv)(path, asked.rows)
        size = path.stat().st_size / 1e6
        print(
            f"{path.name}: {size:.0f} MB; {asked.ranks} ranks, --deal {asked.deal}, load {os.getloadavg()[0]:.0f}"
        )
        kind = "numpy" if asked.without_arrow else "arrow"
        plain = ["--without-arrow"] * asked.without_arrow
        ours, theirs = [], []
        for _ in range(asked.rounds):
            if not asked.parquet:
                theirs.append(started(["--file", str(path), "--reference", kind]))
            ours.append(
                started(["--file", str(path), "--deal", asked.deal, "--as-rank", *plain], asked.ranks)
            )
    median = lambda runs, name: statistics.median(run[name] for run in runs)  # noqa: E731
    numbers = ours[0]["numbers"]
    print(f"numbers kept                          {numbers / 1e6:.0f} MB")
    print(f"memory / numbers                      {median(ours, 'memory') / numbers:.2f}   (goal 1.5)")
    print(f"whole processes / numbers             {median(ours, 'whole') / numbers:.2f}")
    if theirs:
        for name in ("seconds", "cpu"):
            ratio = median(ours, name) / median(theirs, name)
            print(f"{name:7} / {kind}'s reader                {ratio:.2f}   (goal 1.3, of seconds)")
    else:
        print(
            f"seconds, CPU                          {median(ours, 'seconds'):.1f}, {median(ours, 'cpu'):.1f}"
        )


if __name__ == "__main__":
    main()
