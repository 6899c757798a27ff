# ruff: noqa: E402 - threads are set before numpy is imported
"""Self-tuned ADMM beside plain ADMM at its best penalty; and whether over-relaxation helps under noise.

    python benchmarks/adaptive.py [--part suite|noise|all] [--quick] [--out FILE]

suite: iterations until the worst node's relative gap is below 1e-3 and 1e-6.  `r1` and `public` choose by
themselves (r1 sends one message more, counted here); plain ADMM gets the best of a grid of penalties, for
each instance and each gap on its own.
noise: Adult, N = 5, the same gamma noise in every solve; the mean model's average loss after K solves, for
relaxations a from 1 (the paper's ADMM and R-ADMM) to 1.9.  Equal noise costs equal privacy.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import consensus_setting as setting
import numpy as np

from distadmm import topology
from distadmm.algorithm import Facts, Node
from distadmm.data import open_source
from distadmm.losses import Logistic
from distadmm.methods.consensus.admm import ADMM
from distadmm.methods.graphs.facts import mu
from distadmm.network import Network, split
from distadmm.privacy.release import Unprotected
from distadmm.problem import GeneralisedLinear, Problem

Array = np.ndarray
GAPS = (1e-3, 1e-6)
GRID = 0.35 * np.array([0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0])  # times sqrt(theta*) curvature / V
MOST = 130

# (family, graph, change of the data)
INSTANCES = (
    ("ER N=5", "er:5:p=0.5:seed=1", ""),
    ("ER N=5", "er:5:p=0.5:seed=2", ""),
    ("ER N=20", "er:20:p=0.3:seed=1", ""),
    ("ER N=10-20", "er:10:p=0.4:seed=3", ""),
    ("star", "star:5", ""),
    ("star", "star:12", ""),
    ("grid", "grid:3x4", ""),
    ("grid", "grid:4x5", ""),
    ("complete", "complete:8", ""),
    ("ring", "ring:8", ""),
    ("ring", "ring:20", ""),
    ("label-skewed", "er:10:p=0.4:seed=3", "skewed"),
    ("unequal sizes x10", "er:10:p=0.4:seed=3", "unequal"),
    ("ill-scaled features", "er:10:p=0.4:seed=3", "scaled"),
)


def rows_of(i: int, change: str, rows: int) -> tuple[Array, Array]:
    if change == "unequal":
        rows = rows // 3 if i % 2 else rows * 3
    X, y = setting.rows_of(i, 3, 2 * rows if change == "skewed" else rows)
    if change == "skewed":  # nine of ten rows of a node have one label
        order = np.argsort(y * (1 if i % 2 else -1), kind="stable")
        keep = np.concatenate([order[: int(0.9 * rows)], order[len(order) - (rows - int(0.9 * rows)) :]])
        X, y = X[keep], y[keep]
    if change == "scaled":
        X = X * np.logspace(0, -1.5, X.shape[1])
        X /= np.linalg.norm(X, axis=1)[:, None]
    return X, y


def node_of(graph: Any, objectives: list[Any], ridge: float, weight: float) -> Node:
    network = Network(split(graph.indptr, graph.indices, [np.arange(graph.n)])[0])
    facts = Facts(graph.n, np.diff(graph.indptr), mu(graph), weight, ridge, 0.25)
    problem = Problem(objectives, tolerance=1e-9)
    start = np.zeros((graph.n, problem.dimension))
    return Node(network, problem, Unprotected(), facts, start, {"eta": None, "eta_growth": None})


def instance(graph: Any, change: str, rows: int) -> tuple[Callable[[], Node], Callable[[Array], float]]:
    """Fresh nodes of the instance, and the worst node's relative gap."""
    data = [rows_of(i, change, rows) for i in range(graph.n)]

    def fresh() -> Node:
        made = [GeneralisedLinear(X, y, Logistic(), ridge=setting.RIDGE) for X, y in data]
        return node_of(graph, made, setting.RIDGE, 1.0)

    pooled = setting.Pooled([X * y[:, None] for X, y in data])

    def worst(models: Array) -> float:
        losses = pooled.w @ np.logaddexp(0.0, -(pooled.A @ models.T))
        values = losses + 0.5 * pooled.ridge * np.einsum("ij,ij->i", models, models)
        return float(values.max() / pooled.best - 1.0)

    return fresh, worst


def counts(algorithm: ADMM, node: Node, worst: Callable[[Array], float], most: int) -> list[float]:
    """Iterations to each gap; infinity where `most` are not enough."""
    state, found = algorithm.init(node), [np.inf] * len(GAPS)
    for k in range(1, most + 1):
        state = algorithm.step(k, state, node)
        gap = worst(state.f)
        for g, goal in enumerate(GAPS):
            if gap < goal and found[g] == np.inf:
                found[g] = k
        if gap < GAPS[-1] or not np.isfinite(gap):
            break
    return found


def plain(fresh: Callable[[], Node], worst: Callable[[Array], float]) -> list[float]:
    """Best counts over the grid, for each gap on its own."""
    best = [float(MOST)] * len(GAPS)
    for factor in GRID:
        node = fresh()
        facts = node.facts
        curvature = np.sqrt(facts.ridge * (facts.ridge + facts.weight * facts.max_curvature))
        eta = factor * (1 - facts.mu**2) ** -0.25 * curvature / np.mean(facts.degrees)
        node.table["eta"] = np.full(facts.n_nodes, eta)
        found = counts(ADMM(eta=str(eta), tune=False), node, worst, int(best[-1]))
        best = [min(b, f) for b, f in zip(best, found)]
    return best


def suite(quick: bool) -> list[dict[str, Any]]:
    found = []
    for family, spec, change in INSTANCES[::3] if quick else INSTANCES:
        graph = topology.load(spec)
        fresh, worst = instance(graph, change, 400)
        arms = {
            "r1": [k + 1 for k in counts(ADMM(tune=True, metric="r1"), fresh(), worst, MOST)],
            "public": counts(ADMM(tune=True, metric="public"), fresh(), worst, MOST),
            "plain": plain(fresh, worst),
        }
        found.append({"family": family, "graph": spec, **arms})
        print(
            "| {} | {} | {} |".format(
                family, spec, " | ".join("{:.0f} / {:.0f}".format(*a) for a in arms.values())
            ),
            flush=True,
        )
    return found


class Noisy(Unprotected):
    """The same gamma noise for every arm: of rate alpha, addressed by seed, solve and node."""

    def __init__(self, alpha: float, seed: int, n: int, d: int):
        super().__init__()
        self.alpha, self.seed, self.n, self.d = alpha, seed, n, d

    def noise(self, solve: int) -> Array:
        if not np.isfinite(self.alpha):
            return np.zeros((self.n, self.d))
        rng = np.random.default_rng([self.seed, solve])
        e = rng.normal(size=(self.n, self.d))
        return e / np.linalg.norm(e, axis=1)[:, None] * rng.gamma(self.d, 1 / self.alpha, size=(self.n, 1))


def relaxed(node: Node, noise: Noisy, eta: float, a: float, solves: int, gamma: float | None) -> Array:
    """Over-relaxed ADMM with M = 2 eta I; with `gamma`, every solve is followed by R-ADMM's recycled round.

    a = 1 is (8)-(9), or (18), (13), (19) with (11).  Recycled rounds keep the duals and move the pull G.
    """
    V, network = node.degree, node.network
    Q = 2 * eta * V
    f, L, G = node.start, np.zeros_like(node.start), np.zeros_like(node.start)
    for solve in range(solves):
        pull = L - G
        f = node.problem.argmin(pull + noise.noise(solve), Q, f)
        g = -(pull + Q * f)
        r = eta * (V * f - network.neighbour_sum(f))
        L, G = L + a * r, (1 - a) * G + a * (Q * f - r)
        if gamma is not None:
            f = f - (g + L - G + Q * f) / (Q + gamma)
            r = eta * (V * f - network.neighbour_sum(f))
            G = (1 - a) * G + a * (Q * f - r)
    return f


def under_noise(quick: bool) -> list[dict[str, Any]]:
    source, graph, C, rho = open_source("adult"), topology.load("er5"), 1750.0, 0.22
    data = [source.node(i, 5) for i in range(5)]
    rows = []
    X, y = (np.concatenate(part) for part in zip(*data))
    for recycle in (False, True):
        for alpha in (np.inf, 2.0, 0.5) if quick else (np.inf, 2.0, 1.0, 0.5):
            for eta, solves in ((0.5, 25), (2.0, 10)):
                losses = {}
                for a in (1.0, 1.3, 1.6, 1.9):
                    made = []
                    for seed in range(1 if alpha == np.inf else 3):
                        objectives = [
                            GeneralisedLinear(X, y, Logistic(), weight=C, ridge=rho / 5) for X, y in data
                        ]
                        node = node_of(graph, objectives, rho / 5, C)
                        noise = Noisy(alpha, seed, 5, 105)
                        f = relaxed(node, noise, eta, a, solves, 0.5 if recycle else None).mean(axis=0)
                        made.append(float(np.mean(np.logaddexp(0.0, -y * (X @ f)))))
                    losses[a] = float(np.mean(made))
                row = {"recycle": recycle, "alpha": alpha, "eta": eta, "solves": solves, "loss": losses}
                rows.append(row)
                name = "R-ADMM" if recycle else "ADMM"
                cells = " | ".join(f"{v:.4f}" for v in losses.values())
                print(
                    f"| {name} | {'none' if alpha == np.inf else f'alpha {alpha:g}'} | {eta:g}, {solves} | {cells} |",
                    flush=True,
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", default="all", choices=("suite", "noise", "all"))
    parser.add_argument("--quick", action="store_true", help="every third instance, fewer noise levels")
    parser.add_argument("--out", help="also write the figures as JSON")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.part != "noise":
        print(
            "\niterations to 1e-3 / 1e-6\n\n"
            "| family | graph | r1 | public | plain, best penalty |\n|---|---|---|---|---|"
        )
        found["suite"] = suite(options.quick)
        for name in ("r1", "public", "plain"):
            of = np.array([row[name] for row in found["suite"]])
            print(
                "{}: median {:.0f} / {:.0f}, worst {:.0f} / {:.0f}".format(
                    name, *np.median(of, axis=0), *of.max(axis=0)
                )
            )
        slower = [r["graph"] for r in found["suite"] if any(x > y for x, y in zip(r["r1"], r["plain"]))]
        print(f"slower than tuned plain ADMM on: {', '.join(slower) or 'none'}")
    if options.part != "suite":
        print(
            "\naverage loss of the mean model\n\n"
            "| | noise | eta, solves | a = 1 | 1.3 | 1.6 | 1.9 |\n|---|---|---|---|---|---|---|"
        )
        found["noise"] = under_noise(options.quick)
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
