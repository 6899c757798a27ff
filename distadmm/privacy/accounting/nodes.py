"""What the releases of several nodes together cost one record, or one person: it depends on who holds what.

    one-node   a record is held by one node                       the node that costs most
    feature    a feature (column) is held by one party            the party that costs most
    parties    a person has a row at every (vertical) party       all parties composed
    person     a person has k_i records at node i                 group privacy at each of these nodes, composed
    moving     a record may be replaced by one at another node    removed at A and added at B, composed; or replaced
    unknown    overlapping or unknown tables, merged runs         all composed

There is no default as soon as there are two nodes: the rule is a fact about the data, and it must be said.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from itertools import permutations
from typing import NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.privacy.accounting import accountant, cost, rdp
from distadmm.privacy.accounting.events import Adjacency, Event, Unbounded, check_adjacency

RULES = {
    "one-node": "a record is held by one node: the node that costs most",
    "feature": "a feature is held by one party: the party that costs most",
    "parties": "a person has a row at every party: all parties composed",
    "person": "a person has several records: group privacy at each node that holds some, composed",
    "moving": "a record may be replaced by one at another node: removed there and added here, composed",
    "unknown": "who holds what is not known, or the tables overlap: all nodes composed",
}


_SHARED = "a record may be held by several nodes that share noise, of which none was meant for that"


def held_by_all(spent: Iterable[Iterable[Event]]) -> list[Event]:
    """What nodes of one run spend on a record that all of them hold.

    Under noise that they share it moves them together: their mu add up, up to as many times as their squares do.
    """
    books = [list(events) for events in spent]
    several = sum(any(event.shares_noise for event in book) for book in books) > 1
    return [*(event for book in books for event in book), *([Unbounded(_SHARED)] if several else [])]


class Combined(NamedTuple):
    """epsilon of all nodes, the rule it follows from, and the nodes that decide it."""

    epsilon: float
    rule: str
    nodes: tuple[Hashable, ...]


def combine(
    per_node: Mapping[Hashable, Iterable[Event]],
    adjacency: Adjacency,
    delta: float,
    across: str | None = None,
    records: Mapping[Hashable, int] | None = None,
) -> Combined:
    """epsilon at `delta` of all that the nodes released; `records` says how many a person has where ("person").

    For "moving" the sensitivity stated in an event must cover a record that is added or removed.
    """
    check_adjacency(adjacency)
    spent = {node: tuple(e for e in cost.counted(events) if not e.free) for node, events in per_node.items()}
    require(
        across in RULES or (across is None and len(spent) < 2),
        f"across is {across!r} for {len(spent)} nodes; there is no default: choose one of {', '.join(RULES)}",
    )
    require(
        (records is None) != (across == "person"),
        'records goes with across="person": the number of records of one person at each node that has some',
    )
    if across == "person":
        assert records is not None
        unknown = [node for node in records if node not in spent]
        require(
            not unknown, f"records names node {unknown[0] if unknown else ''!r}, of which nothing is known"
        )
        held = {node: [e.group(k) for e in spent[node]] for node, k in records.items() if k}
        events = held_by_all(held.values())
        return Combined(accountant.epsilon(events, delta, adjacency), RULES["person"], tuple(held))
    if across in ("parties", "unknown"):
        events = held_by_all(spent.values())
        return Combined(accountant.epsilon(events, delta, adjacency), RULES[across], tuple(spent))
    if across == "moving":
        return _moving(spent, adjacency, delta)
    return _dearest(spent, adjacency, delta, RULES[across or "one-node"])


def _dearest(
    spent: Mapping[Hashable, tuple[Event, ...]], adjacency: Adjacency, delta: float, rule: str
) -> Combined:
    prices = {events: accountant.epsilon(events, delta, adjacency) for events in set(spent.values())}
    if not spent:
        return Combined(0.0, rule, ())
    worst = max(spent, key=lambda node: prices[spent[node]])
    return Combined(prices[spent[worst]], rule, (worst,))


def _moving(spent: Mapping[Hashable, tuple[Event, ...]], adjacency: Adjacency, delta: float) -> Combined:
    require(
        adjacency == "replace",
        f'across="moving" is about replaced records; adjacency is {adjacency!r}, choose replace',
    )
    rule = RULES["moving"]
    best = _dearest(spent, adjacency, delta, rule)
    seen: dict[tuple, float] = {}
    for here, there in permutations(spent, 2):
        pair = (spent[here], spent[there])
        if pair not in seen:
            seen[pair] = _moved(*pair, delta)
        if seen[pair] > best.epsilon:
            best = Combined(seen[pair], rule, (here, there))
    return best


def _moved(removed: tuple[Event, ...], added: tuple[Event, ...], delta: float) -> float:
    """The record is in P at one node and in Q at the other: directed pairs, composed."""
    both = held_by_all([removed, added])
    if any(e.unbounded for e in both):
        return math.inf
    pure = math.fsum(e.pure_epsilon("add-remove") for e in both) * (1 + 1e-15)
    if delta == 0 or not both:
        return pure
    if all(e.gdp_mu("add-remove") is not None for e in both):
        return accountant.epsilon(both, delta, "add-remove")
    from distadmm.privacy.accounting import pld

    curve = sum((e.rdp(rdp.ORDERS, "add-remove") for e in both), np.zeros_like(rdp.ORDERS))
    found = min(pure, rdp.rdp_to_epsilon(curve * (1 + 1e-13), delta))
    out, into = accountant.ways(removed, "add-remove"), accountant.ways(added, "add-remove")
    return min(found, pld.epsilon([*out[-1], *into[0]], delta)) if out and into else found
