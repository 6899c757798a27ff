"""The centre and its parties in one process: who sits where, what is counted, what the wire rounds."""

import numpy as np
import pytest

from distadmm.errors import InputError
from distadmm.ranks.star import Star
from distadmm.ranks.watch import Watchdog


class _World:
    """Enough of a world to ask where parties sit."""

    def __init__(self, rank, size):
        self.rank, self.size, self.dog = rank, size, Watchdog()
        self.hosts = lambda: ("here",) * size


def test_parties_sit_on_the_ranks_after_the_centre_in_turn():
    for size, homes in ((1, [0, 0, 0]), (2, [1, 1, 1]), (3, [1, 2, 1]), (4, [1, 2, 3])):
        assert list(Star(_World(0, size), 3).home.values()) == homes
    for size, homes in ((1, [0, 0, 0]), (2, [0, 1, 1]), (3, [0, 1, 2])):
        assert list(Star(_World(0, size), 3, party_one_is_centre=True).home.values()) == homes
    assert Star(_World(2, 3), 3).hosted == (2,)
    assert not Star(_World(2, 3), 3).is_centre


@pytest.mark.parametrize(("size", "one"), [(5, False), (4, True)])
def test_more_ranks_than_work(size, one):
    with pytest.raises(InputError, match=f"{size} ranks were started for 3 parties"):
        Star(_World(0, size), 3, party_one_is_centre=one)


def test_unknown_wire():
    with pytest.raises(InputError, match="choose one of: float64, float32"):
        Star(wire="float16")


def test_messages_are_copies_rounded_to_the_wire_and_counted():
    star = Star(parties=2, wire="float32")
    vector = np.array([1.0, 1e-9 + 1.0, np.pi])
    received = star.down(vector, 3)
    np.testing.assert_array_equal(received, vector.astype(np.float32).astype(float))
    np.testing.assert_array_equal(received, star.rounded(vector))
    received[0] = 9.0
    assert vector[0] == 1.0
    back = star.up({1: vector, 2: -vector}, 3)
    assert sorted(back) == [1, 2]
    with star.counted_as("control"):
        star.down(np.array([1.0]), 1, np.float64)
    assert star.sent() == {
        "control down": {"messages": 2, "bytes": 16},
        "vector down": {"messages": 2, "bytes": 24},
        "vector up": {"messages": 2, "bytes": 24},
    }


def test_a_message_of_its_own_for_each_party():
    star = Star(parties=3)
    given = {m: np.full(m, float(m)) for m in (1, 2, 3)}
    received = star.deal(given, {m: m for m in given})
    assert all(np.array_equal(received[m], given[m]) for m in given)
    assert star.texts_up({1: "a", 2: "bäc", 3: ""}) == {1: "a", 2: "bäc", 3: ""}
