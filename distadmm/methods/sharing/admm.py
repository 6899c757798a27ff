"""ADMM sharing between a centre and parties: what all forms of it have in common.

With S = sum_m v_m + b, the latest v_m = D_m x_m that the centre has been sent, a form says how the parties get from
S - z and y to new x_m; the centre goes on with

    z     = argmin l(z) - <y, z> + rho/2 |S - z|^2                      (7)
    y     = y + rho (S - z)                                             (8)

and tells all parties, in two numbers, the penalty of the next iteration and whether there is one.  The intercept b is
the centre's own unpenalised column of ones and is updated like a party's model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from distadmm.errors import number, require
from distadmm.flags import flag
from distadmm.methods.sharing import stability, stationary
from distadmm.problems.columns import Columns, minimise
from distadmm.problems.losses import Array, Loss, least_curvature
from distadmm.problems.prox import prox
from distadmm.problems.regularisers import Region, Regulariser, Whole
from distadmm.structs import struct

if TYPE_CHECKING:
    from distadmm.methods.sharing.seat import Seat

RIDGE, WHOLE = Regulariser(0.0, 1.0), Whole()
THETA = 0x5448455441  # purpose of the power iteration's start
GO, CONVERGED, FAILED = 0.0, 1.0, 2.0
FIRST_RHO = 0.1  # for losses without curvature; otherwise the curvature rule replaces it at once

_NOTHING = np.empty(0)


@struct
class Problem:
    """min_x  sum_i l(sum_m D_m^i x_m + b; y_i) + lam sum_m R(x_m),  x_m in X."""

    loss: Loss
    lam: float = 1.0
    reg: Regulariser = RIDGE
    region: Region = WHOLE
    intercept: bool = False

    @property
    def loss_convex(self) -> bool:
        return least_curvature(self.loss) == 0

    @property
    def convex(self) -> bool:
        return self.loss_convex and not self.reg.folded


class State(NamedTuple):
    """What this rank knows after an iteration; the centre's arrays are empty on other ranks."""

    x: dict[int, Array]  # the models of the parties hosted here
    v: dict[int, Array]  # their predictions, as last sent
    total: Array  # S, the sum of all predictions at the centre
    z: Array  # the centre's predictions
    y: Array  # the dual, the slope of the loss at z
    b: float  # the centre's intercept
    rho: float  # the penalty of the next iteration
    heard: dict[int, Array]  # gauss-seidel: v_m as the centre last heard it
    residuals: Array  # |S - z| of each iteration, as a share of the predictions; at the centre
    tau: float  # the proximal weight
    theta: float  # the overlap of the parties it comes from; NaN where none was needed
    verdict: float  # the centre's: go on, converged, failed


@struct
class Form:
    """The flags of every form, its start, and what the centre says after each iteration."""

    rho: float | None = flag(None, help="penalty; fixed when given (default: the curvature rule)", above=0)
    rho_rule: str = flag(
        "auto",
        help="how rho is set; auto: by the curvature rule, unless --penalty-rho fixes it",
        choices=("auto", "fixed", "curvature"),
    )
    tau: float | None = flag(
        None, help="tau: weight of the proximal term (default: 3/4 * 1.02 theta - 1)", at_least=0
    )
    theta: str = flag("auto", help="overlap of the parties: auto, power, bound or a number in [1, M]")
    tolerance: float = flag(
        1e-4, help="stop when residual and movement are below this share of the predictions", at_least=0
    )
    seed: int = 0

    from_zero: ClassVar[bool] = False  # start at z = y = 0 in place of the best constant
    masks: ClassVar[bool] = True  # works on the sum of the parties' vectors alone
    watched: ClassVar[bool] = True  # divergence is looked for

    def __post_init__(self) -> None:
        require(
            self.theta in ("auto", "power", "bound") or not np.isnan(number(self.theta)),
            f"--theta is {self.theta!r}; needed: auto, power, bound, or a number",
        )

    def init(self, seat: Seat) -> State:
        theta, tau = self.weight(seat)
        st = start(seat, self.penalty(seat.problem), tau, theta, from_zero=self.from_zero)
        return self.tell(0, st, seat)

    def penalty(self, problem: Problem, scale: float = 1.0) -> float:
        """The first; of a loss that is not convex the only one, for the curvature rule would go below L."""
        if problem.loss_convex:
            return self.rho or FIRST_RHO
        require(
            self.rho_rule != "curvature",
            "--rho-rule curvature lowers the penalty below L, which a loss that is not convex needs; leave it out",
        )
        return stationary.penalty(problem.loss, self.rho, scale)

    def weight(self, seat: Seat) -> tuple[float, float]:
        """(theta, tau); with masks theta is bounded, for power iteration would send single vectors."""
        M = seat.fabric.parties
        if self.tau is not None:
            return np.nan, self.tau
        if not np.isnan(theta := number(self.theta)):
            with seat.fabric.world.together():
                require(1 <= theta <= M, f"--theta is {theta:g}; the overlap of {M} parties is in [1, {M}]")
        elif self.theta == "bound" or (self.theta == "auto" and (M == 2 or seat.masked)):
            theta = float(M)
        else:
            key = np.random.SeedSequence(entropy=self.seed, spawn_key=(THETA, 0))
            for m in seat.blocks:
                seat.release.expose(0, m)
            theta = stability.overlap(seat.fabric, seat.blocks, seat.rows, key)
        return theta, stability.proximal_weight(theta)

    def judge(self, k: int, before: State, st: State, seat: Seat) -> State:
        """The centre sees whether S and z agree, and S has come to rest, to the tolerance; or will not."""
        if seat.fabric.is_centre:
            scale = max(float(np.linalg.norm(st.total)), float(np.linalg.norm(st.z)), 1e-300)
            primal = float(np.linalg.norm(st.total - st.z)) / scale
            moved = float(np.linalg.norm(st.total - before.total)) / scale
            residuals, verdict = np.append(before.residuals, primal), GO
            if max(primal, moved) <= self.tolerance:
                verdict = CONVERGED
            elif self.watched and stability.trouble(residuals):
                verdict = FAILED
            st = st._replace(residuals=residuals, verdict=verdict)
        return self.tell(k, st, seat)

    def tell(self, k: int, st: State, seat: Seat) -> State:
        """The centre tells all parties the penalty of the next iteration and whether there is one."""
        rho = st.rho
        curved = self.rho_rule == "curvature" or (self.rho_rule == "auto" and self.rho is None)
        curved = curved and seat.problem.loss_convex
        if seat.labels is not None and curved and k in stability.CURVATURE_ROUNDS:
            rho = stability.curvature_penalty(seat.problem.loss.curvature(st.z, seat.labels), rho)
        rho, verdict = seat.tell(rho, st.verdict)
        return st._replace(rho=rho, verdict=verdict)

    def ended(self, st: State) -> str:
        """Why there is no further iteration; empty while there is."""
        return {CONVERGED: "converged", FAILED: "divergence"}.get(st.verdict, "")

    def explain(self, st: State, seat: Seat) -> str | None:
        """Of a run that failed: what is wrong and what to do, in numbers; known to the centre alone."""
        if st.verdict != FAILED:
            return None
        if seat.labels is None:
            return "the centre stopped the run"
        curvature = float(np.nan_to_num(seat.problem.loss.curvature(st.z, seat.labels)).mean())
        remedy = stability.remedy(st.theta, seat.fabric.parties, st.tau, st.rho, curvature)
        return f"diverged: {stability.trouble(st.residuals)}; {remedy}"


def start(
    seat: Seat, rho: float, tau: float = 0.0, theta: float = np.nan, *, from_zero: bool = False
) -> State:
    """x = 0; `from_zero` also z = y = 0 (the paper's start), else z = b, y = l'(b) of the best constant b.

    Of a loss that is not convex b = 0: the best constant may lie where it is flat, and nothing leads away from there.
    """
    problem, labels = seat.problem, seat.labels
    x = {m: np.zeros(block.width) for m, block in seat.blocks.items()}
    v = {m: np.zeros(block.rows) for m, block in seat.blocks.items()}
    z, y, b = _NOTHING, _NOTHING, 0.0
    if labels is not None:
        if problem.intercept and problem.loss_convex and not from_zero:
            b = best_constant(problem.loss, labels)
        z = np.full(labels.size, b)
        y = np.zeros(labels.size) if from_zero else problem.loss.slope(z, labels)
    return State(x, v, z, z, y, b, rho, {}, _NOTHING, tau, theta, GO)  # S = b: no party predicts anything yet


def best_constant(loss: Loss, labels: Array) -> float:
    """The constant prediction of least loss, by bisection on the slope; 0 where there is none."""

    def slope(b: float) -> float:
        return loss.slope(np.full(labels.size, b), labels).sum()

    low, high = -1.0, 1.0
    while slope(high) < 0 and high < 64:
        low, high = high, 2 * high
    while slope(low) > 0 and low > -64:
        low, high = 2 * low, low
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return 0.5 * (low + high)


def update_party(
    block: Columns, problem: Problem, x: Array, v: Array, q: Array, rho: float, tau: float
) -> Array:
    """(6): the next model of the party that holds `block` and last sent v."""
    w = v - q / (1.0 + tau)
    return minimise(block, w, rho * (1.0 + tau), problem.lam, problem.reg, problem.region, x)


def update_centre(problem: Problem, labels: Array, st: State, total: Array) -> tuple[Array, Array]:
    """(7) and (8): the next z and y, given the sum of what the parties sent."""
    z = prox(problem.loss, labels, st.rho, total + st.y / st.rho, st.z)
    return z, st.y + st.rho * (total - z)


def gather(
    k: int, st: State, seat: Seat, x: dict[int, Array], v: dict[int, Array], q: Array, weight: float
) -> State:
    """What the parties here sent reaches the centre, which goes on with (7) and (8); 1 + tau is the `weight`."""
    total, v = seat.collect(k, v)
    st = st._replace(x=x, v=v)
    if seat.labels is None:
        return st
    b = st.b - float(q.mean()) / weight if seat.problem.intercept else 0.0
    total = total + b
    z, y = update_centre(seat.problem, seat.labels, st, total)
    return st._replace(total=total, z=z, y=y, b=b)
