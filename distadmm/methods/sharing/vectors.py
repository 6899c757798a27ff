"""N-vector messages under noise: S1, S2 and S3.

    q   = S - z + y/rho                                                centre -> parties
    w_m = v_m - q / (1 + tau)                                          of RELEASED values alone
    x_m = argmin_{X_m} lambda R(x_m) + rho(1+tau)/2 |D_m x_m - w_m|^2
    v_m = D_m x_m under noise, released (never D_m x_m itself)         parties -> centre

and z and y as in (7) and (8).

S1, a whole party (or column) protected: any D, any convex R that is least at 0 in X.  v lies in the ball of centre
    w/2 and radius |w|/2; projecting on it first makes Delta = |w| hold for any solver.  Noise N(0, s^2 |w|^2 I).

S2, one record's features protected: rows |phi| <= R, models in a ball r, w cut to [-W, W] entry by entry, the
    message to [-B, B], kappa = lambda l2 / (rho (1 + tau)), E = R r + W:
        Delta^2 = (E R)^2 / kappa + (2 min(B, R r))^2      of the constrained minimiser, not one projected afterwards

S3: S2 where party 1 is the centre, so that its own predictions need no noise.  It protects the others from
    party 1, not the reverse.

The proofs: docs/proofs/sharing-vectors.md.  A noisy vector is shrunk by 1 - sigma^2/variance before it is sent, which
costs nothing.

Invariants that guard privacy
-----------------------------
* No centring, no power iteration, no adaptive penalty: theta is bounded by M, every constant is public.
* The model itself, and scores from it, are not covered by S1, S2 or S3.
"""

import math
from typing import Any, ClassVar

import numpy as np

from distadmm.algorithm import Array, register
from distadmm.errors import Unsolved, require
from distadmm.flags import flag
from distadmm.methods.sharing.admm import Problem, State, gather, start
from distadmm.methods.sharing.moments import Bounds, Rows
from distadmm.methods.sharing.release import Release
from distadmm.methods.sharing.seat import Seat
from distadmm.privacy.noise.queries import Query, noise_for
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.regularisers import Ball, Region
from distadmm.structs import struct

_SHORTEST = 1e-100  # of what a party is pulled to: squares of less have no digits left
SOLVED = 1e-6  # share of the sensitivity that an inexact x-update may add; it is part of the charge


@register("s1", family="star")
@struct
class S1:
    """A whole party protected; the flags that all three have."""

    rho: float = flag(0.2, help="penalty", above=0)
    tau: float = flag(0.0, help="proximal weight", at_least=0)

    first: ClassVar[int] = 1  # the first party that releases
    by_row: ClassVar[bool] = False  # one record is protected, so rows are cut to a public norm

    def region(self, asked: Region) -> Region:
        """Where models are kept."""
        return asked

    def columns(self, matrix: Any, row: float) -> Columns:
        """Nothing is centred."""
        return Columns(matrix)

    def sensitivity(self, problem: Problem, row: float) -> float:
        """Of one message; S1's is relative to |w|."""
        return 1.0

    def query(
        self, problem: Problem, row: float, rows: int, mode: str, mu: float | None, rounds: int
    ) -> Query:
        """One round's release by a party whose rows are no longer than `row`; `mu` is for all rounds."""
        sensitivity = self.sensitivity(problem, row)
        return Query(noise_for(sensitivity, mu, mode, rows, rounds) if mu else 0.0, sensitivity, rows)

    def init(self, seat: Seat) -> State:
        return start(seat, self.rho, self.tau)

    def step(self, k: int, st: State, seat: Seat) -> State:
        problem, c = seat.problem, self.rho * (1.0 + self.tau)
        seat.release.afford(k, seat.fabric.world)
        q = seat.down(st.total - st.z + st.y / st.rho)
        x, v = {}, {}
        for m, block in seat.blocks.items():
            w = st.v[m] - q / (1.0 + self.tau)
            if m >= self.first:
                x[m], v[m] = self.answer(k, m, block, problem, st.x[m], w, seat.release)
            else:  # S3's party 1, which sends nothing
                x[m] = minimise(block, w, c, problem.lam, problem.reg, problem.region, st.x[m])
                v[m] = block.apply(x[m])
        return gather(k, st, seat, x, v, q, 1.0 + self.tau)  # (7), (8)

    def answer(
        self, k: int, m: int, block: Columns, problem: Problem, x: Array, w: Array, release: Release
    ) -> tuple[Array, Array]:
        """(x, the released vector) of party m; w is made of released values."""
        x = minimise(block, w, self.rho * (1.0 + self.tau), problem.lam, problem.reg, problem.region, x)
        size = float(np.linalg.norm(w))
        if not _SHORTEST < size < 1 / _SHORTEST:  # every world answers 0
            release.free(k, m)
            return x, np.zeros(block.rows)
        return x, size * shrink(*release.noisy(k, m, into_half_ball(block.apply(x), w) / size))


@register("s2", family="star")
@struct
class S2(S1):
    """One record's features protected."""

    radius: float = flag(
        2.0, help="s2, s3: each model is kept in a ball of this radius", at_least=1e-50, at_most=1e50
    )
    pull: float = flag(
        7.0, help="s2, s3: what a party is pulled to is cut to this", at_least=1e-50, at_most=1e50
    )
    message_norm: float = flag(2.0, help="s2, s3: messages are cut to this", at_least=1e-50, at_most=1e50)

    by_row: ClassVar[bool] = True

    def region(self, asked: Region) -> Region:
        return Ball(self.radius)

    def columns(self, matrix: Any, row: float) -> Columns:
        return Columns(Rows(matrix, Bounds(row, 1.0, 1.0)).matrix)

    def sensitivity(self, problem: Problem, row: float) -> float:
        kappa = problem.lam * problem.reg.l2 / (self.rho * (1.0 + self.tau))
        require(kappa > 0, "S2 and S3 need --lambda above 0 and a regulariser with an l2 part")
        require(problem.reg.l1 == 0, "S2 and S3 are proved for --reg l2")
        reach = row * self.radius
        others = (reach + self.pull) * row / math.sqrt(kappa)
        return math.hypot(others, 2.0 * min(self.message_norm, reach)) * (1.0 + 2.0 * SOLVED)

    def answer(
        self, k: int, m: int, block: Columns, problem: Problem, x: Array, w: Array, release: Release
    ) -> tuple[Array, Array]:
        w = np.clip(w, -self.pull, self.pull)
        x = minimise(block, w, self.rho * (1.0 + self.tau), problem.lam, problem.reg, problem.region, x)
        self.certify(m, block, problem, x, w, release.queries[m].sensitivity)
        return x, shrink(*release.noisy(k, m, np.clip(block.apply(x), -self.message_norm, self.message_norm)))

    def certify(
        self, m: int, block: Columns, problem: Problem, x: Array, w: Array, sensitivity: float
    ) -> None:
        """The x-update is solved so well that its predictions are off by SOLVED * Delta at most, or nothing is sent.

        For a strongly convex objective of modulus m and Lipschitz constant L the distance to the minimiser is
        at most (1 + L/m) times that to the next projected gradient step.
        """
        assert isinstance(problem.region, Ball)
        c, modulus = self.rho * (1.0 + self.tau), problem.lam * problem.reg.l2
        top = float(np.sqrt(block.spectrum[0][-1]))
        lipschitz = c * top**2 + modulus
        step = x - (c * block.adjoint(block.apply(x) - w) + modulus * x) / lipschitz
        norm = float(np.linalg.norm(step))
        step *= min(1.0, problem.region.radius / max(norm, 1e-300))
        error = top * (1.0 + lipschitz / modulus) * float(np.linalg.norm(x - step))
        if not error <= SOLVED * sensitivity:  # nor a NaN
            raise Unsolved(
                f"an x-update of party {m} was not solved to the accuracy its privacy needs, and not sent; what was "
                "sent before stands in the ledgers; choose another --loss or --penalty-rho"
            )


@register("s3", family="star")
@struct
class S3(S2):
    """S2 with party 1 as the centre, which releases nothing."""

    first: ClassVar[int] = 2


def into_half_ball(v: Array, w: Array) -> Array:
    """The nearest point to v of the ball with centre w/2 and radius |w|/2."""
    centre = 0.5 * w
    away, radius = v - centre, 0.5 * float(np.linalg.norm(w))
    distance = float(np.linalg.norm(away))
    return v if distance <= radius else centre + away * (radius / distance)


def shrink(message: Array, sigma: float) -> Array:
    """A noisy vector scaled by the share of its variance that is not noise."""
    variance = float(np.mean(message**2))
    return message * max(0.0, 1.0 - sigma**2 / variance) if variance > 0 else message
