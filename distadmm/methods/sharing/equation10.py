"""The paper's equation (10) as it stands: x + N(0, sigma^2 (D'D)^+) is released through D.

This noise lives in the column space of D, which differs between neighbours: the supports are mutually singular and no
epsilon is finite.  Refuted; for comparison only.  Every message is entered as unbounded, with what the paper claims.

Its sigma is Theorem 1's for Lemma 1's sensitivity C = 3/(d rho) (lambda c1 + (1 + M rho) b1), where b1 bounds |x_m|,
|y| and |z| (Assumption 2.1).  That is looked at in every iteration, and the entry of a message says where it fails.
"""

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from distadmm.algorithm import Array, register
from distadmm.methods.sharing.admm import Problem, State
from distadmm.methods.sharing.jacobi import Paper
from distadmm.methods.sharing.seat import Seat
from distadmm.privacy.accounting.statements import EQUATION_10
from distadmm.problems.columns import Columns
from distadmm.structs import struct

NOISE = 0x45513130  # purpose of the noise
LARGEST = 1.0  # epsilon of an iteration that Theorem 1 speaks of


@register("equation-10", family="star")
@struct
class EquationTen(Paper):
    """Algorithm 1 to the letter with x_m + xi_m in place of x_m, xi_m ~ N(0, sigma^2 (D_m'D_m)^+)."""

    rho: float = 0.2
    tolerance: float = 0.0
    sigma: float | None = None  # None: Theorem 1's for `epsilon` an iteration
    epsilon: float | None = None
    delta: float = 1e-5
    bound: float = 1.0  # b1
    longest: tuple[float, str] = (0.0, "")  # of |x_m|, |y| and |z| before this iteration, and which
    purpose: int = NOISE

    watched: ClassVar[bool] = False

    def step(self, k: int, st: State, seat: Seat) -> State:
        lengths = {f"|x_{m}|": x for m, x in st.x.items()}
        if seat.labels is not None:
            lengths |= {"|y|": st.y, "|z|": st.z}
        longest = max((float(np.linalg.norm(v)), name) for name, v in lengths.items())
        if self.epsilon is not None:
            longest = max(seat.fabric.world.allgather(longest))
        return Paper.step(replace(self, longest=longest), k, st, seat)

    def answer(self, k: int, m: int, x: Array, seat: Seat) -> tuple[Array, Array]:
        block = seat.blocks[m]
        self.claim(k, m, seat)
        key = np.random.SeedSequence(entropy=self.seed, spawn_key=(self.purpose, m, k - 1))
        xi = degenerate_noise(block, self.level(block.width, seat), np.random.default_rng(key))
        return x + xi, block.apply(x) + block.apply(xi)

    def claim(self, k: int, m: int, seat: Seat) -> None:
        """What Theorem 1 says of this message, and Corollary 1 of all, and whether b1 holds so far."""
        length, name = self.longest
        if self.epsilon is None:
            seat.release.expose(k, m, f"{EQUATION_10}; of a --sigma the paper claims nothing")
        elif self.epsilon > LARGEST:
            seat.release.expose(k, m, f"{EQUATION_10}; Theorem 1 is for an epsilon of at most {LARGEST:g}")
        else:
            broken = f"; {name} exceeds b1 = {self.bound:g}, on which its noise rests"
            why = EQUATION_10 + ("" if length <= self.bound else broken)
            seat.release.expose(k, m, why, claimed=self.epsilon, adds="advanced", delta=self.delta)

    def level(self, width: int, seat: Seat) -> float:
        if self.sigma is not None:
            return self.sigma
        assert self.epsilon is not None
        sensitivity = claimed_sensitivity(width, seat.fabric.parties, seat.problem, self.rho, self.bound)
        return claimed_sigma(sensitivity, self.epsilon, self.delta)


def claimed_sensitivity(width: int, parties: int, problem: Problem, rho: float, bound: float = 1.0) -> float:
    """Lemma 1's C; it does not bound anything (see docs/sharing.md)."""
    return 3.0 / (width * rho) * (problem.lam * problem.reg.l2 + (1.0 + parties * rho) * bound)


def claimed_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    return math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon


def degenerate_noise(block: Columns, sigma: float, stream: np.random.Generator) -> Array:
    """xi ~ N(0, sigma^2 (D'D)^+): the pseudo-inverse, since D'D is singular on one-hot columns."""
    e, V = block.spectrum
    return V @ (sigma * stream.standard_normal(e.size) / np.sqrt(e))
