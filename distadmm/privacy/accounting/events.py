"""What was released, as frozen facts: one event is one mechanism applied `count` times, and knows its own price.

Events know parameters and never data.  A mechanism is a struct that inherits from `Event`, in one file:

    pure_epsilon(adjacency)   epsilon with delta = 0, all `count` releases together
    gdp_mu(adjacency)         mu when all of it is exactly mu-Gaussian, else None
    renyi(orders, adjacency)  the Renyi curve of one release, an upper bound at every order
    pairs(adjacency, route)   the pairs of distributions that dominate one release; none: no profile is proved
    group(k)                  what the same costs k records that change together
    published(adjacency)      epsilon (delta = 0) as its paper states it
    hypotheses                what the price rests on, besides those of the run (names of `scopes.HYPOTHESES`)
    sample(stream, ...)       its noise;  law, place, exact: of what density, where it goes, whether floats take part
    exported()                one release in the words of dp-accounting
    against(trust)            the event as those see it who may collude; itself where that does not matter

What is not given is the safe answer: infinite, unproved, not to be drawn.

Invariants that guard privacy
-----------------------------
* An event whose price is not proved costs infinity, never a guess (`Unbounded`); so does a line of a ledger whose
  mechanism, version or fields nobody here knows.
* The adjacency is given when an event is priced; none is assumed.  An event that `knows_adjacency` prices each one
  differently; every other states its sensitivity, which must be that for the adjacency it is priced under.
* A JSON line written by `to_json` and read back by `event_from_json` is the same event.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from distadmm.errors import InputError, require
from distadmm.structs import struct

if TYPE_CHECKING:
    from distadmm.privacy.accounting.cost import Cost
    from distadmm.privacy.accounting.curves import Pair
    from distadmm.privacy.accounting.trust import Trust

Array = np.ndarray
_LEAST, _LARGEST, _MOST = 1e-50, 1e50, 10**30  # of parameters: no price underflows or overflows
Adjacency = Literal["add-remove", "replace", "label", "node"]

#: Neighbouring tables (`trust.ADJACENCY_WORDS`); where whole gradients are clipped there is "node" besides.
ADJACENCIES: tuple[Adjacency, ...] = ("add-remove", "replace", "label")

_KINDS: dict[tuple[str, int], type[Event]] = {}  # by name and version


def check_adjacency(adjacency: str) -> None:
    require(
        adjacency in (*ADJACENCIES, "node"),
        f"adjacency is {adjacency!r}; there is no default: choose one of {', '.join(ADJACENCIES)}",
    )


def positive(event: Event, *names: str) -> None:
    for name in names:
        value = getattr(event, name)
        number = float(value) if isinstance(value, np.number) else value  # numpy's scalars have no JSON
        right = isinstance(number, (int, float)) and _LEAST <= number <= _LARGEST
        require(right, f"{event.mech}: {name} is {value!r}; needed: a number above 0, from 1e-50 to 1e50")
        object.__setattr__(event, name, float(number))


def whole(event: Event, *names: str) -> None:
    for name in names:
        value = getattr(event, name)
        right = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 1 <= value <= _MOST
        require(right, f"{event.mech}: {name} is {value!r}; needed: a whole number from 1 to 1e30")
        object.__setattr__(event, name, int(value))


@struct
class Event:
    """The common part of all events; see the module's head."""

    mech: ClassVar[str] = ""
    version: ClassVar[int] = 1  # of the fields and of what they mean
    free: ClassVar[bool] = False  # of no (epsilon, delta) cost
    unbounded: ClassVar[bool] = False  # nothing bounds it; `words` say why
    words: ClassVar[str] = ""
    recycles: ClassVar[Any] = None  # the ledger entry that is used again
    listed: ClassVar[str] = ""  # what is told beside an epsilon and never added to it
    law: ClassVar[str] = ""  # gamma, gaussian or discrete; empty: there is no noise to draw
    place: ClassVar[str] = "answer"  # or "objective": where the noise goes
    exact: ClassVar[bool] = False  # drawn and added in exact integers
    knows_adjacency: ClassVar[bool] = False
    states_query: ClassVar[bool] = True  # its own dimension and scale; else they are given with the draw
    hypotheses: ClassVar[tuple[str, ...]] = ()
    shares_noise: ClassVar[bool] = False  # with other nodes: what they spend on one record does not add up
    also: ClassVar[Any] = None  # a `Pure` that each release costs besides: noise on an inexact answer

    def __init_subclass__(cls) -> None:
        _KINDS[cls.mech, cls.version] = cls

    @property
    def releases(self) -> int:
        """How many releases this event stands for."""
        return getattr(self, "count", 1)

    def times(self, count: int) -> Event:
        """So many releases of the same mechanism; of what costs nothing or everything, once is as much as often."""
        return replace(self, count=count) if hasattr(self, "count") and self.releases != count else self  # type: ignore[call-arg]

    def single(self) -> Event:
        """The same mechanism, released once."""
        return self.times(1)

    def group(self, records: int) -> Event:
        """The event whose price is what this one costs a group of `records` records."""
        return self if self.free or records == 1 else Unbounded(f"no group privacy is known for {self.mech}")

    def to_json(self) -> dict[str, Any]:
        version = {"version": self.version} if self.version != 1 else {}
        return {"mech": self.mech} | version | {each.name: getattr(self, each.name) for each in fields(self)}

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        """epsilon with delta = 0 of all releases of this event together; infinite where none is proved."""
        check_adjacency(adjacency)
        return 0.0 if self.free else math.inf

    def gdp_mu(self, adjacency: Adjacency) -> float | None:
        """mu when all releases of this event are exactly mu-Gaussian together; None otherwise."""
        check_adjacency(adjacency)
        return 0.0 if self.free else None

    def rdp(self, orders: Array | None = None, adjacency: Adjacency | None = None) -> Array:
        """The Renyi curve at `orders` (default: `ORDERS`): an upper bound, infinite where none is proved."""
        from distadmm.privacy.accounting import rdp

        check_adjacency(adjacency)  # type: ignore[arg-type]
        return rdp.curve(self, rdp.ORDERS if orders is None else orders, adjacency)  # type: ignore[arg-type]

    def renyi(self, orders: Array, adjacency: Adjacency) -> Array:
        """The Renyi curve of one release, before it is rounded up."""
        from distadmm.privacy.accounting.rdp import of_pure

        return of_pure(self.single().pure_epsilon(adjacency), orders)

    def pairs(self, adjacency: Adjacency, route: str = "profile") -> tuple[Pair, ...]:
        """The pairs that dominate one release: (D against D+z, D+z against D), or one for both ways."""
        from distadmm.privacy.accounting import profiles

        pure = self.single().pure_epsilon(adjacency)
        return profiles.symmetric(profiles.randomised_response(pure)) if 0 < pure < math.inf else ()

    def against(self, trust: Trust) -> Event:
        """The event as those see it who may collude; the same for all where the mechanism does not care."""
        return self

    def price(self, adjacency: Adjacency, trust: Trust | None = None, orders: Array | None = None) -> Cost:
        """What all releases cost against `trust` (default: all others collude): bounds that add up."""
        from distadmm.privacy.accounting import cost
        from distadmm.privacy.accounting import trust as trusts

        return cost.of_event(self.against(trust or trusts.ANY), orders, adjacency)

    def prices(self, adjacency: Adjacency, others: int, orders: Array | None = None) -> tuple[Cost, ...]:
        """The same as a table: when 0, 1, ..., all `others` collude."""
        from distadmm.privacy.accounting.trust import Trust

        return tuple(self.price(adjacency, Trust(c), orders) for c in range(others + 1))

    def published(self, adjacency: Adjacency) -> float:
        """epsilon (delta = 0) by its paper; of a mechanism that no paper here states: the proved one."""
        return self.pure_epsilon(adjacency)

    def exported(self) -> tuple[str, dict[str, Any]]:
        """dp-accounting's class for one release, and its fields."""
        return ("NoOpDpEvent" if self.free else "UnsupportedDpEvent"), {}

    def rate(self, moved: float) -> float:
        """alpha of gamma noise, or 1/sigma, on a query that one record moves by `moved`."""
        raise InputError(f"no noise is known for {self}")

    def sample(self, stream: Any, shape: Any = None, sensitivity: float | None = None) -> Array:
        """Noise of one release, from a `sources.Stream`."""
        raise InputError(f"no noise is known for {self}; charge it at the ledger")


@struct
class Gaussian(Event):
    """Isotropic Gaussian noise on a query: `noise_multiplier` = sigma / sensitivity (l2)."""

    noise_multiplier: float
    count: int = 1
    mech: ClassVar[str] = "gaussian"
    law: ClassVar[str] = "gaussian"
    states_query: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive(self, "noise_multiplier")
        whole(self, "count")

    def gdp_mu(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return math.sqrt(self.count) / self.noise_multiplier

    def renyi(self, orders: Array, adjacency: Adjacency) -> Array:
        return orders / (2 * self.noise_multiplier**2)

    def pairs(self, adjacency: Adjacency, route: str = "profile") -> tuple[Pair, ...]:
        from distadmm.privacy.accounting import profiles

        return profiles.symmetric(profiles.base("gaussian", 1, 1 / self.noise_multiplier, True))

    def group(self, records: int) -> Event:
        return replace(self, noise_multiplier=self.noise_multiplier / records)

    def exported(self) -> tuple[str, dict[str, Any]]:
        return "GaussianDpEvent", {"noise_multiplier": self.noise_multiplier}

    def rate(self, moved: float) -> float:
        return 1.0 / (self.noise_multiplier * moved)

    def sample(self, stream: Any, shape: Any = None, sensitivity: float | None = None) -> Array:
        assert sensitivity is not None
        return self.noise_multiplier * sensitivity * stream.standard_normal(shape)  # type: ignore[no-any-return]


@struct
class KNorm(Event):
    """Additive noise of density proportional to exp(-alpha |b|_2) on a query of l2 sensitivity `shift`."""

    dimension: int
    alpha: float
    shift: float
    count: int = 1
    mech: ClassVar[str] = "k-norm"
    law: ClassVar[str] = "gamma"

    def __post_init__(self) -> None:
        positive(self, "alpha", "shift")
        whole(self, "dimension", "count")

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return self.count * self.alpha * self.shift

    def renyi(self, orders: Array, adjacency: Adjacency) -> Array:
        from distadmm.privacy.accounting import profiles

        tail = profiles.Tail("gamma", self.dimension, self.alpha * self.shift)
        found = profiles.moments(profiles.pairs_of(self, adjacency), [tail], orders) / (orders - 1)
        return np.minimum(np.maximum(found, 0.0), super().renyi(orders, adjacency))  # type: ignore[no-any-return]

    def pairs(self, adjacency: Adjacency, route: str = "profile") -> tuple[Pair, ...]:
        from distadmm.privacy.accounting import profiles

        return profiles.symmetric(profiles.base("gamma", self.dimension, self.alpha * self.shift, True))

    def group(self, records: int) -> Event:
        return replace(self, shift=self.shift * records)

    def exported(self) -> tuple[str, dict[str, Any]]:
        if self.dimension > 1:
            return super().exported()
        return "LaplaceDpEvent", {"noise_multiplier": 1 / (self.alpha * self.shift)}

    def rate(self, moved: float) -> float:
        return self.alpha

    def sample(self, stream: Any, shape: Any = None, sensitivity: float | None = None) -> Array:
        return k_norm(stream, self.dimension, self.alpha)


def k_norm(stream: Any, dimension: int, alpha: float) -> Array:
    """b in R^d of density ~ exp(-alpha |b|): |b| ~ Gamma(d, 1/alpha), direction uniform."""
    b: Array = stream.standard_normal(dimension)
    length = stream.standard_gamma(dimension) / alpha
    b *= length / math.sqrt(b @ b)
    return b


@struct
class Pure(Event):
    """Any mechanism that is epsilon-differentially private, known by nothing else."""

    epsilon: float
    count: int = 1
    mech: ClassVar[str] = "pure"

    def __post_init__(self) -> None:
        positive(self, "epsilon")
        whole(self, "count")

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return self.count * self.epsilon

    def group(self, records: int) -> Event:
        return replace(self, epsilon=self.epsilon * records)


@struct
class PostProcessing(Event):
    """Computed from released values alone; `of` names the ledger entry that is used again.  Costs nothing."""

    of: str | int
    mech: ClassVar[str] = "post"
    free: ClassVar[bool] = True

    @property
    def recycles(self) -> str | int:
        return self.of


@struct
class Unbounded(Event):
    """A release that no theorem here bounds: epsilon is infinite.

    `claimed` is the epsilon that a paper says of it, and `adds` how that paper composes `count` = T of them: "once", of
    all together; "each", the sum; "advanced", sqrt(2 T ln(1/delta)) epsilon + T epsilon (e^epsilon - 1).
    """

    reason: str
    claimed: float | None = None
    adds: str = "once"
    delta: float = 0.0
    count: int = 1
    mech: ClassVar[str] = "unbounded"
    unbounded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole(self, "count")
        require(
            self.adds in ("once", "each") or (self.adds == "advanced" and 0 < self.delta < 1),
            f"{self.mech}: claims add up {self.adds!r} with delta {self.delta!r}; choose once, each, or advanced with "
            "a delta between 0 and 1",
        )

    @property
    def words(self) -> str:  # type: ignore[override]
        return self.reason

    def to_json(self) -> dict[str, Any]:
        usual = {"adds": "once", "delta": 0.0, "count": 1}
        line = super().to_json()
        return {name: value for name, value in line.items() if name not in usual or value != usual[name]}

    def group(self, records: int) -> Event:
        return self if records == 1 else replace(self, claimed=None)

    def published(self, adjacency: Adjacency) -> float:
        if self.claimed is None:
            return math.inf
        if self.adds == "advanced":
            spread = math.sqrt(2 * self.count * math.log(1 / self.delta))
            return spread * self.claimed + self.count * self.claimed * math.expm1(self.claimed)
        return self.claimed * (self.count if self.adds == "each" else 1)

    def exported(self) -> tuple[str, dict[str, Any]]:
        return "NonPrivateDpEvent", {}


@struct
class Leakage(Event):
    """An average leakage of `nats` (mutual information) about `what`: listed, never added to an epsilon."""

    nats: float
    what: str
    mech: ClassVar[str] = "leakage"
    free: ClassVar[bool] = True

    def __post_init__(self) -> None:
        right = math.isfinite(self.nats) and self.nats >= 0
        require(right, f"leakage: nats is {self.nats!r}; needed: a finite number, 0 or more")

    @property
    def listed(self) -> str:  # type: ignore[override]
        return f"{self.nats:.4g} nats about {self.what}"


def event_from_json(line: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote, of a module of its mechanism's name; what nobody here knows has no bound."""
    given = dict(line)
    mech, version = given.pop("mech", None), given.pop("version", 1)
    if (mech, version) not in _KINDS and isinstance(mech, str) and re.fullmatch("[a-z][a-z-]*", mech):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"distadmm.privacy.accounting.{mech.replace('-', '_')}")
    kind = _KINDS.get((mech, version)) if mech else None
    if kind is None:
        what = f"a mechanism unknown here: {mech!r}, version {version!r}"
        return Unbounded(f"{what}; update distadmm to price it")
    try:
        event = kind(**given)
        hash(event)  # which lists and tables have not
    except (TypeError, ValueError, InputError) as error:
        return Unbounded(f"an entry that is none of {mech}'s: {error}")
    return event
