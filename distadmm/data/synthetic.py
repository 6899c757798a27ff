"""Rows that nobody owns, of a shape like that of real tables: to plan by, where private rows must not be looked at."""

import numpy as np

from distadmm.data.table import Array

_PURPOSE = 0x504C414E
_SIGNAL, _RARE = 3.0, 0.75  # spread of the true scores; where among them the two classes meet


def table(rows: int, columns: int, seed: int, run: int = 0) -> tuple[Array, Array]:
    """Rows of norm 1 whose spectrum falls as that of one-hot data does, labels +-1 by a random logistic model.

    A quarter to a third of the labels is +1, and the best model has a log loss of about a third.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PURPOSE, run)))
    falls = 1.0 / (1.0 + np.arange(columns))
    falls /= np.linalg.norm(falls)
    X = rng.random(columns) * falls + rng.normal(size=(rows, columns)) * falls
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    scores = X @ rng.normal(size=columns)
    scores *= _SIGNAL / max(float(scores.std()), 1e-9)
    scores -= np.quantile(scores, _RARE)
    return X, np.where(rng.random(rows) < 1 / (1 + np.exp(-scores)), 1.0, -1.0)
