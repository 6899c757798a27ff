"""The paper's equation (10) as it stands: x + N(0, sigma^2 (D'D)^+) is released through D.

This noise lives in the column space of D, which differs between neighbours: the supports are mutually singular and no
epsilon is finite.  Refuted; for comparison only.  Every message is entered as unbounded, with what the paper claims.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from distadmm.algorithm import register
from distadmm.methods.sharing.admm import Problem
from distadmm.methods.sharing.jacobi import Paper
from distadmm.methods.sharing.seat import Seat
from distadmm.problems.columns import Columns
from distadmm.structs import struct

Array = np.ndarray

NOISE = 0x45513130  # purpose of the noise
REFUTED = (
    "claimed by the paper, refuted: the noise lies in the column space of D, which differs between neighbours, so one "
    "message can tell them apart (delta = 1); and Lemma 1, which scales it, is false"
)


@register("equation-10", family="star")
@struct
class EquationTen(Paper):
    """Algorithm 1 to the letter with x_m + xi_m in place of x_m, xi_m ~ N(0, sigma^2 (D_m'D_m)^+)."""

    rho: float = 0.2
    tolerance: float = 0.0
    sigma: float | None = None  # None: Theorem 1's for `epsilon` an iteration
    epsilon: float | None = None
    delta: float = 1e-5
    purpose: int = NOISE

    watched: ClassVar[bool] = False

    def answer(self, k: int, m: int, x: Array, seat: Seat) -> tuple[Array, Array]:
        block = seat.blocks[m]
        claim = corollary(self.epsilon, k, self.delta) if self.epsilon else None
        seat.release.expose(k, m, REFUTED, claim)
        key = np.random.SeedSequence(entropy=self.seed, spawn_key=(self.purpose, m, k - 1))
        level = self.level(block.width, seat.fabric.parties, seat.problem)
        xi = degenerate_noise(block, level, np.random.default_rng(key))
        return x + xi, block.apply(x) + block.apply(xi)

    def level(self, width: int, parties: int, problem: Problem) -> float:
        if self.sigma is not None:
            return self.sigma
        assert self.epsilon is not None
        return claimed_sigma(claimed_sensitivity(width, parties, problem, self.rho), self.epsilon, self.delta)


def claimed_sensitivity(width: int, parties: int, problem: Problem, rho: float, bound: float = 1.0) -> float:
    """Lemma 1's C = 3/(d rho) (lambda c1 + (1 + M rho) b1); it does not bound anything (see docs/sharing.md)."""
    return 3.0 / (width * rho) * (problem.lam * problem.reg.l2 + (1.0 + parties * rho) * bound)


def claimed_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Theorem 1's sigma of one iteration."""
    return math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon


def corollary(epsilon: float, rounds: int, delta: float) -> float:
    """Corollary 1's epsilon of all iterations, with delta' = delta."""
    return math.sqrt(2.0 * rounds * math.log(1.0 / delta)) * epsilon + rounds * epsilon * math.expm1(epsilon)


def degenerate_noise(block: Columns, sigma: float, stream: np.random.Generator) -> Array:
    """xi ~ N(0, sigma^2 (D'D)^+): the pseudo-inverse, since D'D is singular on one-hot columns."""
    e, V = block.spectrum
    return V @ (sigma * stream.standard_normal(e.size) / np.sqrt(e))
