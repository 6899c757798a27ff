"""299 patients with heart failure: how many have each combination of six yes/no attributes."""

import csv
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PUBLISHED = {"counts.csv": "8a5ecc1b9d3b7e41ddfac1bd06a370660bbaf37d382573ce93cddc1143a876c5"}
LICENCE = "CC BY 4.0"
SOURCE = "Chicco & Jurman (2020), Heart Failure Clinical Records, UCI, doi 10.24432/C5Z89R"
ATTRIBUTES = ("sex", "death", "anaemia", "high_blood_pressure", "diabetes", "smoking")


def counts() -> np.ndarray:
    """Number of patients, one axis of length 2 for each of ATTRIBUTES; 299 in all."""
    table = np.zeros((2,) * len(ATTRIBUTES), dtype=np.int64)
    with open(HERE / "counts.csv", newline="") as file:
        for row in csv.DictReader(file):
            table[tuple(int(row[name]) for name in ATTRIBUTES)] = int(row["count"])
    return table


def joint(private: tuple[str, ...], public: tuple[str, ...]) -> np.ndarray:
    """Counts over the combinations of the `private` attributes (rows) and of the `public` ones (columns)."""
    axes = [ATTRIBUTES.index(name) for name in (*private, *public)]
    others = tuple(axis for axis in range(len(ATTRIBUTES)) if axis not in axes)
    kept = [axis for axis in range(len(ATTRIBUTES)) if axis in axes]
    table = counts().sum(axis=others)
    return table.transpose([kept.index(axis) for axis in axes]).reshape(2 ** len(private), 2 ** len(public))
