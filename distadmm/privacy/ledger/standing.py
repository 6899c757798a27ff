"""What runs spent on the same rows, and the most that they may: the sums behind the account.

Runs add up by bounds that adaptive choice keeps; within a run nodes compose by what their ledgers say.
"""

import math
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np

from distadmm.privacy.accounting.cost import Cost, cost_of, counted, nothing
from distadmm.privacy.accounting.events import Adjacency, Event
from distadmm.privacy.accounting.rdp import ORDERS, rdp_budget, rdp_to_epsilon
from distadmm.privacy.accounting.statements import exactly
from distadmm.privacy.accounting.trust import ANY, Trust, common, composed, restated
from distadmm.privacy.ledger import compose
from distadmm.privacy.ledger.filter import Proposal, PureFilter, RenyiFilter
from distadmm.structs import mutable_struct, struct


class Spender(NamedTuple):
    """One node of a run: its rows, and what it releases of them."""

    node: int
    names: tuple[str, ...]
    adjacency: Adjacency
    scope: str
    trust: Trust
    events: tuple[Event, ...]


@mutable_struct
class Entered:
    """A run, as far as it was entered."""

    run: str
    where: str
    marks: frozenset[int] = frozenset()
    nodes: dict[int, Spender] = field(default_factory=dict)
    # Nodes that were entered again, as they were at first.
    began: dict[int, Spender] = field(default_factory=dict)
    heads: dict[int, str] = field(default_factory=dict)
    priced: tuple[Adjacency, Cost] | None = None  # what was worked out when it was entered

    def meets(self, other: Self) -> bool:
        return not self.marks.isdisjoint(other.marks)

    def add(self, spender: Spender, *, more: bool = False) -> None:
        """What a ledger holds, which may have been entered in part; or `more` than whatever was entered."""
        before = self.nodes.get(spender.node)
        if before is not None:
            self.began.setdefault(spender.node, before)
        if before is not None and more:
            spender = before._replace(events=tuple(counted([*before.events, *spender.events])))
        elif before is not None:
            most: dict[Event, int] = {}
            for event in counted(before.events) + counted(spender.events):
                most[event.single()] = max(most.get(event.single(), 0), event.releases)
            spender = spender._replace(events=tuple(event.times(count) for event, count in most.items()))
        self.nodes[spender.node], self.priced = spender, None

    @property
    def adjacency(self) -> Adjacency:
        """The change that all its nodes cover."""
        return common(spender.adjacency for spender in self.nodes.values())

    @property
    def trust(self) -> Trust:
        return composed(spender.trust for spender in self.nodes.values())

    @property
    def committed(self) -> bool:
        """Whether nothing was added after its first release, when it could be chosen by what came before."""
        return all(
            {*counted(at_first.events)} == {*counted(self.nodes[node].events)}
            for node, at_first in self.began.items()
        )

    @property
    def at_first(self) -> Self:
        """As it was entered before its first release."""
        return self if self.committed else replace(self, nodes=self.nodes | self.began, began={}, priced=None)

    @property
    def unbounded(self) -> str:
        """Why nothing bounds it; empty where something does."""
        return next((e.words for s in self.nodes.values() for e in s.events if e.unbounded), "")

    @property
    def alike(self) -> list[list[Spender]]:
        """The nodes, those together that differ in their rows alone."""
        found: dict[Any, list[Spender]] = {}
        known: dict[Any, list[Spender]] = {}  # most share their events, which are looked at once
        for s in self.nodes.values():
            which = id(s.events), id(s.trust), s.adjacency, s.scope
            if which not in known:
                known[which] = found.setdefault((s.adjacency, s.scope, s.events, s.trust), [])
            known[which].append(s)
        return list(found.values())

    def blocks(self, adjacency: Adjacency) -> list[tuple[Event, ...]]:
        """What those release together who may hold one record, in each way in which that can be."""
        kinds = self.alike  # many nodes spend alike, and are looked at once
        spent = [tuple(restated(e, some[0].adjacency, adjacency) for e in some[0].events) for some in kinds]
        sums = any(compose.NODES[some[0].scope][0] == "sum" for some in kinds)
        names = [s.names for some in kinds for s in some]
        of = [kind for kind, some in enumerate(kinds) for _ in some]
        if sums or len({*chain.from_iterable(names)}) < sum(map(len, names)):
            groups = compose.groups(names, "sum" if sums else "max")
            together = dict.fromkeys(tuple(of[at] for at in group) for group in groups)
        else:  # nobody has rows of another
            together = dict.fromkeys((kind,) for kind in range(len(kinds)))
        return [*{compose.added([spent[kind] for kind in some]) for some in together}]

    def cost(self, adjacency: Adjacency) -> Cost:
        """Of the record that the run costs most, order by order."""
        if self.priced is not None and self.priced[0] == adjacency:
            return self.priced[1]
        costs = [cost_of(block, ORDERS, adjacency) for block in self.blocks(adjacency)]
        return Cost(
            max((c.pure for c in costs), default=0.0),
            np.max([nothing(ORDERS).rdp, *(c.rdp for c in costs)], axis=0),
            max((c.mu2 for c in costs), default=0.0),
        )

    def tight(self, adjacency: Adjacency, delta: float) -> float:
        """epsilon of this run alone; what was added later keeps it to the bounds that adaptive choice keeps."""
        blocks, committed = self.blocks(adjacency), self.committed
        return max((compose.epsilon(block, delta, adjacency, committed) for block in blocks), default=0.0)


@struct
class Limit:
    epsilon: float
    delta: float
    adjacency: Adjacency
    trust: Trust
    run: str | None  # whose rows; None: all rows, each table for itself

    def covers(self, run: Entered) -> str:
        """Why what the run claims is nothing under this limit; empty where it is something."""
        for s in run.nodes.values():
            if common([s.adjacency, self.adjacency]) != self.adjacency:
                return f"a run for adjacency {s.adjacency} bounds nothing for {self.adjacency}"
            if not s.trust.covers(self.trust):
                return f"a run against {s.trust.words} bounds nothing against {self.trust.words}"
        return ""

    def refuses(self, runs: Sequence[Entered]) -> str:
        """Why `runs`, in their order, are more than the limit; empty where they are not."""
        for run in runs:
            if why := self.covers(run) or run.unbounded:
                return why
        total = _total(runs, self.adjacency)
        kept: Any = PureFilter(self.epsilon)
        if self.delta:
            first = runs[0].at_first.cost(self.adjacency).rdp
            kept = RenyiFilter(self.epsilon, self.delta, rdp_budget(self.epsilon, self.delta, first, ORDERS))
        if kept.admits(Proposal(total, None, len(runs) == 1)):
            return ""
        alone = runs[0].tight(self.adjacency, self.delta) if len(runs) == 1 else math.inf
        if alone <= self.epsilon and runs[0].committed:
            return ""
        spent = min(alone, rounded(total, self.delta))
        return f"epsilon would be {spent:.4f} at delta {exactly(self.delta)}"


def rounded(cost: Cost, delta: float) -> float:
    """epsilon of costs that were added up: the smallest bound that adaptive choice keeps."""
    found = [cost.pure]
    if delta:
        found.append(rdp_to_epsilon(cost.rdp, delta))
        if cost.mu2 == 0:
            found.append(0.0)
        elif math.isfinite(cost.mu2):
            from distadmm.privacy.accounting.gaussian import epsilon

            found.append(epsilon(math.sqrt(cost.mu2) * (1 + 1e-15), delta))
    return min(found)


class Standing(NamedTuple):
    """What was spent on some rows, in figures that may be said together."""

    runs: list[Entered]
    adjacency: Adjacency
    trust: Trust
    delta: float
    epsilon: float  # of the runs that have a bound
    unbounded: list[Entered]
    apart: tuple[str, ...] = ()  # of changes for which some of the runs claim nothing, in words

    @property
    def words(self) -> str:
        many = f"{len(self.runs)} run{'s' * (len(self.runs) != 1)}"
        if not self.runs:
            return "nothing"
        most, against = math.ceil(self.epsilon * 1e4) / 1e4, f"; {self.trust}" if self.trust != ANY else ""
        bound = f"epsilon at most {most:.4f} at delta {exactly(self.delta)} ({self.adjacency}{against})"
        more = "".join(f"; {each}" for each in self.apart)
        if not self.unbounded:
            return f"{bound} by {many}{more}"
        rest = len(self.runs) - len(self.unbounded)
        beside = f"; {bound} by the other {rest}{more}" if rest else ""
        return f"no bound: {self.unbounded[0].unbounded} ({len(self.unbounded)} of {many}){beside}"


def standing(runs: Sequence[Entered], delta: float, *, exact: bool = False) -> Standing:
    """All that was spent by `runs`; what has no bound is told apart.

    `exact`: one run alone is priced as the committed schedule that it was, which takes longer.
    """
    bounded = [run for run in runs if not run.unbounded]
    adjacency: Adjacency = common(run.adjacency for run in bounded) if bounded else "replace"
    trust = composed(run.trust for run in bounded)
    found = rounded(_total(bounded, adjacency), delta)
    if exact and len(bounded) == 1:
        found = min(found, bounded[0].tight(adjacency, delta))
    apart = tuple(
        _apart(bounded, other, delta) for other in {run.adjacency: 0 for run in bounded} if other != adjacency
    )
    return Standing(list(runs), adjacency, trust, delta, found, [run for run in runs if run.unbounded], apart)


def _total(runs: Sequence[Entered], adjacency: Adjacency) -> Cost:
    total = nothing(ORDERS)
    for run in runs:
        total = total.plus(run.cost(adjacency))
    return total


def _apart(runs: Sequence[Entered], adjacency: Adjacency, delta: float) -> str:
    """A sum for what all runs claim says less than is known of those that claim more, and hides that others do not."""
    own = [run for run in runs if common([run.adjacency, adjacency]) == adjacency]
    most = math.ceil(rounded(_total(own, adjacency), delta) * 1e4) / 1e4
    others = f"epsilon at most {most:.4f} by the other {len(own)}"
    return f"for {adjacency}: no bound by {len(runs) - len(own)} of these, {others}"
