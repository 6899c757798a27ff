"""What the entries of one ledger add up to.

The same fold serves the ledger that is being written, the one that is taken up again and the one that is
shown: `Tally.apply(entry)` for one entry after the other.

Invariants that guard privacy
-----------------------------
* What is reserved counts as spent from the moment it is reserved, used or not.
* Sums of costs are rounded up.
* A release is covered by a reservation or carries its own cost; there is no third way.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Literal, Self

import numpy as np

from distadmm.errors import InputError
from distadmm.files import sha256
from distadmm.privacy.accounting.cost import Cost, counted, nothing
from distadmm.privacy.accounting.events import Adjacency, Array, Event, Unbounded, event_from_json
from distadmm.privacy.accounting.trust import Trust
from distadmm.privacy.ledger.chain import Entry, canonical
from distadmm.structs import mutable_struct


def schedule_hash(events: Iterable[Event]) -> str:
    """One name for a schedule: the SHA-256 of its events, counted, in canonical form."""
    return named([event.to_json() for event in counted(events)])


def named(lines: Sequence[Entry]) -> str:
    """The same of events as an entry shows them."""
    return sha256(canonical({"events": lines}).encode()).hexdigest()  # type: ignore[no-any-return]


@mutable_struct
class Slot:
    """What is left of one event of a reservation."""

    of: int  # number of the entry that reserved it
    item: int  # which of its events
    event: Event  # released once
    left: float  # how many releases; infinite after an unbounded one


@mutable_struct
class Tally:
    """The state of a ledger after some entries."""

    header: Entry
    spent: Cost
    orders: Array
    adjacency: Adjacency
    trust: Trust  # against whom costs are counted; a ledger that does not say: all others collude
    events: list[Event] = field(default_factory=list)  # reserved or charged, with their counts
    slots: dict[Event, list[Slot]] = field(default_factory=dict)
    places: dict[tuple[int, int], Slot] = field(default_factory=dict)  # (entry, item) -> slot
    schedule: str | None = None  # hash of the schedule committed last
    releases: int = 0  # charged one by one or under a reservation
    posts: int = 0
    torn: int = 0
    refused: int = 0
    forfeited: int = 0
    resumes: int = 0
    lost_heads: set[str] = field(default_factory=set)  # of releases whose lines a crash took: not sent again
    committed_first: bool = True  # every release so far belongs to a schedule committed before the first
    last_release: int | None = None  # number of its entry
    last_iteration: int | None = None
    boot: str | None = None
    closed: bool = False

    @classmethod
    def start(cls, header: Entry) -> Self:
        orders = np.array(header["orders"], dtype=float)
        trust = Trust.parse(header.get("trust"))
        return cls(header, nothing(orders), orders, header["adj"], trust, boot=header.get("boot"))

    @classmethod
    def of(cls, entries: list[Entry]) -> Self:
        """The state after `entries`, the first of which opens the ledger."""
        tally = cls.start(entries[0])
        for entry in entries[1:]:
            tally.apply(entry)
        return tally

    def copy(self) -> Self:
        """The same, to go on apart."""
        places = {place: replace(slot) for place, slot in self.places.items()}
        slots = {event: [places[s.of, s.item] for s in some] for event, some in self.slots.items()}
        return replace(
            self, events=list(self.events), slots=slots, places=places, lost_heads=set(self.lost_heads)
        )

    def apply(self, entry: Entry) -> None:
        """Fold one more entry in."""
        self.closed = entry["kind"] == "close"
        fold = getattr(self, f"_{entry['kind']}", None)
        if fold is None:
            raise InputError(
                f"entry {entry['seq']} is of unknown kind {entry['kind']!r}; update distadmm to read it"
            )
        fold(entry)

    def slot(self, event: Event) -> Slot | None:
        """The oldest reservation that `event`, released once, can still draw on."""
        slots = self.slots.get(event)
        while slots:
            if slots[0].left > 0:
                return slots[0]
            slots.pop(0)
        return None

    @property
    def seen(self) -> list[Event]:
        """What was reserved or charged, as those see it who may collude."""
        return [event.against(self.trust) for event in self.events]

    @property
    def reserved(self) -> float:
        """Releases that are paid for and still to come."""
        return sum(slot.left for slot in self.places.values() if math.isfinite(slot.left))

    def _commit(self, entry: Entry) -> None:
        self.schedule = entry["schedule"]
        events = [event_from_json(line) for line in entry["events"]]
        self.spent = self.spent.plus(self._cost(entry, events))
        if entry["block"] or self.releases:
            self.committed_first = False
        for item, event in enumerate(events):
            self.events.append(event)
            left = math.inf if event.unbounded else event.releases
            self._reserve(Slot(entry["seq"], item, event.single(), left))

    def _cost(self, entry: Entry, events: Sequence[Event]) -> Cost:
        """As it was written; of a mechanism that nobody here knows, none is believed."""
        if any(event.unbounded for event in events):
            return Cost(math.inf, np.full(len(self.orders), np.inf), math.inf)
        return Cost.from_json(entry)

    def _charge(self, entry: Entry) -> None:
        event = event_from_json({"mech": entry["mech"], **entry["params"]})
        self.events.append(event)
        self.spent = self.spent.plus(self._cost(entry, [event]))
        if event.free:
            return
        self.releases += event.releases
        self.committed_first = False
        self.last_release, self.last_iteration = entry["seq"], entry["k"]
        if event.unbounded:
            self._reserve(Slot(entry["seq"], 0, event, math.inf))  # more of it changes nothing

    def _reserve(self, slot: Slot) -> None:
        self.slots.setdefault(slot.event, []).append(slot)
        self.places[slot.of, slot.item] = slot

    def _release(self, entry: Entry) -> None:
        slot = self.places.get((entry["of"], entry["item"]))
        if slot is None or slot.left <= 0:
            raise InputError(
                f"entry {entry['seq']} is a release under a reservation that does not exist or is used up"
            )
        slot.left -= 1
        self.count(slot)
        self.last_release, self.last_iteration = entry["seq"], entry["k"]

    def count(self, slot: Slot) -> None:
        """One more release under a reservation."""
        self.releases += 1
        if getattr(slot.event, "claimed", None) is not None:  # it changes no bound, but what its paper claims
            self.events.append(slot.event)

    def _post(self, entry: Entry) -> None:
        self.posts += 1

    def _torn(self, entry: Entry) -> None:
        self.torn += 1

    def _refused(self, entry: Entry) -> None:
        self.refused += 1

    def _close(self, entry: Entry) -> None:
        pass

    def _resume(self, entry: Entry) -> None:
        self.resumes += 1
        self.boot = entry.get("boot")
        self.lost_heads.update(entry["lost"])
        for of, item, count in entry["forfeited"]:
            self.forfeited += count
            self.places[of, item].left -= count


def is_committed(tally: Tally) -> bool:
    """Whether every release belongs to a schedule that was committed before the first one."""
    return tally.committed_first and tally.schedule is not None


def statement_kind(tally: Tally) -> Literal["certificate", "odometer", "simulation"]:
    """What a number computed from a ledger is: "certificate", "odometer" or "simulation"; never two at once.

    A certificate bounds the whole run: its releases were committed before the first one, or a proved filter
    keeps them inside the budget.  An odometer reads what was spent so far; after a stop that depended on
    data it is no guarantee.  Noise that a seed can repeat guarantees nothing.
    """
    if tally.header["rng"]["mode"] == "simulation":
        return "simulation"
    if not tally.spent.unbounded and (tally.header["budget"] is not None or is_committed(tally)):
        return "certificate"
    return "odometer"


def reading(tally: Tally) -> Literal["certificate", "odometer", "simulation"]:
    """What the sum of a ledger is: a budget that was kept certifies itself, not the sum of what was taken of it."""
    kind = statement_kind(tally)
    return "odometer" if kind == "certificate" and not is_committed(tally) else kind


def doubted(tally: Tally, events: list[Event]) -> list[Event]:
    """`events` of a ledger, without a bound where its claim has none; what has none already says why itself."""
    why = "" if not events or any(event.unbounded for event in events) else doubt(tally, events)
    return [*events, Unbounded(why)] if why else events


def doubt(tally: Tally, events: Iterable[Event]) -> str:
    """Why what a ledger says of `events` is no bound: a hypothesis that nobody established, or only declared.

    Empty where the claim is whole, and where a ledger claims nothing and its events' prices are all there is.
    """
    claim = tally.header["claim"]
    if claim is None:
        return ""
    from distadmm.privacy.accounting.scopes import HYPOTHESES, SCOPES, established

    scope = SCOPES.get(claim["scope"])
    if scope is None:
        return f"a claim unknown here: {claim['scope']!r}; update distadmm"
    known = {each.name for each in established(claim) if each.verified}
    needed = dict.fromkeys((*scope.hypotheses, *(h for e in events for h in e.hypotheses)))
    missed = [name for name in needed if name not in known and name != "committed-schedule"]
    return f"not verified: {HYPOTHESES[missed[0]]} ({missed[0]})" if missed else ""
