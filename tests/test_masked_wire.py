"""What leaves a node of a masked run, as who listens to all links and shares the memory of c nodes sees it."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from distadmm import radmm
from distadmm.methods.masked.sums import Sums
from distadmm.privacy.noise import masks
from distadmm.privacy.noise.mechanism import Noise
from distadmm.ranks.post import Name, Post
from distadmm.ranks.tree import Tree
from tests.test_masked import RUN

ALLIES = (0, 3)  # who put together what they have


def evenly(words: Any) -> bool:
    """Whether no byte of these words of 64 bits is preferred, at 1 in 10^6 each."""
    columns = np.ascontiguousarray(words, dtype="<u8").view(np.uint8).reshape(-1, 8)
    expected = len(columns) / 256
    counts = [np.bincount(column, minlength=256) for column in columns.T]
    return all(((count - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255) for count in counts)


class Tap:
    """All letters, and all that nodes know."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.letters: list[tuple[Name, bytes]] = []
        self.vectors: dict[tuple[int, int], np.ndarray] = {}  # of each round and node
        self.noise: dict[tuple[int, int], np.ndarray] = {}
        self.members: dict[tuple[int, int], tuple[bytes, bytes, dict[int, bytes]]] = {}
        self.events: dict[int, Any] = {}
        send, masked, draw = Post.send, masks.Member.masked, Noise.draw

        def sent(post: Post, name: Name, payload: bytes, mark: bytes = bytes(8)) -> None:
            self.letters.append((name, payload))
            send(post, name, payload, mark)

        def made(member: masks.Member, values: np.ndarray) -> np.ndarray:
            u = masked(member, values)
            self.vectors[member.r, member.id] = u
            self.members[member.r, member.id] = member.session, member.h, dict(member.keys)
            return u

        def drawn(noise: Noise, event: Any, **more: Any) -> np.ndarray:
            share = draw(noise, event, **more)
            self.noise[event.round, more["at"]] = share
            self.events[event.round] = event
            return share

        monkeypatch.setattr(Post, "send", sent)
        monkeypatch.setattr(masks.Member, "masked", made)
        monkeypatch.setattr(Noise, "draw", drawn)

    def stripped(self, r: int, i: int) -> np.ndarray:
        """Node i's vector without the masks that it shares with the allies."""
        u, (session, h, keys) = self.vectors[r, i].copy(), self.members[r, i]
        for j in ALLIES:
            words = masks.mask(keys[j], session, h, len(u))
            u = u - words if j > i else u + words
        return u


@pytest.fixture(scope="module")
def tap() -> Tap:
    with pytest.MonkeyPatch.context() as patch:
        found = Tap(patch)
        radmm.solve("masked", **{**RUN, "seed": 4})
        return found


def test_only_masked_vectors_of_stated_sizes_leave_a_node(tap: Tap) -> None:
    words = {r: len(u) for (r, _), u in tap.vectors.items()}
    kinds = Counter(name.kind for name, _ in tap.letters)
    assert kinds.keys() == {b"tell", b"up  ", b"down"}
    assert kinds[b"up  "] == kinds[b"down"] == 4 * len(words)
    told = [payload for name, payload in tap.letters if name.kind == b"tell"]
    sizes = {
        8 + 16 + 256,
        8 + 32,
        8 + 8,
    }  # nonce and key, what it starts with, its number of rows; each with its id
    assert all(len(payload) == 0 or any(len(payload) % size == 0 for size in sizes) for payload in told)
    first = min(name.number for name, _ in tap.letters if name.kind == b"up  ")
    for name, payload in tap.letters:
        if name.kind == b"up  ":  # er5 is a star: what a leaf sends is its own vector
            assert payload == tap.vectors[name.number - first, name.sender].tobytes()
        elif name.kind == b"down":
            total = sum(tap.vectors[name.number - first, i] for i in range(5))
            assert payload == np.asarray(total, dtype=np.uint64).tobytes()


def test_all_links_and_the_memory_of_some_show_uniform_words_and_a_sum_with_its_noise(tap: Tap) -> None:
    honest = [i for i in range(5) if i not in ALLIES]
    for i in honest:
        alone = [tap.stripped(r, i) for r, j in tap.vectors if j == i]
        assert evenly(np.concatenate(alone))
    pairs = [tap.stripped(r, honest[0]) + tap.stripped(r, honest[1]) for r in tap.events]
    assert evenly(np.concatenate(pairs))
    for r, event in tap.events.items():
        whole = sum(tap.stripped(r, i) for i in honest)
        noise = np.array(sum(tap.noise[r, i] for i in honest))
        exact = np.array(whole).view(np.int64) - noise  # what rows alone would give: no mask is left
        assert np.abs(exact).max() <= 455 * 4**10
        claimed = event.share_variance_grid * event.shares * (0.5 if event.kind == "curvature" else 1.0)
        assert (noise.astype(float) ** 2).sum() / claimed > chi2.ppf(1e-6, len(noise))
    assert event.shares == len(honest)  # neither more is claimed than they add


def test_a_vector_is_uniform_over_sessions_whatever_it_holds() -> None:
    """The same values and noise in 3,000 sessions."""
    seen, stream = [], np.random.Generator(np.random.PCG64(5))
    for _ in range(3000):
        keys = {pair: stream.bytes(32) for pair in ((1, 2), (1, 4), (2, 4), (0, 1), (1, 3))}
        mine = {sum(pair) - 1: key for pair, key in keys.items() if 1 in pair}
        session = stream.bytes(16)
        member = masks.Member(1, session, bytes(32), mine, [0, 1, 2, 3, 4])
        member.enter("gradient", 1)
        u = member.masked(np.array([12345]))
        for j in ALLIES:
            words = masks.mask(mine[j], session, member.h, 1)
            u = u - words if j > 1 else u + words
        seen.append(u[0])
    assert evenly(np.array(seen))
    assert not evenly(np.array(seen) >> np.uint64(1))  # the test is one that can fail


def test_without_noise_masked_sums_are_the_sums_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, on a schedule that is the same; by the fabric on which Newton's method sums."""
    monkeypatch.setattr(Noise, "draw", lambda self, event, **more: np.zeros(event.dimension, dtype=np.int64))
    hidden = radmm.solve("masked", **RUN).models

    def clear(self: Sums, ask: Any, values: np.ndarray, away: Any = ()) -> np.ndarray:
        self.round, self.tree.network.guard = self.round + 1, None  # nothing is sealed in the clear
        return Tree.sum(self.tree, values)

    monkeypatch.setattr(Sums, "sum", clear)
    seen = radmm.solve("masked", **RUN).models
    assert np.array_equal(hidden, seen)
    assert np.any(hidden != 0)
