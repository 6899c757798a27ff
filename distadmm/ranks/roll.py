"""Who of the ranks is still there: a call, which is answered in time or not at all.

    heard = roll.call(said, limit, since)      what every rank said that is there, by rank

The first rank asks; where it is silent the next one does.  Whoever is not heard is out for good: the others go on in
a smaller world, and one that wakes up finds the letter that says so, computes nothing more and waits for the job's
end.  Privacy does not depend on it: what a node may send, its own history says.

Held up by tests: a call returns in bounded time whether a rank is slow, stopped or gone, rank 0 included.
"""

import time

import numpy as np

from distadmm.ranks.post import Letter, Name, Post, packed, unpacked
from distadmm.ranks.world import World

_TAG = 2732
_HERE, _KNOWN = b"here", b"roll"


class Roll:
    """Ranks keep the numbers that the job gave them."""

    def __init__(self, world: World):
        self.world, self.me = world, world.rank
        self.there = list(range(world.size))
        self._post = Post(world, np.arange(world.size), _TAG)
        self._number = 0

    def call(self, said: bytes, limit: float, spare: float, since: float) -> dict[int, bytes]:
        """All who are there have called by `limit` seconds after `since`; letters take less than `spare`."""
        self._number += 1
        self._post.begin(self._number, since)
        found = None
        for turn, first in enumerate(self.there):
            until = limit + (2 * turn + 1) * spare
            if first == self.me:
                found = self._lead(said, until)
            else:
                self._post.send(self._name(_HERE, self.me, first), said)
                letter = self._fetch(self._others(_KNOWN), until + spare)
                found = None if letter is None else unpacked(letter.payload, first)
            if found is not None:
                break
        if found is None or self.me not in found:
            while True:  # the others have gone on, and end the job when they are done
                time.sleep(1.0)
        gone = [rank for rank in self.there if rank not in found]
        if gone:
            self.world.without([self.there.index(rank) for rank in gone], gone)
            self.there = sorted(found)
        return found

    def pass_on(self, whole: bytes | None, giver: int, to: list[int], limit: float) -> bytes | None:
        """What the giver has, at those who lack it; None where it does not come."""
        if self.me == giver and whole is not None:
            for rank in to:
                self._post.send(self._name(b"told", giver, rank), whole)
        elif self.me in to:
            letter = self._fetch([self._name(b"told", giver, self.me)], limit)
            return None if letter is None else letter.payload
        return whole

    def _lead(self, said: bytes, until: float) -> dict[int, bytes]:
        """Ask; or believe another one who asked meanwhile."""
        heard, others = {self.me: said}, self._others(_KNOWN)
        for place, rank in enumerate(self.there):
            if rank != self.me and place not in self.world.silent:
                letter, which = self._post.fetch([*others, self._name(_HERE, rank, self.me)], until)
                if letter is not None and which < len(others):
                    return unpacked(letter.payload, others[which].sender)
                if letter is not None:
                    heard[rank] = letter.payload
        known = packed(heard)
        for rank in self.there:
            if rank != self.me:  # also those who are out, for when they wake up
                self._post.send(self._name(_KNOWN, self.me, rank), known)
        return heard

    def _others(self, kind: bytes) -> list[Name]:
        return [self._name(kind, rank, self.me) for rank in self.there if rank != self.me]

    def _name(self, kind: bytes, sender: int, receiver: int) -> Name:
        return Name(kind, sender, receiver, self._number)

    def _fetch(self, names: list[Name], limit: float) -> Letter | None:
        return self._post.fetch(names, limit)[0]

    def close(self) -> None:
        self._post.close()
