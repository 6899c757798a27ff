"""What each node, and each set of nodes that pool what they have, saw of masked sums.

A node sees its own vector, those that its children in the tree send up (each the sum of a subtree), and the total.  Who
colludes knows its own values, noise and masks as well, and is left with

    others = total - (values + noise of the members),

the sum of all other nodes under their noise: all that their rows leave behind.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.algorithm import Array
from distadmm.audit.draws import Draws
from distadmm.audit.masked import Recording, Tapped, record
from distadmm.errors import require
from distadmm.files import read_npz, write_json, write_npz
from distadmm.run.config import Config


def of_config(config: Config, folder: Path | None = None) -> Recording:
    """The run of these flags, made again in simulation; one that is finished must come out with its models."""
    require(
        config.privacy.wanted,
        "without noise masked sums travel in the clear, and a transcript is of private ones; add --epsilon",
    )
    require(
        folder is None or config.privacy.rng == "simulation",
        f"{folder} is a run of masked whose secret noise and keys cannot be drawn again; what its nodes sent is seen "
        "in a run with --rng simulation",
    )
    made = record(config, Draws("simulation", config.loop.seed))
    if folder is not None:
        kept = read_npz(folder / "models.npz")["models"]
        require(
            np.allclose(made.state.f, kept, rtol=1e-6, atol=1e-9),
            f"{folder} comes out with other models when it is made again: it was resumed, or the data or the version "
            "are not those of the run",
        )
    return made


def seen_by(rounds: Sequence[Tapped], members: Sequence[int]) -> dict[str, Array]:
    """What these nodes sent, received and know together, by round; words of 64 bits as they travel."""
    found: dict[str, Array] = {}
    for r, tapped in enumerate(rounds):
        place = {node: at for at, node in enumerate(tapped.nodes)}
        for i in members:
            if i in place:
                found[f"round-{r:02d}-own-{i:04d}"] = tapped.sent[place[i]]
        if tapped.total is None:
            continue
        for child, parent in tapped.parents.items():
            if parent in members:
                found[f"round-{r:02d}-from-{child:04d}"] = _below(tapped, place, child)
        found[f"round-{r:02d}-total"] = tapped.total.view(np.uint64)
        at = [place[i] for i in members if i in place]
        if len(members) > 1 and len(at) < len(place):
            known = (tapped.values[at] + tapped.shares[at]).sum(axis=0)
            found[f"round-{r:02d}-others"] = tapped.total - known
    return found


def _below(tapped: Tapped, place: dict[int, int], node: int) -> Array:
    """What a node sends up: its own vector and those of the nodes below it."""
    below = [node]
    for each in below:
        below += [child for child, parent in tapped.parents.items() if parent == each]
    return tapped.sent[[place[i] for i in below]].sum(axis=0, dtype=np.uint64)


def write(made: Recording, folder: Path, coalitions: Sequence[Sequence[int]], source: str) -> list[str]:
    """One file a node, one a coalition, and an index of them; what to print."""
    names = []
    for members in [*([i] for i in range(made.plan.rule.nodes)), *coalitions]:
        stem = "node" if len(members) == 1 else "coalition"
        names.append("-".join([stem, *(f"{m:04d}" for m in members)]) + ".npz")
        write_npz(folder / names[-1], seen_by(made.rounds, members))
    lines: list[dict[str, Any]] = [
        {"round": r, "kind": t.ask.kind, "words": t.ask.words, "roster": t.nodes, "lost": t.total is None}
        for r, t in enumerate(made.rounds)
    ]
    index = {"source": source, "nodes": made.plan.rule.nodes, "rounds": lines, "views": names}
    write_json(folder / "index.json", index)
    messages = sum(2 * (len(t.parents) - 1) for t in made.rounds if t.total is not None)
    words = sum(2 * (len(t.parents) - 1) * t.ask.words for t in made.rounds if t.total is not None)
    return [
        f"messages     {len(made.rounds)} rounds, {messages} messages of {8 * words} bytes in all, without their marks",
        f"from         {source}",
        f"views        {len(names)} files, one a node" + " and one a coalition" * bool(coalitions),
        f"written to   {folder}",
    ]
