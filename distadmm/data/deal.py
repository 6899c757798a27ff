"""How the rows of one table come to the nodes of a graph: evenly, or as unlike as real nodes' rows are.

docs/data.md lists the ways.  published, blocks, iid and quantity are functions of the seed alone.  label and column
look at rows, and at how many of them each node gets: to claim privacy for such a run is to say that nodes had these
rows in the first place (`--stated deal`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.data.table import Array, shares
from distadmm.errors import number, require

_PURPOSE = 0x4445414C  # of the random shares below


class Pieces(Sequence[Array]):
    """Positions of the rows of each node, one after the other: those of node i are order[ends[i]:ends[i + 1]]."""

    def __init__(self, sizes: Array, order: Array | None = None):
        """Without an `order`, 0, 1, 2, ... as they come."""
        self._order, self.ends = order, np.concatenate(([0], np.cumsum(sizes)))

    @property
    def order(self) -> Array:
        return np.arange(self.ends[-1]) if self._order is None else self._order

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(len(self))[i]]
        i = range(len(self))[i]
        if self._order is None:
            return np.arange(self.ends[i], self.ends[i + 1])
        return self._order[self.ends[i] : self.ends[i + 1]]

    def of(self, nodes: Sequence[int]) -> Self:
        """Those of these nodes alone."""
        at = np.asarray(nodes, dtype=np.int64)
        sizes = np.diff(self.ends)[at]
        before = np.cumsum(sizes) - sizes
        chosen = np.repeat(self.ends[at] - before, sizes) + np.arange(sizes.sum())
        return type(self)(sizes, chosen if self._order is None else self._order[chosen])


class Deal(NamedTuple):
    how: str
    seed: int | None  # of the order and the shares; None: the order of a bundled table as it was published

    @classmethod
    def of(cls, how: str, seed: int) -> "Deal":
        kind, _, rest = how.partition(":")
        right = {"iid": not rest, "published": not rest, "blocks": not rest, "column": bool(rest)}.get(kind)
        if kind in ("label", "quantity"):
            right = 0 < number(rest) < np.inf
        require(
            right,
            f"--deal is {how!r}; needed: iid, published, blocks, quantity:ALPHA, label:ALPHA (ALPHA above 0), or "
            "column:NAME",
        )
        return cls(how, None if how in ("published", "blocks") else seed)

    @property
    def looks_at_rows(self) -> bool:
        return self.how.startswith(("label", "column"))

    def shards(self, n_rows: int, n_nodes: int, column: Callable[[str], Array]) -> Pieces:
        """Positions of the rows of each node; `column` gives one by name, or the targets for ''."""
        kind, _, rest = self.how.partition(":")
        even = shares(n_rows, n_nodes)
        if kind in ("iid", "published", "blocks"):
            return Pieces(even)
        if kind == "column":
            return Pieces(even, np.argsort(column(rest), kind="stable"))
        rng = np.random.default_rng(np.random.SeedSequence(self.seed or 0, spawn_key=(_PURPOSE, 0)))
        targets = column("") if kind == "label" else np.zeros(n_rows)
        parts: list[list[Array]] = [[] for _ in range(n_nodes)]
        for target in np.unique(targets):
            rows = np.flatnonzero(targets == target)
            share = rng.dirichlet(np.full(n_nodes, float(rest)))
            ends = np.rint(np.cumsum(share)[:-1] * len(rows)).astype(int)
            for part, piece in zip(parts, np.split(rows, ends)):
                part.append(piece)
        whole = [np.concatenate(part) for part in parts]
        for i in range(n_nodes):
            if not len(whole[i]):  # a node without a row gets one of whoever has most
                most = max(range(n_nodes), key=lambda j: len(whole[j]))
                whole[i], whole[most] = whole[most][-1:], whole[most][:-1]
        return Pieces(np.array([*map(len, whole)]), np.concatenate(whole))
