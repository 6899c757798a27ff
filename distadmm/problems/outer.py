"""Weighted sums of the outer products of sparse rows, most of whose entries lie in a few columns."""

from typing import Any

import numpy as np

from distadmm.problems.losses import Array

_COMMON = 0.06  # a column in which a larger share of the rows has an entry is taken as dense
_SINGLE = 1 << 17  # rows up to which sums in single precision lose little


class Outer:
    """sum_n w_n x_n x_n': products of the common columns as arrays, all others as sparse matrices."""

    def __init__(self, columns: Any):
        """`columns`: the transpose of the rows in compressed sparse rows (scipy)."""
        rows = columns.shape[1]
        common = np.diff(columns.indptr) > _COMMON * rows
        kind: Any = np.float32 if rows <= _SINGLE else float
        self._dense = np.ascontiguousarray(columns[np.flatnonzero(common)].astype(kind).toarray().T)
        self._rare = columns[np.flatnonzero(~common)].astype(kind)
        self._rows = self._rare.T.tocsr()
        self._entries = self._rare.data.copy()
        self._place = np.empty(len(common), np.int64)
        self._place[np.argsort(~common, kind="stable")] = np.arange(len(common))

    def sum(self, weights: Array) -> Array:
        weights = weights.astype(self._dense.dtype)
        f, H = self._dense.shape[1], np.empty((len(self._place),) * 2)
        root = self._dense * np.sqrt(weights)[:, None]
        H[:f, :f] = root.T @ root
        np.multiply(self._entries, weights[self._rare.indices], out=self._rare.data)
        H[f:, :f] = self._rare @ self._dense
        H[:f, f:] = H[f:, :f].T
        H[f:, f:] = (self._rare @ self._rows).toarray()
        return H[self._place[:, None], self._place]  # type: ignore[no-any-return]
