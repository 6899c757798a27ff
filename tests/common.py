"""What tests of several files start from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from distadmm import radmm
from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation
from distadmm.ranks.world import World
from distadmm.run import shell

#: A run of the consensus family that takes no time.
SMALL: dict[str, Any] = {
    "data": "tiny", "topology": "er5", "weight": 20.0, "rho": 1.0, "eta": "0.5", "iterations": 6, "progress": "none",
}  # fmt: skip

#: Thresholding as its paper prints it.
PRINTED = [
    "--data",
    "tiny",
    "--epsilon",
    "1",
    "--adjacency",
    "replace",
    "--form",
    "paper",
    "--lambda",
    "0.01",
]

#: The R-ADMM paper's: d = 105, C = 1750, B = 8000, alpha = 1, logistic, rho/N + 2 eta V = 8.2, K = 50.
PAPER = ObjectivePerturbation("gamma", 105, 1.0, 1750 / 8000, 0.25, 8.2, 50, logistic=True)

#: Objective perturbation of sizes that are met.
SOLVES = st.builds(
    ObjectivePerturbation,
    noise=st.sampled_from(["gamma", "gaussian"]),
    dimension=st.sampled_from([1, 2, 30, 1000]),
    scale=st.sampled_from([0.5, 1.0, 2.0]),
    weight=st.sampled_from([0.2, 1.0]),
    curvature=st.just(0.25),
    floor=st.sampled_from([0.05, 0.5, 8.2, 1e3]),
    one_signed=st.booleans(),
)


def own_algorithm(body: str, *fields: str) -> str:
    """The source of an algorithm of one's own, whose state has these fields."""
    state = "\n".join(f"    {field}" for field in fields)
    return f"""
from dataclasses import dataclass
from typing import NamedTuple
import numpy as np
import distadmm

class State(NamedTuple):
{state}

{body.strip()}
"""


def whole_and_parted(world: World, folder: Path, first: int, **flags: Any) -> tuple[Path, Path]:
    """Two runs of masked sums: in one piece on one rank, and taken up on all ranks after so many rounds."""
    whole, parted = folder / "whole", folder / "parted"
    if world.is_root:
        radmm.solve("masked", **flags, out=whole)
        radmm.solve("masked", **flags, out=parted, iterations=first, checkpoint_every=first)
    world.barrier()
    argv = ["--resume", str(parted), "--iterations", "100"]
    packed = world.on_root(lambda: radmm.PROGRAMME.pack(radmm.PROGRAMME.read(argv)))
    shell.work(radmm.PROGRAMME, radmm.PROGRAMME.unpack(packed), world)
    world.barrier()
    return whole, parted


def connected_graphs(most: int) -> Iterator[np.ndarray]:
    """The adjacency matrix of each, of 2 to `most` nodes, up to the names of nodes; `most` is at most 7."""
    import networkx as nx

    for graph in nx.graph_atlas_g():
        if 2 <= graph.number_of_nodes() <= most and nx.is_connected(graph):
            yield nx.to_numpy_array(graph)
