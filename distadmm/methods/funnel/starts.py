"""Feasible starts of AEM, I(X;Y) >= R from the first iterate on, iterated together until none improves any more.

Start (c): (1 - tau) * injection + tau * Dirichlet, with the largest tau, by bisection, that keeps
I(X;Y) >= R.  Starts of plain Dirichlet rows end infeasible above half of H(X); the printed start
u = 1{i=j}/M ignores p and never leaves its zeros.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from distadmm.methods.funnel import aem
from distadmm.methods.funnel.model import Array, Joint, entropy

PURPOSE = 41  # of the seed's children
BLOCK = 8  # starts iterated together at most; also what one rank is dealt at a time
ENTRIES = 60_000  # and entries of their channels together
GROW, SHRINK = 1.3, 0.4  # of a step that is tried


def rng_of(seed: int, index: int) -> np.random.Generator:
    """The generator of start `index`: it depends on the seed and the index, never on who draws."""
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(PURPOSE, index)))


def disclosure(joint: Joint, v: Array) -> Array:
    """I(X;Y) of each channel of a batch (B x M x N)."""
    r = np.einsum("m,bmn->bn", joint.p, v)
    return entropy(r, axis=1) - entropy(v, axis=2) @ joint.p


def mixed(joint: Joint, R: float, sure: Array, loose: Array, halvings: int = 50) -> Array:
    """(1 - tau) sure + tau loose, tau as large as bisection finds with I(X;Y) >= R; `sure` reveals X."""
    low, high = np.zeros(len(sure)), np.ones(len(sure))
    for _ in range(halvings):
        tau = (low + high) / 2
        enough = disclosure(joint, sure + tau[:, None, None] * (loose - sure)) >= R
        low, high = np.where(enough, tau, low), np.where(enough, high, tau)
    # one part in 10^9 more caution than the bisection needs: rounding must not lose feasibility
    return sure + (low * (1 - 1e-9))[:, None, None] * (loose - sure)


def feasible(joint: Joint, R: float, N: int, seed: int, indices: range) -> Array:
    """Starts (c) number `indices`, B x M x N."""
    sure, loose = np.zeros((len(indices), joint.M, N)), np.empty((len(indices), joint.M, N))
    for b, index in enumerate(indices):
        rng = rng_of(seed, index)
        sure[b, np.arange(joint.M), rng.permutation(N)[: joint.M]] = 1
        loose[b] = rng.dirichlet(np.ones(N), joint.M)
    return mixed(joint, R, sure, loose)


class Ends(NamedTuple):
    state: aem.State
    iterations: int
    converged: Array  # per start: its last iteration lowered I(S;Y) by no more than the tolerance


def block_size(joint: Joint, N: int) -> int:
    """How many starts make a block: it depends on the problem alone, so results do not depend on ranks."""
    return int(np.clip(ENTRIES // (joint.M * N), 1, BLOCK))


def iterate(joint: Joint, v: Array, R: float, faster: bool = False) -> Iterator[aem.State]:
    """The start itself, then the state after each iteration, without end.

    `faster`: mirror descent that tries longer steps omega, of each start its own.  By the strong data-processing
    inequality every omega <= 1 / Dobrushin(P(s|x)) lowers I(S;Y); longer ones often do.

        omega <- 1.3 omega            after an iteration that lowered I(S;Y)
        omega <- max(1, 0.4 omega)    after one that did not; its result is thrown away
    """
    room, state, omega = aem.Room(v.shape), aem.start(joint, v), np.ones(len(v))
    while True:
        yield state
        new = aem.step(joint, state, R, omega, room)
        worse = (new.leak > state.leak) & (omega > 1)
        if faster:
            omega = np.where(worse, np.maximum(SHRINK * omega, 1.0), GROW * omega)
        state = aem.choose(worse, state, new)


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
