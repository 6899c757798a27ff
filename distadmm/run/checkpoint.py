"""A run's state on disk: one file a rank, and a manifest that makes a set of them a checkpoint.

The manifest is written last, so a checkpoint either is complete or does not exist; the one before is removed
only after that.  Rows are stored with the numbers of their nodes, so another number of ranks can go on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from distadmm.algorithm import Node
from distadmm.errors import InputError
from distadmm.files import read_json, read_npz, write_bytes, write_npz
from distadmm.ranks.world import World

Array = np.ndarray


def save(folder: Path, k: int, state: Any, node: Node, world: World, seconds: float = 0.0) -> None:
    """Write the state after iteration k, and what the solvers remember; `seconds` is what rank 0 has taken so far."""
    place = folder / f"iteration-{k:08d}"
    world.on_root(lambda: _make(folder, place))
    arrays = {f"state.{name}": np.asarray(value) for name, value in state._asdict().items()}
    arrays["nodes"] = node.network.nodes
    arrays |= {f"solver.{name}": value for name, value in node.problem.memory().items()}
    traffic = node.network.traffic
    arrays["traffic"] = np.array([traffic.messages, traffic.bytes])
    arrays |= {f"network.{name}": value for name, value in node.network.memory().items()}
    arrays |= {f"release.{name}": value for name, value in node.release.memory().items()}
    write_npz(place / f"rank-{world.rank:05d}.npz", arrays, sync=True)
    world.barrier()
    if world.is_root:
        import json
        import shutil

        files = [f"rank-{rank:05d}.npz" for rank in range(world.size)]
        manifest = json.dumps({"iteration": k, "folder": place.name, "files": files, "seconds": seconds})
        write_bytes(folder / "latest.json", manifest.encode(), sync=True)
        for old in folder.glob("iteration-*"):
            if old != place:
                shutil.rmtree(old, ignore_errors=True)
    world.barrier()  # from here on every rank may forget what it would need to go back further


def _make(folder: Path, place: Path) -> None:
    """For their owner alone: solvers remember minimisers as they were before the noise."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {place}: {error.strerror}; make room, then --resume") from None


def latest(folder: Path) -> int:
    """The iteration after which the last complete checkpoint was taken."""
    if not (folder / "latest.json").is_file():
        raise InputError(f"no complete checkpoint in {folder}; run with --checkpoint-every K, then --resume")
    return int(read_json(folder / "latest.json")["iteration"])


def seconds(folder: Path) -> float:
    """What the iterations before the last complete checkpoint took."""
    return float(read_json(folder / "latest.json").get("seconds", 0.0))


def stack(rows: list[Any]) -> Array:
    """Rows below one another; where their first axes differ (ranks with other degrees), padded with zeros."""
    if len({np.shape(row) for row in rows}) > 1:
        most = max(len(row) for row in rows)
        rows = [np.concatenate([row, np.zeros((most - len(row), *row.shape[1:]))]) for row in rows]
    return np.stack(rows)


def load(folder: Path, state: Any, node: Node) -> Any:
    """The state of the last complete checkpoint, for the nodes that this rank hosts now."""
    manifest = read_json(folder / "latest.json")
    nodes = node.network.nodes
    wanted = {int(i): a for a, i in enumerate(nodes)}
    rows: dict[str, list[Any]] = {}
    messages = total = 0.0
    for name in manifest["files"]:
        part = read_npz(folder / manifest["folder"] / name)
        share = 0
        for b, i in enumerate(part["nodes"].tolist()):
            if i not in wanted:
                continue
            share += 1
            for key, value in part.items():
                if key not in ("nodes", "traffic"):
                    rows.setdefault(key, [None] * len(nodes))[wanted[i]] = value[b]
        messages += part["traffic"][0] * share / max(len(part["nodes"]), 1)
        total += part["traffic"][1] * share / max(len(part["nodes"]), 1)
    missing = [int(i) for i, row in zip(nodes, rows.get("solver.taken", [None] * len(nodes))) if row is None]
    if missing:
        raise InputError(
            f"the checkpoint in {folder} has no node {missing[0]}; it belongs to another network"
        )
    whole = {key: stack(value) for key, value in rows.items()}
    node.problem.restore(_under("solver.", whole))
    node.network.restore(_under("network.", whole))
    node.release.recall({k.removeprefix("release."): v for k, v in whole.items() if k.startswith("release.")})
    node.network.traffic.messages, node.network.traffic.bytes = round(messages), round(total)
    return type(state)(**{name: whole[f"state.{name}"] for name in state._fields})


def _under(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
