"""Predicted against measured time on links of a given delay, rate and loss, over three hosts of this machine.

    sudo .venv/bin/python benchmarks/links.py [--ranks 20] [--repeat 3] [--algorithm admm radmm masked]

Hosts are network namespaces (benchmarks/namespaces.py).  The same run is made on links without limit, which gives the
compute of an iteration, and on each of CASES; beside it stands what distadmm/ranks/links.py says.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from namespaces import Hosts, missing

from distadmm.graphs.topology import blocks, load
from distadmm.ranks.links import Links, wall_clock, wall_clock_of_sums
from distadmm.ranks.tree import spanning

HOSTS = 3
PRIVATE = ["--epsilon", "1", "--adjacency", "replace", "--trust", "coalition:5", "--rng", "simulation"]


class Case(NamedTuple):
    name: str
    latency: float = 0.0
    rate: float | None = None  # bytes a second
    loss: float = 0.0


CASES = [
    Case("40 ms", 0.04),
    Case("10 Mbit/s", rate=1.25e6),
    Case("2 Mbit/s", rate=2.5e5),
    Case("40 ms, 10 Mbit/s", 0.04, 1.25e6),
    Case("10 ms, 2 Mbit/s", 0.01, 2.5e5),
    Case("20 ms, 1 % lost", 0.02, loss=0.01),
    Case("20 ms, 3 % lost", 0.02, loss=0.03),
    Case("40 ms, 1 % lost", 0.04, loss=0.01),
]


def between(links: Links, blocks: list[np.ndarray], machine: np.ndarray) -> Links:
    """The links between ranks that host these blocks of nodes: one message a pair, each row once."""
    host = np.empty(len(links.indptr) - 1, dtype=np.int64)
    for rank, block in enumerate(blocks):
        host[block] = rank
    pairs = np.stack([host[links.receivers], host[links.senders], links.senders], axis=1)
    # Receiving rank, sending rank, node whose row it is.
    rows = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    both, counts = np.unique(rows[:, :2], axis=0, return_counts=True)
    indptr = np.searchsorted(both[:, 0], np.arange(len(blocks) + 1))
    latency = float(np.max(links.latency, initial=0.0))
    return links._replace(
        indptr=indptr, indices=both[:, 1], latency=latency, rows=counts.astype(float), machine=machine
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--topology", default="er20")
    parser.add_argument("--algorithm", nargs="+", default=["admm", "radmm", "masked"])
    parser.add_argument("--case", type=int, nargs="+", default=range(len(CASES)), help="numbers of CASES")
    options = parser.parse_args()
    why = missing(any(CASES[i].loss for i in options.case))
    if why:
        sys.exit(f"no hosts here: {why}")
    print(
        f"{options.topology}, {options.ranks} ranks on {HOSTS} hosts; the fastest of {options.repeat} runs, "
        "with loss their mean, seconds"
    )
    for name in options.algorithm:
        bare = _timed(Case("no limit"), name, options)
        print(
            f"{name:8}{'no limit':18}{bare['seconds']:8.3f}  {1e3 * bare['seconds'] / bare['iterations']:.2f} ms each"
        )
        for case in (CASES[i] for i in options.case):
            run = _timed(case, name, options)
            said = predicted(case, run, bare["seconds"] / bare["iterations"], options)
            ratio = said / run["seconds"]
            print(
                f"{name:8}{case.name:18}{run['seconds']:8.3f}  predicted {said:8.3f}  predicted/measured {ratio:.2f}",
                flush=True,
            )


def _timed(case: Case, name: str, options: Any) -> dict[str, Any]:
    """The summary of the fastest run: what else the machine does only adds to it.

    Where packets are lost, chance adds as much, and the mean of the runs' seconds is what is predicted.
    """
    runs = []
    for _ in range(options.repeat):
        with (
            tempfile.TemporaryDirectory() as folder,
            Hosts(HOSTS, case.latency, case.rate, case.loss) as hosts,
        ):
            out = Path(folder) / "run"
            words = [
                "--algorithm",
                name,
                "--topology",
                options.topology,
                "--out",
                str(out),
                "--observe",
                "none",
            ]
            words += ["--progress", "none"]
            words += PRIVATE if name == "masked" else ["--iterations", str(options.iterations)]
            try:
                done = hosts.mpiexec(
                    options.ranks, sys.executable, "-m", "distadmm.radmm", *words, timeout=300
                )
            except subprocess.TimeoutExpired:
                sys.exit(f"{name} on {case.name}: not done in 300 s")
            if done.returncode:
                sys.exit(f"{name} on {case.name}: exit code {done.returncode}\n{done.stderr}")
            runs.append(json.loads((out / "summary.json").read_text()))
    fastest = min(runs, key=lambda run: run["seconds"])
    return fastest | {"seconds": fmean(run["seconds"] for run in runs)} if case.loss else fastest


def predicted(case: Case, run: dict[str, Any], compute: float, options: Any) -> float:
    topology = load(options.topology)
    ranks, n, count = options.ranks, topology.n, run["iterations"]
    host = np.array([h for h in range(HOSTS) for _ in range(h * ranks // HOSTS, (h + 1) * ranks // HOSTS)])
    whole = Links(
        topology.indptr, topology.indices, case.latency, 0.0, case.rate or np.inf, case.loss,
    )  # fmt: skip
    dealt = blocks(topology, ranks)
    if run["algorithm"] in ("masked", "newton"):
        machine = np.empty(n, int)
        for rank, block in enumerate(dealt):
            machine[block] = host[rank]
        tree = spanning(topology.indptr, topology.indices, range(n))
        messages = count * [run["bytes"] / count / (2 * (n - 1))]
        if run["algorithm"] == "masked":  # Adult's 105 columns: squares, curvature, gradients
            messages = [8 * 105, 8 * 105 * 53, *(count - 2) * [8 * 105]]
        return wall_clock_of_sums(
            whole._replace(machine=machine), tree.parent, compute, messages, run["algorithm"] == "masked"
        )
    turn = np.concatenate([np.arange(1, size + 1) / size for size in np.bincount(host)])  # ranks share cores
    return wall_clock(between(whole, dealt, host), compute * turn, run["bytes"] / run["messages"], count)


if __name__ == "__main__":
    main()
