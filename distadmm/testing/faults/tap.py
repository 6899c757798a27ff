"""What leaves each node of a run, written down at the moment it leaves, and what its ledger on disk said then.

One line a message: node, iteration (or session and round of a masked sum, or none where messages are not told apart by
one), digest of its bytes, and the entries that the ledger has for it.  The ledger is read here as plain JSON lines, by
nothing that wrote it: whoever judges does not trust the code that is judged.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FREE = {"open", "commit", "close", "resume", "torn", "refused"}  # kinds of entries that let nothing out
UNBOUNDED = 1 << 30  # entries that one line of unbounded cost is worth: everything is told already


class Message(NamedTuple):
    node: int
    key: str  # iteration, or session and round
    digest: str
    noted: int  # entries for it on disk when it left


def entries(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """By node what the ledgers of a run hold on disk; what is no whole line is passed over."""
    found: dict[int, list[dict[str, Any]]] = {}
    for path in sorted((folder / "ledger").glob("*.jsonl")):
        with contextlib.suppress(OSError):
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    found.setdefault(int(entry["node"]), []).append(entry)
    return found


def noted(own: list[dict[str, Any]], key: str) -> int:
    """How many of a node's entries let a message out; all that let out any where messages have no key."""
    letting = [entry for entry in own if entry["kind"] not in FREE]
    if any(entry.get("mech") == "unbounded" for entry in letting):
        return UNBOUNDED
    if not key:
        return len(letting)
    if "/" in key:
        told = [entry.get("params", {}) for entry in letting]
        return sum(f"{params.get('session')}/{params.get('round')}" == key for params in told)
    return sum(str(entry.get("k")) == key for entry in letting)


def read(path: Path) -> list[Message]:
    """What one or several lives of a run wrote; the last line of a life may be torn."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError, TypeError):
            found.append(Message(*json.loads(line)))
    return found


def in_turn(paths: Iterable[Path]) -> list[Path]:
    """What lives wrote that had the lock of a run one after the other, whichever was started first."""
    return sorted((path for path in paths if path.exists()), key=lambda path: path.stat().st_mtime_ns)


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """The disk is full for the run, not for who watches it."""
    import resource

    kind = resource.RLIMIT_FSIZE
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (hard, hard))
    yield
    resource.setrlimit(kind, (soft, hard))


def listen(path: Path, folder: Path, *, alone: bool) -> None:
    """From now on, in this process; `alone`: there is nobody to send to, and what counts is what is released."""
    from hashlib import sha256

    from distadmm.privacy.ledger.file import Ledger
    from distadmm.privacy.noise.masks import Member
    from distadmm.ranks.graph_network import Network
    from distadmm.ranks.star import Star

    with _room():
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    latest = [0]  # the iteration that has begun

    def note(rows: dict[int, tuple[str, bytes]]) -> None:
        held = entries(folder)
        lines = [
            json.dumps([node, key, sha256(content).hexdigest()[:24], noted(held.get(node, []), key)]) + "\n"
            for node, (key, content) in rows.items()
        ]
        with _room():
            os.write(log, "".join(lines).encode())

    begin, exchange, up, masked, keep = (
        Network.begin, Network._exchange, Star.up, Member.masked, Ledger.store_release,
    )  # fmt: skip

    def begun(self: Network, k: int) -> None:
        latest[0] = k
        begin(self, k)

    def exchanged(self: Network, F: Any, unsent: int = 0) -> Any:
        if latest[0]:  # before the first iteration nodes tell each other the common start
            width = F.shape[1] - (4 if self.stamp is not None else 0) + unsent  # without the head of a ledger
            sent = {int(i): row[:width] for i, row in zip(self.nodes, F)}
            # A row in which no number is left, of a state that was spoilt, tells nothing.
            note({i: (str(latest[0]), row.tobytes()) for i, row in sent.items() if np.isfinite(row).any()})
        return exchange(self, F, unsent)

    def sent_up(self: Star, messages: Any, *more: Any) -> Any:
        if self._kind == "vector":
            note({m: ("", messages[m].tobytes()) for m in self.hosted if m in messages})
        return up(self, messages, *more)

    def summed(self: Member, values: Any) -> Any:
        u = masked(self, values)
        note({self.id: (f"{self.session.hex()}/{self.r}", u.tobytes())})
        return u

    def kept(self: Ledger, iteration: int, payload: bytes) -> None:
        if alone:
            note({self.node: (str(iteration), payload)})
        keep(self, iteration, payload)

    Network.begin, Network._exchange = begun, exchanged  # type: ignore[method-assign]
    Star.up, Member.masked, Ledger.store_release = sent_up, summed, kept  # type: ignore[method-assign, assignment]
