"""Sums over the neighbours of many nodes, some nodes at a time, so that these stay in the cache."""

from typing import Any, NamedTuple, Self

import numpy as np

Array = np.ndarray
_AT_ONCE = 4096  # nodes


class Part(NamedTuple):
    """Some of a rank's nodes, and in which rounds their sums are made.

    Round s adds the s-th neighbour of every node that has one: the order of the sum is the neighbours' order, whatever
    else the rank hosts.
    """

    nodes: slice
    rounds: list[tuple[Any, Any, Array]]  # (which of the nodes, their edges, the columns of these)

    @classmethod
    def of(cls, low: int, high: int, indptr: Array, columns: Array) -> Self:
        degrees, rounds = np.diff(indptr[low : high + 1]), list[tuple[Any, Any, Array]]()
        most, first = int(degrees.max(initial=0)), int(indptr[low])
        if most and degrees.min() == most:  # nothing has to be kept beside the columns
            edges = [slice(first + s, first + most * (high - low), most) for s in range(most)]
            return cls(slice(low, high), [(slice(None), some, columns[some]) for some in edges])
        for s in range(most):
            rows = np.flatnonzero(degrees > s)
            some = indptr[low + rows] + s
            rounds.append((slice(None) if len(rows) == high - low else rows, some, columns[some]))
        return cls(slice(low, high), rounds)

    def add_neighbours(self, total: Array, visible: Array) -> None:
        """To the row of each of these nodes, those of its neighbours."""
        came = np.empty(total.shape, visible.dtype)
        for rows, _, columns in self.rounds:
            some = came[: len(columns)]
            np.take(visible, columns, axis=0, out=some, mode="clip")  # in half the time of visible[columns]
            total[rows] += some

    def add_edges(self, total: Array, edges: Array) -> None:
        """To the row of each of these nodes, those of its edges."""
        for rows, some, _ in self.rounds:
            total[rows] += edges[some]


def parts_of(indptr: Array, columns: Array) -> list[Part]:
    """All nodes; the neighbours of node i stand in columns[indptr[i]:indptr[i + 1]]."""
    n = len(indptr) - 1
    return [Part.of(low, min(low + _AT_ONCE, n), indptr, columns) for low in range(0, n, _AT_ONCE)]
