"""One problem, one method, many starts: dealt out to the ranks, the best of them polished.

Start i depends on the seed and i alone, and a mapping's ascent on nothing else in its batch, so the result is
the same bits for any number of ranks.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distadmm.errors import require
from distadmm.methods.ias import admm, bregman, cccp, ga, gba
from distadmm.methods.ias.objective import Array, Objective, project_entropic, random_starts
from distadmm.methods.ias.polish import LARGEST, Polished, polish
from distadmm.ranks.world import World

METHODS = ("gba", "admm", "bregman", "ga", "cccp")
BATCHED = ("gba", "ga")  # the others solve inner problems whose number of steps differs from start to start
POLISHED = 4  # the best starts, that are climbed to the optimum


@dataclass(frozen=True)
class Method:
    name: str = "gba"
    iterations: int | None = None  # of its outer loop; None: the method's own default
    tolerance: float | None = None
    adaptive: bool = True  # gba: longer steps than the proved one, undone when F drops
    rho: float = 1.0  # admm, bregman
    tau: float = 10.0  # bregman
    alpha: float = 0.05  # ga
    projection: str = "euclidean"  # ga
    sign: float = admm.CORRECTED  # admm
    jacobi: bool = False  # admm
    inner: int | None = None  # admm, bregman: inner steps per outer step, at most

    def __post_init__(self) -> None:
        require(self.name in METHODS, f"method is {self.name!r}; choose one of: {', '.join(METHODS)}")

    def ascend(self, objective: Objective, P: Array, eps: float) -> gba.Ascent:
        """Climb from every mapping of the batch P[start, y, u]."""
        asked = {"iterations": self.iterations, "tolerance": self.tolerance}
        given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        if self.name == "gba":
            return gba.ascend(objective, P, eps, adaptive=self.adaptive, **given)
        if self.name == "ga":
            return ga.ascend(objective, P, eps, alpha=self.alpha, projection=self.projection, **given)
        return _stack([self._one(objective, start, eps, given) for start in P])

    def _one(self, objective: Objective, P: Array, eps: float, given: dict[str, Any]) -> gba.Ascent:
        if self.name == "cccp":
            return cccp.ascend(objective, P[None], eps, **given)
        given = {**given, "rho": self.rho}
        if self.inner is not None:
            given["inner"] = self.inner
        if self.name == "bregman":
            return bregman.ascend(objective, P[None], eps, tau=self.tau, **given)
        spelled = {"iterations": "outer", "tolerance": "eta"}
        given = {spelled.get(name, name): value for name, value in given.items()}
        run = admm.run(objective, P, eps, sign=self.sign, jacobi=self.jacobi, **given)
        P = run.state.P
        return gba.Ascent(P, objective(P).F, np.array([run.inner]), np.array([run.converged]), [])


def _stack(runs: list[gba.Ascent]) -> gba.Ascent:
    P, F, iterations, converged = map(np.concatenate, zip(*(run[:4] for run in runs)))
    return gba.Ascent(P, F, iterations, converged, [])


class Found(NamedTuple):
    P: Array  # (|Y|, |U|)
    F: float
    F_starts: Array  # F of every start, before polishing
    iterations: Array  # of every start
    converged: Array  # of every start
    newton_steps: int  # of the polishing


def search(
    objective: Objective,
    K: int,
    eps: float,
    *,
    method: Method,
    restarts: int = 20,
    starts: str = "sparse",
    seed: int = 0,
    polished: bool = True,
    world: World | None = None,
) -> Found | None:
    """The best mapping found from `restarts` starts, on rank 0; None on the others."""
    world = world or World()
    size = len(objective.problem.P_Y) * K

    def climb(indices: range) -> gba.Ascent:
        P = random_starts(objective.problem, K, eps, seed, indices, starts)
        return method.ascend(objective, P, eps)

    parts = [range(rank, restarts, world.size) for rank in range(min(world.size, restarts))]
    climbed = world.share_out(climb, parts)
    if climbed is not None:
        # By number of the start, however they were dealt out.
        order = np.argsort(np.concatenate([np.asarray(part) for part in parts]))
        P, F, iterations, converged = (part[order] for part in _stack(climbed)[:4])
        ended = gba.Ascent(P, F, iterations, converged, [])
        best = np.argsort(-ended.F, kind="stable")[:POLISHED]
    if not polished or size > LARGEST:
        return None if climbed is None else Found(ended.P[best[0]], float(ended.F[best[0]]), *ended[1:4], 0)
    promising = world.broadcast([] if climbed is None else [ended.P[i] for i in best])
    improved = world.share_out(lambda P: polish(objective, project_entropic(P, eps), eps), promising)
    if improved is None:
        return None
    winner: Polished = max(improved, key=lambda candidate: candidate.F)
    return Found(winner.P, winner.F, *ended[1:4], sum([candidate.steps for candidate in improved]))
