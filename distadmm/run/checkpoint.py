"""A run's state on disk: one file a rank, and a manifest that makes a set of them a checkpoint.

The manifest is written last, so a checkpoint either is complete or does not exist; the one before is removed
only after that.  What a file holds says by itself which members it is about, so another number of ranks can go on.
Manifest and files name the run and the iteration, and the manifest has the hash of each file: what cannot be proved to
be one whole checkpoint of this run is refused.  Those of releases before that have no hashes, and are read.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.errors import InputError, require, told
from distadmm.files import make_folder, read_json, read_npz, require_an_end, write_bytes, write_npz
from distadmm.ranks.world import World

Array = np.ndarray
Call = Callable[[bytes], dict[int, bytes]]  # by rank, what each that is there says
_OF = "of"  # in each file: the run and the iteration


def save(
    folder: Path,
    k: int,
    kept: dict[str, Array],
    world: World,
    call: Call,
    seconds: float = 0.0,
    run: str = "",
) -> bool:
    """Write what each rank keeps after iteration k of `run`; `seconds` is what rank 0 has taken so far.

    `call` tells all ranks that are there what each of them says; who does not answer is in no later checkpoint.
    Whether every rank may forget now what it would need to go back further.
    """
    place, name = folder / f"iteration-{k:08d}", f"rank-{world.rank:05d}.npz"
    try:
        _make(folder, place)
        write_npz(place / name, {**kept, _OF: np.array([run, str(k)])}, sync=True, secret=True)
        said = [name, _hash(place / name), ""]
    except InputError as problem:
        said = [name, "", str(problem)]
    heard = call(json.dumps(said).encode())
    parts = [json.loads(heard[rank]) for rank in sorted(heard)]
    if problems := [problem for _, _, problem in parts if problem]:
        raise InputError(problems[0], shared=True)
    if world.is_root:
        import shutil

        manifest = {"iteration": k, "folder": place.name, "files": [file for file, _, _ in parts]}
        manifest |= {"seconds": seconds, "run": run, "sha256": [digest for _, digest, _ in parts]}
        write_bytes(folder / "latest.json", json.dumps(manifest).encode(), sync=True)
        for old in folder.glob("iteration-*"):
            if old != place:
                shutil.rmtree(old, ignore_errors=True)
    return min(heard) in call(b"")  # else the manifest may not be there


def _hash(path: Path) -> str:
    import hashlib

    unread = f"cannot read {path} of the checkpoint: REASON; restore it, or start anew"
    require_an_end(path)
    with told(unread), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make(folder: Path, place: Path) -> None:
    """For their owner alone: solvers remember minimisers as they were before the noise that covers their error."""
    with told(f"cannot make {place}: REASON; make room, then --resume"):
        make_folder(folder, 0o700)
        place.mkdir(exist_ok=True)


def is_there(folder: Path) -> bool:
    return (folder / "latest.json").is_file()


def _manifest(folder: Path) -> dict[str, Any]:
    """What the manifest says, if it can be one."""
    path = folder / "latest.json"
    if not is_there(folder):
        raise InputError(f"no complete checkpoint in {folder}; run with --checkpoint-every K, then --resume")
    found = read_json(path)
    found = found if isinstance(found, dict) else {}
    files, hashes = found.get("files"), found.get("sha256")
    texts = [found.get("folder"), *(files if isinstance(files, list) and files else [None])]
    fits = all(isinstance(text, str) for text in texts) and type(found.get("iteration")) is int
    fits &= found["iteration"] >= 0 and isinstance(found.get("seconds", 0.0), (int, float)) if fits else False
    if "run" in found or hashes is not None:
        fits &= (
            isinstance(found.get("run"), str) and isinstance(hashes, list) and len(hashes) == len(texts) - 1
        )
    require(
        fits, f"{path} is no manifest of a checkpoint, or a damaged one; restore it, or start the run anew"
    )
    return found


def latest(folder: Path) -> int:
    """The iteration after which the last complete checkpoint was taken."""
    return int(_manifest(folder)["iteration"])


def seconds(folder: Path) -> float:
    """What the iterations before the last complete checkpoint took."""
    return float(_manifest(folder).get("seconds", 0.0))


def run_of(folder: Path) -> str:
    """The name of the run that the last complete checkpoint is of; empty in those of earlier releases."""
    return str(_manifest(folder).get("run", ""))


def heads(parts: list[dict[str, Array]]) -> dict[int, str]:
    """By member the head of its ledger at that moment; of those that had left a masked run, maybe an earlier one."""
    found: dict[int, str] = {}
    for part in parts:
        roster = part.get("release.roster")
        if "release.head" in part:
            rows = zip(part["nodes"].tolist(), part["release.head"])
            found |= {i: row.tobytes().hex() for i, row in rows if roster is None or roster[0][i]}
        for key in part:
            if key.startswith("release.head/"):
                found[int(key.rpartition("/")[2])] = part[key].tobytes().hex()
        if "head" in part:
            found[0] = part["head"].tobytes().hex()
    return found


def load(folder: Path) -> list[dict[str, Array]]:
    """What every rank kept in the last complete checkpoint, one after the other."""
    manifest, path = _manifest(folder), folder / "latest.json"
    places = [(folder / manifest["folder"] / name).resolve() for name in manifest["files"]]
    parts = []
    for at, place in enumerate(places):
        require(
            place.is_relative_to(folder.resolve()),
            f"{path} names {place}, which is not in that directory; start the run anew",
        )
        known = "sha256" in manifest
        require(
            not known or _hash(place) == manifest["sha256"][at],
            f"{place} is not the file of which {path} has the hash: the checkpoint is damaged or mixed with another; "
            "restore it, or start the run anew",
        )
        part = read_npz(place)
        of = part.pop(_OF, np.array([])).tolist()
        require(
            of == ([manifest["run"], str(manifest["iteration"])] if known else []),
            f"{place} is of another run or iteration than {path}; restore the checkpoint, or start the run anew",
        )
        parts.append(part)
    return parts
