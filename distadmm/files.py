"""Files that are either whole or not there: every write goes to a temporary name and is renamed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from distadmm.errors import InputError


def write_bytes(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write `content` to `path` atomically; with `sync`, it also survives a power cut."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _replace(path, temporary, content, sync)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise InputError(
            f"cannot write {path}: {error.strerror}; make room or make it writable, or name another place"
        ) from None


def _replace(path: Path, temporary: Path, content: bytes, sync: bool) -> None:
    with open(temporary, "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if sync:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode(errors="surrogateescape"))  # names of files may be any bytes


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give an existing JSON file") from None
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}); give a file written by distadmm") from None


def write_npz(path: Path, arrays: Mapping[str, Any], *, sync: bool = False) -> None:
    """Write named numpy arrays; object arrays are refused, so nothing in a file needs pickle."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_bytes(path, buffer.getvalue(), sync=sync)


def read_npz(path: Path) -> dict[str, Any]:
    import zipfile
    import zlib

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"no file {path}; give an existing .npz file") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is not a readable .npz file ({error})") from None


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    import csv

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, buffer.getvalue())


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
    try:
        if path.exists() and not path.is_dir():
            raise InputError(f"--out {path} is a file; give a directory that is new or empty")
        if path.is_dir() and any(path.iterdir()):
            if not force:
                raise InputError(f"--out {path} is not empty; give a new directory, or --force to replace it")
            _empty(path)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the run directory {path}: {error.strerror}; give --out DIR") from None
    return path


def _empty(folder: Path) -> None:
    """Take away what is in `folder`, which itself may be a link or where a disk is mounted."""
    import shutil

    from distadmm.privacy.ledger.chain import has_secret_noise

    ledgers = list(folder.rglob("*.jsonl"))
    for ledger in ledgers:
        if _in_use(ledger):
            raise InputError(
                f"--out {folder} is in use: a run writes {ledger}; end it, or give another --out"
            )
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


def _in_use(ledger: Path) -> bool:
    """Whether a process holds the lock of this ledger."""
    import fcntl

    with open(ledger, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False
