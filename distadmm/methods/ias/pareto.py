"""The Pareto curve of I(S;U) against E[d]: one optimum for every beta, by warm starts in both directions.

Whatever was found anywhere is a candidate everywhere: for each beta the best of all mappings by I - beta E is
taken, so I and E fall as beta rises, by the choice itself, and the points lie on a concave curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distadmm.methods.ias.certificate import Certificate, Thresholds, certify, thresholds
from distadmm.methods.ias.inference import Inference
from distadmm.methods.ias.measures import Measure
from distadmm.methods.ias.multistart import Method, search
from distadmm.methods.ias.objective import Objective, project_entropic, random_starts
from distadmm.methods.ias.polish import LARGEST, polish
from distadmm.ranks.world import World

Array = np.ndarray
STIR = 1e-3  # of a random mapping is mixed into a warm start, to bring unused columns back
CERTIFIED = 1e-6  # the gap below which a point counts as the global optimum


class Candidate(NamedTuple):
    P: Array
    I: float
    E: float
    origin: str
    iterations: int


class Point(NamedTuple):
    """The best mapping for one beta."""

    beta: float
    F: float
    I: float
    E: float
    P: Array
    origin: str  # where the mapping was found: which direction, at which beta
    upper: float  # of F at vanishing eps; infinite when not asked for
    certified: bool


class Curve(NamedTuple):
    points: list[Point]  # in the order of beta
    thresholds: Thresholds
    iterations: int  # first-order steps of both directions together


def sweep(
    problem: Inference,
    measure: Measure,
    betas: Sequence[float],
    K: int,
    eps: float,
    *,
    restarts: int = 20,
    seed: int = 0,
    certified: bool = True,
    world: World | None = None,
) -> Curve | None:
    """The curve at `betas`, on rank 0; None on the others.  Directions and certificates are dealt to the ranks."""
    world = world or World()
    betas = sorted(float(beta) for beta in betas)
    limits = world.on_root(lambda: thresholds(Objective(problem, measure, betas[0]), seed))

    def climb(direction: str) -> list[Candidate]:
        return _direction(problem, measure, betas, K, eps, restarts, seed, direction)

    walks = world.share_out(climb, ("ascending", "descending"))
    gathered = None if walks is None else [candidate for walk in walks for candidate in walk]
    pool = world.broadcast(gathered or [])
    iterations = sum([candidate.iterations for candidate in pool])
    reports: list[Certificate | None] = [None for _ in betas]
    if certified:

        def check(beta: float) -> tuple[Candidate, Certificate]:
            objective = Objective(problem, measure, beta)
            P, report = certify(objective, _best(pool, beta).P, eps, seed=seed, found=limits)
            value = objective(P)
            return Candidate(P, float(value.I), float(value.E), f"certificate at {beta:g}", 0), report

        checked = world.share_out(check, betas)
        if checked is not None:
            pool = pool + [candidate for candidate, _ in checked]
            reports = [report for _, report in checked]
    if not world.is_root:
        return None
    return Curve([_point(pool, beta, report) for beta, report in zip(betas, reports)], limits, iterations)


def _direction(
    problem: Inference,
    measure: Measure,
    betas: Sequence[float],
    K: int,
    eps: float,
    restarts: int,
    seed: int,
    direction: str,
) -> list[Candidate]:
    """Walk along beta, each optimum starting from the last one; the first from many starts."""
    found: list[Candidate] = []
    P: Array | None = None
    stir = random_starts(problem, K, eps, seed, [0], "uniform")[0]
    for beta in betas if direction == "ascending" else reversed(betas):
        objective = Objective(problem, measure, beta)
        if P is None:
            first = search(objective, K, eps, method=Method(), restarts=restarts, seed=seed)
            assert first is not None  # on one rank there is always a result
            P, steps = first.P, int(first.iterations.sum())
        else:
            ascent = Method().ascend(objective, ((1 - STIR) * P + STIR * stir)[None], eps)
            P, steps = ascent.P[0], int(ascent.iterations[0])
            if P.size <= LARGEST:
                P = polish(objective, project_entropic(P, eps), eps).P
        value = objective(P)
        found.append(Candidate(P, float(value.I), float(value.E), f"{direction} at {beta:g}", steps))
    return found


def _best(pool: Sequence[Candidate], beta: float) -> Candidate:
    return max(pool, key=lambda candidate: candidate.I - beta * candidate.E)


def _point(pool: Sequence[Candidate], beta: float, report: Certificate | None) -> Point:
    best = _best(pool, beta)
    F = best.I - beta * best.E
    if report is None:
        return Point(beta, F, best.I, best.E, best.P, best.origin, float("inf"), False)
    closed = report.proved and report.upper - F <= CERTIFIED
    return Point(beta, F, best.I, best.E, best.P, best.origin, report.upper, closed)
