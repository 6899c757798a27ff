"""Synchronous stochastic gradients over vertical features (FDML, Hu et al. 2019), the paper's rival.

For every mini-batch of records, the same public shuffle at all parties:

    v_m = D_m[batch] x_m                                  parties -> centre
    g   = l'(sum_m v_m + b) on the batch                  centre -> parties
    x_m = x_m - eta/sqrt(t) (D_m[batch]' g / |batch| + lambda/N grad R(x_m))

A step is an epoch.  It moves as many bytes as one iteration of ADMM sharing, in N/|batch| times as many messages.
"""

from typing import ClassVar, NamedTuple

import numpy as np

from distadmm.algorithm import Array, register
from distadmm.flags import flag
from distadmm.methods.sharing.seat import Seat
from distadmm.problems.regularisers import into
from distadmm.structs import struct

SHUFFLE, START = 0x53474453, 0x53474458  # purposes: the order of the records, the random start
SPREAD = 0.01  # of the random start, as the paper's SGD has it


class State(NamedTuple):
    x: dict[int, Array]  # models of the parties hosted here
    b: float  # the centre's intercept
    t: int  # mini-batches so far


@register("sgd", family="star")
@struct
class SGD:
    eta: float = flag(1.0, help="sgd: step size eta/sqrt(t)", above=0)
    batch: int = flag(100, help="sgd: records a mini-batch", at_least=1)
    seed: int = 0

    masks: ClassVar[bool] = False  # there would have to be some for every mini-batch

    def init(self, seat: Seat) -> State:
        x = {
            m: SPREAD * _stream(self.seed, START, m).standard_normal(block.width)
            for m, block in seat.blocks.items()
        }
        return State(x, 0.0, 0)

    def step(self, k: int, st: State, seat: Seat) -> State:
        star, problem, rows, blocks = seat.fabric, seat.problem, seat.rows, seat.blocks
        order = _stream(self.seed, SHUFFLE, k).permutation(rows)
        x, b, t = dict(st.x), st.b, st.t
        for m in blocks:
            seat.release.expose(k, m)
        for first in range(0, rows, self.batch):
            batch = order[first : first + self.batch]
            part = {m: block.matrix[batch] for m, block in blocks.items()}
            size, t = batch.size, t + 1
            v = {m: part[m] @ x[m] - blocks[m].mean @ x[m] for m in blocks}
            arrived, g = star.up(v, size), None
            if arrived is not None and seat.labels is not None:
                g = problem.loss.slope(sum(arrived.values(), np.full(size, b)), seat.labels[batch])
            received = star.down(g, size)
            eta = self.eta / np.sqrt(t)
            if g is not None and problem.intercept:
                b -= eta * float(g.mean())
            for m, block in blocks.items():
                pull = part[m].T @ received - received.sum() * block.mean
                move = pull / size + problem.lam / rows * problem.reg.subgradient(x[m])
                x[m] = into(problem.region, x[m] - eta * move)
        return State(x, b, t)


def _stream(seed: int, purpose: int, index: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(purpose, index)))
