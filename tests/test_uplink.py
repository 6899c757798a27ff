"""Rows to rank 0 and words back: everything arrives, in order, and nothing is left in flight."""

from __future__ import annotations

import numpy as np
import pytest

from distadmm.ranks.uplink import Uplink
from distadmm.ranks.world import World


def exercise(world: World) -> None:
    count = 1 + world.rank % 2  # ranks host one or two nodes
    uplink = Uplink(world, count, 3)
    heard = []
    for k in range(20):
        rows = np.full((count, 3), 100.0 * world.rank + k)
        whole = uplink.post(rows)
        rows[:] = -1.0  # the sender may reuse its rows at once
        if world.is_root:
            ranks = np.repeat(np.arange(world.size), [1 + r % 2 for r in range(world.size)])
            np.testing.assert_array_equal(whole, (100.0 * ranks + k)[:, None] * np.ones(3))
        else:
            assert whole is None
        heard.append(uplink.hear())  # of the iteration before
        uplink.announce(f"word {k}" if world.is_root else "")
    assert heard == ["", *(f"word {k}" for k in range(19))]
    uplink.announce("never heard")
    uplink.close()
    assert world.allgather(uplink.hear()) == [""] * world.size


def test_alone() -> None:
    exercise(World())


@pytest.mark.mpi(min_size=2)
def test_on_several_ranks(world: World) -> None:
    exercise(world)
