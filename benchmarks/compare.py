"""Whether forecasts order private methods as real tables do.

    python benchmarks/compare.py --tables adult a9a --graphs ring:16 complete:16 --trusts any coalition:1 --seeds 3

For each table, graph, budget and trust every method runs on the rows, and on made-up tables of the same shape: that
is its forecast, as `python -m distadmm compare` has it.  Of the pairs of methods whose 95 % intervals of the nodes'
own test loss do not overlap, it counts those that the forecast orders right; exit code 1 below --least.  `digits` is
the table of scikit-learn: is a digit 5 or more, its last 500 rows for testing.  A file .npz of 28 x 28 images (`img`)
of two digits (`digit`) is a table as well: their pixels, four in one, the last 1000 for testing.  --rows-per-node takes
a part of each table, and forecasts that many rows.  What stands in --out already is not run again.
"""

import argparse
import csv
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from distadmm import radmm
from distadmm.algorithm import find
from distadmm.commands.compare import FORECASTS, Line, make_up
from distadmm.data.source import open_source
from distadmm.errors import InputError
from distadmm.flags import fields_of
from distadmm.graphs.topology import load
from distadmm.methods.forecasts import interval

METHODS = ["radmm", "gossip", "preconditioned", "masked", "fixed-point"]
HEAD = ["table", "graph", "epsilon", "trust", "method", "loss", "half", "forecast", "forecast half"]


def digits(folder: Path) -> dict[str, str]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X, y = X / np.linalg.norm(X, axis=1, keepdims=True), np.where(y >= 5, 1.0, -1.0)
    for name, part in (("train", slice(-500)), ("test", slice(-500, None))):
        np.savez(folder / f"{name}.npz", X=X[part], y=y[part])
    return {"data": str(folder / "train.npz"), "test_data": str(folder / "test.npz")}


def images(path: str, folder: Path) -> dict[str, str]:
    with np.load(path) as file:
        X, digit = file["img"].reshape(-1, 14, 2, 14, 2).sum(axis=(2, 4), dtype=float), file["digit"]
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X.reshape(len(X), -1)[order], np.where(digit == digit.max(), 1.0, -1.0)[order]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for name, part in (("train", slice(-1000)), ("test", slice(-1000, None))):
        np.savez(folder / f"images-{name}.npz", X=X[part], y=y[part])
    return {"data": str(folder / "images-train.npz"), "test_data": str(folder / "images-test.npz")}


def made_up(rows: dict[str, str], folder: Path, most: int | None) -> list[dict[str, str]]:
    source = open_source(
        rows["data"], **({"test_data": rows["test_data"]} if "test_data" in rows else {}), clip=1.0
    )
    n, d = min(int(source.n_rows or 0), most or 10**9), source.n_features
    parts = ("data", "test_data")
    tables = [{name: folder / f"{n}x{d}-{run}-{name}.npz" for name in parts} for run in range(FORECASTS)]
    make_up(tables, n, d)
    return [{name: str(path) for name, path in table.items()} for table in tables]


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="+", default=["adult", "a9a", "digits"])
    parser.add_argument("--graphs", nargs="+", default=["ring:16", "er20", "complete:16"])
    parser.add_argument("--trusts", nargs="+", default=["any", "coalition:1", "coalition:5"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--rows-per-node", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--least", type=float, default=0.9)
    parser.add_argument("--out", default="compare.csv")
    return parser.parse_args()


def line(method: str, rows: Sequence[dict[str, str]], **flags: Any) -> Line:
    """Runs of one method, one on the rows of each seed; none where it refuses."""
    found, flags = [], {**flags, "adjacency": "replace", "rng": "simulation", "observe": "none"}
    for seed, its in enumerate(rows):
        try:
            run = radmm.solve(method, seed=seed, **its, **flags)
        except InputError as error:
            print(f"{method}: {error}", file=sys.stderr)
            break
        found.append(run.summary)
    return Line(method, found)


def case_of(table: str, graph: str, epsilon: float, trust: str, method: str) -> tuple[Any, ...]:
    """What the runs of a line depend on."""
    own = {"trust": trust} if "trust" in fields_of(find(method).cls) else {}
    same = getattr(find(method).cls, "tree", False)  # the same bits on every graph
    return table, load(graph).n if same else graph, epsilon, method, *own.values()


def begun(path: str) -> list[list[Any]]:
    """The lines that are there."""
    if not Path(path).is_file():
        Path(path).write_text(",".join(HEAD) + "\n")
    with open(path, newline="") as file:
        found = list(csv.reader(file))[1:]
    return [[a, b, float(c), d, e, *map(float, told)] for a, b, c, d, e, *told in found]


def main() -> int:
    options = asked()
    rows = begun(options.out)
    known = {case_of(*row[:5]): row[5:] for row in rows}
    done = {tuple(row[:5]) for row in rows}
    with tempfile.TemporaryDirectory() as name, open(options.out, "a", newline="", buffering=1) as file:
        writer, folder = csv.writer(file), Path(name)
        for table in options.tables:
            real = digits(folder) if table == "digits" else {"data": table}
            real = images(table, folder) if table.endswith(".npz") else real
            table, each = Path(table).stem, options.rows_per_node
            for graph in options.graphs:
                nodes = load(graph).n
                guess = made_up(real, folder, each and each * nodes)
                for epsilon in options.epsilons:
                    for trust in options.trusts:
                        for method in options.methods:
                            if (table, graph, epsilon, trust, method) in done:
                                continue
                            case = case_of(table, graph, epsilon, trust, method)
                            if case not in known:
                                own = {"trust": trust} if "trust" in fields_of(find(method).cls) else {}
                                flags = {"topology": graph, "epsilon": epsilon, **own}
                                made = line(method, [real] * options.seeds, **flags, rows_per_node=each)
                                of_guess = line(method, guess, **flags)
                                told = [*interval(made.of("test_loss")), *interval(of_guess.of("test_loss"))]
                                known[case] = told
                            told = known[case]
                            rows.append([table, graph, epsilon, trust, method, *told])
                            writer.writerow([*rows[-1][:5], *(f"{value:.4f}" for value in told)])
                            print(
                                ",".join(map(str, rows[-1][:5])),
                                *(f"{value:.4f}" for value in told),
                                flush=True,
                            )
    return verdict(rows, options.least)


def verdict(rows: list[list[Any]], least: float) -> int:
    apart, right = 0, 0
    for one, two in combinations(rows, 2):
        if one[:4] != two[:4] or not abs(one[5] - two[5]) > one[6] + two[6]:
            continue
        apart += 1
        agrees = (one[5] - two[5]) * (one[7] - two[7]) > 0
        right += agrees
        if not agrees:
            print(
                "wrong:",
                *one[:4],
                f"{one[4]} {one[5]:.4f}, {two[4]} {two[5]:.4f}; forecast {one[7]:.4f}, {two[7]:.4f}",
            )
    print(f"{right} of {apart} pairs that can be told apart are ordered right")
    return 0 if apart and right >= least * apart else 1


if __name__ == "__main__":
    sys.exit(main())
