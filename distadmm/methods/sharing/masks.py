"""How the parties' vectors reach the centre: in the clear, or under masks of which only the sum is left.

Secure aggregation, M parties: each pair (m, k) agrees on a key the centre does not learn; in round t party m sends

    u_m = round(2^f v_m) + sum_{k > m} PRG(key_mk, t) - sum_{k < m} PRG(key_mk, t)      in Z_{2^64}

The masks cancel in sum_m u_m exactly, so the centre gets the sum of the fixed-point vectors to the bit, and a
single u_m is uniform.  Keys: Diffie-Hellman in the 2048-bit group 14 of RFC 3526; PRG: SHAKE-256.

Invariants that guard privacy
-----------------------------
* A sum lacks no party: without one of them masks are left, and the run stops.
* Nothing wraps: |v| 2^f M < 2^63, checked by the party before it sends.
* It hides single vectors from the centre, not the sum.  With two parties each knows the other's vector from the sum.
  An honest centre is assumed to pass on the public keys it was given.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from distadmm.errors import InputError, require
from distadmm.ranks.star import Star

Array = np.ndarray

FRACTION_BITS = 36  # predictions up to 2^26 / M, to 1.5e-11
_GENERATOR = 2
_KEY_BYTES = 256
_PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)


class Collector(Protocol):
    """Takes the parties' vectors of one round to the centre."""

    def as_sent(self, vector: Array) -> Array:
        """The vector as it counts at the centre."""
        ...

    def collect(self, sent: Mapping[int, Array], t: int) -> Array | None:
        """The sum at the centre, else None."""
        ...


class InClear:
    """Every vector as it is."""

    def __init__(self, star: Star, rows: int):
        self.star, self.rows = star, rows

    def as_sent(self, vector: Array) -> Array:
        return self.star.rounded(vector)

    def collect(self, sent: Mapping[int, Array], t: int) -> Array | None:
        arrived = self.star.up(sent, self.rows)
        return None if arrived is None else total_of(arrived, self.rows)


class Masked:
    """Vectors under pairwise masks; keys are agreed on when it is made, by all ranks together."""

    def __init__(self, star: Star, rows: int, fraction_bits: int = FRACTION_BITS):
        self.star, self.rows, self.scale = star, rows, 2.0**fraction_bits
        self.limit = 2.0 ** (62 - fraction_bits) / star.parties
        self.keys = agree(star)

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
        packets = {m: masked(self.fixed(vector), m, self.keys[m], t) for m, vector in sent.items()}
        arrived = self.star.up(packets, self.rows, np.uint64)
        return None if arrived is None else unmasked(arrived, self.star.home, self.rows) / self.scale


def masked(values: Array, m: int, keys: Mapping[int, bytes], t: int) -> Array:
    """values + the masks shared with later parties - those shared with earlier ones, mod 2^64."""
    result = values.copy()
    for k, key in keys.items():
        mask = _stream(key, t, values.size)
        result = result + mask if k > m else result - mask
    return result


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


def agree(star: Star) -> dict[int, dict[int, bytes]]:
    """For each party hosted here, its key with every other; public halves travel through the centre."""
    own = {m: secrets.randbits(512) for m in star.hosted}
    publics = {
        m: np.frombuffer(pow(_GENERATOR, secret, _PRIME).to_bytes(_KEY_BYTES, "big"), dtype=np.uint8)
        for m, secret in own.items()
    }
    with star.counted_as("control"):
        arrived = star.up(publics, _KEY_BYTES, np.uint8)
        board = np.concatenate([arrived[m] for m in sorted(arrived)]) if arrived else None
        told = star.down(board, star.parties * _KEY_BYTES, np.uint8)
    keys: dict[int, dict[int, bytes]] = {}
    for m, secret in own.items():
        keys[m] = {}
        for index, k in enumerate(sorted(star.home)):
            if k == m:
                continue
            public = int.from_bytes(told[index * _KEY_BYTES : (index + 1) * _KEY_BYTES].tobytes(), "big")
            require(
                1 < public < _PRIME - 1,
                f"party {k} sent a public key that is none; stop and check the centre",
            )
            shared = pow(public, secret, _PRIME).to_bytes(_KEY_BYTES, "big")
            pair = f"{min(m, k)}-{max(m, k)}".encode()
            keys[m][k] = hashlib.sha256(b"distadmm sharing masks " + pair + shared).digest()
    return keys


def _stream(key: bytes, t: int, count: int) -> Array:
    """`count` words that only the holders of `key` can tell from random ones."""
    digest = hashlib.shake_256(key + t.to_bytes(8, "big")).digest(8 * count)
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)
