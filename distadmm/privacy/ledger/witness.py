"""The heads that neighbours saw: what finds a ledger whose tail was cut.

A node's head (32 bytes) travels with its messages.  Each receiver keeps the latest head of each
neighbour in a small file of 64-byte records, written in place and not synced: one system call a message,
or one for all neighbours of a rank together.  A kill cannot tear a record: it may cut a write short at the
end of a page, and no record reaches over one.  On resume every ledger must hold every head that its
neighbours kept.
"""

import os
import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distadmm.errors import told
from distadmm.files import read_bytes
from distadmm.privacy.ledger import chain

_RECORD = struct.Struct("<qq32s16x")  # neighbour, iteration, head
_ROW = np.dtype([("node", "<i8"), ("iteration", "<i8"), ("head", "f8", 4), ("spare", "u1", 16)])


class Sighting(NamedTuple):
    """A head that somebody holds of a node."""

    observer: str  # who saw it: "node 4", "rank 2"
    node: int
    iteration: int
    head: bytes


class Witness:
    """The file in which one node, or one rank, keeps the latest head of each neighbour."""

    def __init__(self, path: str | Path, neighbours: Sequence[int] = ()):
        self.path = Path(path)
        self._file = chain.open_own(self.path, os.O_RDWR)
        self._slot = {s.node: at for at, s in enumerate(sightings(self.path, ""))}
        for node in neighbours:
            self._slot.setdefault(int(node), len(self._slot))
        order = [self._slot[int(node)] for node in neighbours]
        same = order == list(range(len(self._slot)))  # as it is unless the file was there before
        self._order: slice | np.ndarray = slice(None) if same else np.array(order, dtype=np.int64)
        rows = np.zeros(len(self._slot), dtype=_ROW)
        rows["node"] = list(self._slot)
        rows["iteration"] = -1
        for seen in sightings(self.path, ""):
            rows[self._slot[seen.node]] = (seen.node, seen.iteration, np.frombuffer(seen.head), [0] * 16)
        self._heads, self._iterations = rows["head"], rows["iteration"]
        self._content = rows.view(np.uint8).data  # the same memory, as the file holds it

    def note_all(self, heads: np.ndarray, iteration: int) -> None:
        """Keep the rows of `heads` (n, 4), numbers as they travel, in the order of `neighbours`."""
        self._heads[self._order] = heads
        self._iterations[self._order] = iteration
        self._write(self._content, 0)

    def _write(self, content: bytes | memoryview, at: int) -> None:
        with told(
            f"cannot keep the heads of neighbours in {self.path}: REASON; make room and take the run up again with "
            "--resume"
        ):
            written = os.pwrite(self._file, content, at)
            while written < len(content):
                written += os.pwrite(self._file, content[written:], at + written)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def sightings(path: str | Path, observer: str | None = None) -> list[Sighting]:
    """What the witness file at `path` holds; no file is no sighting."""
    path = Path(path)
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return []
    who = _observer(path.stem) if observer is None else observer
    whole = len(content) - len(content) % _RECORD.size
    seen = [Sighting(who, *fields) for fields in _RECORD.iter_unpack(content[:whole])]
    return [s for s in seen if s.iteration >= 0] if observer is None else seen


def _observer(stem: str) -> str:
    """node-0004: "node 4"; nodes-0004, the file of a rank: "the rank of node 4"."""
    found = re.fullmatch(r"(nodes?)-0*(\d+)", stem)
    if found is None:
        return stem
    return f"node {found[2]}" if found[1] == "node" else f"the rank of node {found[2]}"


def all_sightings(folder: str | Path) -> list[Sighting]:
    """What all witness files of a ledger folder hold."""
    return [s for path in sorted(Path(folder).glob("*.witness")) for s in sightings(path)]


def missing(seen: Iterable[Sighting], node: int, holds: set[bytes]) -> list[Sighting]:
    """The sightings of `node` that its ledger, whose entries have the hashes `holds`, cannot account for."""
    return [s for s in seen if s.node == node and s.iteration >= 0 and s.head not in holds]
