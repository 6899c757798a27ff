"""A run's state on disk: one file a rank, and a manifest that makes a set of them a checkpoint.

The manifest is written last, so a checkpoint either is complete or does not exist; the one before is removed
only after that.  What a file holds says by itself which members it is about, so another number of ranks can go on.
"""

from pathlib import Path

import numpy as np

from distadmm.errors import InputError, require
from distadmm.files import read_json, read_npz, write_bytes, write_npz
from distadmm.ranks.world import World

Array = np.ndarray


def save(folder: Path, k: int, kept: dict[str, Array], world: World, seconds: float = 0.0) -> None:
    """Write what each rank keeps after iteration k; `seconds` is what rank 0 has taken so far."""
    place = folder / f"iteration-{k:08d}"
    world.on_root(lambda: _make(folder, place))
    write_npz(place / f"rank-{world.rank:05d}.npz", kept, sync=True, secret=True)
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
    """For their owner alone: solvers remember minimisers as they were before the noise that covers their error."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make {place}: {error.strerror}; make room, then --resume") from None


def is_there(folder: Path) -> bool:
    return (folder / "latest.json").is_file()


def latest(folder: Path) -> int:
    """The iteration after which the last complete checkpoint was taken."""
    if not is_there(folder):
        raise InputError(f"no complete checkpoint in {folder}; run with --checkpoint-every K, then --resume")
    return int(read_json(folder / "latest.json")["iteration"])


def seconds(folder: Path) -> float:
    """What the iterations before the last complete checkpoint took."""
    return float(read_json(folder / "latest.json").get("seconds", 0.0))


def load(folder: Path) -> list[dict[str, Array]]:
    """What every rank kept in the last complete checkpoint, one after the other."""
    manifest = read_json(folder / "latest.json")
    try:
        places = [(folder / str(manifest["folder"]) / str(name)).resolve() for name in manifest["files"]]
    except (KeyError, TypeError):
        raise InputError(
            f"{folder / 'latest.json'} names no files of a checkpoint; start the run anew"
        ) from None
    for place in places:
        require(
            place.is_relative_to(folder.resolve()),
            f"{folder / 'latest.json'} names {place}, which is not in that directory; start the run anew",
        )
    return [read_npz(place) for place in places]
