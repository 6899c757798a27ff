"""What several nodes, or several runs on the same data, cost one record or one person.

a record is held by one node, or a feature by one party    the node that costs most
a person has something at every node                       all nodes together
not known                                                  all nodes together
several runs on the same data                              the sum over the runs
a person has k records at one node                         group privacy
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from distadmm.errors import require
from distadmm.privacy import accountant
from distadmm.privacy.events import Adjacency, Event
from distadmm.privacy.rdp import ORDERS, rdp_to_epsilon
from distadmm.privacy.tally import cost_of, counted

#: For each scope, how nodes compose, in words.
NODES = {
    "record": ("max", "a record is held by one node: the node that costs most"),
    "feature": ("max", "a feature is held by one party: the party that costs most"),
    "person": ("sum", "a person has data at every node: all nodes together"),
    "unknown": ("sum", "who holds what is not known: all nodes together"),
}
_COMBINATIONS = 64  # of different nodes over runs that are priced one by one

Spending = tuple[Event, ...]  # what one node spent


def spending(events: Iterable[Event]) -> Spending:
    """The events of one node in a form that can be compared: equal ones counted, in a fixed order."""
    return tuple(sorted(counted(events), key=repr))


def over_nodes(nodes: Sequence[Spending], scope: str, delta: float, adjacency: Adjacency) -> float:
    """epsilon of all nodes of one run together."""
    return over_runs([nodes], scope, delta, adjacency)


def over_runs(runs: Sequence[Sequence[Spending]], scope: str, delta: float, adjacency: Adjacency) -> float:
    """epsilon of runs on the same data together; `runs[r]` is what each node of run r spent."""
    how = NODES[scope][0]
    if how == "sum":
        return accountant.epsilon([e for run in runs for node in run for e in node], delta, adjacency)
    # The record may sit at any node of each run, at different ones in different runs.
    distinct = [sorted(set(run), key=repr) for run in runs if run]
    if math.prod(len(run) for run in distinct) <= _COMBINATIONS:
        choices = ([e for node in choice for e in node] for choice in product(*distinct))
        return max(accountant.epsilon(events, delta, adjacency) for events in choices)
    curves = [np.max([cost_of(node, ORDERS, adjacency).rdp for node in run], axis=0) for run in distinct]
    worst = [max(cost_of(node, ORDERS, adjacency).pure for node in run) for run in distinct]
    return min(rdp_to_epsilon(np.sum(curves, axis=0), delta), sum(worst))


def published(runs: Sequence[Sequence[Spending]], scope: str, adjacency: Adjacency) -> float:
    """The same by the papers' own bounds, which add up."""
    fold = max if NODES[scope][0] == "max" else math.fsum
    prices = [[accountant.published_epsilon(list(node), adjacency) for node in run] for run in runs if run]
    return math.fsum(fold(run) for run in prices)


def group_epsilon(events: Sequence[Event], records: int, delta: float, adjacency: Adjacency) -> float:
    """epsilon for a person with `records` records at one node.

    All Gaussian: the sensitivity grows `records`-fold, so mu does.  Otherwise: (eps, d)-DP for one record is
    (k eps, d (1 + e^eps + ... + e^((k-1) eps)))-DP for k of them.
    """
    require(records >= 1, f"--records is {records}; needed: 1 or more")
    if records == 1:
        return accountant.epsilon(list(events), delta, adjacency)
    mu2 = cost_of(events, ORDERS, adjacency).mu2
    if math.isfinite(mu2):
        from distadmm.privacy import gaussian

        return gaussian.epsilon(records * math.sqrt(mu2), delta)
    return records * _single_epsilon(events, records, delta, adjacency)


def _single_epsilon(events: Sequence[Event], records: int, delta: float, adjacency: Adjacency) -> float:
    """The least eps whose delta, times the factor of the group, stays below `delta`; rounded up."""

    def excess(eps: float) -> bool:
        factor = math.fsum(math.exp(i * eps) for i in range(records))
        return accountant.delta(list(events), eps, adjacency) * factor > delta

    low, high = 0.0, 1.0
    while excess(high):
        low, high = high, 2 * high
        if high > 500.0 / records:
            return cost_of(events, ORDERS, adjacency).pure
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) else (low, middle)
        if high - low < 1e-6 * high:
            break
    return min(high, cost_of(events, ORDERS, adjacency).pure)
