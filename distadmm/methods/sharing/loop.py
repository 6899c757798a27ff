"""The one loop of ADMM sharing: penalty, proximal weight, stopping, and the signs of divergence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.methods.sharing import admm, stability
from distadmm.methods.sharing.masks import Collector, InClear, Masked
from distadmm.problems.columns import Columns
from distadmm.ranks.star import Star

Array = np.ndarray

FORMS = ("corrected", "paper", "averaged", "gauss-seidel")
THETA = 0x5448455441  # purpose of the power iteration's start

_GO, _CONVERGED, _FAILED = 0.0, 1.0, 2.0


@dataclass(frozen=True)
class Plan:
    """How to iterate.

    `corrected` is the parallel form with its proximal weight, `paper` Algorithm 1 to the letter (tau = 0,
    all zeros at the start, two vectors down), `averaged` Boyd's, `gauss-seidel` one party after another.
    """

    form: str = "corrected"
    rho: float | None = None  # the penalty; with the curvature rule only its start
    curvature_rule: bool = True
    tau: float | None = None  # None: from theta
    theta: float | str = "auto"  # "power", "bound" (theta = M), a number; auto: the bound for M = 2
    iterations: int = 100
    tolerance: float = 1e-4
    seed: int = 0
    masked: bool = False  # hide the parties' single vectors from the centre

    def __post_init__(self) -> None:
        require(
            not self.masked or self.form in ("corrected", "paper"),
            f"--form {self.form} needs each party's vector by itself; --secure-aggregation shows the centre their sum",
        )
        require(
            not self.masked or self.theta != "power",
            "--theta power shows the centre single vectors; use --theta bound",
        )
        require(self.form in FORMS, f"--form is {self.form!r}; choose one of: {', '.join(FORMS)}")
        require(self.rho is None or self.rho > 0, f"--rho is {self.rho}; needed: a penalty > 0")
        require(self.tau is None or self.tau >= 0, f"--tau is {self.tau}; needed: a proximal weight >= 0")
        require(self.iterations >= 1, f"--iterations is {self.iterations}; needed: at least 1")
        require(self.tolerance >= 0, f"--tolerance is {self.tolerance:g}; needed: a tolerance >= 0")
        if isinstance(self.theta, str):
            require(
                self.theta in ("auto", "power", "bound"),
                f"--theta is {self.theta!r}; needed: auto, power, bound, or a number",
            )


class Outcome(NamedTuple):
    """Where a run ended; the same on every rank, but for the state."""

    state: admm.State
    iterations: int
    converged: bool
    failure: str | None  # why it did not converge and what to do; None while all is well
    theta: float | None  # the overlap of the parties, where it was needed
    tau: float


Observer = Callable[[int, admm.State], None]


def run(
    star: Star,
    blocks: Mapping[int, Columns],
    labels: Array | None,
    problem: admm.Problem,
    plan: Plan,
    rows: int,
    *,
    observe: Observer | None = None,
    release: admm.Release | None = None,
) -> Outcome:
    """Iterate to the tolerance or the last iteration; called by every rank with what it holds."""
    collector: Collector = Masked(star, rows) if plan.masked else InClear(star, rows)
    theta, tau = _weight(star, blocks, plan, rows)
    paper = plan.form == "paper"
    state = admm.start(star, blocks, labels, problem, plan.rho or _FIRST_RHO, from_zero=paper)
    watch = stability.Watch() if release is None else None
    verdict, failure, t = _GO, None, 0
    state = _announce(star, state, problem, plan, labels, 0, _GO)[0]
    while t < plan.iterations and verdict == _GO:
        before = state.total
        state = _step(star, blocks, labels, problem, plan, state, t, tau, rows, release, collector)
        t += 1
        if star.is_centre:
            verdict, failure = _judge(state, before, plan, watch)
        state, verdict = _announce(star, state, problem, plan, labels, t, verdict)
        if observe is not None:
            observe(t, state)
    if verdict == _FAILED:
        failure = _explain(star, state, problem, labels, theta, tau, failure)
    return Outcome(state, t, verdict == _CONVERGED, failure, theta, tau)


_FIRST_RHO = 0.1  # for losses without curvature; otherwise the curvature rule replaces it at once


def _weight(star: Star, blocks: Mapping[int, Columns], plan: Plan, rows: int) -> tuple[float | None, float]:
    """(theta, tau) of this plan; with masks theta is bounded, for power iteration would send single vectors."""
    M = star.parties
    if plan.form == "averaged":
        return None, M - 1.0
    if plan.form in ("paper", "gauss-seidel") or plan.tau is not None:
        return None, plan.tau or 0.0
    if isinstance(plan.theta, float):
        with star.world.together():
            require(
                1 <= plan.theta <= M, f"--theta is {plan.theta:g}; the overlap of {M} parties is in [1, {M}]"
            )
        return plan.theta, stability.proximal_weight(plan.theta)
    if plan.theta == "bound" or (plan.theta == "auto" and (M == 2 or plan.masked)):
        return float(M), stability.proximal_weight(M)
    seed = np.random.SeedSequence(entropy=plan.seed, spawn_key=(THETA, 0))
    theta = stability.overlap(star, blocks, rows, seed)
    return theta, stability.proximal_weight(theta)


def _step(
    star: Star,
    blocks: Mapping[int, Columns],
    labels: Array | None,
    problem: admm.Problem,
    plan: Plan,
    state: admm.State,
    t: int,
    tau: float,
    rows: int,
    release: admm.Release | None,
    collector: Collector,
) -> admm.State:
    if plan.form == "gauss-seidel":
        return admm.gauss_seidel(star, blocks, labels, problem, state, t, tau=tau, rows=rows)
    if plan.form == "averaged":
        return admm.averaged(star, blocks, labels, problem, state, t, rows=rows)
    return admm.jacobi(
        star, blocks, labels, problem, state, t,
        tau=tau, rows=rows, two_vectors=plan.form == "paper", release=release, collector=collector,
    )  # fmt: skip


def _announce(
    star: Star,
    state: admm.State,
    problem: admm.Problem,
    plan: Plan,
    labels: Array | None,
    t: int,
    verdict: float,
) -> tuple[admm.State, float]:
    """The centre tells all parties the penalty of the next iteration and whether there is one."""
    own = None
    if star.is_centre:
        rho = state.rho
        assert labels is not None
        if plan.curvature_rule and plan.form != "paper" and t in stability.CURVATURE_ROUNDS:
            rho = stability.curvature_penalty(problem.loss.curvature(state.z, labels), rho)
        own = np.array([rho, verdict])
    with star.counted_as("control"):
        told = star.down(own, 2, np.float64)
    told = own if own is not None else told
    return state._replace(rho=float(told[0])), float(told[1])


def _judge(
    state: admm.State, before: Array, plan: Plan, watch: stability.Watch | None
) -> tuple[float, str | None]:
    """Whether S and z agree, and S has come to rest, to the tolerance; or will not."""
    scale = max(float(np.linalg.norm(state.total)), float(np.linalg.norm(state.z)), 1e-300)
    primal = float(np.linalg.norm(state.total - state.z)) / scale
    moved = float(np.linalg.norm(state.total - before)) / scale
    if max(primal, moved) <= plan.tolerance:
        return _CONVERGED, None
    trouble = watch.see(primal) if watch is not None else None
    return (_FAILED, trouble) if trouble else (_GO, None)


def _explain(
    star: Star,
    state: admm.State,
    problem: admm.Problem,
    labels: Array | None,
    theta: float | None,
    tau: float,
    what: str | None,
) -> str | None:
    if not star.is_centre or labels is None:
        return "the centre stopped the run"
    curvature = float(np.nan_to_num(problem.loss.curvature(state.z, labels)).mean())
    return f"diverged: {what}; {stability.remedy(theta, star.parties, tau, state.rho, curvature)}"
