"""The rows of a run: a bundled table, the user's file, or made up with a known, sparse answer.

x ~ N(0, Sigma),  Sigma_ij = rho^|i-j|;   theta has `support` entries of +-`size`, the others are 0
squared:   y = <x, theta> + noise;        logistic:   P(y = 1) = 1 / (1 + exp(-<x, theta>))
"""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from distadmm.data.content import of_public
from distadmm.data.public import PublicFacts
from distadmm.data.table import local_key
from distadmm.errors import InputError, require
from distadmm.problems.losses import Array, Loss, task_of

_PURPOSE = 0x53594E5448  # of the random streams below


@dataclass(frozen=True)
class Problem:
    X: Array
    y: Array  # real targets, or labels -1/+1
    theta: Array  # the truth
    X_test: Array
    y_test: Array

    @property
    def bayes_accuracy(self) -> float:
        """What the truth itself gets right of noisy labels, on the test rows."""
        return float((1.0 / (1.0 + np.exp(-np.abs(self.X_test @ self.theta)))).mean())

    def accuracy(self, theta: Array) -> float:
        """Expected accuracy of sign(<x, theta>) on the test rows, the labels' own noise averaged out."""
        agrees = np.sign(self.X_test @ theta) * (self.X_test @ self.theta)
        return float((1.0 / (1.0 + np.exp(-agrees))).mean())

    def disagreement(self, theta: Array) -> float:
        """Share of the test rows where sign(<x, theta>) is not the sign of the truth."""
        return float((np.sign(self.X_test @ theta) != np.sign(self.X_test @ self.theta)).mean())

    def excess(self, theta: Array) -> float:
        """Mean squared error of the predictions on the test rows, the targets' own noise left out."""
        return float(((self.X_test @ (theta - self.theta)) ** 2).mean())

    def support_f1(self, theta: Array) -> float:
        """Harmonic mean of precision and recall of the chosen columns."""
        chosen, true = theta != 0, self.theta != 0
        return float(2 * (chosen & true).sum() / (chosen.sum() + true.sum()))


@dataclass(frozen=True)
class Rows:
    X: Array
    y: Array
    test: tuple[Array, Array] | None  # held-out rows
    names: tuple[str, ...]  # of the columns
    description: dict[str, Any]
    dataset: str  # keyed name of the data, for the ledger
    truth: Problem | None = None
    labels: bool = True  # targets are -1/+1, not numbers
    facts: PublicFacts | None = None  # what is known of the table, and by what; None: made up
    classes: tuple[Any, ...] = ()  # what the data calls the classes, in the order of -1, +1
    encoding: Any = None  # how raw rows become these columns (`Source.encoding`)
    content: Any = None  # key -> which rows these are (`data.content`)

    def quality(self, theta: Array, intercept: bool) -> dict[str, float]:
        """How good coefficients are on the held-out rows, and against the truth where it is known."""
        found: dict[str, float] = {}
        weights, shift = (theta[:-1], theta[-1]) if intercept else (theta, 0.0)
        if self.truth is not None:
            found["support_f1"] = self.truth.support_f1(weights)
            if self.labels:
                found |= {
                    "accuracy": self.truth.accuracy(weights),
                    "bayes_accuracy": self.truth.bayes_accuracy,
                }
            else:
                found["excess_error"] = self.truth.excess(weights)
        elif self.test is not None:
            z = self.test[0] @ weights + shift
            if self.labels:
                found["test_accuracy"] = float((np.where(z > 0, 1.0, -1.0) == self.test[1]).mean())
            else:
                found["test_mean_squared_error"] = float(((z - self.test[1]) ** 2).mean())
        return found


def load(text: str, *, loss: Loss, row_norm: float | None, seed: int, **reading: Any) -> Rows:
    """The rows that `--data TEXT` names; `reading` says how a user's file is to be read."""
    if text.startswith("synthetic"):
        require(
            not reading.get("sanitise"), "--sanitise: made up rows have no categorical columns; leave it out"
        )
        return _made_up(text, loss, seed)
    from distadmm.data.source import BUNDLED, open_source

    if text not in BUNDLED:
        reading["task"] = task_of(loss)
    source = open_source(text, clip=row_norm, seed=seed, **reading)
    require(
        source.pooled_allowed,
        f"--data {text} is one file a node; ISTDP trains on one table: give a single file",
    )
    X, y = source.everything()  # type: ignore[attr-defined]
    description = source.describe()
    return Rows(
        X=X,
        y=y,
        test=source.test(),  # type: ignore[arg-type]
        names=source.feature_names,
        description={
            key: description[key] for key in ("name", "rows", "test_rows", "features", "clip", "licence")
        },
        dataset=source.data_id(None if text in BUNDLED else local_key()),
        labels=loss.labels,
        facts=source.facts,
        classes=source.classes,
        encoding=source.encoding(),
        content=partial(source.content, 0, 1),
    )


def _made_up(text: str, loss: Loss, seed: int) -> Rows:
    matched = re.fullmatch(r"synthetic:(\d+)(?:x(\d+))?", text)
    if matched is None:
        raise InputError(
            f"--data is {text!r}; needed: synthetic:ROWS or synthetic:ROWSxCOLUMNS, as synthetic:4000x200"
        )
    n, d = int(matched[1]), int(matched[2] or 200)
    kind = "logistic" if loss.labels else "squared"
    truth = problem(kind, n, d, support=min(10, d), seed=seed)
    return Rows(
        X=truth.X,
        y=truth.y,
        test=None,
        names=tuple(f"x{j}" for j in range(d)),
        description={"name": text, "rows": n, "features": d, "licence": "made up", "seed": seed},
        dataset=f"{text}:{kind}:{seed}",
        truth=truth,
        labels=loss.labels,
        classes=(-1, 1) if loss.labels else (),
        encoding={"table": text},
        content=partial(of_public, f"{text}:{kind}:{seed}", np.arange(n)),
    )


def problem(
    loss: str,
    n: int,
    d: int = 200,
    *,
    support: int = 10,
    rho: float = 0.3,
    size: float = 1.5,
    noise: float = 0.5,
    test: int = 20_000,
    seed: int = 0,
) -> Problem:
    """The problem of that loss and size; every part of it depends on `seed` alone."""
    require(loss in ("logistic", "squared"), f"the loss is {loss!r}; choose logistic or squared")
    require(n >= 1, f"the synthetic problem has {n} rows; needed: at least 1")
    require(1 <= support <= d, f"{support} of {d} columns are to matter; needed: 1 to {d}")
    truth, training, testing = (
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PURPOSE, part))) for part in range(3)
    )
    theta = np.zeros(d)
    theta[truth.choice(d, support, replace=False)] = size * truth.choice([-1.0, 1.0], support)

    def rows(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        X = rng.standard_normal((count, d))
        for j in range(1, d):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
        z = X @ theta
        if loss == "squared":
            return X, z + noise * rng.standard_normal(count)
        return X, np.where(rng.random(count) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0)

    return Problem(*rows(training, n), theta, *rows(testing, test))
