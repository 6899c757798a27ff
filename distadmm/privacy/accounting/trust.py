"""Against whom a guarantee holds, and for what change: both with an order, and a rule for composing what differs.

Trust       any > coalition:C > coalition:C-1 > ... > coalition:0 > centre
            A guarantee holds for all that stand below its own, and several together hold for the least of them.
Adjacency   a flipped label is a replaced record, and a replaced record is one removed and one added
            and what hides all rows of a node hides each of them.
            What was priced for the one on the right is restated for the other: at the same price, or at that of two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from distadmm.errors import InputError, require
from distadmm.privacy.accounting.events import Adjacency, Event
from distadmm.structs import struct

ADJACENCY_WORDS: dict[str, str] = {
    "add-remove": "one record more or less",
    "replace": "one record replaced by another",
    "label": "the label of one record flipped",
    "node": "all rows of one node replaced by others",
}


@struct
class Trust:
    """How many others may put together what they see: `colluding` of them; infinite: all; -1: not even one.

    `centre`: whoever computes is trusted, and the guarantee is about what is published.
    """

    colluding: float

    @classmethod
    def parse(cls, text: str | None) -> Trust:
        """any, coalition:C or centre; None, as in a ledger that does not say, is any."""
        if text in (None, "any"):
            return ANY
        if text == "centre":
            return CENTRE
        found = re.fullmatch(r"coalition:(\d+)", str(text))
        if found is None:
            raise InputError(f"trust is {text!r}; choose any, coalition:C (C others collude) or centre")
        return cls(int(found[1]))

    def __str__(self) -> str:
        if self.colluding < 0:
            return "centre"
        return "any" if math.isinf(self.colluding) else f"coalition:{self.colluding:.0f}"

    @property
    def words(self) -> str:
        if self.colluding < 0:
            return "who sees what is published; whoever computes it is trusted"
        if math.isinf(self.colluding):
            return "any coalition of others"
        return f"any coalition of at most {self.colluding:.0f} others"

    def covers(self, other: Trust) -> bool:
        """Whether a guarantee under this trust is one under `other` as well."""
        return self.colluding >= other.colluding


ANY, CENTRE = Trust(math.inf), Trust(-1)
#: What is told of every private run, whatever it is for.
TOLD = ("any", "coalition:2", "coalition:1", "centre")


def composed(trusts: Iterable[Trust]) -> Trust:
    """Against whom several guarantees hold together: those against whom each does."""
    return min(trusts, key=lambda trust: trust.colluding, default=ANY)


def common(adjacencies: Iterable[Adjacency]) -> Adjacency:
    """The one adjacency under which ledgers of these can be priced together."""
    found = set(adjacencies)
    require(found, "no adjacency was given; needed: at least one")
    return next(iter(found)) if len(found) == 1 else "label" if "label" in found else "replace"


def restated(event: Event, own: Adjacency, wanted: Adjacency) -> Event:
    """`event`, of a ledger for `own`, as it is to be priced under `wanted`, which `common` found."""
    return event.group(2) if own == "add-remove" != wanted and not event.knows_adjacency else event
