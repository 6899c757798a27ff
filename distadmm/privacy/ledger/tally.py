"""What the entries of one ledger add up to.

The same fold serves the ledger that is being written, the one that is taken up again and the one that is
shown: `Tally.apply(entry)` for one entry after the other.

Invariants that guard privacy
-----------------------------
* What is reserved counts as spent from the moment it is reserved, used or not.
* Sums of costs are rounded up.
* A release is covered by a reservation or carries its own cost; there is no third way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from distadmm.errors import InputError, require
from distadmm.privacy.accounting.events import Adjacency, Event, Leakage, Unbounded, event_from_json
from distadmm.privacy.ledger.chain import Entry, canonical, plain
from distadmm.structs import mutable_struct

Array = np.ndarray


class Cost(NamedTuple):
    """What releases cost together: three bounds that add up."""

    pure: float  # epsilon at delta = 0
    rdp: Array  # Renyi curve at the ledger's orders
    mu2: float  # square of the Gaussian-DP parameter; infinite unless all is exactly Gaussian

    def plus(self, other: Cost) -> Cost:
        """The sum, rounded up."""
        return Cost(_up(self.pure, other.pure), _up_each(self.rdp, other.rdp), _up(self.mu2, other.mu2))

    @property
    def unbounded(self) -> bool:
        return math.isinf(self.pure) and math.isinf(self.mu2) and not np.isfinite(self.rdp).any()

    def to_json(self) -> dict[str, Any]:
        return plain({"pure_eps": self.pure, "rdp": self.rdp, "mu2": self.mu2})

    @classmethod
    def from_json(cls, entry: Entry) -> Cost:
        rdp = np.array([float(value) for value in entry["rdp"]])
        return cls(float(entry["pure_eps"]), rdp, float(entry["mu2"]))


def _up(a: float, b: float) -> float:
    """a + b, or the next double where that is below the true sum."""
    total = a + b
    return math.nextafter(total, math.inf) if _lost(a, b, total) > 0 else total


def _up_each(a: Array, b: Array) -> Array:
    total = a + b
    with np.errstate(invalid="ignore"):
        return np.where(_lost(a, b, total) > 0, np.nextafter(total, np.inf), total)


def _lost(a: Any, b: Any, total: Any) -> Any:
    """Exactly what rounding took from a + b (Knuth's two-sum); NaN beside an infinity."""
    part = total - a
    return (a - (total - part)) + (b - part)


def nothing(orders: Array) -> Cost:
    return Cost(0.0, np.zeros(len(orders)), 0.0)


def cost_of(events: Iterable[Event], orders: Array, adjacency: Adjacency) -> Cost:
    """What `events` cost together."""
    total = nothing(orders)
    for event in events:
        mu = event.gdp_mu(adjacency)
        mu2 = math.inf if mu is None else math.nextafter(mu * mu, math.inf) if mu else 0.0
        total = total.plus(Cost(event.pure_epsilon(adjacency), event.rdp(orders, adjacency), mu2))
    return total


def priced(event: Any, orders: Array, adjacency: Adjacency) -> tuple[Event, Cost]:
    """`event` and its cost; what no accountant can price becomes `Unbounded`, with the reason."""
    try:
        return event, cost_of([event], orders, adjacency)
    except (InputError, NotImplementedError, AttributeError) as error:
        unpriced = Unbounded(f"cannot be priced: {type(event).__name__}: {error}")
        return unpriced, cost_of([unpriced], orders, adjacency)


def times(event: Event, count: int) -> Event:
    """`count` releases of the mechanism of `event`."""
    return event if event.releases == count else replace(event, count=count)  # type: ignore[call-arg]


def counted(events: Iterable[Event]) -> list[Event]:
    """The same releases with equal events together, each once with its count."""
    counts: dict[Event, int] = {}
    for event in events:
        counts[event.single()] = counts.get(event.single(), 0) + event.releases
    # Of what costs nothing or everything (it has no count), once is as much as often.
    return [times(event, count) if hasattr(event, "count") else event for event, count in counts.items()]


def schedule_hash(events: Iterable[Event]) -> str:
    """One name for a schedule: the SHA-256 of its events, counted, in canonical form."""
    import hashlib

    lines = [event.to_json() for event in counted(events)]
    return hashlib.sha256(canonical({"events": lines}).encode()).hexdigest()


@mutable_struct
class Slot:
    """What is left of one event of a reservation."""

    of: int  # number of the entry that reserved it
    item: int  # which of its events
    event: Event  # released once
    left: float  # how many releases; infinite after an unbounded one
    every: int = 0  # every so many releases the ledger is synced before the noise is drawn; 0: never
    used: int = 0

    def take(self, count: int) -> None:
        self.left -= count
        self.used += count

    def could_be_lost(self) -> float:
        """How many releases may have been drawn and sent whose lines a machine crash has lost."""
        if not self.every:
            return self.left
        return min(self.left, self.every - self.used % self.every - 1)


@mutable_struct
class Tally:
    """The state of a ledger after some entries."""

    header: Entry
    spent: Cost
    orders: Array
    adjacency: Adjacency
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
    def start(cls, header: Entry) -> Tally:
        orders = np.array(header["orders"], dtype=float)
        return cls(header, nothing(orders), orders, header["adj"], boot=header.get("boot"))

    @classmethod
    def of(cls, entries: list[Entry]) -> Tally:
        """The state after `entries`, the first of which opens the ledger."""
        tally = cls.start(entries[0])
        for entry in entries[1:]:
            tally.apply(entry)
        return tally

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
    def reserved(self) -> float:
        """Releases that are paid for and still to come."""
        return sum(slot.left for slot in self.places.values() if math.isfinite(slot.left))

    @property
    def intents(self) -> int:
        """Never fewer than the messages that left: releases and torn lines."""
        return self.releases + self.torn

    def _commit(self, entry: Entry) -> None:
        self.schedule = entry["schedule"]
        self.spent = self.spent.plus(Cost.from_json(entry))
        if entry["block"] or self.releases:
            self.committed_first = False
        for item, line in enumerate(entry["events"]):
            event = event_from_json(line)
            self.events.append(event)
            single = event.single()
            self._reserve(Slot(entry["seq"], item, single, event.releases, entry["sync_every"]))

    def _charge(self, entry: Entry) -> None:
        event = event_from_json({"mech": entry["mech"], **entry["params"]})
        self.events.append(event)
        self.spent = self.spent.plus(Cost.from_json(entry))
        if isinstance(event, Leakage):
            return
        self.releases += event.releases
        self.committed_first = False
        self.last_release, self.last_iteration = entry["seq"], entry["k"]
        if isinstance(event, Unbounded):
            self._reserve(Slot(entry["seq"], 0, event, math.inf))  # more of it changes nothing

    def _reserve(self, slot: Slot) -> None:
        self.slots.setdefault(slot.event, []).append(slot)
        self.places[slot.of, slot.item] = slot

    def _release(self, entry: Entry) -> None:
        slot = self.places.get((entry["of"], entry["item"]))
        require(
            slot is not None and slot.left > 0,
            f"entry {entry['seq']} is a release under a reservation that does not exist or is used up",
        )
        assert slot is not None
        slot.take(1)
        self.releases += 1
        self.last_release, self.last_iteration = entry["seq"], entry["k"]

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
            self.places[of, item].take(count)


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
