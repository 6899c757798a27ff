"""Several feasible starts of AEM, iterated together until none of them improves any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distadmm.methods.funnel import adaptive, aem, starts
from distadmm.methods.funnel.model import Array, Joint

BLOCK = 8  # starts iterated together at most; also what one rank is dealt at a time
ENTRIES = 60_000  # and entries of their channels together


class Ends(NamedTuple):
    """Where a block of starts came to rest."""

    state: aem.State
    iterations: int
    converged: Array  # per start: its last iteration lowered I(S;Y) by no more than the tolerance


def block_size(joint: Joint, N: int) -> int:
    """How many starts make a block: it depends on the problem alone, so results do not depend on ranks."""
    return int(np.clip(ENTRIES // (joint.M * N), 1, BLOCK))


def iterate(joint: Joint, v: Array, R: float, faster: bool = False) -> Iterator[aem.State]:
    """The start itself, then the state after each iteration, without end."""
    room = aem.Room(v.shape)
    if faster:
        state = adaptive.start(joint, v)
        while True:
            yield state.inner
            state = adaptive.step(joint, state, R, room)
    plain = aem.start(joint, v)
    while True:
        yield plain
        plain = aem.step(joint, plain, R, room=room)


def run(joint: Joint, v: Array, R: float, iterations: int, tol: float, faster: bool = False) -> Ends:
    """At most `iterations` iterations from the channels v."""
    states = iterate(joint, v, R, faster)
    state, quiet = next(states), np.zeros(len(v), dtype=int)
    n = 0
    while n < iterations:
        n += 1
        before, state = state, next(states)
        # a longer step that was thrown away is no sign of rest: three quiet iterations in a row are
        quiet = np.where(before.leak - state.leak <= tol, quiet + 1, 0)
        if (quiet >= 3).all():
            break
    return Ends(state, n, quiet >= 3)


def from_starts(
    joint: Joint,
    R: float,
    N: int,
    seed: int,
    indices: range,
    iterations: int,
    tol: float,
    faster: bool = False,
) -> Ends:
    """The block of feasible starts `indices`."""
    return run(joint, starts.feasible(joint, R, N, seed, indices), R, iterations, tol, faster)
