"""A network whose edges come and go: a sequence of graphs, or a random process of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from distadmm.graphs.topology import Topology


@dataclass(frozen=True, eq=False)
class Changing:
    """At step t the edges of graph t mod T, each of them with probability `p`, both directions or none."""

    union: Topology  # every edge that ever is; connected
    graphs: np.ndarray  # (T, m) booleans: is edge e of the union in graph t
    p: float = 1.0
    seed: int = 0

    @property
    def constant(self) -> bool:
        return self.p == 1.0 and bool(self.graphs.all())

    def active(self, step: int) -> np.ndarray:
        """m booleans: which of `union.edges` are there at `step` = 0, 1, 2, ...; the same on every rank."""
        here = self.graphs[step % len(self.graphs)]
        if self.p == 1.0:
            return here
        purpose = 3  # links
        sequence = np.random.SeedSequence(entropy=self.seed, spawn_key=(purpose, step))
        return here & (np.random.Generator(np.random.PCG64(sequence)).random(here.size) < self.p)
