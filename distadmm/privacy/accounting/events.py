"""What was released, as frozen facts: one event is one mechanism applied `count` times.

Events know parameters and never data.  What they cost under an adjacency is asked of them:

    pure_epsilon(adjacency)   epsilon with delta = 0, all `count` releases together
    rdp(orders, adjacency)    the Renyi curve, an upper bound at every order, all releases together
    gdp_mu(adjacency)         mu when all of it is exactly mu-Gaussian, else None

Invariants that guard privacy
-----------------------------
* An event whose price is not proved costs infinity, never a guess (`Unbounded`).
* The adjacency is given when an event is priced; none is assumed.  `ObjectivePerturbation` prices each
  one differently; the sensitivity of every other mechanism is stated in the event itself, and must have
  been computed for the adjacency it is priced under.
* A JSON line written by `to_json` and read back by `event_from_json` is the same event.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal

import numpy as np

from distadmm.errors import InputError, require
from distadmm.structs import struct

Array = np.ndarray
Adjacency = Literal["add-remove", "replace", "label"]

#: Neighbouring tables: one record more or less; one record another; the label of one record flipped.
ADJACENCIES: tuple[Adjacency, ...] = ("add-remove", "replace", "label")

_KINDS: dict[str, type[Event]] = {}


def check_adjacency(adjacency: str) -> None:
    require(
        adjacency in ADJACENCIES,
        f"adjacency is {adjacency!r}; there is no default: choose one of {', '.join(ADJACENCIES)}",
    )


def _positive(event: Event, *names: str) -> None:
    for name in names:
        value = getattr(event, name)
        require(
            isinstance(value, (int, float, np.number)) and math.isfinite(value) and value > 0,
            f"{event.mech}: {name} is {value!r}; needed: a finite number above 0",
        )
        object.__setattr__(event, name, float(value))  # numpy's scalars have no JSON


def _whole(event: Event, *names: str) -> None:
    for name in names:
        value = getattr(event, name)
        require(
            isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1,
            f"{event.mech}: {name} is {value!r}; needed: a whole number of at least 1",
        )
        object.__setattr__(event, name, int(value))


@struct
class Event:
    """The common part of all events; see the module's head."""

    mech: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        _KINDS[cls.mech] = cls

    @property
    def releases(self) -> int:
        """How many releases this event stands for."""
        return getattr(self, "count", 1)

    def single(self) -> Event:
        """The same mechanism, released once."""
        return replace(self, count=1) if self.releases != 1 else self  # type: ignore[call-arg]

    def to_json(self) -> dict[str, Any]:
        return {"mech": self.mech, **asdict(self)}

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        """epsilon with delta = 0 of all releases of this event together; infinite where none is proved."""
        check_adjacency(adjacency)
        return math.inf

    def rdp(self, orders: Array | None = None, adjacency: Adjacency | None = None) -> Array:
        """The Renyi curve at `orders` (default: `ORDERS`): an upper bound, infinite where none is proved."""
        from distadmm.privacy.accounting import rdp

        require(adjacency is not None, f"{self.mech}: rdp needs an adjacency; there is no default")
        check_adjacency(adjacency)  # type: ignore[arg-type]
        return rdp.curve(self, rdp.ORDERS if orders is None else orders, adjacency)  # type: ignore[arg-type]

    def gdp_mu(self, adjacency: Adjacency) -> float | None:
        """mu when all releases of this event are exactly mu-Gaussian together; None otherwise."""
        check_adjacency(adjacency)
        return None


@struct
class Gaussian(Event):
    """Isotropic Gaussian noise on a query: `noise_multiplier` = sigma / sensitivity (l2)."""

    noise_multiplier: float
    count: int = 1
    mech: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        _positive(self, "noise_multiplier")
        _whole(self, "count")

    def gdp_mu(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return math.sqrt(self.count) / self.noise_multiplier


@struct
class DiscreteGaussian(Event):
    """Independent N_Z(0, sigma^2) on each of `dimension` integers, l2 sensitivity in the same grid units.

    Not the continuous formula: at sigma = 1 grid unit the true delta is up to 1.8 times what that says.
    Rounding a query to the grid raises its sensitivity; charge that to `sensitivity_grid`.
    """

    sigma_grid: float
    sensitivity_grid: float
    count: int = 1
    dimension: int = 1
    mech: ClassVar[str] = "discrete-gaussian"

    def __post_init__(self) -> None:
        _positive(self, "sigma_grid", "sensitivity_grid")
        _whole(self, "count", "dimension")


@struct
class KNorm(Event):
    """Additive noise of density proportional to exp(-alpha |b|_2) on a query of l2 sensitivity `shift`."""

    dimension: int
    alpha: float
    shift: float
    count: int = 1
    mech: ClassVar[str] = "k-norm"

    def __post_init__(self) -> None:
        _positive(self, "alpha", "shift")
        _whole(self, "dimension", "count")

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return self.count * self.alpha * self.shift


@struct
class ObjectivePerturbation(Event):
    """The exact minimiser of  w sum_n l(y_n x_n' f) + (rest of curvature >= floor) + b' f,  released.

    `noise` "gamma": b has density proportional to exp(-scale |b|_2) (scale is the paper's alpha);
    "gaussian": b ~ N(0, scale^2 I).  `weight` w = C/B, public and fixed; `curvature` c1 >= l'';
    `floor` Phi = rho/N + 2 eta V.  `output_epsilon` > 0: the minimiser is approximate and the noise added
    to it costs that much more a release.  `one_signed`: l' has one sign for each record, whatever f is.
    `logistic`: l is the logistic loss, so that flipping a label adds a linear function to it; without it
    the label adjacency is priced as a replacement.  `records`: how many records of one person change at
    once.  See `profiles` for the theorem and its hypotheses.
    """

    noise: str
    dimension: int
    scale: float
    weight: float
    curvature: float
    floor: float
    count: int = 1
    output_epsilon: float = 0.0
    one_signed: bool = True
    logistic: bool = False
    records: int = 1
    mech: ClassVar[str] = "objective-perturbation"

    def __post_init__(self) -> None:
        require(
            self.noise in ("gamma", "gaussian"),
            f"{self.mech}: noise is {self.noise!r}; choose gamma or gaussian",
        )
        _positive(self, "scale", "weight", "curvature", "floor")
        _whole(self, "dimension", "count", "records")
        require(
            math.isfinite(self.output_epsilon) and self.output_epsilon >= 0,
            f"{self.mech}: output_epsilon is {self.output_epsilon!r}; needed: a finite number, 0 or more",
        )

    def to_json(self) -> dict[str, Any]:
        line = super().to_json()
        if self.records == 1:  # as every release is; more of them is a question about it
            del line["records"]
        return line

    @property
    def log_jacobian(self) -> float:
        """tau = ln(1 + w c1 / Phi): what one record can change the log-determinant of the Hessian by."""
        return math.log1p(self.weight * self.curvature / self.floor)

    def shift(self, adjacency: Adjacency) -> float:
        """How far one record can move the noise."""
        check_adjacency(adjacency)
        both = adjacency == "replace" or (adjacency == "label" and not self.logistic)
        return 2 * self.weight if both else self.weight

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        """count (records (alpha shift + tau) + output_epsilon); a flipped logistic label leaves the Hessian alone.

        The output noise hides the error of the solve, whatever the tables are.
        """
        moved = self.shift(adjacency)
        if self.noise == "gaussian":
            return math.inf
        jacobian = 0.0 if adjacency == "label" and self.logistic else self.log_jacobian
        return self.count * (self.records * (self.scale * moved + jacobian) + self.output_epsilon)

    def gdp_mu(self, adjacency: Adjacency) -> float | None:
        moved = self.shift(adjacency)
        exact = (
            self.noise == "gaussian" and adjacency == "label" and self.logistic and not self.output_epsilon
        )
        return math.sqrt(self.count) * self.records * moved / self.scale if exact else None


@struct
class Pure(Event):
    """Any mechanism that is epsilon-differentially private, known by nothing else."""

    epsilon: float
    count: int = 1
    mech: ClassVar[str] = "pure"

    def __post_init__(self) -> None:
        _positive(self, "epsilon")
        _whole(self, "count")

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return self.count * self.epsilon


@struct
class PostProcessing(Event):
    """Computed from released values alone; `of` names the ledger entry that is used again.  Costs nothing."""

    of: str | int
    mech: ClassVar[str] = "post"

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return 0.0

    def gdp_mu(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return 0.0


@struct
class Unbounded(Event):
    """A release that no theorem here bounds: epsilon is infinite.  `claimed` is what a paper says of it."""

    reason: str
    claimed: float | None = None
    mech: ClassVar[str] = "unbounded"


@struct
class Leakage(Event):
    """An average leakage of `nats` (mutual information) about `what`: listed, never added to an epsilon."""

    nats: float
    what: str
    mech: ClassVar[str] = "leakage"

    def __post_init__(self) -> None:
        require(
            math.isfinite(self.nats) and self.nats >= 0,
            f"leakage: nats is {self.nats!r}; needed: a finite number, 0 or more",
        )

    def pure_epsilon(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return 0.0

    def gdp_mu(self, adjacency: Adjacency) -> float:
        check_adjacency(adjacency)
        return 0.0


def event_from_json(line: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote."""
    fields = dict(line)
    mech = fields.pop("mech", None)
    require(
        mech in _KINDS and mech,
        f"mech is {mech!r}; known mechanisms: {', '.join(sorted(filter(None, _KINDS)))}",
    )
    try:
        return _KINDS[mech](**fields)
    except TypeError as error:
        raise InputError(f"{mech}: {error}; give the fields that to_json writes") from None
