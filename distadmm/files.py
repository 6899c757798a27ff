"""Files that are either whole or not there: every write goes to a temporary name and is renamed."""

import contextlib
import errno
import importlib
import io
import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from distadmm.errors import InputError, require, told

_HELD: ContextVar[Mapping[str, Any]] = ContextVar("objects that names stand for in place of files")
SESSION = "session"  # how the names of such objects begin


def _built_in_sha256() -> Callable[..., Any]:
    """hashlib's SHA-256 without OpenSSL's, which takes every rank 2 ms to load and saves a short entry nothing."""
    for module in ("_sha2", "_sha256"):  # Python 3.12 and later; 3.11
        try:
            return importlib.import_module(module).sha256
        except ImportError:
            continue
    import hashlib

    return hashlib.sha256


sha256 = _built_in_sha256()


@contextlib.contextmanager
def holding(flags: Mapping[str, Any], names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """`flags` as texts: where those of `names` hold an object, a name that stands for it meanwhile, in this thread."""
    found = {
        f"{SESSION}:{name}": flags[name]
        for name in names
        if not isinstance(flags.get(name), str | Path | None)
    }
    token = _HELD.set(found)
    try:
        yield {**flags, **{name.partition(":")[2]: name for name in found}}
    finally:
        _HELD.reset(token)


def held(name: str | Path | None) -> Any:
    """The object that a name stands for; None: it names a file, or what comes with the package."""
    text = str(name)
    if not text.startswith(f"{SESSION}:"):
        return None
    if text not in _HELD.get({}):
        raise InputError(
            f"{text} was an object of a Python session that is over; give a file, or run it from there again"
        )
    return _HELD.get()[text]


def require_an_end(path: str | Path) -> None:
    """Refuse a device such as /dev/zero, which may be read for ever; a pipe has an end."""
    with contextlib.suppress(OSError):
        endless = stat.S_ISCHR(os.stat(path).st_mode) and not os.path.samefile(path, os.devnull)
        require(not endless, f"{path} is a device, not a file; give a file")


def read_bytes(path: str | Path) -> bytes:
    """What the file at `path` holds; a device is refused."""
    require_an_end(path)
    return Path(path).read_bytes()


def write_bytes(path: Path, content: bytes, *, sync: bool = False, secret: bool = False) -> None:
    """Write `content` to `path` atomically; with `sync` it also survives a power cut, `secret` is its owner's alone."""
    path = Path(path)
    temporary = path.parent / f".{path.name}.{os.getpid()}.part"  # of a folder, too, which is refused below
    try:
        _replace(path, temporary, content, sync, 0o600 if secret else 0o666)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        why = "it is a folder" if path.is_dir() else error.strerror
        raise InputError(
            f"cannot write {path}: {why}; make room or make it writable, or name another place"
        ) from None


def require_another(out: str, data: str) -> None:
    """Refuse to write over what is read."""
    with contextlib.suppress(OSError):  # of which one is no file, or not there yet
        require(not os.path.samefile(out, data), f"--out {out} is the file that is read; give another name")


def _replace(path: Path, temporary: Path, content: bytes, sync: bool, mode: int) -> None:
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(handle, "wb") as file:
        file.write(content)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if sync:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """The names in it survive a power cut."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that syncs no folders
            raise
    finally:
        os.close(folder)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make it, and what is missing above it, so that what is synced in it is found after a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def lock_file(handle: int, *, shared: bool = False, patience: float = 1.0) -> bool:
    """Lock an open file until it is closed, for this process alone or `shared`; whether that went well.

    Who only looks whether it is locked holds it for a moment, so it is tried for a while.  A file system without locks
    raises OSError.
    """
    import fcntl

    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        time.sleep(0.02)


def write_text(path: Path, text: str, **how: bool) -> None:
    write_bytes(path, text.encode(errors="surrogateescape"), **how)  # names of files may be any bytes


def write_json(path: Path, content: Any, **how: bool) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n", **how)


def finite(value: Any) -> Any:
    """`value` for JSON, which has no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    with told(f"cannot read {path}: REASON; give an existing JSON file"):
        text = read_bytes(path).decode(errors="surrogateescape")
    with told(
        f"{path} is not valid JSON (REASON); give a file written by distadmm", ValueError, RecursionError
    ):
        found = json.loads(text)
        if "\\ud" in text.lower():  # an escape may name half a character, which nobody could write again
            json.dumps(found, ensure_ascii=False).encode(errors="surrogateescape")
        return found


def write_npz(path: Path, arrays: Mapping[str, Any], **how: bool) -> None:
    """Write named numpy arrays; object arrays are refused, so nothing in a file needs pickle."""
    import numpy as np

    plain = {name: np.asarray(array) for name, array in arrays.items()}
    if objects := [name for name, array in plain.items() if array.dtype.hasobject]:
        raise ValueError(f"{objects[0]} holds objects, which {path} would need pickle for")
    buffer = io.BytesIO()
    np.savez(buffer, **plain)  # type: ignore[arg-type]  # numpy 1 takes its allow_pickle for an array's name
    write_bytes(path, buffer.getvalue(), **how)


@contextlib.contextmanager
def unreadable_arrays(path: Path, suffix: str = ".npz", writer: str = "savez") -> Iterator[None]:
    """End in one line what is wrong with a file of arrays."""
    import tokenize
    import zipfile
    import zlib

    kinds = (
        *(OSError, ValueError, EOFError, TypeError, AttributeError, SyntaxError, RuntimeError),
        *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
    )
    what = f"{path} is not a readable {suffix} file of plain arrays (REASON); write it with numpy.{writer}"
    with told(what, *kinds), told(f"no file {path}; give an existing {suffix} file", FileNotFoundError):
        yield


def read_npz(path: Path) -> dict[str, Any]:
    require_an_end(path)
    import numpy as np

    with unreadable_arrays(path), np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
        if odd := [name for name, array in arrays.items() if array.dtype.kind == "c"]:
            raise ValueError(f"{odd[0]} holds complex numbers")
        return arrays


def examples(prog: str) -> str:
    """Two commands that work, for the end of a help page; they may need what others of the file, above them, left."""
    mine = f"{prog.removeprefix('distadmm').strip(' .') or 'distadmm'}: "
    lines = (Path(__file__).parent / "data" / "examples.txt").read_text().splitlines()
    found = [line[len(mine) :] for line in lines if line.startswith(mine)]
    return "\n  ".join(["examples:", *found]) if found else ""


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]], **how: bool) -> None:
    import csv

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, buffer.getvalue(), **how)
