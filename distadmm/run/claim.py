"""The directory of a new run: made or emptied, never under a run that still writes, never over spent noise."""

import contextlib
import os
import sys
import time
from itertools import count
from pathlib import Path

from distadmm.errors import InputError, require, told
from distadmm.files import lock_file, make_folder, sync_folder
from distadmm.privacy.ledger.chain import has_secret_noise

LOCK = ".lock"  # in the directory of a run that writes: over NFS folders are locked for one host alone, files for all


def claim_directory(
    path: str | Path | None, name: str, *, force: bool = False, held: "list[Lock] | None" = None
) -> Path:
    """Make a new directory for results: `path`, or `runs/<name>-<date>-<time>` when none is given.

    An existing non-empty directory is never overwritten unless `force` says so; then it is emptied, but not
    under a run that still writes there.  A run with secret noise is moved aside: what was spent stays on record.
    `held`: it is a run's, whose lock is taken before anybody looks into it, and put there.
    """
    if path is None:
        path = _a_new_one(Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
        if held is not None:
            held.append(lock(path))
        return path
    path = Path(path)
    with told(f"cannot make the run directory {path}: REASON; give --out DIR"):
        file = path.exists() and not path.is_dir()
        require(not file, f"--out {path} is a file; give a directory that is new or empty")
        make_folder(path)
        entries = [entry for entry in path.iterdir() if entry.name != LOCK]
        require(
            force or not entries,
            f"--out {path} is not empty; give a new directory, or --force to replace it",
        )
        own = lock(path)
        if held is not None:
            held.append(own)
        if entries := [entry for entry in path.iterdir() if entry.name != LOCK]:
            require(force, f"--out {path} is in use: another run has begun there; give another --out")
            _empty(path, entries)
    return path


def _a_new_one(stem: Path) -> Path:
    for attempt in range(1000):
        candidate = stem if attempt == 0 else stem.with_name(f"{stem.name}-{attempt}")
        with told(f"cannot make the run directory {candidate}: REASON; give --out DIR"):
            try:
                candidate.mkdir(parents=True)
            except FileExistsError:
                continue
            sync_folder(candidate.parent.parent)
            sync_folder(candidate.parent)
            return candidate
    raise InputError(f"cannot find a free name like {stem}; give --out DIR")


def _empty(folder: Path, entries: list[Path]) -> None:
    """Take away what is in `folder`, which itself may be a link or where a disk is mounted."""
    import shutil

    ledgers = list(folder.rglob("*.jsonl"))
    for path in ledgers:
        used = f"--out {folder} is in use: a run writes {path}; end it, or give another --out"
        require(not in_use(path), used)
    if any(map(has_secret_noise, ledgers)):
        whole = os.path.abspath(folder)
        aside = Path(next(name for k in count(1) if not os.path.lexists(name := f"{whole}.spent-{k}")))
        aside.mkdir()
        for entry in entries:
            shutil.move(entry, aside / entry.name)
        kept = os.path.relpath(aside)
        print(f"{folder}: its noise was secret and is spent; that run is kept in {kept}", file=sys.stderr)
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


class Lock:
    """Of a run directory; held until nobody refers to it, or the process ends."""

    def __init__(self, folder: Path):
        self._path = folder / LOCK
        while True:
            self._handle, self.held = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), True
            with contextlib.suppress(OSError):  # a file system without locks
                self.held = lock_file(self._handle)
            with contextlib.suppress(OSError):  # who held it took its name away
                if os.path.samestat(os.fstat(self._handle), os.stat(self._path)):
                    return
            os.close(self._handle)
            del self._handle

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            if self.held:
                with contextlib.suppress(OSError):  # the directory is gone, or cannot be written any more
                    self._path.unlink()
            os.close(self._handle)


def in_use(path: Path) -> bool:
    """Whether a process holds the lock of this run directory or ledger; a look, which holds up nobody."""
    with contextlib.suppress(OSError), open(path / LOCK if path.is_dir() else path, "rb") as file:
        return not lock_file(file.fileno(), shared=True, patience=0.0)
    return False


def lock(folder: Path) -> Lock:
    """The one lock of a run, by which no two processes write into its directory."""
    with told(f"cannot lock {folder}: REASON; a run writes there"):
        found = Lock(folder)
    require(found.held, f"{folder} is in use: a run writes there; wait for its end, or end it")
    return found
