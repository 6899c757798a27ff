"""What stands between the nodes' rows and the tree: ledger, noise, masks, in this order.

Invariants that guard privacy
-----------------------------
* A sum is charged, durably, before a share of its noise is drawn; what is charged is what is drawn.
* A round is entered once.  One that comes to nothing is charged and never tried again with its noise or its masks.
* What leaves a node is sealed: its one vector of the round, masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.methods.masked.learner import Ask
from distadmm.methods.masked.rule import Rule
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian
from distadmm.privacy.accounting.statements import weakest
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.noise.masks import Member
from distadmm.privacy.noise.mechanism import Noise
from distadmm.privacy.noise.release import Unprotected
from distadmm.privacy.noise.sources import Source
from distadmm.ranks.tree import Tree

Array = np.ndarray


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

    def affords(self, ask: Ask) -> bool:
        """Whether every ledger here admits the next sum; it depends on no data."""
        event = self.event(ask)
        return all(ledger.affords([event]) for ledger in self.books.ledgers)

    def sum(self, ask: Ask, values: Array) -> tuple[Array, int]:
        """The sum of the nodes' values with its noise, and over how many nodes it goes."""
        event, self._k = self.event(ask), self.round + 1
        marks = [member.enter(ask.kind, ask.words, self.round) for member in self.members]
        events, sent = [], np.empty(values.shape, dtype=np.uint64)
        for at, member in enumerate(self.members):
            mine = replace(event, session=member.session.hex(), transcript=member.h.hex())
            share = self.noise.draw(mine, iteration=self._k, at=at)
            sent[at] = member.masked(values[at] + share)
            events.append(mine)
        self.round += 1
        if self.guard is not None:
            self.guard.seal(self._k, sent, events)
        total = self.tree.sum(sent, marks).view(np.int64)
        for member in self.members:
            member.accept(total)
        return total, len(self._roster)

    def memory(self) -> dict[str, Array]:
        kept = super().memory()
        known = np.stack([np.frombuffer(member.state, dtype=np.uint8) for member in self.members])
        return {**kept, "state": known}

    def recall(self, memory: dict[str, Array]) -> None:
        """Go on from what all nodes know, in this new session."""
        super().recall(memory)
        said = {m.id: state.astype(np.uint8).tobytes() for m, state in zip(self.members, memory["state"])}
        known = self.tree.flood(said)
        others = sorted(i for i, state in known.items() if state != known[self.members[0].id])
        require(not others, f"nodes {others} know other sums than node {self.members[0].id}; start a new run")
        for member in self.members:
            member.outcome = b"\x03" + known[member.id]
            member.state = known[member.id]
