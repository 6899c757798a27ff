"""Renyi curves on one fixed grid of orders: what a filter adds up, and what they say in (epsilon, delta).

A curve is an upper bound of the Renyi divergence of every order in `ORDERS`, in both directions, rounded up.
Curves of adaptive releases add (Feldman and Zrnic 2021: also when the next one is chosen by what came before,
against a budget at one order that was fixed before the first release).
"""

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting.events import Adjacency, Array, Event
from distadmm.privacy.accounting.schedule import MOST_PRICED

#: Orders a with a - 1 from 0.1 to 4000 in equal ratios of 1.28: what falls between two costs < 1 %.
ORDERS: Array = 1.0 + np.round(np.geomspace(0.1, 4000.0, 44), 3)
ORDERS.setflags(write=False)

# Relative slack on every closed form and sum: some hundred roundings of double precision.
_SLACK = 1e-13


def curve(event: Event, orders: Array, adjacency: Adjacency) -> Array:
    """The Renyi curve of all releases of `event` at `orders`; of too many nothing is known."""
    orders, grid = _checked(np.asarray(orders, dtype=float).tobytes())
    if event.releases > MOST_PRICED and event.gdp_mu(adjacency) is None:
        return np.full_like(orders, np.inf)
    return event.releases * np.asarray(_single(event.single(), grid, adjacency))


@lru_cache(maxsize=16)
def _checked(orders: bytes) -> tuple[Array, tuple[float, ...]]:
    """The orders as an array and as a key; looked at once, for there are few such grids and many events."""
    found = np.frombuffer(orders)
    require(
        bool(np.all(found > 1)), "a Renyi order is not above 1; needed: orders a > 1 (use the ORDERS grid)"
    )
    return found, tuple(found.tolist())


_learnt: dict[tuple[Event, tuple[float, ...], Adjacency], Array] = {}


def learn(curves: Mapping[Event, Array], orders: Array, adjacency: Adjacency) -> None:
    """Take the curves of single releases, all that this job needs, instead of computing them here."""
    grid = tuple(np.asarray(orders, dtype=float).tolist())
    _learnt.clear()
    _learnt.update({(event, grid, adjacency): curve for event, curve in curves.items()})


@lru_cache(maxsize=4096)
def _single(event: Event, orders_: tuple[float, ...], adjacency: Adjacency) -> Array:
    """One release; kept, because a run asks for the same few events again and again."""
    learnt = _learnt.get((event, orders_, adjacency))
    if learnt is not None:
        return learnt
    found = _up(event.renyi(np.asarray(orders_), adjacency))
    found.setflags(write=False)
    return found


def of_pure(epsilon: float, orders: Array) -> Array:
    """Randomised response, which dominates every epsilon-DP mechanism:
    ln[cosh((a - 1/2) eps) / cosh(eps / 2)] / (a - 1)."""
    if np.isinf(epsilon):
        return np.full_like(orders, np.inf)
    x, y = (orders - 0.5) * epsilon, 0.5 * epsilon
    large = np.logaddexp(x, -x) - np.logaddexp(y, -y)
    # cosh x - cosh y as a product: nothing cancels for small epsilon.
    x1, y1 = np.minimum(x, 1.0), min(y, 1.0)
    small = np.log1p(2 * np.sinh((x1 + y1) / 2) * np.sinh((x1 - y1) / 2) / np.cosh(y1))
    return np.where(x < 1.0, small, large) / (orders - 1)


def _up(values: Array) -> Array:
    return np.nextafter(values * (1 + _SLACK), np.inf)


def rdp_to_epsilon(values: Array, delta: float, orders: Array = ORDERS) -> float:
    """The least epsilon >= 0 that a whole Renyi curve proves at `delta`: the minimum over its orders of

        rdp(a) + ln((a - 1)/a) - (ln delta + ln a)/(a - 1)

    (Canonne, Kamath and Steinke 2020, Proposition 12; Asoodeh et al. 2021 differ from it by < 1 % here), and 0 where
    sqrt(1 - e^-rdp) <= delta bounds the total variation.  For a schedule; a filter keeps to `rdp_budget`.
    """
    require(0 < delta < 1, f"delta is {delta!r}; needed: a number between 0 and 1")
    values = np.asarray(values, dtype=float)
    if np.any(-np.expm1(-values) <= delta**2):
        return 0.0
    return max(0.0, float(np.min(values + conversion(delta, orders))))


def conversion(delta: float, orders: Array = ORDERS) -> Array:
    """What (epsilon, delta) costs on top of the Renyi divergence at each order."""
    return np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)


def rdp_budget(epsilon: float, delta: float, shape: Array | None = None, orders: Array = ORDERS) -> Array:
    """The committed curve that every order of the sum must stay under for (epsilon, delta).

    It is finite at one order only, which is fixed here, before the first release; a filter that instead stopped when
    the *minimum over orders* of the converted sums exceeds epsilon is not proved.  The order is the one that lets
    most of `shape` (the curve of one planned release; default: a Gaussian) pass.
    """
    require(0 < delta < 1, f"delta is {delta!r}; needed: a number between 0 and 1")
    require(epsilon > 0, f"epsilon is {epsilon!r}; needed: a number above 0")
    room = epsilon - conversion(delta, orders)
    each = np.asarray(orders if shape is None else shape, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        passes = np.where((room > 0) & np.isfinite(each), room / each, -np.inf)
    best = int(np.argmax(passes))
    require(
        passes[best] > 0,
        f"epsilon {epsilon:g} at delta {delta:g} leaves no room at any Renyi order; give a larger epsilon or delta",
    )
    budget = np.full_like(room, np.inf)
    budget[best] = room[best]
    return budget
