"""Adult in the 123 binary columns of LIBSVM's a9a: all 48,842 rows, every attribute one-hot, gaps all zero.

Numbers fall into the intervals that the makers of a9a took from the quantiles of the training rows.  The edges
are constants here, but they come from that data: whoever asks for bounds that no private row has influenced
uses the 105-column encoding.
"""

import numpy as np

from distadmm.data.adult import raw
from distadmm.data.adult.domains import ATTRIBUTES, DOMAINS, MISSING
from distadmm.data.adult.table import LICENCE, SOURCE
from distadmm.data.table import Array, Sparse, Table

# The largest value of each interval but the last.
EDGES = {
    "age": (25, 32, 40, 49),
    "fnlwgt": (106_640, 158_660, 196_337, 259_870),
    "education-num": (8, 9, 10, 12),
    "capital-gain": (0,),
    "capital-loss": (0,),
    "hours-per-week": (34, 39, 40, 47),
}

SIZES = tuple(len(DOMAINS[name]) if name in DOMAINS else len(EDGES[name]) + 1 for name in ATTRIBUTES)


def columns() -> tuple[str, ...]:
    names: list[str] = []
    for name in ATTRIBUTES:
        if name in DOMAINS:
            names += [f"{name}={category}" for category in DOMAINS[name]]
        else:
            names += [f"{name}<={edge}" for edge in EDGES[name]] + [f"{name}>{EDGES[name][-1]}"]
    return tuple(names)


def encode(records: Array) -> Sparse:
    """One 1 an attribute, in the order of ATTRIBUTES; none for a missing category."""
    codes = np.empty((len(records), len(ATTRIBUTES)), dtype=np.int64)
    for position, name in enumerate(ATTRIBUTES):
        column = records[name]
        codes[:, position] = column if name in DOMAINS else np.searchsorted(EDGES[name], column)
    there = codes != MISSING
    start = np.cumsum([0, *SIZES])
    indices = (codes + start[:-1])[there]
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return Sparse(indptr, indices, np.ones(len(indices)), (len(records), int(start[-1])))


def table() -> Table:
    records = raw.records()
    y = np.where(records["income"] == 1, 1.0, -1.0)
    return Table(
        encode(records), y, columns(), "a9a", LICENCE, SOURCE + "; binned as in LIBSVM's a9a", duplicates=52
    )


def split() -> tuple[Array, Array]:
    """a9a and a9a.t, in file order."""
    return np.arange(raw.TRAINING_ROWS), np.arange(raw.TRAINING_ROWS, raw.TRAINING_ROWS + raw.TEST_ROWS)
