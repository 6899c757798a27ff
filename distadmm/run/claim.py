"""The directory of a new run: made or emptied, never under a run that still writes, never over spent noise."""

import os
import sys
import time
from itertools import count
from pathlib import Path

from distadmm.errors import InputError, require, told
from distadmm.privacy.ledger.chain import has_secret_noise


def claim_directory(path: str | Path | None, name: str, *, force: bool = False) -> Path:
    """Make the directory of a new run: `path`, or `runs/<name>-<date>-<time>` when none is given.

    An existing non-empty directory is never overwritten unless `force` says so; then it is emptied, but not
    under a run that still writes there.  A run with secret noise is moved aside: what was spent stays on record.
    """
    if path is None:
        stem = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        for attempt in range(1000):
            candidate = stem if attempt == 0 else stem.with_name(f"{stem.name}-{attempt}")
            try:
                candidate.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise InputError(
                    f"cannot make the run directory {candidate}: {error.strerror}; give --out DIR"
                ) from None
            return candidate
        raise InputError(f"cannot find a free name like {stem}; give --out DIR")
    path = Path(path)
    with told(f"cannot make the run directory {path}: REASON; give --out DIR"):
        file = path.exists() and not path.is_dir()
        require(not file, f"--out {path} is a file; give a directory that is new or empty")
        if path.is_dir() and any(path.iterdir()):
            require(force, f"--out {path} is not empty; give a new directory, or --force to replace it")
            _empty(path)
        path.mkdir(parents=True, exist_ok=True)
    return path


def _empty(folder: Path) -> None:
    """Take away what is in `folder`, which itself may be a link or where a disk is mounted."""
    import shutil

    ledgers = list(folder.rglob("*.jsonl"))
    for path in (folder, *ledgers):
        used = f"--out {folder} is in use: a run writes {path}; end it, or give another --out"
        require(not in_use(path), used)
    if any(map(has_secret_noise, ledgers)):
        whole = os.path.abspath(folder)
        aside = Path(next(name for k in count(1) if not os.path.lexists(name := f"{whole}.spent-{k}")))
        aside.mkdir()
        for entry in list(folder.iterdir()):
            shutil.move(entry, aside / entry.name)
        kept = os.path.relpath(aside)
        print(f"{folder}: its noise was secret and is spent; that run is kept in {kept}", file=sys.stderr)
        return
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


class Lock:
    """Of a run directory or a ledger; held until nobody refers to it, or the process ends."""

    def __init__(self, path: Path):
        import fcntl

        self._handle, self.held = os.open(path, os.O_RDONLY), True
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.held = False
        except OSError:  # a file system without locks
            pass

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            os.close(self._handle)


def in_use(path: Path) -> bool:
    """Whether a process holds the lock of this run directory or ledger."""
    return not Lock(path).held


def lock(folder: Path) -> Lock:
    """The one lock of a run, by which no two processes write into its directory."""
    found = Lock(folder)
    require(found.held, f"{folder} is in use: a run writes there; wait for its end, or end it")
    return found
