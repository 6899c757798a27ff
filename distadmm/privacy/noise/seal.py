"""What a release answers for, and the guard that nothing else passes unnoticed.

    guard.seal(round, rows, events)    these bytes were released: they may leave, `uses` times
    guard.permit(round, purpose)       the next messages are made of released values, or are charged already
    guard(kind, rows)                  asked by the fabric before rows leave

Invariant that guards privacy
-----------------------------
* A message without a seal, with other bytes than were sealed, or sent once more than was paid for is charged as
  unbounded before it leaves; under a budget that raises, and it does not leave.

What was sealed is kept and compared to the byte: a copy and a comparison of memory cost less than hashing twice.
A permit answers for no bytes: whoever asks for one vouches for the code that makes them.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from distadmm.privacy.accounting.events import Array, Event
from distadmm.structs import mutable_struct


class Seal(NamedTuple):
    """One node's message, as its release vouches for it."""

    node: int
    round: int
    purpose: str  # "release", "start", "recycled", "open"
    event: Event | None  # what the ledger was charged with; None: nothing, it costs nothing
    digest: bytes  # BLAKE2b of its bytes; empty for a permit
    dtype: str
    shape: tuple[int, ...]
    uses: float  # how many messages may still carry it


def digest(row: Array) -> bytes:
    from hashlib import blake2b

    return blake2b(row.tobytes(), digest_size=32).digest()


@mutable_struct
class _Issued:
    """The seals of all nodes of a rank for one message."""

    round: int
    purpose: str
    events: Sequence[Event | None]
    rows: Array | None  # a copy of what may leave; None: a permit
    content: bytes
    uses: float


class Guard:
    """Stands between the nodes of one rank and their fabric.

    `charge(at, reason, round)` writes that the node at position `at` sent what has no bound.
    """

    def __init__(self, nodes: Sequence[int], charge: Callable[[int, str, int], None]):
        self.nodes = [int(node) for node in nodes]
        self._charge = charge
        self._issued: dict[str, _Issued] = {}  # by kind of message, the latest
        self._round = 0
        self.charged = 0  # messages that had no seal

    def seal(
        self,
        round: int,
        rows: Array,
        events: Sequence[Event | None] = (),
        *,
        purpose: str = "release",
        kind: str = "row",
        uses: float = 1,
    ) -> None:
        """Row i of `rows`, released by node i under event i, may leave; what was sealed before may not any more."""
        self._round = round
        self._issued[kind] = _Issued(round, purpose, events, rows.copy(), _bytes(rows), uses)

    def permit(self, round: int, purpose: str, *, kind: str = "row") -> None:
        """The next messages of this kind may hold anything: they are made of released values ("recycled"), or the
        ledger says already that they have no bound ("open")."""
        self._round = round
        issued = self._issued.get(kind)
        if issued is None or issued.rows is not None:
            issued = self._issued[kind] = _Issued(round, purpose, (), None, b"", 0)
        issued.round, issued.purpose = round, purpose
        issued.uses = math.inf if purpose == "open" else 1

    def __call__(
        self, kind: str, rows: Array, seal: Sequence[Seal] | None = None, member: int | None = None
    ) -> None:
        """Let `rows` leave, or charge them.  `seal`: those that travel with them, where the fabric sends some."""
        issued = self._issued.get(kind)
        of = range(len(rows)) if member is None else [self.nodes.index(member)]
        if issued is None:
            self._refuse(of, f"a message ({kind}) was sent that no release covers")
        elif seal is not None and list(seal) != self.seals(kind):
            self._refuse(of, f"a message ({kind}) was sent under another seal than its own")
        elif issued.uses < 1:
            self._refuse(of, f"a message ({kind}) was sent once more than was paid for")
        elif issued.rows is None or _bytes(rows) == issued.content:
            issued.uses -= 1
        else:
            issued.uses -= 1
            differ = _differing(rows, issued.rows) if member is None else of
            self._refuse(differ, f"a message ({kind}) was altered after it was sealed")

    def seals(self, kind: str = "row") -> list[Seal]:
        """The seals under which the next message of this kind may leave, one a node."""
        issued = self._issued.get(kind)
        if issued is None:
            return []
        made = []
        for at, node in enumerate(self.nodes):
            event = issued.events[at] if issued.events else None
            row = None if issued.rows is None else issued.rows[at]
            name, dtype, shape = (b"", "", ()) if row is None else (digest(row), row.dtype.str, row.shape)
            made.append(Seal(node, issued.round, issued.purpose, event, name, dtype, shape, issued.uses))
        return made

    def _refuse(self, positions: Sequence[int], reason: str) -> None:
        for at in positions:
            self.charged += 1
            self._charge(at, reason, self._round)


def _bytes(rows: Array) -> bytes:
    """All that tells a message from another: its bytes, and how they are to be read."""
    return rows.tobytes() + f"{rows.dtype.str}{rows.shape}".encode()


def _differing(rows: Array, sealed: Array) -> Sequence[int]:
    if rows.shape != sealed.shape or rows.dtype != sealed.dtype:
        return range(len(rows))
    return [at for at in range(len(rows)) if rows[at].tobytes() != sealed[at].tobytes()]
