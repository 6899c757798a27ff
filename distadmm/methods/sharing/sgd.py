"""Synchronous stochastic gradients over vertical features (FDML, Hu et al. 2019), the paper's rival.

For every mini-batch of records, the same public shuffle at all parties:

    v_m = D_m[batch] x_m                                  parties -> centre
    g   = l'(sum_m v_m + b) on the batch                  centre -> parties
    x_m = x_m - eta/sqrt(t) (D_m[batch]' g / |batch| + lambda/N grad R(x_m))

An epoch moves as many bytes as one iteration of ADMM sharing, in N/|batch| times as many messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.methods.sharing.admm import Problem
from distadmm.problems.columns import Columns
from distadmm.problems.regularisers import Box, Region, Regulariser, Whole
from distadmm.ranks.star import Star

Array = np.ndarray

SHUFFLE, START = 0x53474453, 0x53474458  # purposes: the order of the records, the random start


@dataclass(frozen=True)
class Steps:
    """The step size at mini-batch t is eta/sqrt(t); models start at random, as the paper's SGD does."""

    eta: float = 1.0
    batch: int = 100
    seed: int = 0
    spread: float = 0.01

    def __post_init__(self) -> None:
        require(self.eta > 0, f"--eta is {self.eta:g}; needed: a step size > 0")
        require(self.batch >= 1, f"--batch is {self.batch}; needed: at least 1 record a batch")


class Model(NamedTuple):
    """What this rank knows between epochs."""

    x: dict[int, Array]  # models of the parties hosted here
    b: float  # the centre's intercept
    t: int  # mini-batches so far


def start(blocks: Mapping[int, Columns], steps: Steps) -> Model:
    x = {
        m: steps.spread * _stream(steps.seed, START, m).standard_normal(block.width)
        for m, block in blocks.items()
    }
    return Model(x, 0.0, 0)


def epoch(
    star: Star,
    blocks: Mapping[int, Columns],
    labels: Array | None,
    problem: Problem,
    steps: Steps,
    model: Model,
    number: int,
    rows: int,
) -> Model:
    """One pass over all records in the order of epoch `number`."""
    order = _stream(steps.seed, SHUFFLE, number).permutation(rows)
    x, b, t = dict(model.x), model.b, model.t
    for first in range(0, rows, steps.batch):
        batch = order[first : first + steps.batch]
        part = {m: block.matrix[batch] for m, block in blocks.items()}
        size, t = batch.size, t + 1
        sent = {m: part[m] @ x[m] - blocks[m].mean @ x[m] for m in blocks}
        arrived = star.up(sent, size)
        slope = None
        if arrived is not None and labels is not None:
            slope = problem.loss.slope(sum(arrived.values(), np.full(size, b)), labels[batch])
        received = star.down(slope, size)
        eta = steps.eta / np.sqrt(t)
        if slope is not None and problem.intercept:
            b -= eta * float(slope.mean())
        for m, block in blocks.items():
            pull = part[m].T @ received - received.sum() * block.mean
            step = pull / size + problem.lam / rows * _subgradient(problem.reg, x[m])
            x[m] = _into(problem.region, x[m] - eta * step)
    return Model(x, b, t)


def _subgradient(reg: Regulariser, x: Array) -> Array:
    return reg.l1 * np.sign(x) + reg.l2 * x


def _into(region: Region, x: Array) -> Array:
    """The nearest point of the set."""
    if isinstance(region, Whole):
        return x
    if isinstance(region, Box):
        return np.clip(x, region.low, region.high)
    norm = float(np.linalg.norm(x))
    return x if norm <= region.radius else x * (region.radius / norm)


def _stream(seed: int, purpose: int, index: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(purpose, index)))
