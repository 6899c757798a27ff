"""Noise that two neighbours share: each edge's ends agree on a key once, and draw from it in every round.

    v_ij^t = discrete Gaussian from SHAKE-256(name | k_ij | terms | t | block)

Invariants that guard privacy
-----------------------------
* A key is bound to both ends' nonces of this start, both ids and both public keys; after a restart it is another one.
* v is fresh in every round: a round's words are asked for by its number, and a node answers a round once (`Noise`).
* Ends whose terms differ draw different v: what they then add is not cancelled, and hides no less.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from distadmm.algorithm import Array
from distadmm.errors import require
from distadmm.privacy.noise.masks import Key, be4, be8, f8, pair_key, session_of
from distadmm.privacy.noise.sources import Exact
from distadmm.ranks.graph_network import Network

NAME = b"distadmm pairwise noise v1"
_NONCE = 16


class _Words(Exact):
    """Uniform words that only those who have the key can tell from random ones."""

    def __init__(self, name: bytes):
        self._name, self._block = name, 0

    def words(self, count: int) -> Array:
        self._block += 1
        digest = hashlib.shake_256(self._name + be8(self._block)).digest(8 * count)
        return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


class Edges:
    """The edges of this rank's nodes, each with its key."""

    def __init__(self, keys: Mapping[int, Mapping[int, bytes]], terms: bytes):
        self.keys, self._terms = keys, hashlib.sha256(NAME + terms).digest()
        self._drawn: dict[tuple[int, int], Array] = {}  # of two nodes here, in the latest round
        self._round = -1

    def noise(
        self, i: int, k: int, c: float | Mapping[int, float], dimension: int, away: Collection[int] = ()
    ) -> Array:
        """sum_j sgn(j - i) c v_ij of round k, in whole numbers, over neighbours that are not `away`; `c`: of all, or by
        neighbour.

        A node that is away itself adds all: what it makes in this round is priced with them, whoever gets to see it.
        """
        if k != self._round:
            self._round, self._drawn = k, {}
        total = np.zeros(dimension, dtype=np.int64)
        for j in self.keys[i]:
            deviation = c if isinstance(c, float) else c.get(j)
            if deviation is None or (j in away and i not in away):
                continue
            edge = (min(i, j), max(i, j))
            v = self._drawn.pop(edge, None)
            if v is None:
                v = self._drawn[edge] = self.between(i, j, k, deviation, dimension)
            total += v if j > i else -v
        return total

    def between(self, i: int, j: int, k: int, c: float, dimension: int) -> Array:
        """c v_ij of round k, as both i and j find it."""
        return _Words(NAME + self.keys[i][j] + self._terms + be8(k)).discrete_normal(c, dimension)

    def again(self, terms: bytes) -> Edges:
        """The same keys under other terms."""
        return Edges(self.keys, terms)


def agreed(network: Network, own: Mapping[int, tuple[Key, bytes]], terms: bytes) -> Edges:
    """Exchange nonces and public keys with the neighbours, in one message an edge and way."""
    said = [own[int(i)][1] + own[int(i)][0].public for i in network.nodes]
    rows = np.stack([np.frombuffer(each, dtype=np.float64) for each in said])
    heard = network.exchange(rows)[network.columns]
    keys: dict[int, dict[int, bytes]] = {}
    for a, i in enumerate(network.nodes.tolist()):
        keys[i] = {}
        publics = {i: said[a][_NONCE:]}
        for slot in range(network.indptr[a], network.indptr[a + 1]):
            j, words = int(network.indices[slot]), heard[slot].tobytes()
            require(
                words[_NONCE:] not in publics.values(),
                f"node {j} sends node {i} a public key that somebody else has; stop, and find out who sent it",
            )
            publics[j] = words[_NONCE:]
            session = session_of({i: said[a][:_NONCE], j: words[:_NONCE]})
            keys[i][j] = pair_key(own[i][0].shared(publics[j]), session, publics, i, j)
    return Edges(keys, terms)


def terms_of(**facts: Any) -> bytes:
    """Public numbers, as both ends hash them."""
    return b"".join(
        be4(len(name)) + name.encode() + f8(float(value)) for name, value in sorted(facts.items())
    )
