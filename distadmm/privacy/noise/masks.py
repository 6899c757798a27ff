"""Masks that cancel in a sum, and what they are bound to: protocol "distadmm secure-sum v2".

Every pair of neighbours in the mask graph agrees on a key; in round r node i sends, in Z_2^64,

    u_i = v_i + sum_{j > i} m_ij - sum_{j < i} m_ji,      m_ij = SHAKE-256(T | k_ij | session | h_{r+1})

so that sum_i u_i = sum_i v_i and nothing less than the whole sum can be told from uniform words.

Invariants that guard privacy
-----------------------------
* A mask is bound to the commitment, the whole history, the kind of the round, its length and its roster: vectors of
  nodes that differ in any of them never unmask each other.
* One vector for a (session, round), one outcome for a round; a roster never grows, and holds the node itself.
* Ids and terms come from the local configuration; no message tells them.
"""

import hashlib
import hmac
import importlib.util
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from distadmm.errors import InputError, require, told
from distadmm.privacy.noise.sources import Array, Source
from distadmm.structs import mutable_struct

NAME = b"distadmm secure-sum v2"
KINDS = {"squares": 0, "curvature": 1, "gradient": 2, "evaluation": 3}
_GENERATOR, _KEY_BYTES = 2, 256
_SECRET, _NONCE = 11, 12  # purposes of a simulation's streams
_PRIME = int(  # group 14 of RFC 3526
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)


def be4(value: int) -> bytes:
    return struct.pack(">I", value)


def be8(value: int) -> bytes:
    return struct.pack(">Q", value)


def f8(value: float) -> bytes:
    return struct.pack(">d", value)


# -- key agreement ------------------------------------------------------------------------------------


class Key(Protocol):
    """The secret half of one node's key agreement."""

    public: bytes
    suite: bytes  # key agreement, derivation of keys, generator of masks, by name

    def shared(self, public: bytes) -> bytes:
        """What the owner of `public` finds as well; refused where `public` is none."""
        ...


class NoKey:
    """Of a run without masks."""

    public = suite = b""

    def shared(self, public: bytes) -> bytes:
        raise RuntimeError("a run without masks agrees on no keys")


class Group14:
    """Diffie-Hellman in a 2048-bit group, for simulations: it needs nothing but Python."""

    suite = b"MODP-2048 HKDF-SHA256 SHAKE-256"

    def __init__(self, secret: int):
        self._secret = secret
        self.public = pow(_GENERATOR, secret, _PRIME).to_bytes(_KEY_BYTES, "big")

    def shared(self, public: bytes) -> bytes:
        number = int.from_bytes(public, "big")
        require(
            len(public) == _KEY_BYTES and 2 <= number <= _PRIME - 2,
            "a public key is outside 2..p-2 of the 2048-bit group: somebody sends keys that are none",
        )
        return pow(number, self._secret, _PRIME).to_bytes(_KEY_BYTES, "big")


class X25519:
    """Diffie-Hellman on Curve25519, of the package `cryptography`."""

    suite = b"X25519 HKDF-SHA256 SHAKE-256"

    def __init__(self, secret: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric import x25519

        self._from, private = x25519.X25519PublicKey.from_public_bytes, x25519.X25519PrivateKey
        self._secret = private.generate() if secret is None else private.from_private_bytes(secret)
        self.public = self._secret.public_key().public_bytes_raw()

    def shared(self, public: bytes) -> bytes:
        # A ValueError: of another length, or of small order, where the result would be zero.
        with told("a public key is none of X25519: somebody sends keys that are none", ValueError):
            return self._secret.exchange(self._from(public))


def drawn(i: int, source: Source, masks: bool, resumes: int) -> tuple[Key, bytes]:
    """A node's secret key and nonce for one session."""
    if source.mode == "simulation":
        secret = source.at(i, _SECRET, resumes).words(4).tobytes()
        nonce = source.at(i, _NONCE, resumes).words(2).tobytes()
    else:
        nonce = os.urandom(16)
    if not masks:
        return NoKey(), nonce
    if source.mode == "simulation":
        return Group14(int.from_bytes(secret, "big") | 1 << 255), nonce
    return X25519(), nonce


def require_suite() -> None:
    """Refuse a real run where its key agreement is missing."""
    require(
        importlib.util.find_spec("cryptography") is not None,
        "masks of a real run need X25519 of the package cryptography; install it with: pip install "
        "'distadmm[secure]' (or try out with --rng simulation, or trust nobody: --trust any)",
    )


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 (RFC 5869), 32 bytes."""
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def pair_key(shared: bytes, session: bytes, publics: Mapping[int, bytes], i: int, j: int) -> bytes:
    """k_ij, bound to the session, both ids and both public keys."""
    i, j = min(i, j), max(i, j)
    ends = b"".join(be4(len(publics[m])) + publics[m] for m in (i, j))
    return hkdf(shared, session, NAME + b" key" + be4(i) + be4(j) + ends)


# -- what is hashed -----------------------------------------------------------------------------------


def session_of(nonces: Mapping[int, bytes], suite: bytes = b"") -> bytes:
    """Named by every node's own nonce, so that none returns, and by the suite, so that none has two."""
    said = b"".join(be4(i) + nonces[i] for i in sorted(nonces))
    return hashlib.sha256(NAME + b" session" + said + suite).digest()[:16]


def commitment(terms: bytes, publics: Mapping[int, bytes]) -> bytes:
    """h_0: the terms of the run and every node's public key."""
    return hashlib.sha256(committed(terms, publics)).digest()


def committed(terms: bytes, publics: Mapping[int, bytes]) -> bytes:
    keys = b"".join(be4(i) + be4(len(publics[i])) + publics[i] for i in sorted(publics))
    return NAME + b" commit" + terms + keys


NOTHING, LOST = b"\x00", b"\x01"  # outcomes: of no round yet, of a lost one


def outcome_of(total: Array) -> bytes:
    return b"\x02" + np.asarray(total, dtype="<i8").tobytes()


def advance(h: bytes, r: int, kind: str, k: int, roster: Sequence[int], outcome: bytes) -> bytes:
    """h_{r+1}, of the history before round r and of what round r is."""
    members = be4(len(roster)) + b"".join(be4(i) for i in sorted(roster))
    words = NAME + b" round" + h + be8(r) + bytes([KINDS[kind]]) + be8(k) + members + outcome
    return hashlib.sha256(words).digest()


def state_of(h: bytes, outcome: bytes) -> bytes:
    """g_r, by which the nodes of a resumed run find out what all of them know."""
    return hashlib.sha256(NAME + b" state" + h + outcome).digest()


def mask(key: bytes, session: bytes, h: bytes, k: int) -> Array:
    """k words that only the two who have the key can tell from random ones."""
    digest = hashlib.shake_256(NAME + key + session + h).digest(8 * k)
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


# -- who shares a mask with whom ----------------------------------------------------------------------

ALL_PAIRS = 200  # nodes up to which every pair shares one


def mask_degree(nodes: int, colluding: int, least: int) -> int:
    """What the commitment states: 0 for all pairs, or without masks (colluding = N - 1)."""
    if nodes <= ALL_PAIRS or colluding >= nodes - 1:
        return 0
    return max(2, colluding + 1 + nodes - least)


def mask_neighbours(ids: Sequence[int], degree: int) -> dict[int, list[int]]:
    """Harary's graph on a circle of the ids: as many edges as it takes to stay connected without any degree - 1."""
    order = sorted(ids)
    n = len(order)
    if degree == 0 or degree >= n - 1:
        return {i: [j for j in order if j != i] for i in order}
    if degree % 2 and n % 2:
        degree += 1
        if degree >= n - 1:
            return mask_neighbours(order, 0)
    steps = [*range(1, degree // 2 + 1), *([n // 2] if degree % 2 else [])]
    return {
        i: sorted({order[(p + s * way) % n] for s in steps for way in (1, -1)}) for p, i in enumerate(order)
    }


# -- one node -----------------------------------------------------------------------------------------


@mutable_struct
class Member:
    """One node's side of the protocol; it believes nothing about rounds but its own history."""

    id: int
    session: bytes
    h: bytes  # of the history so far
    keys: dict[int, bytes]  # with its neighbours in the mask graph; none: the sums travel without masks
    roster: list[int]
    least: int = 1  # fewest nodes that a roster may have
    r: int = -1  # the round it is in
    outcome: bytes | None = NOTHING  # of the round before the next; None: not known yet
    sent: bytes | None = None  # the vector of this round
    state: bytes = bytes(32)  # by which nodes find out whether they know the same

    def accept_roster(self, roster: Sequence[int]) -> None:
        """Take a smaller roster."""
        require(
            len(set(roster)) == len(roster) and set(roster) <= set(self.roster) and self.id in roster,
            f"node {self.id} was told a roster that is no part of the one before, names a node twice or leaves it out",
        )
        require(len(roster) >= self.least, f"{len(roster)} nodes are left; needed: at least {self.least}")
        self.roster = sorted(roster)

    def enter(self, kind: str, k: int, r: int | None = None) -> bytes:
        """Begin the next round (or `r`, a later one: those between are lost); the mark that its letters bear."""
        if self.outcome is None:
            raise InputError(f"node {self.id} has no outcome of round {self.r} yet")
        next_r = self.r + 1 if r is None else r
        require(next_r > self.r, f"round {next_r} was entered before; a round is never entered twice")
        self.h = advance(self.h, next_r, kind, k, self.roster, self.outcome)
        self.r, self.k, self.outcome, self.sent = next_r, k, None, None
        return self.h[:8]

    def masked(self, values: Array) -> Array:
        """The one vector of this round; it is kept, and never computed again."""
        if self.sent is not None:
            raise RuntimeError(f"node {self.id} would send a second vector in round {self.r}")
        require(len(values) == self.k, f"{len(values)} words for a round of {self.k}")
        u = np.asarray(values, dtype=np.int64).view(np.uint64).copy()
        here = set(self.roster)
        for j, key in self.keys.items():
            if j in here:
                words = mask(key, self.session, self.h, self.k)
                u = u + words if j > self.id else u - words
        self.sent = u.tobytes()
        return u

    def accept(self, total: Array | None) -> None:
        """The outcome of this round: a total, or lost; the first one counts."""
        if self.outcome is None:
            self.outcome = LOST if total is None else outcome_of(total)
            self.state = state_of(self.h, self.outcome)


def members_of(
    here: Mapping[int, Any], publics: Mapping[int, bytes], nonces: Mapping[int, bytes], terms: bytes,
    degree: int, least: int, masks: bool = True, suite: bytes = b"",
) -> dict[int, Member]:  # fmt: skip
    """The nodes of this rank, whose secret keys are `here`, after set-up; all others are known by what they said."""
    ids = sorted(publics)
    session = session_of(nonces, suite)
    if masks:
        twins = sorted(i for i in ids if list(publics.values()).count(publics[i]) > 1)
        require(not twins, f"nodes {twins} have one and the same public key; stop, and find out who sent it")
    h_0 = commitment(terms, publics if masks else dict.fromkeys(ids, b""))
    near = mask_neighbours(ids, degree) if masks else {i: [] for i in ids}
    pairs: dict[tuple[int, int], bytes] = {}  # of two nodes here, worked out once
    found = {}
    for i, key in here.items():
        keys = {}
        for j in near[i]:
            pair = (min(i, j), max(i, j))
            if pair not in pairs:
                pairs[pair] = pair_key(key.shared(publics[j]), session, publics, i, j)
            keys[j] = pairs[pair]
        found[i] = Member(i, session, h_0, keys, ids, least)
    return found
