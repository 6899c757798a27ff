"""A name for data that says whether it changed, and to nobody else what it holds.

A plain hash of private data leaks: who guesses the rows can confirm the guess.  So the hash is keyed
(HMAC-SHA256) with 32 random bytes that stay on this machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.table import Sparse
from distadmm.errors import InputError

PUBLIC_KEY = b"distadmm: this table is public"  # for bundled tables, whose hash tells nothing


def key_path() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "distadmm" / "data-id.key"


def local_key(path: str | Path | None = None) -> bytes:
    """The key of this machine; made on first use, readable by its owner only."""
    path = Path(path) if path is not None else key_path()
    try:
        if not path.exists():
            _create(path)
        key = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot keep the data-id key {path}: {error.strerror}; "
            "set XDG_CONFIG_HOME to a writable directory"
        ) from None
    if len(key) < 16:
        raise InputError(
            f"{path} holds {len(key)} bytes; needed: a key of 16 or more; delete it to get a new one"
        )
    return key


def _create(path: Path) -> None:
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(32))
        with contextlib.suppress(FileExistsError):  # of several ranks that get here together, the first wins
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def data_id(content: Mapping[str, object], key: bytes) -> str:
    """HMAC-SHA256 of named arrays, sparse tables, bytes or texts; the order of names is irrelevant."""
    import hashlib
    import hmac

    code = hmac.new(key, digestmod=hashlib.sha256)
    for name in sorted(content):
        _absorb(code, name, content[name])
    return code.hexdigest()


def _absorb(code: Any, name: str, value: object) -> None:
    if isinstance(value, Sparse):
        for part, member in value._asdict().items():
            _absorb(code, f"{name}.{part}", np.asarray(member))
        return
    if isinstance(value, (bytes, str)):
        kind, body = type(value).__name__, value if isinstance(value, bytes) else value.encode()
    else:
        array = np.ascontiguousarray(value)
        array = array.astype(array.dtype.newbyteorder("<"))
        kind, body = f"{array.dtype.str}{array.shape}", array.tobytes()
    head = f"{name}\0{kind}\0{len(body)}\0"
    code.update(head.encode())
    code.update(body)
