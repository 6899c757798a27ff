"""Alternating Expectation Minimisation (Chen, Ye, Wu, Wu, Wu and Zhang, 2024), without its tensor.

Since sum_k s_ki = 1, phi_ij = log u_ij - sum_k s_ki log t_kj with t = S w = P(s|y), so the M x N x K
tensor q cancels.  With logarithms throughout (u underflows otherwise) one iteration is

    log t  <- log S u - log r                                         q: the expectation step, eq. (4c)
    Lambda <- max(0, root of G(Lambda) = sum_ij u_ij log w_ij - R^)   the multiplier of I(X;Y) >= R
    log u  <- log u + Lambda log w - omega S^T log t                  rows normalised to sum to p_i
    r      <- sum_i u_ij,   w <- u / r                                eqs. (4a), (4b)

omega = 1 is the paper's iteration: mirror descent on I(S;Y).  The root is negative when G(0) > 0: then the
constraint does not bind and Lambda = 0.  From a feasible start every iterate is feasible (Gibbs' inequality)
and I(S;Y) never rises.  All arrays carry a leading axis of starts, which are iterated together.
"""

from typing import NamedTuple

import numpy as np

from distadmm.methods.funnel.model import FLOOR, Array, Joint, log0

ROOT = 1e-12  # |G| at which Newton's method stops, nats
NEAR = 1e-7  # or the length of a step that need not be followed by another evaluation
EVALUATIONS = 60  # of G that it may take
LOST = 1e-10  # a start whose G stays below -LOST has no root: it is left where it is


class State(NamedTuple):
    logu: Array  # log P(x,y), B x M x N
    logw: Array  # log P(x|y), B x M x N
    logt: Array  # log P(s|y), B x K x N
    leak: Array  # I(S;Y), B
    told: Array  # I(X;Y), B
    Lambda: Array  # the multiplier of the update that led here, B
    trail: Array  # the multipliers of the two updates before, 2 x B: they tell where to look next


class Rows(NamedTuple):
    """Rows e^(log u + Lambda log w - ...) before they are normalised: row i of e sums to total_i."""

    z: Array
    e: Array
    total: Array


class Room:
    """Memory for the iterations of one run: without it, a third of their time goes into asking for memory.

    Of the states made in a room, the last three are kept; older ones are written over.
    """

    def __init__(self, shape: tuple[int, ...]):
        B, M, N = shape
        self.rows = Rows(np.empty(shape), np.empty(shape), np.empty((B, M)))
        self.product = np.empty(shape)  # e log w
        self.mean = np.empty((B, M))  # of log w, by row
        self.floor = np.full(shape, FLOOR)  # comparing with an array is four times faster than with a number
        self.ones = np.ones(N)  # a product with it sums rows faster than a sum does
        self._states = [(np.empty(shape), np.empty(shape)) for _ in range(3)]

    def next(self) -> tuple[Array, Array]:
        """Arrays for log u and log w of the next state."""
        self._states.append(self._states.pop(0))
        return self._states[-1]


def measure(joint: Joint, room: Room, Lambda: Array, trail: Array) -> State:
    """The state whose channel has the room's rows, normalised."""
    z, e, total = room.rows
    logu, logw = room.next()
    scale = joint.p / total
    r = (scale[:, None, :] @ e)[:, 0]
    t = (joint.S * scale[:, None, :]) @ e
    logr = np.maximum(log0(r), FLOOR)
    logt = np.maximum(log0(t), FLOOR) - logr[:, None, :]
    np.add(z, np.log(scale)[:, :, None], out=logu)
    np.subtract(logu, logr[:, None, :], out=logw)
    leak = joint.HS + np.einsum("bkn,bkn->b", t, logt)
    told = joint.HX + (scale * np.einsum("bmn,bmn->bm", e, logw)).sum(axis=-1)
    return State(logu, logw, logt, leak, told, Lambda, trail)


def start(joint: Joint, v: Array) -> State:
    """The state at the channels v (B x M x N)."""
    room, none = Room(v.shape), np.zeros(len(v))
    np.maximum(log0(v), FLOOR, out=room.rows.z)
    room.rows.e[:], room.rows.total[:] = v, v.sum(axis=-1)
    return measure(joint, room, none, np.zeros((2, len(v))))


def channels(joint: Joint, state: State) -> Array:
    """P(y|x), B x M x N; entries too small to matter are exactly zero."""
    u = np.exp(state.logu)
    v = u / u.sum(axis=-1, keepdims=True)
    v[v < 1e-250] = 0
    return v


def tilt(base: Array, logw: Array, Lambda: Array, joint: Joint, R: float, room: Room) -> tuple[Array, Array]:
    """Fill the room's rows with e^(base + Lambda log w), largest entries 1; return G and G' there."""
    z, e, total = room.rows
    np.multiply(logw, Lambda[:, None, None], out=z)
    z += base
    z -= z.max(axis=-1, keepdims=True)
    np.maximum(z, room.floor, out=z)
    np.exp(z, out=e)
    np.matmul(e, room.ones, out=total)
    np.multiply(e, logw, out=room.product)
    np.divide(room.product @ room.ones, total, out=room.mean)
    square = np.einsum("bmn,bmn->bm", room.product, logw) / total
    return room.mean @ joint.p + joint.HX - R, (square - room.mean**2) @ joint.p


def shift(logw: Array, delta: Array, room: Room) -> None:
    """Move the room's rows by a delta of Lambda so small that e^(delta log w) = 1 + delta log w in float64."""
    z, e, total = room.rows
    room.product *= delta[:, None, None]
    e += room.product
    total *= 1 + delta[:, None] * room.mean
    np.multiply(logw, delta[:, None, None], out=room.product)
    z += room.product


def root(base: Array, logw: Array, guess: Array, joint: Joint, R: float, room: Room) -> tuple[Array, Array]:
    """max(0, root of G) by Newton's method kept in a bracket, its rows in the room; and what is left of G."""
    Lambda, low, high = guess.copy(), np.zeros_like(guess), np.full_like(guess, np.inf)
    for _ in range(EVALUATIONS):
        G, slope = tilt(base, logw, Lambda, joint, R, room)
        done = (np.abs(G) <= ROOT) | ((Lambda == 0) & (G > 0))
        delta = np.where(done, 0.0, -G / np.maximum(slope, 1e-300))
        if (np.abs(delta) <= NEAR).all() and (Lambda + delta >= 0).all():
            if not done.all():
                shift(logw, delta, room)
            return Lambda + delta, G + delta * slope
        low, high = np.where(G < 0, Lambda, low), np.where(G < 0, high, Lambda)
        # below zero the constraint does not bind: 0 itself is tried before the bracket is halved
        newton = Lambda + delta
        newton = np.where((newton <= 0) & (low == 0) & (G > 0), 0.0, newton)
        middle = np.where(np.isinf(high), 2 * Lambda + 1, (low + high) / 2)
        inside = ((newton > low) & (newton < high)) | (newton == 0)
        Lambda = np.where(done, Lambda, np.where(inside, newton, middle))
    return Lambda, G


def step(joint: Joint, state: State, R: float, omega: Array | float = 1.0, room: Room | None = None) -> State:
    """One iteration for every start; a `room` kept from one iteration to the next saves time."""
    room = room or Room(state.logu.shape)
    base = joint.S.T @ state.logt
    base *= -np.reshape(omega, (-1, 1, 1))
    base += state.logu
    Lambda, G = root(base, state.logw, expected(state), joint, R, room)
    return choose(G < -LOST, state, measure(joint, room, Lambda, np.stack([state.Lambda, state.trail[0]])))


def expected(state: State) -> Array:
    """The next multiplier if the last three lie on a parabola: near enough for one evaluation, mostly."""
    ahead = 3 * state.Lambda - 3 * state.trail[0] + state.trail[1]
    return np.clip(ahead, state.Lambda / 2, 2 * state.Lambda)


def choose(first: Array, a: State, b: State) -> State:
    """State a for the starts where `first` holds, b for the others."""
    if not first.any():
        return b
    shaped = [first.reshape(-1, *[1] * (x.ndim - 1)) for x in a[:-1]] + [first]
    return State(*(np.where(mask, x, y) for mask, x, y in zip(shaped, a, b)))
