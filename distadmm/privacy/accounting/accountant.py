"""The accountant: events -> epsilon(delta), by every bound that is proved for them, rounded against us; the smallest.

    pure    the sum of pure epsilons (delta = 0)
    Renyi   the sum of Renyi curves, converted: what an adaptive sequence inside a filter has
    exact   all-Gaussian events: sqrt(sum mu^2)-GDP
    PLD     the product of privacy-loss distributions: a schedule committed before the first release

Infinite as soon as one event is unbounded.  What else is to be had of the accountant stands beside it and is found
here as well: `events` (what was released), `nodes` (who holds what), `calibration` (noise for a budget), `statements`
(what may be said), `rdp`, `gaussian`, and `to_dp_event` (dp-accounting).
"""

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from distadmm.errors import require, told
from distadmm.privacy.accounting.cost import counted
from distadmm.privacy.accounting.events import Adjacency, Event, Gaussian, Unbounded, check_adjacency
from distadmm.privacy.accounting.rdp import ORDERS, conversion, rdp_to_epsilon

_LARGEST = 1e100  # mu^2 of normal noise that is composed with other noise

_BESIDE = {
    "calibration": "gaussian_discrete_sigma objective_scale output_perturbation",
    "discrete_gaussian": "DiscreteGaussian",
    "gaussian": "gaussian_noise_multiplier",
    "events": "ADJACENCIES KNorm Leakage PostProcessing Pure event_from_json",
    "objective_perturbation": "ObjectivePerturbation",
    "nodes": "Combined combine",
    "rdp": "rdp_budget",
    "statements": "Statement statement",
    "trust": "Trust",
}


def __getattr__(name: str) -> Any:
    for module, names in _BESIDE.items():
        if name in names.split():
            return getattr(importlib.import_module(f"distadmm.privacy.accounting.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def to_dp_event(events: Event | Iterable[Event]) -> Any:
    """All events as one of dp-accounting's: its own where it knows the mechanism, `UnsupportedDpEvent` otherwise."""
    with told("dp-accounting is not installed; needed: pip install 'distadmm[accounting]'", ImportError):
        return rebuilt(dp_event([events] if isinstance(events, Event) else events))


def dp_event(events: Iterable[Event]) -> dict[str, Any]:
    """One composed event of dp-accounting, as JSON in the form of `DpEvent.to_named_tuple`.

    One that dp-accounting does not know becomes `UnsupportedDpEvent`, which no accountant there will price by mistake.
    """
    parts = []
    for event in counted(events):
        name, fields = event.single().exported()
        single = _dp(name, **fields)
        composed = event.releases > 1 and single["class_name"] != "UnsupportedDpEvent"
        parts.append(_dp("SelfComposedDpEvent", event=single, count=event.releases) if composed else single)
    return _dp("ComposedDpEvent", events=parts)


def _dp(name: str, **fields: Any) -> dict[str, Any]:
    return {"module_name": "dp_accounting.dp_event", "class_name": name, **fields}


def rebuilt(exported: Mapping[str, Any]) -> Any:
    """The dp-accounting event that `dp_event` wrote; needs dp-accounting."""
    from dp_accounting import dp_event as known

    def build(value: Any) -> Any:
        if isinstance(value, Mapping):
            fields = {key: build(item) for key, item in value.items()}
            fields.pop("module_name")
            return getattr(known, fields.pop("class_name"))(**fields)
        return [build(item) for item in value] if isinstance(value, list) else value

    return build(exported)


class Bounds(NamedTuple):
    """epsilon of all events together, by each route; infinite where the route does not apply."""

    published: float  # the papers' own bounds, delta = 0
    pure: float  # delta = 0
    renyi: float
    exact: float
    pld: float

    @property
    def best(self) -> float:
        """The smallest that is proved here."""
        return min(self.pure, self.renyi, self.exact, self.pld)


def epsilon(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> float:
    """The smallest epsilon >= 0 that is proved for all events together at `delta`; infinite without a proof."""
    return _epsilon(tuple(_checked(events, delta, adjacency)), delta, adjacency, True)


def adaptive_epsilon(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> float:
    """The same by those bounds alone that hold for releases that were chosen by what came before."""
    return _epsilon(tuple(_checked(events, delta, adjacency)), delta, adjacency, False)


@lru_cache(maxsize=256)
def _epsilon(listed: tuple[Event, ...], delta: float, adjacency: Adjacency, committed: bool) -> float:
    """Kept, because a run asks for it when it plans, when it starts and when it ends."""
    if any(e.unbounded for e in listed):
        return math.inf
    pure = _pure(listed, adjacency)
    if delta == 0 or not listed:
        return pure
    mu = _mu(listed, adjacency)
    if mu is not None:  # tight, whatever was chosen by what
        return min(pure, _exact(mu, delta))
    renyi = min(pure, _renyi(listed, delta, adjacency))
    return min(renyi, _pld(listed, delta, adjacency)) if committed else renyi


def bounds(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> Bounds:
    """epsilon at `delta` by every route."""
    listed = _checked(events, delta, adjacency)
    published = published_epsilon(listed, adjacency)
    if any(e.unbounded for e in listed):
        return Bounds(published, math.inf, math.inf, math.inf, math.inf)
    pure = _pure(listed, adjacency)
    if delta == 0 or not listed:
        return Bounds(published, pure, pure, pure, pure)
    mu = _mu(listed, adjacency)
    return Bounds(
        published,
        pure,
        _renyi(listed, delta, adjacency),
        math.inf if mu is None else _exact(mu, delta),
        _pld(listed, delta, adjacency),
    )


def delta(events: Event | Iterable[Event], epsilon: float, adjacency: Adjacency) -> float:
    """The smallest delta that is proved for all events together at `epsilon`; 1 without a proof."""
    listed = _checked(events, 0.0, adjacency)
    require(epsilon >= 0, f"epsilon is {epsilon!r}; needed: a number, 0 or more")
    if any(e.unbounded for e in listed):
        return 1.0
    if _pure(listed, adjacency) <= epsilon:
        return 0.0
    mu = _mu(listed, adjacency)
    if mu is not None:
        from distadmm.privacy.accounting import gaussian

        return gaussian.delta(mu, epsilon)
    from distadmm.privacy.accounting import pld

    curve = sum((e.rdp(ORDERS, adjacency) for e in listed), np.zeros_like(ORDERS))
    # rdp + conversion(delta) = epsilon, solved for delta at each order; conversion(1) is its constant.
    exponent = (ORDERS - 1) * (curve + conversion(1.0) - epsilon)
    renyi = float(np.exp(np.minimum(exponent, 0.0)).min()) * (1 + 1e-12)
    found = ways(listed, adjacency)
    return min(1.0, renyi, max((pld.delta(way, epsilon) for way in found), default=1.0))


def published_epsilon(events: Event | Iterable[Event], adjacency: Adjacency) -> float:
    """The sum of what the papers state (delta = 0); infinite where they state nothing of this kind.

    A paper's own composition is of all that it claims, whatever else is said of each release.
    """
    check_adjacency(adjacency)
    listed = [events] if isinstance(events, Event) else events
    alike = (
        replace(e, reason="") if isinstance(e, Unbounded) and e.adds == "advanced" else e for e in listed
    )
    return sum((event.published(adjacency) for event in counted(alike) if not event.free), 0.0)


def r_o_r(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> float:
    """For display beside `bounds`, for one release: the composed bound that 0.1 claimed for replaced records, R o R.
    Infinite where there is none of its own."""
    from distadmm.privacy.accounting import pld
    from distadmm.privacy.accounting.objective_perturbation import ObjectivePerturbation

    listed = _checked(events, delta, adjacency)
    own = any(isinstance(e, ObjectivePerturbation) and e.replaces(adjacency) for e in listed)
    if not own or delta == 0 or any(e.unbounded for e in listed):
        return math.inf
    return max(pld.epsilon(way, delta) for way in ways(listed, adjacency, "r-o-r"))


def ways(listed: Sequence[Event], adjacency: Adjacency, route: str = "profile") -> list[list[Any]]:
    """For each direction of the adjacency (the record in Q, or in P): the terms that dominate all events together;
    nothing where an event has no profile."""
    from distadmm.privacy.accounting.pld import Term
    from distadmm.privacy.accounting.profiles import pairs_of

    terms: list[list[Any]] = [[], []]
    mu2 = 0.0
    for event in listed:
        mu = event.gdp_mu(adjacency)
        if mu is not None:
            mu2 += mu * mu
            continue
        parts = [event.single(), *([event.also] if event.also else [])]
        for part in parts:
            pairs = pairs_of(part, adjacency, route)
            if not pairs:
                return []
            for way, pair in zip(terms, (pairs[0], pairs[-1])):
                way.append(Term(pair, event.releases))
    if mu2 > _LARGEST:
        return []
    if mu2:
        (pair,) = pairs_of(Gaussian(1 / math.sqrt(mu2 * (1 + 1e-15))), adjacency)
        for way in terms:
            way.append(Term(pair, 1))
    return terms[:1] if all(a.pair is b.pair for a, b in zip(*terms)) else terms


def _checked(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> list[Event]:
    check_adjacency(adjacency)
    require(0 <= delta < 1, f"delta is {delta!r}; needed: a number from 0 to below 1")
    return [event for event in counted(events) if not event.free]


def _pure(listed: Sequence[Event], adjacency: Adjacency) -> float:
    return math.fsum(e.pure_epsilon(adjacency) for e in listed) * (1 + 1e-15)


def _mu(listed: Sequence[Event], adjacency: Adjacency) -> float | None:
    """mu of all events together when each is exactly Gaussian."""
    parts = [e.gdp_mu(adjacency) for e in listed]
    if any(mu is None for mu in parts):
        return None
    return math.sqrt(math.fsum(mu * mu for mu in parts if mu is not None)) * (1 + 1e-15)


def _exact(mu: float, delta: float) -> float:
    from distadmm.privacy.accounting import gaussian

    return gaussian.epsilon(mu, delta)


def _renyi(listed: Sequence[Event], delta: float, adjacency: Adjacency) -> float:
    curve = sum((e.rdp(ORDERS, adjacency) for e in listed), np.zeros_like(ORDERS))
    return rdp_to_epsilon(curve * (1 + 1e-13), delta)


def _pld(listed: Sequence[Event], delta: float, adjacency: Adjacency) -> float:
    from distadmm.privacy.accounting import pld

    return max((pld.epsilon(way, delta) for way in ways(listed, adjacency)), default=math.inf)
