"""What is said of one node's own messages, and of what nothing less is proved."""

from __future__ import annotations

from typing import Any

from distadmm.privacy.accounting.network import AtDistance
from distadmm.privacy.accounting.scopes import HYPOTHESES
from distadmm.privacy.accounting.statements import exactly, rounded_up
from distadmm.structs import struct


@struct
class Learned:
    """What one node learns of a record of another from its own messages, all of them together."""

    delta: float
    most: float  # epsilon of one node that sees all messages, which bounds every pair
    lines: tuple[AtDistance, ...]
    missed: str = ""  # why nothing less than `most` is proved: a hypothesis by its name, or in words
    keys: bool = False  # whether edges share noise

    def to_json(self) -> dict[str, Any]:
        return {"delta": self.delta, "most": self.most, "missed": self.missed} | {
            "distances": [each._asdict() for each in self.lines]
        }

    @property
    def words(self) -> list[str]:
        bound = (
            f"one node that sees all messages: epsilon {rounded_up(self.most)} at delta {exactly(self.delta)}"
        )
        if self.missed:
            needed = HYPOTHESES.get(self.missed)
            why = self.missed if needed is None else f"it needs that {needed} ({self.missed})"
            return [f"by distance: unbounded: {why}. What stands is {bound}"]
        rows = [
            f"{each.distance:10}{each.pairs:8}{rounded_up(each.least):>12}{rounded_up(each.epsilon):>12}"
            for each in self.lines
        ]
        return [
            f"what a node learns of a record of another, by how many edges they are apart ({bound}):",
            f"{'distance':>10}{'pairs':>8}{'least':>12}{'largest':>12}",
            *rows,
            "From what its neighbours send it and what it holds itself. Whoever sees more is counted as seeing all: "
            "the owner of several nodes or of their rank, and whoever is given models, figures or files of this run. "
            "Exact arithmetic; what the rounding of messages tells is not covered. Derivation not peer-reviewed."
            + " Key agreement and SHAKE-256 are assumed unbroken, and that nobody changed keys on the way."
            * self.keys,
        ]
