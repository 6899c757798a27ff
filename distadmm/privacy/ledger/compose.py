"""What the nodes of a run, and several runs on the same data, cost together.

Nodes compose by who holds what (`nodes.RULES`), runs on the same data add up.  Bounds that hold only for
a schedule committed before its first release are used only where there was one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from distadmm.privacy.accounting import accountant
from distadmm.privacy.accounting.cost import cost_of, counted
from distadmm.privacy.accounting.events import Adjacency, Event
from distadmm.privacy.accounting.nodes import RULES
from distadmm.privacy.accounting.rdp import ORDERS, rdp_to_epsilon

#: For each scope of a ledger: how its nodes compose, and the rule in words.
NODES = {
    "record": ("max", RULES["one-node"]),
    "feature": ("max", RULES["feature"]),
    "person": ("sum", RULES["parties"]),
    "unknown": ("sum", RULES["unknown"]),
}
_COMBINATIONS = 64  # of different nodes over runs that are priced one by one

Spending = tuple[Event, ...]  # what one node spent


def spending(events: Iterable[Event], records: int = 1) -> Spending:
    """What one node spent on a person with `records` records there, in a form that can be compared."""
    return tuple(sorted((event.group(records) for event in counted(events)), key=repr))


def epsilon(events: Iterable[Event], delta: float, adjacency: Adjacency, committed: bool) -> float:
    """The smallest bound that is proved; for a schedule that was not `committed`, that adaptive choice keeps."""
    price = accountant.epsilon if committed else accountant.adaptive_epsilon
    return price(events, delta, adjacency)


def over_nodes(
    nodes: Sequence[Spending], scope: str, delta: float, adjacency: Adjacency, committed: bool
) -> float:
    """epsilon of all nodes of one run together."""
    return over_runs([nodes], scope, delta, adjacency, committed)


def over_runs(
    runs: Sequence[Sequence[Spending]], scope: str, delta: float, adjacency: Adjacency, committed: bool
) -> float:
    """epsilon of runs on the same data together; `runs[r]` is what each node of run r spent."""
    if NODES[scope][0] == "sum":
        return epsilon((e for run in runs for node in run for e in node), delta, adjacency, committed)
    # A record may sit at any node of each run, at different ones in different runs.
    distinct = [sorted(set(run), key=repr) for run in runs if run]
    if math.prod(len(run) for run in distinct) <= _COMBINATIONS:
        choices = [[e for node in choice for e in node] for choice in product(*distinct)]
        return max(epsilon(events, delta, adjacency, committed) for events in choices)
    costs = [[cost_of(node, ORDERS, adjacency) for node in run] for run in distinct]
    curve = np.sum([np.max([cost.rdp for cost in run], axis=0) for run in costs], axis=0)
    return min(rdp_to_epsilon(curve, delta), math.fsum(max(cost.pure for cost in run) for run in costs))


def published(runs: Sequence[Sequence[Spending]], scope: str, adjacency: Adjacency) -> float:
    """The same by the papers' own bounds, which add up."""
    fold = max if NODES[scope][0] == "max" else math.fsum
    prices = [[accountant.published_epsilon(list(node), adjacency) for node in run] for run in runs if run]
    return math.fsum(fold(run) for run in prices)
