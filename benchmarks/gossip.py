"""The constants of noisy gossip on synthetic tables: the rule's, and a grid of steps, clips and means beside it.

    python benchmarks/gossip.py [--graphs ring:16 complete:16] [--epsilons 0.1 0.25 2] [--clips 0.5 1] [--seeds 2]

Tables of categories with skewed shares, one-hot; their sizes and seeds stand below.  Scored is the test loss of the
nodes' own models, mean over the nodes and seeds.  CLIP, NODE_CLIP, FASTEST and SETTLED of `methods/gossip/rule.py` come
from here, and from no other table.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from distadmm import radmm

Array = np.ndarray
TABLES = {"wide": (32_000, 14, 8, 3), "small": (8_000, 6, 5, 1), "rare": (24_000, 10, 10, 7)}
SHARES = {"wide": 0.3, "small": 0.5, "rare": 0.2}  # of the class +1, about


def synthetic(name: str, folder: Path) -> tuple[str, str, tuple[Array, Array]]:
    """Files of training and test rows, and the test rows as a node sees them."""
    rows, columns, categories, seed = TABLES[name]
    rng = np.random.default_rng(seed)
    codes = [
        rng.choice(categories, size=2 * rows, p=rng.dirichlet(np.full(categories, 0.5)))
        for _ in range(columns)
    ]
    score = sum(rng.normal(size=categories)[code] for code in codes) * 2.0
    score = (score - np.quantile(score, 1 - SHARES[name])) / np.std(score) * 2.5
    y = np.where(rng.random(2 * rows) < 1 / (1 + np.exp(-score)), 1, -1)
    X = np.hstack([np.eye(categories)[code] for code in codes])
    files = [str(folder / f"{name}-{part}.npz") for part in ("train", "test")]
    for file, some in zip(files, (slice(rows), slice(rows, None))):
        np.savez(file, X=X[some], y=y[some])
    return *files, (X[rows:] / np.sqrt(columns), y[rows:])  # type: ignore[return-value]


def local_loss(models: Array, test: tuple[Array, Array]) -> float:
    X, y = test
    return float(np.logaddexp(0.0, -y[:, None] * (X @ models.T)).mean())


def measured(flags: dict[str, Any], seeds: int, test: tuple[Array, Array]) -> tuple[float, str]:
    runs = [radmm.solve(**flags, seed=seed) for seed in range(seeds)]
    return float(np.mean([local_loss(run.models, test) for run in runs])), runs[0].summary["choice"]


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", default="gossip")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--graphs", nargs="+", default=["ring:16", "complete:16"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.25, 2.0])
    parser.add_argument("--rates", nargs="*", default=["0.03", "0.1", "0.3", "1", "1.9"])
    parser.add_argument("--clips", nargs="*", default=["auto"])
    parser.add_argument("--averages", nargs="*", default=["auto"])
    parser.add_argument("--trust", default=None)
    parser.add_argument("--adjacency", default="replace")
    parser.add_argument("--seeds", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    options = asked()
    shared: dict[str, Any] = {
        "adjacency": options.adjacency,
        "rng": "simulation",
        "observe": "none",
        "stated": "bounds",
    }
    if options.trust:
        shared["trust"] = options.trust
    with tempfile.TemporaryDirectory() as folder:
        for table in options.tables:
            data, test_data, test = synthetic(table, Path(folder))
            shared |= {"data": data, "test_data": test_data}
            plain = {k: shared[k] for k in ("data", "test_data", "observe")}
            best, _ = measured({**plain, "algorithm": "newton", "iterations": 30}, 1, test)
            share = np.mean(test[1] > 0)
            base = -share * np.log(share) - (1 - share) * np.log1p(-share)
            print(f"{table}: no privacy {best:.4f}, base rate {base:.4f}")
            for graph in options.graphs:
                for epsilon in options.epsilons:
                    here = {**shared, "topology": graph, "epsilon": epsilon, "algorithm": options.algorithm}
                    loss, words = measured(here, options.seeds, test)
                    print(f"  {graph} {epsilon:g}: rule {loss:.4f} ({words})", flush=True)
                    for clip in options.clips:
                        for average in options.averages:
                            at = {**here, "gradient_clip": clip, "average": average}
                            losses = [
                                measured({**at, "rate": r}, options.seeds, test)[0] for r in options.rates
                            ]
                            cells = "  ".join(f"{r}: {x:.4f}" for r, x in zip(options.rates, losses))
                            print(f"      clip {clip}, average {average}   {cells}", flush=True)


if __name__ == "__main__":
    main()
