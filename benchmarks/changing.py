"""Self-tuned ADMM against plain ADMM on networks whose links, nodes and messages come and go, side by side.

    python benchmarks/changing.py --tables adult tiny --seeds 3 --rows 60 --out changing.csv

Both run on the same network, rows and seed: plain ADMM with its automatic penalty, and (--etas) with the best of that
penalty's multiples, chosen for each case by its end.  A row of the file is a case: by how much the objective of the
whole network is above its optimum at the model of the worst node, as a share of the optimum, at the end.
Exit code 1 if the self-tuned run is behind plain ADMM anywhere.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from itertools import product

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from distadmm import radmm
from distadmm.methods.consensus.penalty import default_penalty
from distadmm.problems.consensus import Problem
from distadmm.ranks.world import World
from distadmm.run.setup import prepare

GRAPHS = ["er20", "ring:20", "grid:4x5"]
BAD = {
    "links p=.8": {"topology": "links:p=0.8:seed={seed}:{graph}"},
    "links p=.5": {"topology": "links:p=0.5:seed={seed}:{graph}"},
    "drop-out .2:.5": {"topology": "{graph}", "drop_out": "0.2:0.5"},
    "message loss .1": {"topology": "{graph}", "message_loss": 0.1},
}


def gap(run: radmm.Run, problem: Problem, best: float) -> float:
    """Of the worst node's model."""
    return float(problem.values_at(run.models).sum(axis=0).max() / best - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=["adult", "tiny"])
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60, help="a node, at most (tiny: 25)")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument(
        "--etas", type=float, nargs="*", default=[], help="multiples of the automatic penalty"
    )
    parser.add_argument("--out", default="changing.csv")
    asked = parser.parse_args()
    heads = ["table", "seed", "graph", "network", "tuned", "plain", "plain_best"]
    ratios = []
    with open(asked.out, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(heads)
        for table, seed, graph, name in product(asked.tables, range(asked.seeds), asked.graphs, BAD):
            shared = {"data": table, "seed": seed, "rows_per_node": 25 if table == "tiny" else asked.rows}
            node = prepare(radmm.configure("admm", **shared, topology=graph), World()).node
            best = radmm.solve("newton", **shared, topology=graph, iterations=15).history[-1].objective
            bad = {
                k: v.format(seed=seed, graph=graph) if isinstance(v, str) else v for k, v in BAD[name].items()
            }
            arms = [
                {"tune": True},
                {"tune": False},
                *({"eta": m * default_penalty(node.facts)} for m in asked.etas),
            ]
            gaps = [
                gap(
                    radmm.solve("admm", **shared, **bad, **arm, iterations=asked.iterations),
                    node.problem,
                    best,
                )
                for arm in arms
            ]
            found = [gaps[0], gaps[1], min(gaps[1:])]
            ratios.append([found[1] / found[0], found[2] / found[0]])
            rows.writerow([table, seed, graph, name, *(f"{x:.3e}" for x in found)])
            print(f"{table:6}{seed:3}  {graph:9} {name:16}", *(f"{x:.1e}" for x in found), flush=True)
    for what, of in zip(("automatic", "best"), np.array(ratios).T):
        print(
            f"plain, {what} penalty / self-tuned: median {np.median(of):.3g}, least {of.min():.3g}, of {len(of)}"
        )
    return int(np.min(ratios) < 1)


if __name__ == "__main__":
    sys.exit(main())
