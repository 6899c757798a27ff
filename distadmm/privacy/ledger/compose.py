"""What the nodes of a run, and several runs, cost together.

Nodes compose by who holds what (`nodes.RULES`), those with the same rows add up, and so do runs.  Bounds that hold
only for a schedule committed before its first release are used only where there was one.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from distadmm.privacy.accounting import accountant
from distadmm.privacy.accounting.cost import cost_of, counted
from distadmm.privacy.accounting.events import Adjacency, Event
from distadmm.privacy.accounting.nodes import RULES, held_by_all
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
    return _spending(tuple(events), records)


@lru_cache(maxsize=256)  # the nodes of a graph spend alike
def _spending(events: Spending, records: int) -> Spending:
    return tuple(sorted((event.group(records) for event in counted(events)), key=repr))


def epsilon(events: Iterable[Event], delta: float, adjacency: Adjacency, committed: bool) -> float:
    """The smallest bound that is proved; for a schedule that was not `committed`, that adaptive choice keeps."""
    return (accountant.epsilon if committed else accountant.adaptive_epsilon)(events, delta, adjacency)


class Node(NamedTuple):
    """What one node of a run spent, and the keyed names of its rows (`data.content`)."""

    spent: Spending
    names: frozenset[str] = frozenset()


def same_rows(names: Sequence[Collection[str]]) -> list[list[int]]:
    """Which of several nodes hold the same rows, directly or through others; a node without names stands alone."""
    of: dict[str, int] = {}  # name: the group that has it
    groups: dict[int, list[int]] = {}
    for at, mine in enumerate(names):
        met = sorted({of[name] for name in mine if name in of})
        groups[at] = [*(node for other in met for node in groups.pop(other)), at]
        of.update({name: at for node in groups[at] for name in names[node]})
    return list(groups.values())


def blocks(nodes: Sequence[Node], rule: str = "max") -> list[Node]:
    """What is spent on one record, for each place where it may be: nodes with the same rows add up.

    `rule` "sum": a record is at every node.
    """
    found = [[nodes[at] for at in group] for group in groups([node.names for node in nodes], rule)]
    return [
        Node(added([n.spent for n in some]), frozenset().union(*(n.names for n in some))) for some in found
    ]


def groups(names: Sequence[Collection[str]], rule: str) -> list[list[int]]:
    """Which of these nodes, by the names of their rows, may hold one record together."""
    return [list(range(len(names)))] if rule == "sum" else same_rows(names)


def added(some: Sequence[Spending]) -> Spending:
    """What nodes of one run that spend this each spend on a record that all of them hold."""
    return spending(held_by_all(some))


def over_runs(
    runs: Sequence[Sequence[Node]], scope: str, delta: float, adjacency: Adjacency, committed: bool
) -> float:
    """epsilon of several runs together, or of one; `runs[r]` are the nodes of run r.

    A record may sit at any node of each run, but in a run with a node for the same rows it sits there.
    """
    rule = NODES[scope][0]
    found = [blocks(run, rule) for run in runs if run]
    times = Counter(name for run in found for name in frozenset().union(*(node.names for node in run)))
    places: set[Node] | None = {Node(())}
    for run in found:
        here = [node._replace(names=frozenset(n for n in node.names if times[n] > 1)) for node in run]
        places = _placed(places, here) if places is not None else None
    if places is not None:
        return max(epsilon(spent, delta, adjacency, committed) for spent in {p.spent for p in places})
    costs = [[cost_of(spent, ORDERS, adjacency) for spent in {node.spent for node in run}] for run in found]
    curve = np.sum([np.max([cost.rdp for cost in run], axis=0) for run in costs], axis=0)
    return min(rdp_to_epsilon(curve, delta), math.fsum(max(cost.pure for cost in run) for run in costs))


def _placed(places: set[Node], run: Sequence[Node]) -> set[Node] | None:
    """Where a record may be after one run more; None: in too many ways."""
    after = set()
    for place in places:
        same = [node for node in run if not place.names.isdisjoint(node.names)]
        for node in same or run:
            after.add(Node(spending([*place.spent, *node.spent]), place.names | node.names))
    return after if len({place.spent for place in after}) <= _COMBINATIONS else None


def published(runs: Sequence[Sequence[Node]], scope: str, adjacency: Adjacency) -> float:
    """The same by the papers' own bounds, which add up; of each run the place that costs most."""
    found = [{node.spent for node in blocks(run, NODES[scope][0])} for run in runs if run]
    return math.fsum(
        max(accountant.published_epsilon(list(spent), adjacency) for spent in run) for run in found
    )
