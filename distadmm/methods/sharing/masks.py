"""How the parties' vectors reach the centre: in the clear, or under masks of which only the sum is left.

Secure aggregation: in round t party m sends round(2^f v_m) in Z_{2^64} under the masks of `privacy.noise.masks`, whose
keys the centre does not learn; of the sum it has every bit.

Invariants that guard privacy
-----------------------------
* A sum lacks no party: without one of them masks are left, and the run stops.
* Nothing wraps: |v| 2^f M < 2^63, checked by the party before it sends.
* It hides single vectors from the centre, not the sum.  With two parties each knows the other's vector from the sum.
  An honest centre is assumed to pass on the public keys it was given.
"""

import importlib.util
import os
import secrets
from collections.abc import Iterable, Mapping

import numpy as np

from distadmm.errors import InputError, require
from distadmm.privacy.noise.masks import X25519, Group14, Key, Member, members_of
from distadmm.ranks.star import Array, Star

FRACTION_BITS = 36  # predictions up to 2^26 / M, to 1.5e-11


class InClear:
    """Every vector as it is."""

    def __init__(self, star: Star, rows: int):
        self.star, self.rows = star, rows

    def as_sent(self, vector: Array) -> Array:
        """The vector as it counts at the centre."""
        return self.star.rounded(vector)

    def collect(self, sent: Mapping[int, Array], t: int) -> Array | None:
        """The sum at the centre, else None."""
        arrived = self.star.up(sent, self.rows)
        return None if arrived is None else total_of(arrived, self.rows)


class Masked:
    """Vectors under pairwise masks; keys are agreed on when it is made, by all ranks together."""

    def __init__(self, star: Star, rows: int, fraction_bits: int = FRACTION_BITS):
        self.star, self.rows, self.scale = star, rows, 2.0**fraction_bits
        self.limit = 2.0 ** (62 - fraction_bits) / star.parties
        self.members = agree(star)

    def as_sent(self, vector: Array) -> Array:
        return np.rint(vector * self.scale) / self.scale

    def fixed(self, vector: Array) -> Array:
        """Fixed point in Z_{2^64}."""
        if not np.abs(vector).max(initial=0.0) < self.limit:
            raise InputError(
                f"a prediction of {np.abs(vector).max():.3g} does not fit the masks' fixed point "
                f"(below {self.limit:.3g}); the run diverges, or the columns need scaling"
            )
        return np.rint(vector * self.scale).astype(np.int64).view(np.uint64)

    def collect(self, sent: Mapping[int, Array], t: int) -> Array | None:
        packets = {m: masked(self.fixed(vector), self.members[m], t) for m, vector in sent.items()}
        arrived = self.star.up(packets, self.rows, np.uint64)
        return None if arrived is None else unmasked(arrived, self.star.home, self.rows) / self.scale


def masked(values: Array, member: Member, t: int) -> Array:
    """One party's vector of round t, mod 2^64; it is never made twice."""
    member.enter("gradient", values.size, t)
    sent = member.masked(values.view(np.int64))
    member.accept(None)  # the centre has the total, and tells nobody
    return sent


def unmasked(arrived: Mapping[int, Array], parties: Iterable[int], rows: int) -> Array:
    """The sum of what all parties sent, as integers."""
    missing = sorted(set(parties) - set(arrived))
    require(
        not missing,
        f"party {', '.join(map(str, missing))} dropped out: the masks it shared with the others cannot be taken off; "
        "start the run again with the parties that are there",
    )
    total = np.zeros(rows, dtype=np.uint64)
    for packet in arrived.values():
        total = total + packet
    return total.view(np.int64).astype(float)


def total_of(arrived: Mapping[int, Array], rows: int) -> Array:
    """The sum over the parties in their order, whoever hosts them: the same bits for every placement."""
    total = np.zeros(rows)
    for m in sorted(arrived):
        total = total + arrived[m]
    return total


def agree(star: Star) -> dict[int, Member]:
    """The parties hosted here with their keys; public halves and nonces travel through the centre."""
    curve = all(star.world.allgather(importlib.util.find_spec("cryptography") is not None))
    own: dict[int, Key] = {m: X25519() if curve else Group14(secrets.randbits(512)) for m in star.hosted}
    said = {m: os.urandom(16) + key.public for m, key in own.items()}
    size = 16 + (32 if curve else 256)
    with star.counted_as("control"):
        words = {m: np.frombuffer(each, dtype=np.uint8) for m, each in said.items()}
        arrived = star.up(words, size, np.uint8)
        board = np.concatenate([arrived[m] for m in sorted(arrived)]) if arrived else None
        told = star.down(board, star.parties * size, np.uint8).tobytes()
    if not own:  # of the centre alone: it sees what travels, and needs none of it
        return {}
    heard = {m: told[at * size : (at + 1) * size] for at, m in enumerate(sorted(star.home))}
    publics = {m: words[16:] for m, words in heard.items()}
    nonces = {m: words[:16] for m, words in heard.items()}
    suite = next(iter(own.values())).suite
    return members_of(own, publics, nonces, b"sharing", degree=0, least=star.parties, suite=suite)
