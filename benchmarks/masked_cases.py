# ruff: noqa: E402 - threads are set before numpy is imported
"""Masked sums where columns are thousands, and where targets are numbers: what the rule makes of Adult.

    python benchmarks/masked_cases.py [--seeds 5]

wide    Adult with all pairs of categories of two attributes: 105 + 3,745 = 3,850 columns; test log loss
age     age from the other 104 columns, squared loss, targets in [-1, 1] for 17 to 90 years; test mean squared error

The package's own rows, rule and learner on the pooled rows, under Gaussian noise of the sums' variances: as under
`--trust coalition:0`, where the deal of rows changes nothing.  Adjacency replace, delta 1e-5.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import itertools
from typing import Any

import numpy as np

from distadmm.data.source import open_source
from distadmm.methods.masked.learner import Learner
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import choose, diagonal
from distadmm.privacy.accounting.gaussian import mu_at

Array = np.ndarray


def adult() -> tuple[list[str], list[tuple[Array, Array]]]:
    """Names of the columns; rows as they were before they were brought to norm 1, and labels: training, then test."""
    source = open_source("adult")
    dealt = [source.node(i, 20) for i in range(20)]
    both = [(np.concatenate([X for X, _ in dealt]), np.concatenate([y for _, y in dealt])), source.test()]
    names = list(source.feature_names)
    one_hot = [at for at, name in enumerate(names) if "=" in name]
    return names, [(X / X[:, one_hot].max(axis=1, keepdims=True), y) for X, y in both]


def unit(X: Array) -> Array:
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))


def wide() -> tuple[list[tuple[Array, Array]], str]:
    names, parts = adult()
    attribute = [name.split("=")[0] if "=" in name else "" for name in names]
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(names)), 2)
        if attribute[i] and attribute[j] and attribute[i] != attribute[j]
    ]
    left, right = (np.array(side) for side in zip(*pairs))
    return [(unit(np.hstack([X, X[:, left] * X[:, right]])), y) for X, y in parts], "logistic"


def age() -> tuple[list[tuple[Array, Array]], str]:
    names, parts = adult()
    at = names.index("age")
    return [(unit(np.delete(X, at, axis=1)), 2 * X[:, at] - 1) for X, _ in parts], "squared"


def learnt(rows: Rows, rule: Any, stream: np.random.Generator) -> Array:
    learner = Learner(rule)
    while not learner.done:
        ask = learner.ask()
        noise = rule.sd(ask.kind, ask.t) * stream.normal(size=ask.words)
        if ask.kind == "curvature":
            noise[~diagonal(rule.columns)] /= np.sqrt(2)
        learner.take(rows_sum(rows, ask, learner, None) * 4.0**-rule.bits + noise, rule.nodes)
    return learner.model()[:, 0]


def score(loss: str, f: Array, X: Array, y: Array) -> float:
    z = X @ f
    return float(np.mean((z - y) ** 2) if loss == "squared" else np.mean(np.logaddexp(0, -y * z)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    for made in (age, wide):
        ((X, y), test), loss = made()
        print(f"{made.__name__}: {len(y)} rows of {X.shape[1]} columns, {loss}", flush=True)
        for epsilon in (0.5, 1.0, 2.0):
            rule = choose(
                name="centred", loss=loss, adjacency="replace", nodes=20, colluding=0, rows=len(y),
                columns=X.shape[1], mu=mu_at(epsilon, 1e-5),
            )  # fmt: skip
            labels = loss == "logistic"
            rows = Rows(X * y[:, None] if labels else X, np.ones(len(y)) if labels else y, rule, rule.bits)
            found = [
                score(loss, learnt(rows, rule, np.random.default_rng(seed)), *test) for seed in range(seeds)
            ]
            print(f"  epsilon {epsilon:g}: {np.mean(found):.4f} +- {np.std(found):.4f}", flush=True)


if __name__ == "__main__":
    main()
