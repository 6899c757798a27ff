"""Douglas-Rachford splitting (Huang, El Gamal and El Gamal, 2022), the baseline the paper compares with.

With a = P(y|s), q = P(y|x), C = P(x|s) and the constraint a = C q, for a multiplier beta of I(S;Y):

    L = beta I(S;Y) - I(X;Y) + <nu, a - C q> + c/2 ||a - C q||^2
    a  <- a - step * [ beta P(s) (log a + 1) + nu + c (a - C q) ]
    nu <- nu - (1 - relaxation) c (a - C q)
    q  <- q - step * [ p ((1 - beta)(log r + 1) - (log q + 1)) - C^T (nu + c (a - C q)) ]
    nu <- nu + c (a - C q)

Gradients are taken less their mean over y; a step is 1e-2 times the power of 1/4 that keeps probabilities within
[0, 1]; entries that come near the border stop a run there.  The method has no R: a grid of beta is run, and its
end points are used for every R they reach.
"""

from typing import NamedTuple

import numpy as np

from distadmm.methods.funnel.model import Array, Joint, log0
from distadmm.methods.funnel.starts import rng_of

BETAS = np.geomspace(0.1, 64.0, 28)
VARIANTS = tuple((penalty, by_row) for penalty in (16.0, 128.0, 1024.0) for by_row in (False, True))
STARTS = 6  # a beta: two of random rows, the others near deterministic channels, as the authors have it
NEAR = 1e-3  # how near
FIRST, SCALE, SMALLEST = 1e-2, 0.25, 1e-11
ENTRIES = 1_000_000  # of the channels of runs that are iterated together
INDEX = 1 << 22


class State(NamedTuple):
    a: Array  # P(y|s), B x K x N
    q: Array  # P(y|x), B x M x N
    nu: Array  # multipliers of a = C q, B x K x N
    stuck: Array  # B: no step keeps the probabilities within [0, 1]


def _stride(prob: Array, gradient: Array, by_row: bool) -> Array:
    """The backtracked step along -gradient: one for each run, or for each of its rows."""
    down = np.where(gradient > 0, prob, 1 - prob)
    room = np.divide(down, np.abs(gradient), out=np.full_like(prob, np.inf), where=gradient != 0)
    room = room.min(axis=2, keepdims=True) if by_row else room.min(axis=(1, 2), keepdims=True)
    halvings = np.ceil(np.log(np.minimum(np.maximum(room, 1e-30) / FIRST, 1.0)) / np.log(SCALE))
    step = FIRST * SCALE**halvings
    return np.where(step > SMALLEST, step, 0.0)


def inverse(joint: Joint) -> Array:
    """C = P(x|s), K x M."""
    return joint.S * joint.p / joint.pS[:, None]


def gradient_a(joint: Joint, a: Array, q: Array, nu: Array, beta: Array, penalty: float) -> Array:
    return beta * joint.pS[:, None] * (log0(a) + 1) + nu + penalty * (a - inverse(joint) @ q)


def gradient_q(joint: Joint, a: Array, q: Array, nu: Array, beta: Array, penalty: float) -> Array:
    C, r = inverse(joint), np.einsum("m,bmn->bn", joint.p, q)
    own = joint.p[:, None] * ((1 - beta) * (log0(r)[:, None, :] + 1) - (log0(q) + 1))
    return own - C.T @ (nu + penalty * (a - C @ q))


def step(joint: Joint, st: State, beta: Array, penalty: float, relaxation: float, by_row: bool) -> State:
    """One iteration of every run; a run that is stuck stays."""
    C, b = inverse(joint), beta[:, None, None]
    gradient = gradient_a(joint, st.a, st.q, st.nu, b, penalty)
    gradient -= gradient.mean(axis=2, keepdims=True)
    stride = _stride(st.a, gradient, by_row)
    stuck = st.stuck | (stride == 0).all(axis=(1, 2))
    a = np.clip(st.a - stride * gradient, 0, 1)
    nu = st.nu - (1 - relaxation) * penalty * (a - C @ st.q)
    gradient = gradient_q(joint, a, st.q, nu, b, penalty)
    gradient -= gradient.mean(axis=2, keepdims=True)
    stride = _stride(st.q, gradient, by_row)
    stuck |= (stride == 0).all(axis=(1, 2))
    q = np.clip(st.q - stride * gradient, 0, 1)
    nu = nu + penalty * (a - C @ q)
    halted = stuck[:, None, None]
    a, q, nu = np.where(halted, st.a, a), np.where(halted, st.q, q), np.where(halted, st.nu, nu)
    return State(a, q, nu, stuck)


def first(joint: Joint, N: int, rng: np.random.Generator, runs: int) -> Array:
    q = rng.random((runs, joint.M, N))
    for b in np.flatnonzero(np.arange(runs) % STARTS >= 2):
        sure = rng.permutation(N)[: joint.M]  # one to one, or onto a few symbols
        if b % STARTS > 2:
            sure = sure[rng.integers(rng.integers(2, joint.M + 1), size=joint.M)]
        q[b] = NEAR
        q[b, np.arange(joint.M), sure] = 1
    return np.asarray(q / q.sum(axis=2, keepdims=True))


def end_points(joint: Joint, N: int, seed: int, variant: int, iterations: int) -> tuple[Array, int, Array]:
    """The channels (B x M x N) of all beta and starts of a variant, iterations made, and which converged."""
    penalty, by_row = VARIANTS[variant]
    rng = rng_of(seed, INDEX + variant)
    beta = np.repeat(BETAS, STARTS)
    q = first(joint, N, rng, len(beta))
    size = max(1, ENTRIES // (joint.M * N))
    some = [slice(k, k + size) for k in range(0, len(beta), size)]
    parts = [_iterate(joint, q[own], beta[own], penalty, by_row, iterations) for own in some]
    found, counts, near = zip(*parts)
    return np.concatenate(found), max(counts), np.concatenate(near)


def _iterate(
    joint: Joint, q: Array, beta: Array, penalty: float, by_row: bool, iterations: int
) -> tuple[Array, int, Array]:
    """Runs taken together until each has met a = C q or is stuck; what is stuck stays where it is, and is left out."""
    C, N = inverse(joint), q.shape[2]
    found, near, n = q.copy(), np.zeros(len(q), dtype=bool), 0
    left, st = np.arange(len(q)), State(C @ q, q, np.zeros((len(q), joint.K, N)), near.copy())
    while n < iterations and not near[left].all():
        n += 1
        st = step(joint, st, beta[left], penalty, 1.0, by_row)
        near[left] = (np.abs(st.a - C @ st.q).sum(axis=2) / 2 < 1e-6).all(axis=1)
        if st.stuck.any():
            found[left[st.stuck]] = st.q[st.stuck]
            left, st = left[~st.stuck], State(*(part[~st.stuck] for part in st))
    found[left] = st.q
    return found / found.sum(axis=2, keepdims=True), n, near
