"""What the nodes of a rank can see, and what stands between their data and their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from distadmm.errors import require
from distadmm.structs import mutable_struct

if TYPE_CHECKING:
    from distadmm.problems.consensus import Problem
    from distadmm.ranks.graph_network import Network
    from distadmm.ranks.tree import Tree

Array = np.ndarray


class Release(Protocol):
    """What stands between a node's data and its neighbours; every method writes the ledger first."""

    private: bool

    @property
    def epsilon(self) -> float:
        """Spent so far by the node here that has spent most; what is reserved counts as spent."""
        ...

    @property
    def statement(self) -> str:
        """What that number is worth: certificate, odometer, simulation, or none."""
        ...

    def draw(self, k: int, quadratic: Array, factor: Array | float = 1.0) -> Array | float:
        """Charge the release of iteration k of every node here, then return its linear noise (n, d).

        The primal step adds at least quadratic_i |f|^2/2 to O_i, and `factor` times the noise to its linear
        term: the noise returned is multiplied by it already.
        """
        ...

    def seal(self, k: int, f: Array, residual: Array) -> Array:
        """The value that may leave: f certified as solved to tolerance, plus output noise."""
        ...

    def recycle(self, k: int, f: Array | None = None) -> None:
        """Note that iteration k sends `f`, which is made of earlier releases alone; it costs nothing.

        This package's own algorithms are believed; of a file of one's own, nothing says what `f` was made of.
        """
        ...

    def expose(self, k: int, what: str) -> None:
        """Note a data-dependent message that carries no noise: its cost is infinite."""
        ...

    def checkpoint(self, k: int) -> None:
        """A durable checkpoint holds everything up to iteration k."""
        ...

    def memory(self) -> dict[str, Array]:
        """What a checkpoint keeps of it, one row a node."""
        ...

    def recall(self, memory: dict[str, Array]) -> None:
        """Compare what a checkpoint kept with what is there; refuse if less is."""
        ...

    def close(self) -> None: ...


class Facts(NamedTuple):
    """What every rank knows of the whole graph; none of it depends on data."""

    n_nodes: int
    degrees: Array
    mu: float  # largest |eigenvalue| below 1 of the random walk D^-1 A
    weight: float = 1.0  # C, the weight of a node's mean loss
    ridge: float = 0.0  # rho/N
    max_curvature: float = float("inf")  # c1, the bound on l''
    theta_pinned: float = float("inf")  # how slowly the network follows one of its nodes


@mutable_struct
class Node:
    """What the nodes of this rank can see: an algorithm's whole world."""

    network: Network
    problem: Problem
    release: Release
    facts: Facts
    start: Array  # f_i(0)
    table: dict[str, Array | None]  # per-node parameters of the whole network; None where the default holds
    sums: Tree | None = None  # over a spanning tree, of an algorithm with `tree = True`
    _recalled: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def recall(self, name: str, k: int, make: Callable[[], Any]) -> Any:
        """What `make()` gave last time for the same k: the odd and the even step share a penalty."""
        if name not in self._recalled or self._recalled[name][0] != k:
            self._recalled[name] = (k, make())
        return self._recalled[name][1]

    def having(self, **changes: Any) -> Node:
        """The same nodes with another release, start or table; what was made of the old table is void."""
        return replace(self, _recalled={}, **changes)

    @property
    def fabric(self) -> Network:
        return self.network

    @property
    def tree(self) -> Tree:
        assert self.sums is not None, "an algorithm that sums over a tree says so: tree = True"
        return self.sums

    @property
    def members(self) -> Array:
        return self.network.nodes

    def close(self) -> None:
        """Nothing more is sent."""
        self.network.close()
        if self.sums is not None:
            self.sums.close()

    def keep(self, state: Any) -> dict[str, Array]:
        """What a checkpoint holds of these nodes, one row a node: the state, and what its surroundings remember."""
        kept = {f"state.{name}": np.asarray(value) for name, value in state._asdict().items()}
        kept["nodes"] = self.members
        for prefix, part in (("solver", self.problem), ("network", self.network), ("release", self.release)):
            kept |= {f"{prefix}.{name}": value for name, value in part.memory().items()}
        return kept | {"traffic": np.array([self.network.traffic.messages, self.network.traffic.bytes])}

    def take_up(self, parts: Sequence[dict[str, Array]], state: Any) -> Any:
        """The state of these nodes out of what all ranks of a checkpoint kept."""
        wanted = {int(i): a for a, i in enumerate(self.members)}
        rows: dict[str, list[Any]] = {}
        traffic = np.zeros(2, dtype=np.int64)
        for part in parts:
            here = [(b, wanted[i]) for b, i in enumerate(part["nodes"].tolist()) if i in wanted]
            for key in part.keys() - {"nodes", "traffic"}:
                for b, a in here:
                    rows.setdefault(key, [None] * len(wanted))[a] = part[key][b]
            for b, _ in here:  # whole shares, so that the ranks' counts add up to what there was
                traffic += np.diff(np.outer(part["traffic"], [b, b + 1]) // len(part["nodes"]))[:, 0]
        for i in set(wanted) - {i for part in parts for i in part["nodes"].tolist()}:
            if "release.roster" in parts[0] and not parts[0]["release.roster"][0][i]:
                # Its rank had left; others know what it knows.
                for key in parts[0].keys() - {"nodes", "traffic"}:
                    rows.setdefault(key, [None] * len(wanted))[wanted[i]] = parts[0][key][0]
        missing = [
            i for i, a in wanted.items() if "solver.taken" not in rows or rows["solver.taken"][a] is None
        ]
        require(not missing, f"the checkpoint has no node {missing[:1]}; it belongs to another network")
        whole = {key: stack(value) for key, value in rows.items()}
        self.problem.restore(under("solver.", whole))
        self.network.restore(under("network.", whole))
        self.release.recall(under("release.", whole))
        self.network.traffic.messages, self.network.traffic.bytes = traffic.tolist()
        lacks = [name for name in state._fields if f"state.{name}" not in whole and name != "mean"]
        require(
            not lacks,
            "the checkpoint is of another method, or of a release that ran this one otherwise; start a new run",
        )
        # What an older release did not keep begins at the models: a mean over the solves.
        return type(state)(**{name: whole.get(f"state.{name}", whole["state.f"]) for name in state._fields})

    @property
    def degree(self) -> Array:
        """V_i, as a column."""
        return self.network.degree


def stack(rows: list[Any]) -> Array:
    """Rows below one another; where their first axes differ (ranks with other degrees), padded with zeros."""
    if len({np.shape(row) for row in rows}) > 1:
        most = max(len(row) for row in rows)
        rows = [np.concatenate([row, np.zeros((most - len(row), *row.shape[1:]))]) for row in rows]
    return np.stack(rows)


def under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
