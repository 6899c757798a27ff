# ruff: noqa: E402 - threads are set before numpy is imported
"""Masked sums where columns are thousands, where targets are numbers, and whether the rule switches where it should.

    python benchmarks/masked_cases.py [--seeds 5] [--part cases|runs|switches|all] [--images FILE.npz]

wide    Adult with all pairs of categories of two attributes: 105 + 3,745 = 3,850 columns; test log loss
age     age from the other 104 columns, squared loss, targets in [-1, 1] for 17 to 90 years; test mean squared error

runs      whole runs on Adult, 20 nodes on er20 in one process, simulated noise: the first rule, which pays twice for a
gradient, with nodes that leave too, and labels alone; test log loss of the nodes' models

switches  tables on which no constant of the rule was chosen: bags of words (frequencies by Zipf's law, labels of a
random logistic model of a tenth of the words), and images as in `masked.py`.  What `choose` takes, beside the other
side of each of its switches: curvature or heavy ball, squares or none, half and twice the rounds of heavy ball.  Test
log loss; in the end what the best one would have spared, `=` where the chosen is the best.

The package's own rows, rule and learner on the pooled rows, under Gaussian noise of the sums' variances: as under
`--trust coalition:0`, where the deal of rows changes nothing.  Adjacency replace, delta 1e-5.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from distadmm import radmm
from distadmm.data.source import open_source
from distadmm.data.table import dense
from distadmm.methods.masked import masked
from distadmm.methods.masked import rows as by_row
from distadmm.methods.masked.learner import Learner
from distadmm.methods.masked.masked import rows_sum
from distadmm.methods.masked.rows import Rows
from distadmm.methods.masked.rule import Rule, choose, diagonal
from distadmm.privacy.accounting.gaussian import mu_at
from distadmm.privacy.noise import masks

Array = np.ndarray
WORDS = ((20_000, 200), (20_000, 400), (20_000, 600), (8_000, 1_500), (30_000, 3_000))
LEAVING = {7: 6}, {7: 1}, {7: 5, 11: 8}  # node: round; rounds 1 and 2 are squares and curvature
MOST_COMPARED = 800  # columns of which the curvature is tried


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


def words(n: int, d: int) -> list[tuple[Array, Array]]:
    """Training and test rows of norm 1: counts of d words in texts of some forty."""
    stream = np.random.default_rng((n, d))
    often = 1.0 / np.arange(1, d + 1)
    X = stream.poisson(40 * often / often.sum(), size=(n + 4000, d)).astype(float)
    X = unit(np.log1p(X) * 9)  # longer than 1, so that all come to norm 1
    w = stream.normal(size=d) * (stream.random(d) < 0.1) * np.sqrt(np.arange(1, d + 1))
    scores = X @ w
    scores = 2.5 * (scores - scores.mean()) / scores.std()
    y = np.where(stream.random(len(X)) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
    return [(X[:n], y[:n]), (X[n:], y[n:])]


def pixels(path: str, part: int) -> list[tuple[Array, Array]]:
    """Images of two digits, `part` x `part` pixels in one."""
    with np.load(path) as file:
        side = 28 // part
        X = file["img"].reshape(-1, side, part, side, part).sum(axis=(2, 4), dtype=float)
        digit = file["digit"]
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X.reshape(len(X), -1)[order], np.where(digit == digit.max(), 1.0, -1.0)[order]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return [(X[:-1000], y[:-1000]), (X[-1000:], y[-1000:])]


def others(rule: Rule) -> dict[str, Rule]:
    """The rule beside what it would be on the other side of each switch."""
    n, d, pull = rule.rows, rule.columns, rule.rows * rule.mu
    rounds = min(128, max(16, round(9 + 0.0067 * pull)))
    ball = {
        "q1": 0.0,
        "kappa": 0.0,
        "floor1": 0.0,
        "momentum": 0.9,
        "base": 1.02 * n / (8 * 1.9),
        "rounds": rounds,
    }
    gram = {"kappa": 0.72, "momentum": 0.0, "base": 0.0, "rounds": 12, "floor1": 12 / (1.25 * np.sqrt(d))}
    found = (
        {
            "curvature": replace(rule, **gram, q0=0.0, q1=3 / 19),
            "squares, curvature": replace(rule, **gram, q0=0.03, q1=0.12),
        }
        if d <= MOST_COMPARED
        else {}
    )
    found |= {"ball": replace(rule, **ball, q0=0.0), "squares, ball": replace(rule, **ball, q0=0.05)}
    if rule.momentum:
        name = "squares, ball" if rule.q0 else "ball"
        for times in (0.5, 2.0):
            found[f"{name}, x{times:g} rounds"] = replace(found[name], rounds=max(4, round(rounds * times)))
    return found


def switches(seeds: int, images: str | None) -> None:
    by_row.MOST_COLUMNS = MOST_COMPARED  # rows of more columns would be sparse, and have no curvature
    tables = {f"words {n} x {d}": words(n, d) for n, d in WORDS}
    if images:
        tables |= {f"images {(28 // part) ** 2}": pixels(images, part) for part in (2, 1)}
    for name, ((X, y), test) in tables.items():
        for epsilon in (0.25, 1.0, 4.0):
            rule = choose(
                name="centred", loss="logistic", adjacency="replace", nodes=20, colluding=0, rows=len(y),
                columns=X.shape[1], mu=mu_at(epsilon, 1e-5),
            )  # fmt: skip
            chosen = ("squares, " if rule.squares else "") + ("curvature" if rule.curvature else "ball")
            found = {}
            for arm, other in others(rule).items():
                rows = Rows(X * y[:, None], np.ones(len(y)), other, other.bits)
                lost = [
                    score("logistic", learnt(rows, other, np.random.default_rng(seed)), *test)
                    for seed in range(seeds)
                ]
                found[arm] = float(np.mean(lost))
            best = min(found, key=found.__getitem__)
            spared = "=" if best == chosen else f"{found[chosen] - found[best]:.4f} by {best}"
            told = ", ".join(f"{arm} {lost:.4f}" for arm, lost in found.items())
            z = rule.rows * rule.mu / rule.columns
            print(f"{name}, epsilon {epsilon:g} (z {z:.3g}): {chosen} | {told} | {spared}", flush=True)


def cases(seeds: int) -> None:
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


def runs(seeds: int) -> None:
    masks.pow = cache(pow)  # type: ignore[attr-defined]  # keys are those of the seed
    held = open_source("adult").test()
    assert held is not None
    X, y = held
    first = {"rule": "first", "adjacency": "replace"}
    tried: list[tuple[dict[str, Any], dict[int, int]]] = [
        ({**first, "epsilon": epsilon, "trust": f"coalition:{c}"}, {})
        for epsilon, c in ((1.0, 0), (1.0, 5), (1.0, 18), (0.1, 5), (4.0, 5))
    ]
    tried += [({**first, "epsilon": 1.0, "trust": "coalition:5"}, gone) for gone in LEAVING]
    tried += [
        ({"adjacency": "label", "epsilon": e, "trust": "coalition:0"}, {}) for e in (0.1, 0.25, 0.5, 1.0)
    ]
    for flags, gone in tried:
        masked.gone_at = lambda k, node, gone=gone: [i for i, at in gone.items() if k >= at]  # type: ignore[misc]
        found = []
        for seed in range(seeds):
            made = radmm.solve(
                "masked", topology="er20", rng="simulation", seed=seed, observe="none", **flags
            )
            assert made.models is not None
            found.append(score("logistic", made.models[0], dense(X), y))
        left = "".join(f", node {i} leaves in round {at}" for i, at in gone.items())
        told = ", ".join(str(value) for value in flags.values()) + left
        print(f"{told}: {np.mean(found):.4f} +- {np.std(found):.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", default="all", choices=("cases", "runs", "switches", "all"))
    parser.add_argument("--images", help="FILE.npz of two digits' images, for the switches")
    options = parser.parse_args()
    if options.part in ("cases", "all"):
        cases(options.seeds)
    if options.part in ("runs", "all"):
        runs(options.seeds)
    if options.part in ("switches", "all"):
        switches(options.seeds, options.images)


if __name__ == "__main__":
    main()
