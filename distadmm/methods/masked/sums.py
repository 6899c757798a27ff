"""What stands between the nodes' rows and the tree: ledger, noise, masks, in this order.

Invariants that guard privacy
-----------------------------
* A sum is charged, durably, before a share of its noise is drawn; what is charged is what is drawn.
* A round is entered once.  One that comes to nothing is charged and never tried again with its noise or its masks.
* What leaves a node is sealed: its one vector of the round, masked.
"""

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from distadmm.errors import require
from distadmm.methods.masked.learner import Ask
from distadmm.methods.masked.rule import MOST_SD, Rule
from distadmm.privacy.accounting.masked_statements import shares_of
from distadmm.privacy.accounting.shared_discrete_gaussian import SharedDiscreteGaussian
from distadmm.privacy.accounting.statements import weakest
from distadmm.privacy.accounting.trust import Trust
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.noise.masks import Member
from distadmm.privacy.noise.mechanism import Noise
from distadmm.privacy.noise.release import Array, Unprotected
from distadmm.privacy.noise.sources import Source
from distadmm.ranks.post import NO_MARK
from distadmm.ranks.roll import Roll
from distadmm.ranks.tree import Lost, Tree

_TOTAL, _LOST, _SILENCE = b"t", b"l", b"s"  # what a rank has heard of a sum


class Sums(Unprotected):
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
        paid = [getattr(event, "kind", "") for event in books.ledgers[0].events]
        self.evaluated = "evaluation" in paid  # before a resume, whatever came of it
        self._roster = self.members[0].roster
        self.lost = 0  # rounds
        self.roll = Roll(tree.network.world)

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

    def against(self, trust: Trust) -> float:
        """The budget as a coalition of another size sees it."""
        if math.isinf(self.epsilon):
            return math.inf
        shares = shares_of(self.terms.facts, self.terms.delta)
        others = int(min(max(trust.colluding, 0), max(shares)))
        found = shares.get(others, self.epsilon)
        return found if others < self.terms.rule.colluding else max(found, self.epsilon)

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
        # Of gradients that are not centred.
        if any(event.share_variance_grid >= MOST_SD**2 for event in events):
            return False
        return all(ledger.affords(events) for ledger in self.books.ledgers)

    def sum(self, ask: Ask, values: Array, away: Collection[int] = ()) -> Array | None:
        """The sum of the nodes' values with its noise, or nothing.

        Nodes here that are `away` neither draw nor send.  All pay: what a node affords is known to those off the tree.
        """
        event, self._k = self.event(ask), self.round + 1
        there = [m for m in self.members if m.id in self._roster and m.id not in away]
        marks = dict.fromkeys(range(len(self.members)), NO_MARK)
        sent = np.zeros(values.shape, dtype=np.uint64)
        events = []
        for at, member in enumerate(self.members):
            if member not in there:
                events.append(event)
                self.books.ledgers[at].charge(event, iteration=self._k)
                continue
            marks[at] = member.enter(ask.kind, ask.words, self.round)
            mine = replace(event, session=member.session.hex(), transcript=member.h.hex())
            sent[at] = member.masked(values[at] + self.noise.draw(mine, iteration=self._k, at=at))
            events.append(mine)
        self.round += 1
        if self.guard is not None:
            self.guard.seal(self._k, sent, events)
        total, blamed = self._agreed(sent, list(marks.values()), away)
        for member in there:
            member.accept(total)
        self.lost += total is None
        if blamed:
            left = self.tree.without(blamed)
            if len(left) < self.present:
                self._shrink(left)
        return total

    def _agreed(
        self, sent: Array, marks: list[bytes], away: Collection[int]
    ) -> tuple[Array | None, set[int]]:
        """The total, or nothing, as all ranks know it that are still there; and the nodes that are not."""
        tree, total, lost, blamed = self.tree, None, None, set[int]()
        try:
            total = tree.sum(sent, marks, away).view(np.int64)
        except Lost as reason:
            lost = reason
        said = _TOTAL if total is not None else _SILENCE
        if lost is not None and lost.told:
            said = _LOST + np.array(lost.nodes, dtype=">u4").tobytes()
        heard = self.roll.call(said, tree.longest, tree.patience, tree.post.since)
        having = [rank for rank, word in heard.items() if word == _TOTAL]
        lacking = [rank for rank, word in heard.items() if word == _SILENCE]
        for word in heard.values():
            blamed.update(np.frombuffer(word[1:], dtype=">u4").tolist())
        gone = [i for i in tree.shape.parent if tree.post.hosts[i] not in heard]
        if len({word[:1] for word in heard.values()} - {_SILENCE}) > 1 or not (having or blamed or gone):
            raise lost or Lost(list(tree.shape.parent), "nodes were told different outcomes of one sum")
        if having and lacking:
            whole = None if total is None else total.tobytes()
            whole = self.roll.pass_on(whole, having[0], lacking, tree.longest + 4 * tree.patience)
            if whole is None or len(whole) != sent[0].nbytes:
                raise lost or Lost([], "a sum was not passed on")
            total = np.frombuffer(whole, dtype=np.int64)
        for node in np.flatnonzero(~np.isin(tree.post.hosts, list(heard))).tolist():
            if node not in tree.lost:
                tree.on_loss(node)
        return total, blamed | set(gone)

    def call(self, said: bytes) -> dict[int, bytes]:
        """What the ranks that are there say, outside a round; who does not answer is missed in the next one."""
        return self.roll.call(said, self.tree.longest, self.tree.patience, time.monotonic())

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

    def close(self) -> None:
        super().close()
        self.roll.close()

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
        unlike = {i: words for i, words in known.items() if words != first}
        others = sorted(i for i, words in unlike.items() if i in left or words[32:] != first[32:])
        require(not others, f"nodes {others} know other sums than node {left[0]}; start a new run")
        for member in self.members:
            member.outcome, member.state = b"\x03" + first[:32], first[:32]
        self.lost = int(memory["lost"][0])
        if len(left) < self.present:
            self._shrink(left)
