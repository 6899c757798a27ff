"""The setting of the consensus benchmarks: data, graph, and how far every node is from the pooled optimum.

Synthetic: d = 105, 2000 rows of norm one a node, each node with its own mean of the features, mean logistic
loss + 1e-3/2 |x|^2; connected G(5, .5), and G(20, .3) with 51 edges.  Adult: the bundled rows, C = 1750 and
rho = 0.22 of the R-ADMM paper.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

Array = np.ndarray
D, ROWS, RIDGE = 105, 2000, 1e-3


def rows_of(node: int, seed: int = 0, rows: int = ROWS, d: int = D) -> tuple[Array, Array]:
    """X (norm one) and y (-1, +1) of one node."""
    truth = np.random.default_rng([seed, 99]).normal(size=d)
    rng = np.random.default_rng([seed, node])
    X = rng.normal(size=(rows, d)) + rng.normal(size=d)
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(-3.0 * X @ truth)), 1.0, -1.0)
    return X, y


def random_graph(n: int, p: float, edges: int | None = None) -> list[tuple[int, int]]:
    """The first connected G(n, p) by seed, with exactly so many `edges` if asked for."""
    for seed in range(10_000):
        rng = np.random.default_rng(seed)
        found = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < p]
        if _connected(n, found) and edges in (None, len(found)):
            return found
    raise AssertionError("no such graph")


def _connected(n: int, edges: list[tuple[int, int]]) -> bool:
    reach = np.eye(n, dtype=int)
    for i, j in edges:
        reach[i, j] = reach[j, i] = 1
    return bool((np.linalg.matrix_power(reach, n) > 0).all())


def graph(n: int) -> list[tuple[int, int]]:
    return random_graph(5, 0.5) if n == 5 else random_graph(20, 0.3, 51)


def write(folder: Path, n: int, seed: int = 0) -> dict[str, object]:
    """Write one file a node and the graph; the flags that make the product run on them."""
    for i in range(n):
        X, y = rows_of(i, seed)
        np.savez(folder / f"shard-{i}.npz", X=X, y=y)
    (folder / "graph.edgelist").write_text("".join(f"{i} {j}\n" for i, j in graph(n)))
    return {
        "data": str(folder / "shard-{node}.npz"),
        "topology": str(folder / "graph.edgelist"),
        "weight": 1.0,
        "rho": RIDGE * n,
    }


class Pooled:
    """F(x) = sum_i O_i(x) of all nodes, its optimum, and the worst node's relative gap."""

    def __init__(self, signed: list[Array], ridge: float = RIDGE, weight: float = 1.0):
        self.A = np.vstack(signed)
        self.w = np.concatenate([np.full(len(A), weight / len(A)) for A in signed])
        self.ridge = ridge * len(signed)
        self.best = self.value(self.optimum())

    def value(self, x: Array) -> float:
        return float(self.w @ np.logaddexp(0.0, -(self.A @ x)) + 0.5 * self.ridge * x @ x)

    def optimum(self) -> Array:
        x = np.zeros(self.A.shape[1])
        for _ in range(100):
            sigma = 1 / (1 + np.exp(self.A @ x))
            g = self.ridge * x - self.A.T @ (self.w * sigma)
            if np.linalg.norm(g) < 1e-12 * max(1.0, self.w.sum()):
                break
            H = (self.A * (self.w * sigma * (1 - sigma))[:, None]).T @ self.A + self.ridge * np.eye(len(x))
            x = x - np.linalg.solve(H, g)
        return x

    def worst_gap(self, models: Array) -> float:
        return max(self.value(x) for x in models) / self.best - 1.0


# Otherwise glibc takes the pages of large arrays from the system and gives them back, in every step at first: the
# floor, which makes such arrays, then takes half as long again, until something else has raised the thresholds.
_KEEP_PAGES = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}


def ranks_or_launch(n: int, argv: list[str]) -> bool:
    """True on a rank of a job of n; otherwise launch such a job of this very script and leave with its code."""
    import os
    import subprocess
    import sys

    if "PMI_RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ:
        return True
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", str(n), sys.executable, *argv]
    raise SystemExit(subprocess.run(command, env={**os.environ, **_KEEP_PAGES}).returncode)
