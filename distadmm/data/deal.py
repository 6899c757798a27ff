"""How the rows of one table come to the nodes of a graph: evenly, or as unlike as real nodes' rows are.

published           even pieces of the order of a bundled table as it was published, whatever the seed
blocks              even pieces of the order in which a file has its rows, so that a rank reads its own part alone
iid                 even pieces of the order in which the seed deals rows
quantity:ALPHA      pieces of sizes ~ Dirichlet(ALPHA)
label:ALPHA         of each class, pieces ~ Dirichlet(ALPHA): the smaller, the fewer classes a node has
column:NAME         pieces of the order by a column, so that each node has a range of its values

The first four are functions of the seed alone.  The others look at rows, and at how many of them each node gets: to
claim privacy for such a run is to say that nodes had these rows in the first place (`--stated deal`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from distadmm.data.table import Array, shard
from distadmm.errors import number, require

_PURPOSE = 0x4445414C  # of the random shares below


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

    def shards(self, n_rows: int, n_nodes: int, column: Callable[[str], Array]) -> list[Array]:
        """Positions of the rows of each node; `column` gives one by name, or the targets for ''."""
        kind, _, rest = self.how.partition(":")
        even = shard(n_rows, n_nodes)  # refuses more nodes than rows
        if kind in ("iid", "published", "blocks"):
            return even
        if kind == "column":
            return np.array_split(np.argsort(column(rest), kind="stable"), n_nodes)
        rng = np.random.default_rng(np.random.SeedSequence(self.seed or 0, spawn_key=(_PURPOSE, 0)))
        targets = column("") if kind == "label" else np.zeros(n_rows)
        parts: list[list[Array]] = [[] for _ in range(n_nodes)]
        for target in np.unique(targets):
            rows = np.flatnonzero(targets == target)
            share = rng.dirichlet(np.full(n_nodes, float(rest)))
            ends = np.rint(np.cumsum(share)[:-1] * len(rows)).astype(int)
            for part, piece in zip(parts, np.split(rows, ends)):
                part.append(piece)
        return _none_empty([np.concatenate(part) for part in parts])


def _none_empty(parts: list[Array]) -> list[Array]:
    """A node without a row gets one of whoever has most."""
    for i, part in enumerate(parts):
        if not len(part):
            most = max(range(len(parts)), key=lambda j: len(parts[j]))
            parts[i], parts[most] = parts[most][-1:], parts[most][:-1]
    return parts
