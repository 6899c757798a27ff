"""What a ledger is going to be charged, as a value: worked out once, of public facts, before a file is written.

What is said of a run before it starts, entered in the account of its rows, reserved and attacked is this value; nobody
works it out anew.  Both kinds say `limit`, the filter of the ledger, `to_come`, what that has to admit at once, and
`entered`, what the account is told.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, cast

from distadmm.privacy.accounting.events import Adjacency, Event, Unbounded
from distadmm.privacy.ledger.filter import Filter, budget
from distadmm.structs import struct


class _Schedule:
    beside: tuple[Event, ...]

    def doubted(self, why: str) -> Self:
        """The same where something that has no bound is charged too; `why` empty: nothing is."""
        more: Self = replace(cast(Any, self), beside=(*self.beside, Unbounded(why)))
        return more if why else self

    def _new(self, charged: Sequence[Event]) -> list[Event]:
        return [event for event in self.beside if event not in charged]


@struct
class Committed(_Schedule):
    """All releases are known before the first, and one durable entry reserves them; none without a proved price."""

    events: tuple[Event, ...] = ()
    beside: tuple[
        Event, ...
    ] = ()  # what has no bound and is charged as it comes: known beforehand, never reserved

    def limit(self, epsilon: float | None, delta: float, adjacency: Adjacency) -> Filter | None:
        return None if epsilon is None else budget(epsilon, delta, self.events, adjacency=adjacency)

    def to_come(self, charged: Sequence[Event]) -> list[Event]:
        """Of a ledger that holds `charged`: of one that has begun, no more reservations."""
        return [*(() if charged else self.events), *self._new(charged)]

    def entered(self, charged: Sequence[Event]) -> list[Event]:
        return [*charged, *self.to_come(charged)]


@struct
class Filtered(_Schedule):
    """How many releases there are, the run finds out, for some are lost and asked again: a filter of its own, fixed
    beforehand, is asked at each."""

    candidates: tuple[Event, ...]  # of a run in which none is lost
    budget: Filter | None  # None: nothing bounds it
    rest: tuple[Event, ...] = ()  # with these, all that the filter admits
    beside: tuple[Event, ...] = ()

    def limit(self, epsilon: float | None, delta: float, adjacency: Adjacency) -> Filter | None:
        return self.budget

    def to_come(self, charged: Sequence[Event]) -> list[Event]:
        return []

    def entered(self, charged: Sequence[Event]) -> list[Event]:
        """All that may ever be charged, whatever part of it was `charged` already."""
        kinds = {type(each) for each in self.candidates}
        others = (event for event in charged if type(event) not in kinds)
        return [*others, *self.candidates, *self.rest, *self._new(charged)]


Schedule = Committed | Filtered
