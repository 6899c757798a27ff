"""Feasible starts of the alternating iteration: I(X;Y) >= R from the first iterate on.

Start (c): (1 - tau) * injection + tau * Dirichlet, with the largest tau, by bisection, that keeps
I(X;Y) >= R.  Starts of plain Dirichlet rows end infeasible above half of H(X); the printed start
u = 1{i=j}/M ignores p and never leaves its zeros.
"""

from __future__ import annotations

import numpy as np

from distadmm.methods.funnel.model import Array, Joint, entropy

PURPOSE = 41  # of the seed's children


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
