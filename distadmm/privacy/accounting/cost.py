"""What releases cost together: bounds that add up, rounded against us, and events with their counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from distadmm.errors import InputError
from distadmm.privacy.accounting.events import Adjacency, Array, Event, Unbounded
from distadmm.privacy.accounting.trust import Trust


class Cost(NamedTuple):
    """Three bounds that add up."""

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
        return {"pure_eps": self.pure, "rdp": self.rdp.tolist(), "mu2": self.mu2}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Cost:
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


def of_event(event: Event, orders: Array | None, adjacency: Adjacency) -> Cost:
    """What all releases of one event cost, as it stands."""
    mu = event.gdp_mu(adjacency)
    mu2 = math.inf if mu is None else math.nextafter(mu * mu, math.inf) if mu else 0.0
    return Cost(event.pure_epsilon(adjacency), event.rdp(orders, adjacency), mu2)


def cost_of(events: Iterable[Event], orders: Array, adjacency: Adjacency, trust: Trust | None = None) -> Cost:
    """What `events` cost together, against `trust`; without one each as it stands, against whom it is stated for."""
    total = None
    for event in events:
        own = of_event(event if trust is None else event.against(trust), orders, adjacency)
        total = own if total is None else total.plus(own)
    return nothing(orders) if total is None else total


def priced(event: Any, orders: Array, adjacency: Adjacency, trust: Trust | None = None) -> tuple[Event, Cost]:
    """`event` and its cost; what no accountant can price becomes `Unbounded`, with the reason."""
    try:
        return event, cost_of([event], orders, adjacency, trust)
    except (InputError, NotImplementedError, AttributeError) as error:
        unpriced = Unbounded(f"cannot be priced: {type(event).__name__}: {error}")
        return unpriced, cost_of([unpriced], orders, adjacency)


def counted(events: Event | Iterable[Event]) -> list[Event]:
    """The same releases with equal events together, each once with its count."""
    counts: dict[Event, int] = {}
    for event in [events] if isinstance(events, Event) else events:
        counts[event.single()] = counts.get(event.single(), 0) + event.releases
    return [event.times(count) for event, count in counts.items()]
