"""Files that are either whole or not there: every write goes to a temporary name and is renamed."""

import contextlib
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distadmm.errors import InputError


def write_bytes(path: Path, content: bytes, *, sync: bool = False, secret: bool = False) -> None:
    """Write `content` to `path` atomically; with `sync` it also survives a power cut, `secret` is its owner's alone."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _replace(path, temporary, content, sync, 0o600 if secret else 0o666)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise InputError(
            f"cannot write {path}: {error.strerror}; make room or make it writable, or name another place"
        ) from None


def _replace(path: Path, temporary: Path, content: bytes, sync: bool, mode: int) -> None:
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(handle, "wb") as file:
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
    try:
        return json.loads(Path(path).read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give an existing JSON file") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}); give a file written by distadmm") from None


def write_npz(path: Path, arrays: Mapping[str, Any], **how: bool) -> None:
    """Write named numpy arrays; object arrays are refused, so nothing in a file needs pickle."""
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_bytes(path, buffer.getvalue(), **how)


def read_npz(path: Path) -> dict[str, Any]:
    import zipfile
    import zlib

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"no file {path}; give an existing .npz file") from None
    except (
        OSError,
        ValueError,
        EOFError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InputError(
            f"{path} is not a readable .npz file of plain arrays ({error}); write it with numpy.savez"
        ) from None


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    import csv

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, buffer.getvalue())
