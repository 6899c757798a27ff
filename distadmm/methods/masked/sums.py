"""What stands between the nodes' rows and the tree: ledger, noise, masks, in this order.

Invariants that guard privacy
-----------------------------
* A sum is charged, durably, before a share of its noise is drawn; what is charged is what is drawn.
* A round is entered once.  One that comes to nothing is charged and never tried again with its noise or its masks.
* What leaves a node is sealed: its one vector of the round, masked.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.methods.masked.learner import Ask
from distadmm.methods.masked.rule import MOST_SD, Rule
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian
from distadmm.privacy.accounting.statements import weakest
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.noise.masks import Member
from distadmm.privacy.noise.mechanism import Noise
from distadmm.privacy.noise.release import Array, Unprotected
from distadmm.privacy.noise.sources import Source
from distadmm.ranks.post import NO_MARK
from distadmm.ranks.tree import Lost, Tree


class Sums(Unprotected):
    """The masked sums of this rank's nodes."""

    private = True

    def __init__(
        self, rule: Rule, tree: Tree, books: Books, source: Source, members: Mapping[int, Member], terms: Any
    ):
        super().__init__(books)
        self.rule, self.tree, self.terms = rule, tree, terms
        self.books: Books = books
        self.members = [members[int(i)] for i in tree.network.nodes]
        self.noise = Noise(books.ledgers, source)
        self.round = self._entered()  # the next one
        self._roster = self.members[0].roster
        self.lost = 0  # rounds, in iterations

    def _entered(self) -> int:
        """How many rounds any node has entered; what one paid for all pay for, so that all can afford the same."""
        here = [
            {e.round: e for e in ledger.events if isinstance(e, SharedDiscreteGaussian)}
            for ledger in self.books.ledgers
        ]
        told = self.tree.network.world.allgather({r: e for known in here for r, e in known.items()})
        everywhere = {r: e for known in told for r, e in known.items()}
        for ledger, known in zip(self.books.ledgers, here):
            for r in sorted(everywhere.keys() - known.keys()):
                ledger.charge(everywhere[r], iteration=r + 1)
        return 1 + max(everywhere, default=-1)

    @property
    def epsilon(self) -> float:
        """The budget: what was spent is a reading, and depends on what was seen."""
        return math.inf if self.terms.unverified else self.terms.epsilon

    @property
    def statement(self) -> str:
        if self.terms.unverified:
            return "none"
        return weakest([ledger.statement_kind for ledger in self.books.ledgers])

    def event(self, ask: Ask) -> SharedDiscreteGaussian:
        """The price of the next sum."""
        return self.terms.event(ask, len(self._roster), self.round)

    def affords(self, *asks: Ask) -> bool:
        """Whether every ledger here admits the next sums; it depends on no data."""
        events = [self.event(ask) for ask in asks]
        if any(
            event.share_variance_grid >= MOST_SD**2 for event in events
        ):  # of gradients that are not centred
            return False
        return all(ledger.affords(events) for ledger in self.books.ledgers)

    def sum(self, ask: Ask, values: Array, away: Collection[int] = ()) -> tuple[Array | None, int]:
        """The sum of the nodes' values with its noise, or nothing, and how many nodes are there then.

        Nodes here that are `away` neither draw nor send.  All pay: what a node affords is known to those off the tree.
        """
        event, self._k = self.event(ask), self.round + 1
        there = [m for m in self.members if m.id in self._roster and m.id not in away]
        marks, sent = (
            dict.fromkeys(range(len(self.members)), NO_MARK),
            np.zeros(values.shape, dtype=np.uint64),
        )
        events = []
        for at, member in enumerate(self.members):
            if member not in there:
                events.append(event)
                self.books.ledgers[at].charge(event, iteration=self._k)
                continue
            marks[at] = member.enter(ask.kind, ask.words, self.round)
            mine = replace(event, session=member.session.hex(), transcript=member.h.hex())
            share = self.noise.draw(mine, iteration=self._k, at=at)
            sent[at] = member.masked(values[at] + share)
            events.append(mine)
        self.round += 1
        if self.guard is not None:
            self.guard.seal(self._k, sent, events)
        total = None
        try:
            total = self.tree.sum(sent, list(marks.values()), away).view(np.int64)
        except Lost as lost:
            if not lost.told:
                raise
            left = self.tree.without(lost.nodes)
            self.lost += 1
        for member in there:
            member.accept(total)
        if total is None and len(left) < self.present:
            self._shrink(left)
        return total, self.present

    @property
    def present(self) -> int:
        """How many nodes are there."""
        return len(self._roster)

    @property
    def enough(self) -> bool:
        return self.present >= self.terms.least

    def _shrink(self, left: list[int]) -> None:
        """Go on with these nodes; where they are too few nothing more is sent."""
        self._roster = left
        if not self.enough:
            return
        for member in self.members:
            if member.id in left:
                member.accept_roster(left)
        self.tree.of(left)

    def memory(self) -> dict[str, Array]:
        kept = super().memory()
        known = np.stack([np.frombuffer(member.state, dtype=np.uint8) for member in self.members])
        there = np.isin(np.arange(self.rule.nodes), self._roster)
        here = len(self.members)
        return {**kept, "state": known, "roster": np.tile(there, (here, 1)), "lost": np.full(here, self.lost)}

    def recall(self, memory: dict[str, Array]) -> None:
        """Go on from what all nodes know, in this new session, with those that were left."""
        super().recall(memory)
        said = {
            m.id: state.astype(np.uint8).tobytes() + np.packbits(there.astype(bool)).tobytes()
            for m, state, there in zip(self.members, memory["state"], memory["roster"])
        }
        known = self.tree.flood(said)
        left = np.flatnonzero(memory["roster"][0]).tolist()
        first = known[left[0]]
        others = sorted(
            i for i, words in known.items() if words != first and (i in left or words[32:] != first[32:])
        )
        require(not others, f"nodes {others} know other sums than node {left[0]}; start a new run")
        for member in self.members:
            member.outcome, member.state = b"\x03" + first[:32], first[:32]
        self.lost = int(memory["lost"][0])
        if len(left) < self.present:
            self._shrink(left)
