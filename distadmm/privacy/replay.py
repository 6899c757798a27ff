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

_HEADER = struct.Struct("<4sIqqq32s")  # mark, checksum of all that follows it, node, iteration, length, hash
_MARK = b"sent"
_CHECKED = 8  # the checksum covers the record from here on


class Sent(NamedTuple):
    """One message as it left."""

    head: bytes  # hash of the entry that paid for it
    payload: bytes


def _record(node: int, iteration: int, head: bytes, payload: bytes) -> bytes:
    rest = _HEADER.pack(_MARK, 0, node, iteration, len(payload), head)[_CHECKED:] + payload
    return _MARK + struct.pack("<I", zlib.crc32(rest)) + rest


class Replay:
    """The store of one node, or of all nodes of one rank; readable by its owner alone."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def store(self, node: int, iteration: int, head: bytes, payload: bytes) -> None:
        os.write(self._file, _record(node, iteration, head, payload))

    def store_rows(
        self, nodes: Sequence[int], iteration: int, heads: Sequence[bytes], rows: Sequence[bytes]
    ) -> None:
        """Keep what each of `nodes` sends in one iteration, in one write."""
        os.write(self._file, b"".join(_record(n, iteration, h, row) for n, h, row in zip(nodes, heads, rows)))

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
    while at + _HEADER.size <= len(content):
        mark, checksum, node, iteration, length, head = _HEADER.unpack_from(content, at)
        end = at + _HEADER.size + length
        if mark != _MARK or not at < end <= len(content):
            break
        if zlib.crc32(content[at + _CHECKED : end]) != checksum:
            break
        found[node, iteration] = Sent(head, content[at + _HEADER.size : end])
        at = end
    return found


def read_all(folder: str | Path) -> dict[tuple[int, int], Sent]:
    """What all stores of a ledger folder hold: nodes may have moved to other ranks since."""
    found: dict[tuple[int, int], Sent] = {}
    for path in sorted(Path(folder).glob("*.replay")):
        found.update(read(path))
    return found
