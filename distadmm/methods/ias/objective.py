"""The objective of eq. (1), its two terms and its gradient, for a whole batch of mappings at once.

A mapping is P[..., y, u] = p(u|y).  Every mapping of a batch is computed as if it were alone: the same
bits, whatever else is in the batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distadmm.methods.ias.inference import Inference
from distadmm.methods.ias.measures import Array, Measure

CACHED = 32_768  # numbers of one mapping worked on at a time


class Value(NamedTuple):
    F: Array  # I - beta E
    I: Array  # I(S;U)
    E: Array  # E[d(y,u)]
    g: Array  # the gradient: dF/dp(u|y) = p(y) g


class Objective(NamedTuple):
    """F[P_{U|Y}] = I(S;U) - beta E[d], with what it needs of the problem laid out for the batch."""

    problem: Inference
    measure: Measure
    beta: float

    def __call__(self, P: Array) -> Value:
        problem = self.problem
        S = len(problem.P_S)
        pushed = np.matmul(np.vstack([problem.joint, problem.P_Y]), P)
        joint, a = pushed[..., :S, :], pushed[..., S, :]
        log_ratio = np.log(joint / (problem.P_S[:, None] * a[..., None, :]))  # log p(s|u)/p(s)
        h, mean_h, mean_f1 = self._leakage(P, a)
        I = (joint * log_ratio).sum(-2).sum(-1)
        E = (mean_h + a * mean_f1).sum(-1)  # x f = x h + a f'
        h += mean_f1[..., None, :]
        h *= -self.beta
        h += np.matmul(problem.A.T, log_ratio)
        return Value(I - self.beta * E, I, E, h)

    def _leakage(self, P: Array, a: Array) -> tuple[Array, Array, Array]:
        """h(t), sum_y p(y) p(u|y) h and sum_y p(y) f'(t), so many rows y at a time as stay in the cache."""
        p, measure, rows = self.problem.P_Y, self.measure, P.shape[-2]
        block = max(1, CACHED // P.shape[-1])
        h, mean_h, mean_f1 = np.empty(P.shape), np.zeros(a.shape), np.zeros(a.shape)
        for first in range(0, rows, block):
            part = slice(first, first + block)
            t = a[..., None, :] / P[..., part, :]
            h[..., part, :] = measure.h(t)
            mean_f1 += np.matmul(p[part], measure.f1(t))
            mean_h += np.matmul(p[part], P[..., part, :] * h[..., part, :])
        return h, mean_h, mean_f1


def marginals(problem: Inference, P: Array) -> tuple[Array, Array]:
    """P_U and P_{S|U} (one column per u) of eqs. (3) and (4)."""
    a = np.matmul(problem.P_Y, P)
    return a, np.matmul(problem.joint, P) / a[..., None, :]


def project_entropic(P: Array, eps: float) -> Array:
    """The row-stochastic matrix with entries >= eps nearest to P >= 0 in Kullback-Leibler divergence.

    It is max(eps, tau P) with the row's tau: the entries held at eps only grow in number.
    """
    if eps * P.shape[-1] >= 1 - 1e-12:  # one mapping alone is allowed
        return np.full(P.shape, 1 / P.shape[-1])
    tau = 1 / P.sum(-1, keepdims=True)
    scaled = tau * P
    if scaled.min(initial=1.0) >= eps:  # nothing to hold: the same bits as below
        return scaled
    held = np.zeros(P.shape, dtype=bool)
    while True:
        more = (tau * P < eps) & ~held
        if not more.any():
            return np.where(held, eps, tau * P)
        held |= more
        tau = (1 - eps * held.sum(-1, keepdims=True)) / np.where(held, 0.0, P).sum(-1, keepdims=True)


def random_starts(
    problem: Inference, K: int, eps: float, seed: int, indices: Sequence[int], kind: str = "sparse"
) -> Array:
    """Starts number `indices`; each depends on the seed and its number alone.

    `uniform`: uniform random numbers, normalised, as in the paper.  `sparse`: Dirichlet rows of weight 0.1,
    most of a row on one u.  Where beta is near the range in which every mapping is trivial, uniform starts
    all fall to the trivial one; sparse ones come from the other side.
    """
    P = np.empty((len(indices), len(problem.P_Y), K))
    for row, index in enumerate(indices):
        rng = np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(0, index)))
        if kind == "uniform":
            P[row] = rng.random(P[row].shape)
        else:
            P[row] = rng.dirichlet(np.full(K, 0.1), size=len(problem.P_Y))
    return project_entropic(P, eps)
