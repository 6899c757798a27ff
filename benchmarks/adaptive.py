# ruff: noqa: E402 - threads are set before numpy is imported
"""Self-tuned ADMM beside plain ADMM at its best penalty; and whether over-relaxation helps under noise.

    python benchmarks/adaptive.py [--part suite|real|peers|noise|all] [--quick] [--out FILE]

suite: iterations until the worst node's relative gap is below 1e-3 and 1e-6, on 46 instances.  `r1`, `full` and
`public` choose by themselves (full sends one message more, r1 too, or two in a network with leaves, counted here);
plain ADMM gets the best of a grid of penalties, for each instance and each gap on its own.  26 instances have the data
of `consensus_setting`, 20 others: five each with nine of ten rows of one label, with sizes 9 to 1, with scaled
features, and all of that at once.  No seed of it was used in choosing the constants of r1 and public.
real: the same counts on bundled tables (Adult, a9a, breast cancer) with the flags' defaults, rows dealt at random,
label-skewed (about nine of ten rows of a node have one label) and one class a node.
peers: the same counts in the setting of `consensus_setting`, 2000 rows a node, over seeds of data and graph.
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
from itertools import count
from pathlib import Path
from typing import Any

import consensus_setting as setting
import numpy as np

from distadmm.algorithm import Facts, Node
from distadmm.data.source import open_source
from distadmm.data.table import dense
from distadmm.graphs import topology
from distadmm.graphs.facts import mu, theta_pinned
from distadmm.methods.consensus.admm import ADMM
from distadmm.methods.consensus.tuned import leaves_matter
from distadmm.privacy.noise.release import Unprotected
from distadmm.problems.consensus import GeneralisedLinear, Problem
from distadmm.problems.losses import Logistic
from distadmm.ranks.graph_network import Network, Roster
from distadmm.ranks.tree import Tree

Array = np.ndarray
GAPS = (1e-3, 1e-6)
GRID = 0.35 * np.array([0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0])  # times sqrt(theta*) curvature / V
MOST = 130
C, RHO = 1750.0, 0.22  # the flags' defaults, of the R-ADMM paper
DEALS = ("at random", "label-skewed", "one class a node")
REAL = (  # table, graph, deals
    ("adult", "er20", DEALS),
    ("adult", "er5", DEALS[:2]),
    ("a9a", "er20", DEALS[:2]),
    ("tiny", "er:8:p=0.4:seed=1", DEALS[:2]),
)

# (family, graphs of the unchanged data, graphs of changed data)
FAMILIES = (
    (
        "ER N=5",
        [f"er:5:p=0.5:seed={s}" for s in range(51, 56)],
        [f"er:5:p=0.5:seed={s}" for s in (61, 62, 63)],
    ),
    (
        "ER N=10-30",
        [
            *("er:10:p=0.4:seed=51", "er:12:p=0.35:seed=52", "er:15:p=0.3:seed=53", "er:30:p=0.15:seed=54"),
            *(f"er:20:p=0.3:seed={s}" for s in range(55, 59)),
        ],
        [
            *("er:10:p=0.4:seed=61", "er:12:p=0.35:seed=62", "er:15:p=0.3:seed=63", "er:20:p=0.3:seed=64"),
            *("er:10:p=0.4:seed=65", "er:30:p=0.15:seed=66"),
        ],
    ),
    ("star", ["star:5", "star:10", "star:20"], ["star:8", "star:12", "star:16"]),
    (
        "grid",
        ["grid:2x3", "grid:3x3", "grid:3x4", "grid:4x4", "grid:4x5"],
        ["grid:3x3", "grid:2x5", "grid:3x4", "grid:4x4"],
    ),
    ("complete", ["complete:8"], ["complete:12"]),
    ("ring", ["ring:5", "ring:8", "ring:12", "ring:20"], ["ring:6", "ring:10", "ring:14"]),
)
CHANGES = ("label-skewed", "unequal sizes", "ill-scaled features", "all three")
QUICK = (  # graph, change; data of seed 3
    *(("ER N=5", f"er:5:p=0.5:seed={s}", "") for s in (1, 2)),
    ("ER N=10-30", "er:20:p=0.3:seed=1", ""),
    ("ER N=10-30", "er:10:p=0.4:seed=3", ""),
    *(("star", f"star:{n}", "") for n in (5, 12)),
    *(("grid", f"grid:{size}", "") for size in ("3x4", "4x5")),
    ("complete", "complete:8", ""),
    *(("ring", f"ring:{n}", "") for n in (8, 20)),
    *(("ER N=10-30", "er:10:p=0.4:seed=3", change) for change in CHANGES[:3]),
)
GOALS = {  # of `peers`, counting set-up messages
    5: {"r1": (7, 17), "public": (8, 21)},
    20: {"r1": (10, 20), "public": (11, 28)},
}


def instances(quick: bool) -> list[tuple[str, str, str, int, int]]:
    """(family, graph, change of the data, seed, rows a node)."""
    if quick:
        return [(*instance, 3, 400) for instance in QUICK]
    listed = [(family, spec, "") for family, graphs, _ in FAMILIES for spec in graphs]
    changed = [(family, spec) for family, _, graphs in FAMILIES for spec in graphs]
    listed += [(*graph, CHANGES[i % len(CHANGES)]) for i, graph in enumerate(changed)]
    return [(*instance, 1000 + i, 800) for i, instance in enumerate(listed)]


def rows_of(i: int, change: str, seed: int, rows: int) -> tuple[Array, Array]:
    skewed, unequal, scaled = (change in (name, CHANGES[3]) for name in CHANGES[:3])
    if unequal:
        rows = rows // 3 if i % 2 else rows * 3
    X, y = setting.rows_of(i, seed, 2 * rows if skewed else rows)
    if skewed:  # nine of ten rows of a node have one label
        order = np.argsort(y * (1 if i % 2 else -1), kind="stable")
        keep = np.concatenate([order[: int(0.9 * rows)], order[len(order) - (rows - int(0.9 * rows)) :]])
        X, y = X[keep], y[keep]
    if scaled:
        X = X * np.logspace(0, -1.5, X.shape[1])
        X /= np.linalg.norm(X, axis=1)[:, None]
    return X, y


def node_of(graph: Any, objectives: list[Any], ridge: float, weight: float) -> Node:
    network = Network(Roster.alone(graph.indptr, graph.indices))
    facts = Facts(graph.n, np.diff(graph.indptr), mu(graph), weight, ridge, 0.25, theta_pinned(graph))
    problem = Problem(objectives, tolerance=1e-9)
    start = np.zeros((graph.n, problem.dimension))
    table = {"eta": None, "eta_growth": None}
    return Node(network, problem, Unprotected(), facts, start, table, Tree(network))


def dealt(name: str, n: int, deal: str) -> list[tuple[Array, Array]]:
    """The training rows of a bundled table, a part a node."""
    source = open_source(name)
    parts = [(dense(X), y) for X, y in (source.node(i, n) for i in range(n))]
    if deal == DEALS[0]:
        return parts
    X, y = (np.concatenate(part) for part in zip(*parts))
    rng = np.random.default_rng(0)
    label = np.where(rng.random(len(y)) < (0.2 if deal == DEALS[1] else 0.0), rng.permutation(y), y)
    return [(X[rows], y[rows]) for rows in np.array_split(np.argsort(label, kind="stable"), n)]


def instance(
    graph: Any, change: str, seed: int, rows: int
) -> tuple[Callable[[], Node], Callable[[Array], float]]:
    """Fresh nodes of the instance, and the worst node's relative gap."""
    return posed(graph, [rows_of(i, change, seed, rows) for i in range(graph.n)], setting.RIDGE, 1.0)


def posed(
    graph: Any, data: list[tuple[Array, Array]], ridge: float, weight: float
) -> tuple[Callable[[], Node], Callable[[Array], float]]:
    """The same of these rows."""

    def fresh() -> Node:
        made = [GeneralisedLinear(X, y, Logistic(), weight=weight, ridge=ridge) for X, y in data]
        return node_of(graph, made, ridge, weight)

    pooled = setting.Pooled([X * y[:, None] for X, y in data], ridge, weight)

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


def plain(fresh: Callable[[], Node], worst: Callable[[Array], float], most: int) -> list[float]:
    """Best counts over the grid, for each gap on its own."""
    best = [float(most)] * len(GAPS)
    for factor in GRID:
        node = fresh()
        facts = node.facts
        curvature = np.sqrt(facts.ridge * (facts.ridge + facts.weight * facts.max_curvature))
        eta = factor * (1 - facts.mu**2) ** -0.25 * curvature / np.mean(facts.degrees)
        node.table["eta"] = np.full(facts.n_nodes, eta)
        found = counts(ADMM(eta=str(eta), tune=False), node, worst, int(best[-1]))
        best = [min(b, f) for b, f in zip(best, found)]
    return best


def arms(
    fresh: Callable[[], Node], worst: Callable[[Array], float], most: int = MOST
) -> dict[str, list[float]]:
    """Counts of every arm, with what it sends beforehand."""
    node = fresh()
    setup = {"r1": 1 + leaves_matter(node.facts), "full": 1, "public": 0}
    found = {
        name: [k + sent for k in counts(ADMM(tune=True, metric=name), fresh(), worst, most)]
        for name, sent in setup.items()
    }
    return {**found, "plain": plain(fresh, worst, most)}


def cell(values: Any) -> str:
    return "{:.0f} / {:.0f}".format(*values)


def suite(quick: bool) -> list[dict[str, Any]]:
    print(
        "\niterations to 1e-3 / 1e-6\n\n| graph | data | r1 | full | public | plain, best penalty |"
        "\n|---|---|---|---|---|---|"
    )
    found = []
    for family, spec, change, seed, rows in instances(quick):
        of = arms(*instance(topology.load(spec), change, seed, rows))
        found.append({"family": family, "graph": spec, "change": change, "seed": seed, **of})
        print(f"| {spec} | {change or 'as they are'} | {' | '.join(map(cell, of.values()))} |", flush=True)
    print(
        "\nmedian and worst\n\n| family (instances) | plain, best penalty | public | full | r1 |\n|---|---|---|---|---|"
    )
    for name in (*dict.fromkeys(row["family"] for row in found), *CHANGES, "all"):
        rows_there = [row for row in found if name in (row["family"], row["change"], "all")]
        if rows_there:
            columns = [
                np.array([row[arm] for row in rows_there]) for arm in ("plain", "public", "full", "r1")
            ]
            told = [f"{cell(np.median(c, axis=0))}; {cell(c.max(axis=0))}" for c in columns]
            print(f"| {name} ({len(rows_there)}) | {' | '.join(told)} |")
    for arm in ("r1", "full", "public"):
        slower = [
            " ".join((r["graph"], r["change"])).strip()
            for r in found
            if any(x > y for x, y in zip(r[arm], r["plain"]))
        ]
        print(f"\n{arm} slower than plain ADMM at its best penalty on: {', '.join(slower) or 'none'}")
    return found


def real(quick: bool) -> list[dict[str, Any]]:
    print(
        "\niterations to 1e-3 / 1e-6\n\n| table | graph | rows | r1 | full | public | plain, best penalty |\n"
        "|---|---|---|---|---|---|---|"
    )
    found = []
    for table, spec, deals in REAL[::3] if quick else REAL:
        graph = topology.load(spec)
        for deal in deals:
            of = arms(*posed(graph, dealt(table, graph.n, deal), RHO / graph.n, C), 3 * MOST)
            found.append({"table": table, "graph": spec, "deal": deal, **of})
            print(f"| {table} | {spec} | {deal} | {' | '.join(map(cell, of.values()))} |", flush=True)
    return found


def peers_graph(n: int, seed: int) -> topology.Topology:
    """G(5, .5), or G(20, .3) with 51 edges; seed 0 is the graph (and has the data) of the other benchmarks."""
    if seed == 0:
        return topology.from_edges(n, setting.graph(n))
    if n == 5:
        return topology.load(f"er:5:p=0.5:seed={2000 + seed}")
    drawn = (topology.load(f"er:20:p=0.3:seed={s}") for s in count(1000 * (2 + seed)))
    return next(graph for graph in drawn if len(graph.edges) == 51)


def peers(quick: bool) -> list[dict[str, Any]]:
    found = []
    for n, seeds in ((5, 4 if quick else 24), (20, 2 if quick else 12)):
        print(
            f"\nN = {n}: iterations to 1e-3 / 1e-6\n\n| seed | r1 | full | public | plain |\n|---|---|---|---|---|"
        )
        for seed in range(seeds):
            data_seed = 2000 + seed if seed else 0
            of = arms(*instance(peers_graph(n, seed), "", data_seed, setting.ROWS))
            found.append({"nodes": n, "seed": seed, **of})
            print(f"| {seed} | {' | '.join(map(cell, of.values()))} |", flush=True)
        for arm, goal in GOALS[n].items():
            of_arm = np.array([row[arm] for row in found if row["nodes"] == n])
            met = np.mean(of_arm <= goal, axis=0)
            print(
                f"\n{arm}: median {cell(np.median(of_arm, axis=0))}, worst {cell(of_arm.max(axis=0))}; goal "
                f"{cell(goal)}, met by {100 * met[0]:.0f} % / {100 * met[1]:.0f} % of the seeds"
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
    print(
        "\naverage loss of the mean model\n\n"
        "| | noise | eta, solves | a = 1 | 1.3 | 1.6 | 1.9 |\n|---|---|---|---|---|---|---|"
    )
    graph, data = topology.load("er5"), dealt("adult", 5, DEALS[0])
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
                            GeneralisedLinear(X, y, Logistic(), weight=C, ridge=RHO / 5) for X, y in data
                        ]
                        node = node_of(graph, objectives, RHO / 5, C)
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
    parser.add_argument("--part", default="all", choices=("suite", "real", "peers", "noise", "all"))
    parser.add_argument("--quick", action="store_true", help="14 instances, fewer seeds and noise levels")
    parser.add_argument("--out", help="also write the figures as JSON")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name, part in (("suite", suite), ("real", real), ("peers", peers), ("noise", under_noise)):
        if options.part in (name, "all"):
            found[name] = part(options.quick)
    if options.out:
        Path(options.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
