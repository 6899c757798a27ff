"""Whether the penalty that a budget chooses is the right one: local models at automatic penalties and on a grid.

    python benchmarks/penalty.py --graphs ring:16 er20 --epsilons 0.5 2 10 --seeds 2 --data adult --out penalty.csv

One row for each graph, epsilon and penalty: the mean over the nodes of the test loss of their own models, mean over the
seeds.  The penalties are the automatic one and its multiples by powers of 2, each with the smoothing that was chosen:
those of --steps, or up and down until the loss rises.  What stands in --out already is not run again.
It ends with the largest ratio to the best of the grid and what rises with epsilon; exit code 1 above --most.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from distadmm import radmm
from distadmm.data import synthetic as made_up
from distadmm.data.source import open_source
from distadmm.errors import InputError

Array = np.ndarray
GRAPHS = ["ring:16", "torus:4x4", "complete:16", "star:16", "er20", "ba20"]
EPSILONS = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0]
FARTHEST = 6  # doublings from the automatic penalty


def synthetic(folder: Path, rows: int = 16_000, columns: int = 8, seed: int = 0) -> tuple[str, str]:
    """A table of categories with skewed shares, and test rows of the same kind."""
    rng = np.random.default_rng(seed)
    X = [rng.choice(6, size=2 * rows, p=rng.dirichlet(np.full(6, 0.5))) for _ in range(columns)]
    score = sum(rng.normal(size=6)[x] for x in X)
    y = rng.random(2 * rows) < 1 / (1 + np.exp(-2 * (score - np.median(score))))
    names = [f"c{j}" for j in range(columns)]
    lines = [",".join([*(f"v{x[i]}" for x in X), str(int(y[i]))]) for i in range(2 * rows)]
    for name, some in (("train.csv", lines[:rows]), ("test.csv", lines[rows:])):
        (folder / name).write_text("\n".join([",".join([*names, "target"]), *some]) + "\n")
    domain = [f"v{value}" for value in range(6)]
    columns = [f"{name} = {json.dumps(domain)}" for name in names]
    head = ['target = "target"', 'labels = ["0", "1"]', "[columns]"]
    (folder / "schema.toml").write_text("\n".join([*head, *columns]) + "\n")
    return str(folder / "train.csv"), str(folder / "test.csv")


def numbers(folder: Path) -> tuple[str, str]:
    """The same of 60 numbers whose spectrum falls."""
    X, y = made_up.table(24_000, 60, 0)
    return kept(folder, X, y, 16_000)


def few(folder: Path) -> tuple[str, str]:
    """The same of six categories, with 6,000 rows to learn from."""
    X, y = made_up.coded([f"{k // 8}={k % 8}" for k in range(48)], 14_000, 0, 1)
    return kept(folder, X, y, 6_000)


# Tables that are nearly separable: rows to learn from, numbers, how fast their spread falls, what they have in common,
# how much more directions of little spread tell, spread of the scores, and the margin around zero that has no rows.
APART = {
    "easy": (6_000, 20, 1.0, 0.0, 0.0, 12.0, 0.0),
    "bright": (6_000, 200, 0.6, 1.2, 0.25, 10.0, 0.0),
    "clear": (6_000, 200, 0.6, 0.0, 0.25, 20.0, 4.0),
    "gap": (12_000, 60, 0.75, 0.0, 0.5, 10.0, 5.0),
}


def apart(folder: Path, name: str) -> tuple[str, str]:
    rows, columns, falls, common, tells, spread, margin = APART[name]
    rng, n = np.random.default_rng(1), rows + 4_000
    std = (1.0 + np.arange(columns)) ** -falls
    std /= np.linalg.norm(std)
    X = rng.random(columns) * std + rng.normal(size=(4 * n, columns)) * std + common / np.sqrt(columns)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    scores = (X - X.mean(axis=0)) @ (rng.normal(size=columns) * std**-tells)
    scores *= spread / scores.std()
    some = np.flatnonzero(np.abs(scores) >= margin)[:n]
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-scores[some])), 1.0, -1.0)
    return kept(folder, X[some], y, rows)


def kept(folder: Path, X: Array, y: Array, rows: int) -> tuple[str, str]:
    files = [str(folder / f"{part}.npz") for part in ("train", "test")]
    for file, some in zip(files, (slice(rows), slice(rows, None))):
        np.savez(file, X=X[some], y=y[some])
    return files[0], files[1]


MADE_UP: dict[str, Callable[[Path], tuple[str, str]]] = {
    "synthetic": synthetic,
    "numbers": numbers,
    "few": few,
    **{name: partial(apart, name=name) for name in APART},
}


def local_loss(models: Array, test: tuple[Array, Array]) -> float:
    X, y = test
    return float(np.logaddexp(0.0, -y[:, None] * (X @ models.T)).mean())


def measured(flags: dict, seeds: int, test: tuple[Array, Array]) -> tuple[list[float], radmm.Run]:
    runs = [radmm.solve("radmm", **{**flags, "seed": seed}) for seed in range(seeds)]
    return [local_loss(run.models, test) for run in runs], runs[0]


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", nargs="+", default=GRAPHS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--data",
        default="adult",
        help=f"adult, a file with its own test part, or made up: {', '.join(MADE_UP)}",
    )
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument(
        "--steps",
        nargs="+",
        type=int,
        help="powers of 2 beside the automatic penalty; default: until it rises",
    )
    parser.add_argument("--most", type=float, default=1.03)
    parser.add_argument("--out", default="penalty.csv")
    return parser.parse_args()


def main() -> int:
    options = asked()
    lines = begun(options.out)
    done = {(line[0], line[1]) for line in lines if line[3]}
    flags = {
        "data": options.data, "iterations": options.iterations, "adjacency": "replace", "rng": "simulation",
        "observe": "none",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        stated: tuple[str, ...] = ()
        if options.data in MADE_UP:
            flags["data"], flags["test_data"] = MADE_UP[options.data](Path(folder))
            if options.data == "synthetic":
                flags["schema"] = str(Path(folder) / "schema.toml")
            else:
                stated = ("bounds",)
                flags["stated"] = "bounds"
        shared = {k: flags[k] for k in ("test_data", "schema") if k in flags}
        source = open_source(flags["data"], **shared, stated=stated, clip=1.0)
        test = source.test()
        assert test is not None, "the table has no test rows"
        with open(options.out, "a", newline="", buffering=1) as file:
            table = csv.writer(file)
            for epsilon in options.epsilons:
                for graph in options.graphs:
                    if (graph, epsilon) in done:
                        continue
                    lines += (made := cell({**flags, "topology": graph, "epsilon": epsilon}, options, test))
                    table.writerows(made)
                    print(",".join(map(str, made[-1])), flush=True)
    return verdict(lines, options.most)


def begun(path: str) -> list[list]:
    """The lines that are there."""
    if not Path(path).is_file():
        Path(path).write_text("graph,epsilon,eta,chosen,loss,deviation,ratio\n")
    with open(path, newline="") as file:
        found = list(csv.reader(file))[1:]
    return [
        [graph, float(epsilon), eta, chosen == "True", *told] for graph, epsilon, eta, chosen, *told in found
    ]


def cell(flags: dict, options: argparse.Namespace, test: tuple[Array, Array]) -> list[list]:
    """Rows of one graph and epsilon, the chosen penalty last."""
    found, first = measured(flags, options.seeds, test)
    eta, words = first.summary["penalty"], first.summary["choice"]
    power = words.partition("weights t^")[2].partition(",")[0] or "last"
    rounds = next((part.split()[0] for part in words.split(", ") if "mixing" in part), "0")
    tried: dict[int, list[float]] = {}

    def worth(step: int) -> float:
        at = {**flags, "eta": repr(eta * 2.0**step), "average": power, "mixing": rounds}
        try:
            tried[step] = measured(at, options.seeds, test)[0]
        except InputError:  # the budget is out of reach there
            return np.inf
        return float(np.mean(tried[step]))

    for step in options.steps or ():
        worth(step)
    for way in () if options.steps else (-1, 1):
        before = float(np.mean(found))
        for far in range(1, FARTHEST + 1):
            if (here := worth(way * far)) > before:
                break
            before = here
    best = min(np.mean(each) for each in [found, *tried.values()])
    rows = [(2.0**step * eta, False, each) for step, each in tried.items()] + [(eta, True, found)]
    return [
        [flags["topology"], flags["epsilon"], f"{at:.4g}", chosen, f"{np.mean(each):.4f}", f"{np.std(each):.4f}",
         f"{np.mean(each) / best:.3f}"]
        for at, chosen, each in rows
    ]  # fmt: skip


def verdict(lines: list[list], most: float) -> int:
    """What is too far from the best of its grid, and what is worse at a larger budget by more than its deviation."""
    chosen = sorted((line for line in lines if line[3]), key=lambda line: (line[0], line[1]))
    far = [line for line in chosen if float(line[6]) > most]
    rising = [
        (one, two)
        for one, two in pairwise(chosen)
        if one[0] == two[0] and float(two[4]) > float(one[4]) + 2 * (float(one[5]) + float(two[5]))
    ]
    print(
        f"largest ratio {max(float(line[6]) for line in chosen):.3f}; above {most}: {len(far)}; rising: {len(rising)}"
    )
    return 1 if far or rising else 0


if __name__ == "__main__":
    sys.exit(main())
