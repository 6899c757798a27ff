"""What was sent since the last checkpoint, byte for byte.

A node that starts again from a checkpoint must not answer the same question with the same noise and
other data: two releases that share their noise tell their difference.  So what has been sent is sent
again from here, to the bit; whatever is not here gets fresh noise and a new charge.  A record is written
before the message leaves, is not synced, and carries the hash of the ledger entry that paid for it.
"""

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distadmm.errors import told
from distadmm.files import read_bytes
from distadmm.privacy.ledger import chain

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
        self._file = chain.open_own(self.path, os.O_WRONLY | os.O_APPEND)

    def store(self, node: int, iteration: int, head: bytes, payload: bytes) -> None:
        self._write(_record(node, iteration, head, payload))

    def store_rows(
        self, nodes: Sequence[int], iteration: int, heads: Sequence[bytes], rows: np.ndarray
    ) -> None:
        """Keep what each of `nodes` sends in one iteration, in one write."""
        records = [
            _record(node, iteration, head, row.tobytes()) for node, head, row in zip(nodes, heads, rows)
        ]
        self._write(b"".join(records))

    def _write(self, records: bytes) -> None:
        with told(
            f"cannot keep what is to be sent in {self.path}: REASON; it is not sent; make room and take the run up "
            "again with --resume"
        ):
            chain.write_all(self._file, records)

    def forget(self) -> None:
        """A checkpoint holds all of it now."""
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read(path: str | Path) -> dict[tuple[int, int], Sent]:
    """(node, iteration) -> what was sent; what is not a whole record is passed over.

    A kill may cut the last write of a process short, at the end of a page; the next process writes on
    behind the fragment.
    """
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return {}
    found = {}
    at = content.find(_MARK)
    while 0 <= at <= len(content) - _START.size - _CHECKED.size:
        _, checksum = _START.unpack_from(content, at)
        checked = at + _START.size
        node, iteration, length, head = _CHECKED.unpack_from(content, checked)
        payload = checked + _CHECKED.size
        end = payload + length
        whole = payload <= end <= len(content) and zlib.crc32(content[checked:end]) == checksum
        if whole:
            found[node, iteration] = Sent(head, content[payload:end])
        # The last bytes of a payload that was cut may have been made up for by the next record's mark.
        at = content.find(_MARK, end - len(_MARK) if whole else at + 1)
    return found


def read_all(folder: str | Path) -> dict[tuple[int, int], Sent]:
    """What all stores of a ledger folder hold: nodes may have moved to other ranks since."""
    found: dict[tuple[int, int], Sent] = {}
    for path in sorted(Path(folder).glob("*.replay")):
        found.update(read(path))
    return found
