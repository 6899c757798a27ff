"""The rows of a rank's nodes, put in their places as they are read, and given away node by node: they exist once."""

from collections.abc import Callable, Sequence

import numpy as np

from distadmm.data.table import Array, Matrix, Sparse, take

_GROUP = 1 << 19  # entries: small nodes that follow one another share an array, and its end


class Shares:
    """`parts`: the numbers of the rows of each node; `beside`: columns of ones behind those that are read."""

    def __init__(self, parts: Sequence[Array], beside: int):
        self.rows = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        self._ends = np.cumsum([0, *map(len, parts)])
        self._beside, self.targets = beside, np.empty(0, dtype=object)
        self._pieces: list[tuple[Array, Sparse]] = []
        self._sparse: Sparse | None = None
        self._groups: list[Array | None] = []
        self._starts: Array = np.empty(0, dtype=np.int64)  # of the groups, among the rows

    def put(self, places: Array, X: Matrix, targets: Array) -> None:
        """Of rows whose place lies behind the nodes' nothing is kept."""
        if len(beyond := np.flatnonzero(places >= len(self.rows))):
            own = np.delete(np.arange(len(places)), beyond)
            places, X, targets = places[own], take(X, own), targets[own]
        if not len(self.targets):
            self.targets = np.empty(len(self.rows), targets.dtype)
        self.targets[places] = targets
        if isinstance(X, Sparse):
            self._pieces.append((places, X))
            return
        if not self._groups:
            self._make(X.shape[1])
        group = np.searchsorted(self._starts, places, side="right") - 1
        for g in np.unique(group).tolist():
            here, into = group == g, self._groups[g]
            assert into is not None
            into[places[here] - self._starts[g], : X.shape[1]] = X[here]

    def _make(self, width: int) -> None:
        starts, size = [0], _GROUP // (width + self._beside)
        for begin, end in zip(self._ends.tolist(), self._ends[1:].tolist()):
            if end - starts[-1] > size and begin > starts[-1]:
                starts.append(begin)
        self._starts = np.array(starts)
        for low, high in zip(starts, [*starts[1:], len(self.rows)]):
            group = np.empty((high - low, width + self._beside))
            group[:, width:] = 1.0
            self._groups.append(group)

    def close(self, finish: Callable[[Array], Array]) -> None:
        """All rows are there; `finish` is done to those that are written out, many nodes at once."""
        self._groups = [None if group is None else finish(group) for group in self._groups]
        if self._pieces:
            order = np.concatenate([places for places, _ in self._pieces])
            whole = Sparse.below([piece for _, piece in self._pieces])
            self._pieces = []
            self._sparse = whole.take(np.argsort(order))

    def take(self, i: int) -> Matrix:
        """The rows of the i-th node, which are the caller's from now on; nodes are asked for in their order."""
        low, high = self._ends[i : i + 2].tolist()
        if self._sparse is not None:
            return self._sparse.take(np.arange(low, high))
        g = int(np.searchsorted(self._starts, low, side="right")) - 1
        group = self._groups[g]
        assert group is not None
        begin = int(self._starts[g])
        if high == begin + len(group):
            self._groups[g] = None
        return group[low - begin : high - begin]

    def y(self, i: int) -> Array:
        return self.targets[self._ends[i] : self._ends[i + 1]]
