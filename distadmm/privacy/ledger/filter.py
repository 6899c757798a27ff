"""Budgets: what stops a release before it is drawn.

A filter fixes, before the first release, a set of total costs such that whatever adaptive sequence of
releases stays inside it is (epsilon, delta)-DP.  Only filters with a proof are here:

    PureFilter      the sum of pure epsilons stays below epsilon (delta = 0)
    GaussianFilter  the sum of mu^2 stays below mu_B^2; every release exactly Gaussian
                    [Smith and Thakurta 2022]
    RenyiFilter     the Renyi curve stays below a curve B chosen beforehand, at *every* order
                    [Feldman and Zrnic 2021, for an order fixed beforehand; B is infinite at the others]
    ScheduleFilter  only the schedule that was priced beforehand, and nothing after it

"Stop when the smallest epsilon over all orders exceeds the budget" looks like the third but is not proved;
neither are filters on privacy-loss distributions.  A filter must not depend on data.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting.cost import Cost, cost_of, counted
from distadmm.privacy.accounting.events import Adjacency, Array, Event
from distadmm.privacy.accounting.rdp import ORDERS, rdp_budget, rdp_to_epsilon
from distadmm.privacy.accounting.statements import exactly
from distadmm.privacy.ledger.chain import plain
from distadmm.privacy.ledger.tally import schedule_hash
from distadmm.structs import struct

# A budget is kept to nine digits: ten releases of 0.1 fit into 1, however their sum is rounded.
_DIGITS = 1 + 1e-9


class Proposal(NamedTuple):
    """What a ledger asks a filter."""

    after: Cost  # everything that would then be spent
    schedule: Sequence[Event] | None  # what is to be committed; None for a release of its own
    first: bool  # nothing has been spent yet


class Filter(Protocol):
    @property
    def epsilon(self) -> float: ...

    @property
    def delta(self) -> float: ...

    def admits(self, proposal: Proposal) -> bool:
        """Whether the total may become `proposal.after`."""
        ...

    def used(self, spent: Cost) -> float:
        """The share of the budget that is spent, 0 to 1."""
        ...

    def describe(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...


class _Described:
    """What all filters say of themselves; `kept` is what stays below the budget."""

    epsilon: float
    delta: float
    kept: ClassVar[str]

    def describe(self) -> str:
        at = f" at delta = {exactly(self.delta)}" if self.delta else ""
        return f"epsilon = {exactly(self.epsilon)}{at} ({self.kept})"


@struct
class PureFilter(_Described):
    epsilon: float
    delta: float = 0.0
    kept: ClassVar[str] = "sum of pure epsilons"

    def admits(self, proposal: Proposal) -> bool:
        return proposal.after.pure <= self.epsilon * _DIGITS

    def used(self, spent: Cost) -> float:
        return spent.pure / self.epsilon

    def to_json(self) -> dict[str, Any]:
        return {"filter": "pure", "epsilon": self.epsilon}


@struct
class GaussianFilter(_Described):
    epsilon: float
    delta: float
    mu: float  # the largest mu that is (epsilon, delta)-DP
    exact: bool = False  # kept to without the nine digits' grace
    kept: ClassVar[str] = "sum of mu^2"

    def admits(self, proposal: Proposal) -> bool:
        return proposal.after.mu2 <= self.mu * self.mu * (1.0 if self.exact else _DIGITS)

    def used(self, spent: Cost) -> float:
        return spent.mu2 / self.mu**2

    def to_json(self) -> dict[str, Any]:
        line = {"filter": "gaussian", "epsilon": self.epsilon, "delta": self.delta, "mu": self.mu}
        return {**line, "exact": True} if self.exact else line


@struct
class RenyiFilter(_Described):
    epsilon: float
    delta: float
    curve: Array  # B, at the ledger's orders
    kept: ClassVar[str] = "Renyi curve, every order"

    __eq__ = object.__eq__  # arrays do not compare
    __hash__ = object.__hash__

    def admits(self, proposal: Proposal) -> bool:
        return bool(np.all(proposal.after.rdp <= self.curve * _DIGITS))

    def used(self, spent: Cost) -> float:
        bounded = np.isfinite(self.curve)
        return float(np.max(spent.rdp[bounded] / self.curve[bounded]))

    def to_json(self) -> dict[str, Any]:
        return plain({"filter": "renyi", "epsilon": self.epsilon, "delta": self.delta, "curve": self.curve})


@struct
class ScheduleFilter(_Described):
    epsilon: float
    delta: float
    schedule: str  # its hash
    kept: ClassVar[str] = "the committed schedule alone"

    def admits(self, proposal: Proposal) -> bool:
        asked = proposal.schedule
        return proposal.first and asked is not None and schedule_hash(asked) == self.schedule

    def used(self, spent: Cost) -> float:
        return float(spent.rdp.any())

    def to_json(self) -> dict[str, Any]:
        return {"filter": "schedule", "epsilon": self.epsilon, "delta": self.delta, "schedule": self.schedule}


def filter_from_json(line: Mapping[str, Any] | None) -> Filter | None:
    """The filter that `to_json` wrote; None stays None."""
    if line is None:
        return None
    kind, epsilon, delta = line.get("filter"), float(line["epsilon"]), float(line.get("delta", 0.0))
    if kind == "pure":
        return PureFilter(epsilon)
    if kind == "gaussian":
        return GaussianFilter(epsilon, delta, float(line["mu"]), bool(line.get("exact", False)))
    if kind == "renyi":
        return RenyiFilter(epsilon, delta, np.array([float(value) for value in line["curve"]]))
    require(kind == "schedule", f"unknown budget filter {kind!r}; known: pure, gaussian, renyi, schedule")
    return ScheduleFilter(epsilon, delta, line["schedule"])


def budget(
    epsilon: float,
    delta: float = 0.0,
    events: Sequence[Event] = (),
    *,
    adjacency: Adjacency,
    orders: Array = ORDERS,
) -> Filter:
    """The proved filter for a budget; `events` is the plan, which must not depend on data.

    delta = 0: the sum of pure epsilons.  All events exactly Gaussian: the sum of mu^2.  Otherwise a Renyi
    curve that is worth epsilon at delta, at the order that lets most of the plan pass (without a plan: most
    Gaussian releases).  Where a plan meets the budget by its tight price but not by its Renyi curve: that
    plan alone.
    """
    require(
        math.isfinite(epsilon) and epsilon > 0, f"--budget-epsilon is {epsilon!r}; needed: a number above 0"
    )
    require(0 <= delta < 1, f"--budget-delta is {delta!r}; needed: a number from 0 to below 1")
    if delta == 0:
        return PureFilter(float(epsilon))
    orders = np.asarray(orders, dtype=float)
    events = counted(events)
    planned = cost_of(events, orders, adjacency)
    if events and math.isfinite(planned.mu2):
        from distadmm.privacy.accounting.gaussian import mu_at  # scipy, only when it is needed

        return GaussianFilter(epsilon, delta, mu_at(epsilon, delta))
    if not events or planned.unbounded:
        return RenyiFilter(epsilon, delta, rdp_budget(epsilon, delta, None, orders))
    if rdp_to_epsilon(planned.rdp, delta, orders) > epsilon:
        from distadmm.privacy.accounting import accountant

        if accountant.epsilon(events, delta, adjacency) <= epsilon:
            return ScheduleFilter(epsilon, delta, schedule_hash(events))
    return RenyiFilter(epsilon, delta, rdp_budget(epsilon, delta, planned.rdp, orders))
