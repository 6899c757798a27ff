"""Forecasts of loss from rows of the same kind that need no protection: --public-data.

A few thousand of them know what synthetic rows cannot: how strongly columns tell, and on what scale.  But a model suits
the rows it was made of too well, and rows it has not seen too badly, by nearly as much: half-way between the two is
what it would show of many rows.  So every loss is that mean, over ways to leave an eighth of the rows out, and the
least that many rows allow is the least such mean over a range of ridges, as the fullest models swing too far.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from distadmm.data.rows import load
from distadmm.errors import require
from distadmm.problems.losses import Array, Logistic

FOLDS = 8
HELP = "rows of the same kind that need no protection (of a bundled table its test rows): forecast the loss from them"
RIDGES = np.logspace(-6, -2, 9)
LEAST = 50  # rows; fewer say nothing
SURE = 0.2  # standard error, as a share of a forecast that is believed: see docs/istdp.md
SIMULATED, MOST = 2_000, 16  # rows that are simulated at least, with noise drawn anew; how often at most


def halfway(loss: Callable[[int, Array, Array], tuple[float, float]], rows: int, seed: int) -> Array:
    """(loss of the rows trained on + loss of those left out) / 2, for each way to leave some out."""
    return np.array([np.mean(loss(at, *parts)) for at, parts in enumerate(folds(rows, seed))])


def draws(rows: int) -> range:
    """Of the noise, for one forecast: among few rows what one draw costs says little of what the next one will."""
    return range(min(MOST, max(1, SIMULATED // rows)))


def error(halfways: Array) -> float:
    """Standard error of their mean: what sets them apart are nearly alone the rows left out, which count half."""
    return float(2 * halfways.std(ddof=1) / np.sqrt(halfways.size))


def doubt(halfways: Array) -> list[str]:
    """A line that says so where the rows are too few for a forecast."""
    short = error(halfways) / (SURE * max(float(halfways.mean()), 1e-9))
    if short <= 1:
        return []
    many = f"{math.ceil(10 * short**2) / 10:g} times as many" if short < 10 else "far more"
    return [f"doubt       cannot tell the excess within a quarter by so few public rows; {many} might"]


def folds(rows: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """(rows to train on, rows left out), as row numbers."""
    order = np.random.default_rng(seed).permutation(rows)
    for at in range(FOLDS):
        yield np.delete(order, np.s_[at::FOLDS]), order[at::FOLDS]


def read(name: str, names: tuple[str, ...], row_norm: float | None) -> tuple[Array, Array]:
    """The public rows, whose columns must be those of the private ones; of a bundled table its test rows."""
    found = load(name, loss=Logistic(), row_norm=row_norm, seed=0)
    X, y = found.test if found.test is not None else (found.X, found.y)
    require(
        found.names == names,
        f"--public-data {name} has other columns than the private rows ({len(found.names)} and {len(names)}, or other "
        "names); give rows of the same file format and --schema",
    )
    require(len(y) >= LEAST, f"--public-data {name} has {len(y)} rows; needed: at least {LEAST}")
    return X, np.where(y > 0, 1.0, -1.0)
