"""GISETTE for the sharing experiments: a user's own LIBSVM files, or a stand-in built from images of digits.

The stand-in follows the public description of the NIPS 2003 set: fours against nines, pixels of the middle-top
part and products of pixel pairs, as many probes (real columns whose rows are permuted), integers 0..999, columns
shuffled, 6,000 training and 1,000 test rows, each feature scaled to [-1, 1] on the training part.  It is NOT
gisette; say "gisette stand-in" wherever a number of it is shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from distadmm.errors import InputError, require
from distadmm.results import read_npz

Array = np.ndarray

SEED = 20030701
REAL, TRAINING, TESTING = 2500, 6000, 1000


class Split(NamedTuple):
    """Training and test part, and what to call them."""

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array


def own_files(training: str, testing: str) -> Split:
    """gisette_scale and gisette_scale.t, or files like them."""
    from distadmm.data.source import open_source

    parts = []
    for path in (training, testing):
        X, y = open_source(path, clip=None, features=5000).everything()  # type: ignore[attr-defined]
        parts += [X, y]
    return Split("gisette", *parts)


def stand_in(images: str | Path) -> Split:
    """From an archive with `img` (n, 28, 28) or (n, 784), 0..255, and `digit` (n,), fours and nines."""
    content = read_npz(Path(images))
    require(
        {"img", "digit"} <= content.keys() and set(np.unique(content["digit"])) == {4, 9},
        f"{images}: needed: arrays img and digit with fours and nines alone",
    )
    digit = content["digit"]
    pixels = content["img"].reshape(len(digit), 28, 28)[:, 4:18, 6:22].reshape(len(digit), -1) / 255.0
    rng = np.random.default_rng(SEED)
    singles = pixels.shape[1]
    first, second = rng.integers(0, singles, (2, REAL - singles))
    real = np.rint(999 * np.hstack([pixels, pixels[:, first] * pixels[:, second]]))
    probes = np.column_stack([rng.permutation(column) for column in real.T])
    X = np.hstack([real, probes])[:, rng.permutation(2 * REAL)]
    rows = _balanced(digit, rng)
    X, y = X[rows], np.where(digit[rows] == 4, 1.0, -1.0)
    low, high = X[:TRAINING].min(axis=0), X[:TRAINING].max(axis=0)
    X = np.where(
        high > low, 2 * (X - low) / np.maximum(high - low, 1.0) - 1, -1.0
    )  # integers differ by 1 or not
    return Split("gisette stand-in", X[:TRAINING], y[:TRAINING], X[TRAINING:], y[TRAINING:])


def _balanced(digit: Array, rng: np.random.Generator) -> Array:
    """Row numbers: the training part, then the test part, both half fours and half nines."""
    needed = (TRAINING + TESTING) // 2
    found = [rng.permutation(np.flatnonzero(digit == value)) for value in (4, 9)]
    if min(map(len, found)) < needed:
        raise InputError(
            f"the images hold {min(map(len, found))} of one digit; needed: {needed} fours and nines"
        )
    cut = TRAINING // 2
    training = np.concatenate([rows[:cut] for rows in found])
    testing = np.concatenate([rows[cut:needed] for rows in found])
    return np.concatenate([rng.permutation(training), rng.permutation(testing)])
