"""Events -> epsilon(delta): every bound that is proved for them, and the smallest.

    pure    the sum of pure epsilons (delta = 0)
    Renyi   the sum of Renyi curves, converted: what an adaptive sequence inside a filter has
    exact   all-Gaussian events: sqrt(sum mu^2)-GDP
    PLD     the product of privacy-loss distributions: a schedule committed before the first release

Infinite as soon as one event is unbounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting.events import (
    Adjacency,
    Event,
    Leakage,
    ObjectivePerturbation,
    PostProcessing,
    Pure,
    Unbounded,
    check_adjacency,
)
from distadmm.privacy.accounting.rdp import ORDERS, conversion, rdp_to_epsilon


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


def counted(events: Event | Iterable[Event]) -> list[Event]:
    """Equal events together, with their counts; events that cost nothing left out."""
    from dataclasses import replace

    counts: dict[Event, int] = {}
    for event in [events] if isinstance(events, Event) else events:
        if not isinstance(event, (PostProcessing, Leakage)):
            counts[event.single()] = counts.get(event.single(), 0) + event.releases
    return [replace(e, count=n) if n > 1 and hasattr(e, "count") else e for e, n in counts.items()]  # type: ignore[call-arg]


def epsilon(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> float:
    """The smallest epsilon >= 0 that is proved for all events together at `delta`; infinite without a proof."""
    return _epsilon(tuple(_checked(events, delta, adjacency)), delta, adjacency)


@lru_cache(maxsize=256)
def _epsilon(listed: tuple[Event, ...], delta: float, adjacency: Adjacency) -> float:
    """Kept, because a run asks for it when it plans, when it starts and when it ends."""
    if not listed:
        return 0.0
    if any(isinstance(e, Unbounded) for e in listed):
        return math.inf
    pure = _pure(listed, adjacency)
    if delta == 0:
        return pure
    mu = _mu(listed, adjacency)
    if mu is not None:
        return min(pure, _exact(mu, delta))
    return min(pure, _renyi(listed, delta, adjacency), _pld(listed, delta, adjacency))


def adaptive_epsilon(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> float:
    """The same by those bounds alone that hold for releases that were chosen by what came before."""
    listed = _checked(events, delta, adjacency)
    if any(isinstance(e, Unbounded) for e in listed):
        return math.inf
    pure = _pure(listed, adjacency)
    if delta == 0 or not listed:
        return pure
    mu = _mu(listed, adjacency)
    return min(pure, _renyi(listed, delta, adjacency), math.inf if mu is None else _exact(mu, delta))


def bounds(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> Bounds:
    """epsilon at `delta` by every route."""
    listed = _checked(events, delta, adjacency)
    published = published_epsilon(listed, adjacency)
    if any(isinstance(e, Unbounded) for e in listed):
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
    if any(isinstance(e, Unbounded) for e in listed):
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
    composed = (max(pld.delta(way, epsilon) for way in found) for found in _products(listed, adjacency))
    return min(1.0, renyi, *composed)


def published_epsilon(events: Event | Iterable[Event], adjacency: Adjacency) -> float:
    """The sum of what the papers state (delta = 0); infinite where they state nothing of this kind.

    Private (M)R-ADMM, Theorem V.1 of Zhang, Khalili and Liu:  sum_k 2 w (1.4 c1 / Phi + alpha), stated for replacing a
    record and for 2 w c1 < Phi (their condition on eta(1)).  It also bounds the other two adjacencies, and k records
    cost k times as much.
    """
    check_adjacency(adjacency)
    total = 0.0
    for event in counted(events):
        if isinstance(event, ObjectivePerturbation):
            if event.noise == "gaussian" or 2 * event.weight * event.curvature >= event.floor:
                return math.inf
            each = 2 * event.weight * (1.4 * event.curvature / event.floor + event.scale)
            total += event.count * (event.records * each + event.output_epsilon)
        elif isinstance(event, Unbounded):
            total += math.inf if event.claimed is None else event.claimed
        else:
            total += event.pure_epsilon(adjacency)
    return total


def one_way_chain(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> float:
    """For display beside `bounds`: the composed bound of `profiles.one_way`, derived for this project and not
    reviewed.  Infinite where it is none of its own: no single record is replaced in the objective."""
    from distadmm.privacy.accounting import pld, profiles

    listed = _checked(events, delta, adjacency)
    own = any(profiles.is_swap(e, adjacency) for e in listed)
    if not own or delta == 0 or any(isinstance(e, Unbounded) for e in listed):
        return math.inf
    return max(pld.epsilon(way, delta) for way in ways(listed, adjacency, profiles.one_way))


def ways(
    listed: Sequence[Event], adjacency: Adjacency, pairs_of: Callable[..., tuple] | None = None
) -> list[list]:
    """For each direction of the adjacency (the record in Q, or in P): the terms that dominate all events together."""
    from distadmm.privacy.accounting import profiles
    from distadmm.privacy.accounting.events import Gaussian
    from distadmm.privacy.accounting.pld import Term

    pairs_of = pairs_of or profiles.directed
    terms: list[list] = [[], []]
    mu2 = 0.0
    for event in listed:
        mu = event.gdp_mu(adjacency)
        if mu is not None:
            mu2 += mu * mu
            continue
        pairs = pairs_of(event.single(), adjacency)
        for way, pair in zip(terms, (pairs[0], pairs[-1])):
            way.append(Term(pair, event.releases))
        extra = getattr(event, "output_epsilon", 0.0)
        if extra:
            pure = profiles.directed(Pure(extra), adjacency)[0]
            for way in terms:
                way.append(Term(pure, event.releases))
    if mu2:
        (pair,) = profiles.directed(Gaussian(1 / math.sqrt(mu2 * (1 + 1e-15))), adjacency)
        for way in terms:
            way.append(Term(pair, 1))
    return terms[:1] if all(a.pair is b.pair for a, b in zip(*terms)) else terms


def _checked(events: Event | Iterable[Event], delta: float, adjacency: Adjacency) -> list[Event]:
    check_adjacency(adjacency)
    require(0 <= delta < 1, f"delta is {delta!r}; needed: a number from 0 to below 1")
    return counted(events)


def _pure(listed: Sequence[Event], adjacency: Adjacency) -> float:
    total = math.fsum(e.pure_epsilon(adjacency) for e in listed)
    return total * (1 + 1e-15)


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

    return min(max(pld.epsilon(way, delta) for way in found) for found in _products(listed, adjacency))


def _products(listed: Sequence[Event], adjacency: Adjacency) -> Iterable[list[list]]:
    """The products that are composed, each a bound: of profiles, and of losses that hold pointwise."""
    from distadmm.privacy.accounting import profiles

    yield ways(listed, adjacency)
    if any(profiles.is_swap(event, adjacency) for event in listed):
        yield ways(listed, adjacency, profiles.pointwise)
