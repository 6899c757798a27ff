"""A designed mapping, with everything known about it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from distadmm.data.mapping import Mapping
from distadmm.errors import require
from distadmm.methods.ias.certificate import Certificate
from distadmm.methods.ias.certificate import certify as certified
from distadmm.methods.ias.inference import Inference
from distadmm.methods.ias.measures import Measure, measure
from distadmm.methods.ias.multistart import BATCHED, Method, search
from distadmm.methods.ias.objective import Array, Objective, project_entropic
from distadmm.ranks.world import World

EPS = 1e-12
STARTS = ("sparse", "uniform")


@dataclass(frozen=True, eq=False)
class Design:
    problem: Inference
    measure: str
    beta: float
    eps: float
    method: str
    P: Array  # p(u|y)
    F: float  # I - beta E
    I: float  # I(S;U)
    E: float  # E[d(y,u)]
    F_starts: Array  # what each start reached on its own
    iterations: Array  # of each start
    converged: Array  # of each start
    newton_steps: int  # of polishing the best starts
    certificate: Certificate | None
    beta_loc: float

    @property
    def mapping(self) -> Mapping:
        """The mapping to use: symbols by falling probability, unused ones left out."""
        p = self.problem
        return Mapping(self.P, p.values, p.P_Y, p.name, p.A).compact()

    @property
    def used(self) -> int:
        """How many symbols u are in use."""
        return int((self.problem.P_Y @ (self.P - self.eps) > 1e-6).sum())


def check_sizes(beta: float, K: int, eps: float) -> None:
    require(np.isfinite(beta) and beta > 0, f"beta is {beta:g}; needed a finite number above 0")
    require(K >= 1, f"|U| is {K}; needed at least 1")
    require(
        0 < eps <= 1 / K,
        f"eps is {eps:g}; needed 0 < eps <= 1/|U| = {1 / K:.6g}, or the rows cannot sum to one",
    )


def solve(
    problem: Inference,
    f: str | Measure = "mi",
    beta: float = 0.4,
    u_size: int | None = None,
    *,
    eps: float = EPS,
    method: str | Method = "gba",
    restarts: int | None = None,
    starts: str = "sparse",
    polish: bool | None = None,
    certify: bool = False,
    seed: int = 0,
    world: World | None = None,
) -> Design | None:
    """The best mapping p(u|y) found for I(S;U) - beta E[d]; with `certify`, the global optimum and its bound.

    On a `world` of several ranks the starts are shared out; the result is on rank 0, None elsewhere.
    """
    K = len(problem.P_Y) if u_size is None else u_size
    check_sizes(beta, K, eps)
    require(starts in STARTS, f"starts is {starts!r}; choose one of: {', '.join(STARTS)}")
    method = Method(method) if isinstance(method, str) else method
    if restarts is None:
        restarts = 20 if method.name in BATCHED else 1
    require(restarts >= 1, f"restarts is {restarts}; needed at least 1")
    objective = Objective(problem, measure(f), float(beta))
    polished = method.name == "gba" if polish is None else polish
    how: dict[str, Any] = {"method": method, "starts": starts, "polished": polished, "world": world}
    found = search(objective, K, eps, restarts=restarts, seed=seed, **how)
    if found is None:
        return None
    P, report = project_entropic(found.P, eps), None
    if certify:
        P, report = certified(objective, P, eps, seed=seed)
    P = P / P.sum(1, keepdims=True)
    F, I, E = (float(value) for value in objective(P)[:3])
    beta_loc = problem.rho_m2 / objective.measure.curvature_at_one
    known = problem, objective.measure.name, objective.beta, eps, method.name
    return Design(*known, P, F, I, E, *found[2:], report, beta_loc)
