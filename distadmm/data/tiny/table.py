"""Breast cancer Wisconsin (diagnostic): 569 rows, 30 numbers, for tests and first steps."""

from pathlib import Path

import numpy as np

from distadmm.data.table import Table

HERE = Path(__file__).parent
PUBLISHED = {"breast_cancer.csv": "fed3eb72d0575ef6192293f5093c6e801b1476b577d0386bf4455504522172ed"}
LICENCE = "CC BY 4.0"
SOURCE = (
    "Wolberg, Mangasarian, Street & Street (1995), Breast Cancer Wisconsin (Diagnostic), doi 10.24432/C5DW2B"
)
TRAINING = 455  # of 569, after the permutation; 114 are for testing
PERMUTATION = 569

_CELL = (
    "radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity",
    "concave points", "symmetry", "fractal dimension",
)  # fmt: skip
COLUMNS = tuple(f"{name} ({kind})" for kind in ("mean", "standard error", "worst") for name in _CELL)
# The largest value of each column as its published description states it: constants, not computed here.
MAXIMA = np.array([
    28.11, 39.28, 188.5, 2501.0, 0.163, 0.345, 0.427, 0.201, 0.304, 0.097,
    2.873, 4.885, 21.98, 542.2, 0.031, 0.135, 0.396, 0.053, 0.079, 0.03,
    36.04, 49.54, 251.2, 4254.0, 0.223, 1.058, 1.252, 0.291, 0.664, 0.208,
])  # fmt: skip


def published(name: str = "breast_cancer.csv") -> bytes:
    import bz2

    return bz2.decompress((HERE / f"{name}.bz2").read_bytes())


def table() -> Table:
    """All rows, each column divided by its published maximum; +1 is benign."""
    cells = np.array([line.split(",") for line in published().decode().splitlines()[1:]], dtype=float)
    return Table(
        cells[:, :-1] / MAXIMA, np.where(cells[:, -1] == 1, 1.0, -1.0), COLUMNS, "tiny", LICENCE, SOURCE
    )


def split() -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(PERMUTATION).permutation(569)
    return order[:TRAINING], order[TRAINING:]
