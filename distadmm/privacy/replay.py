"""What was sent since the last checkpoint, byte for byte.

A node that starts again from a checkpoint must not answer the same question with the same noise and
other data: two releases that share their noise tell their difference.  So what has been sent is sent
again from here, to the bit; whatever is not here gets fresh noise and a new charge.  A record is written
before the message leaves, is not synced, and carries the hash of the ledger entry that paid for it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_START = struct.Struct("<4sI")  # mark, checksum of all that follows it
_CHECKED = struct.Struct("<qqq32s")  # node, iteration, length, hash; the payload follows
_MARK = b"sent"


class Sent(NamedTuple):
    """One message as it left."""

    head: bytes  # hash of the entry that paid for it
    payload: bytes


def _record(node: int, iteration: int, head: bytes, payload: bytes) -> bytes:
    checked = _CHECKED.pack(node, iteration, len(payload), head) + payload
    return _START.pack(_MARK, zlib.crc32(checked)) + checked


class Replay:
    """The store of one node, or of all nodes of one rank; readable by its owner alone."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def store(self, node: int, iteration: int, head: bytes, payload: bytes) -> None:
        os.write(self._file, _record(node, iteration, head, payload))

    def store_rows(
        self, nodes: Sequence[int], iteration: int, heads: Sequence[bytes], rows: np.ndarray
    ) -> None:
        """Keep what each of `nodes` sends in one iteration, in one write."""
        records = [
            _record(node, iteration, head, row.tobytes()) for node, head, row in zip(nodes, heads, rows)
        ]
        os.write(self._file, b"".join(records))

    def forget(self) -> None:
        """A checkpoint holds all of it now."""
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read(path: str | Path) -> dict[tuple[int, int], Sent]:
    """(node, iteration) -> what was sent; reading ends at the first record that is not whole."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return {}
    found = {}
    at = 0
    while at + _START.size + _CHECKED.size <= len(content):
        mark, checksum = _START.unpack_from(content, at)
        checked = at + _START.size
        node, iteration, length, head = _CHECKED.unpack_from(content, checked)
        payload = checked + _CHECKED.size
        if mark != _MARK or not 0 <= length <= len(content) - payload:
            break
        end = payload + length
        if zlib.crc32(content[checked:end]) != checksum:
            break
        found[node, iteration] = Sent(head, content[payload:end])
        at = end
    return found


def read_all(folder: str | Path) -> dict[tuple[int, int], Sent]:
    """What all stores of a ledger folder hold: nodes may have moved to other ranks since."""
    found: dict[tuple[int, int], Sent] = {}
    for path in sorted(Path(folder).glob("*.replay")):
        found.update(read(path))
    return found
