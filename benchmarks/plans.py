# ruff: noqa: E402 - threads are set before numpy is imported
"""What `plan istdp` and `plan sharing` forecast, beside what the same plans cost on the rows themselves.

    python benchmarks/plans.py {istdp,sharing} [a9a adult FILE.npz ...] [--epsilon 1] [--public ROWS ...]

The private rows are read here, and only here: the plan is made before.  With --public it is made from so many of the
table's test rows (of a file: of every fifth row, which then is not among the private ones), with 0
from synthetic ones.  A file has X, y and names.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from distadmm.commands import plan_istdp, plan_public, plan_sharing
from distadmm.data.rows import load
from distadmm.problems.losses import Logistic
from distadmm.ranks.world import World

FEW = 5_000  # rows
Table = tuple[np.ndarray, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programme", choices=("istdp", "sharing"))
    parser.add_argument("tables", nargs="*", default=["a9a", "adult"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--public", type=int, nargs="+", default=[0], metavar="ROWS")
    asked = parser.parse_intermixed_args()
    for name in asked.tables:
        compare(asked.programme, name, asked.epsilon, asked.public)


def compare(programme: str, name: str, epsilon: float, counts: list[int]) -> None:
    private, public, names = read(name, 1.0 if programme == "istdp" else None)
    rows, columns = len(private[1]), len(names)
    given: dict[str, Any] = {"epsilon": epsilon, "adjacency": "replace", "rows": rows, "columns": columns}
    real: np.ndarray | None = None
    for most in counts:
        some = np.linspace(0, len(public[1]) - 1, min(most or 1, len(public[1]))).astype(int)
        told = public[0][some], public[1][some]  # all along the file: rows may stand in order of time
        print(f"{name}: {rows} rows, {columns} columns; public rows: {len(some) if most else 'none'}")
        given["public_data"] = name if most else None
        # The columns keep their names, of which a plan reads the attributes.
        with (
            patch.object(plan_istdp, "named_shape", lambda _: (rows, names)),
            patch.object(plan_sharing, "named_shape", lambda _: (rows, names)),
            patch.object(plan_public, "read", lambda *_, told=told: told),
        ):
            made = {"istdp": thresholding, "sharing": sharing}[programme](given, private, names, real)
        real = made


def read(name: str, norm: float | None) -> tuple[Table, Table, tuple[str, ...]]:
    """(private rows, public rows, names of the columns)."""
    if name.endswith(".npz"):
        with np.load(Path(name)) as held:
            X, y, names = held["X"].astype(float), np.where(held["y"] > 0, 1.0, -1.0), tuple(held["names"])
        if norm is not None:
            X = X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) / norm)
        apart = np.arange(len(y)) % 5 == 0
        return (X[~apart], y[~apart]), (X[apart], y[apart]), names
    found = load(name, loss=Logistic(), row_norm=norm, seed=0)
    assert found.test is not None
    (Z, u), signs = found.test, np.where(found.y > 0, 1.0, -1.0)
    return (found.X, signs), (Z, np.where(u > 0, 1.0, -1.0)), found.names


def thresholding(
    given: dict[str, Any], private: Table, names: tuple[str, ...], real: np.ndarray | None
) -> np.ndarray:
    """The mean losses measured on the private rows, once for all plans of them."""
    X, y = private
    found = plan_istdp.forecasts(plan_istdp.Options(**given), World()) or []
    least = plan_istdp.mean_loss(X, y, plan_istdp.best_model(X, y))
    if real is None:
        runs = plan_istdp.simulate(X, y, [one.of for one in found], (0, 1), len(seeds(y)))
        losses = [plan_istdp.mean_loss(X, y, f) for f in runs]
        real = np.mean(np.reshape(losses, (-1, len(found))), axis=0)
    said = [one.excess for one in found]
    words = [f"T {one.of.iterations:4d}  C {one.of.clip:<5g}" for one in found]
    at = int(np.argmin(said))
    table(words, said, real, least, at, int(np.argmin(real)))
    doubts(plan_istdp.Options(**given), found[at])
    return real


def seeds(y: np.ndarray) -> range:
    """Of the runs on the private rows: where rows are few their noise differs by more than plans do."""
    return range(3 if len(y) > FEW else 64)


def sharing(
    given: dict[str, Any], private: Table, names: tuple[str, ...], real: np.ndarray | None
) -> np.ndarray:
    X, y = private
    options = plan_sharing.Options(**given)
    found = plan_sharing.forecasts(options, World()) or []
    rows = plan_sharing.Table(options, X, y, names, (0, 1))
    least = plan_sharing.mean_loss(X, y, *rows.whole)
    if real is None:
        losses = [
            [plan_sharing.mean_loss(X, y, *rows.model(one.of, seed)) for seed in seeds(y)] for one in found
        ]
        real = np.mean(losses, axis=1)
    words = [f"{one.of.mechanism} {one.of.rounds}" if one.of else "alone" for one in found]
    within = [at for at, one in enumerate(found) if one.of is None or one.of.covered]
    best = min(within, key=lambda at: real[at])
    chosen = found.index(plan_sharing.chosen(found))
    table(words, [one.excess for one in found], real, least, chosen, best)
    doubts(options, found[chosen])
    return real


def doubts(options: Any, found: plan_istdp.Forecast) -> None:
    """What the plan says of itself."""
    how = plan_istdp.told(options, found)[1]
    print(f"  {how}", *plan_istdp.doubt(options, found), sep="\n  ", flush=True)


def table(
    words: list[str], forecast: list[float], real: np.ndarray, least: float, chosen: int, best: int
) -> None:
    print(f"  loss without noise {least:.4f}")
    for at, (plan, said, loss) in enumerate(zip(words, forecast, real)):
        mark = "  chosen" * (at == chosen) + "  best" * (at == best)
        excess = loss - least
        print(f"  {plan}  forecast {said:8.4f}  measured {excess:8.4f}  ({said / excess - 1:+.0%}){mark}")
    print(f"  the chosen one's loss is {real[chosen] / real[best] - 1:.1%} above the best's", flush=True)


if __name__ == "__main__":
    main()
