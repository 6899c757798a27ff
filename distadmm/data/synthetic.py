"""Rows that nobody owns, of a shape like that of real tables: to plan by, where private rows must not be looked at."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from distadmm.data.table import Array

_CASES = 8  # of an attribute, where nobody says how many
_PURPOSE = 0x504C414E
_SIGNAL, CODED, _RARE = 3.0, 2.0, 0.75  # spreads of the true scores; where among them the two classes meet


def table(rows: int, columns: int, seed: int, run: int = 0) -> tuple[Array, Array]:
    """Rows of norm 1 whose spectrum falls as that of one-hot data does, labels +-1 by a random logistic model.

    A quarter to a third of the labels is +1, and the best model has a log loss of about a third.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PURPOSE, run)))
    falls = 1.0 / (1.0 + np.arange(columns))
    falls /= np.linalg.norm(falls)
    X = rng.random(columns) * falls + rng.normal(size=(rows, columns)) * falls
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, _labels(rng, X, _SIGNAL)


def any_table(rows: int, columns: int, run: int) -> tuple[Array, Array]:
    """For a table of which the size alone is known: numbers and categories in turn."""
    if run % 2 == 0:
        return table(rows, columns, 0, run)
    return coded([f"{k // _CASES}={k % _CASES}" for k in range(columns)], rows, 0, run)


def coded(
    names: Sequence[str],
    rows: int,
    seed: int,
    run: int = 0,
    *,
    norm: float | None = 1.0,
    spread: float = CODED,
    steep: float = 4.0,
    apiece: bool = False,
) -> tuple[Array, Array]:
    """Rows for columns of these names: those of one attribute (`sex=Male`, `age<=25`) are one-hot, others numbers.

    Cases are as frequent as Zipf's law has words; numbers lie in [0, 1], the lower the more `steep`; rows are cut
    to `norm`; and labels come of a random logistic model, whose scores have that `spread`: a quarter of them +1.
    Columns tell `apiece` as much, or else each by how far it varies.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PURPOSE, run, 1)))
    sizes = Counter(re.split(r"<=|=|>", name)[0] for name in names)
    parts = []
    for size in sizes.values():
        often = 1.0 / np.arange(1, size + 1)
        cases = np.eye(size)[rng.choice(size, rows, p=often / often.sum())]
        parts.append(cases if size > 1 else rng.beta(1, steep, size=(rows, 1)))
    X = np.hstack(parts)
    if norm is not None:
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) / norm)
    return X, _labels(rng, X, spread, X.std(axis=0) if apiece else None)


def _labels(rng: np.random.Generator, X: Array, spread: float, unit: Array | None = None) -> Array:
    weights = rng.normal(size=X.shape[1])
    scores = X @ (weights if unit is None else weights / np.maximum(unit, 1e-6))
    scores *= spread / max(float(scores.std()), 1e-9)
    scores -= np.quantile(scores, _RARE)
    return np.where(rng.random(len(X)) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
