"""The Pareto curve of I(S;U) against E[d]: one optimum for every beta, by warm starts in both directions.

Whatever was found anywhere is a candidate everywhere: for each beta the best of all mappings by I - beta E is
taken, so I and E fall as beta rises, by the choice itself, and the points lie on a concave curve.
"""

from collections.abc import Sequence
from typing import NamedTuple

from distadmm.methods.ias import design, inference, measures, multistart
from distadmm.methods.ias.certificate import Certificate, Thresholds, thresholds
from distadmm.methods.ias.certificate import certify as certified
from distadmm.methods.ias.objective import Array, Objective, project_entropic, random_starts
from distadmm.methods.ias.polish import LARGEST, polish
from distadmm.ranks.world import World

STIR = 1e-3  # of a random mapping is mixed into a warm start, to bring unused columns back
CERTIFIED = 1e-6  # the gap below which a point counts as the global optimum


class Candidate(NamedTuple):
    P: Array
    I: float
    E: float
    origin: str
    iterations: int


class Point(NamedTuple):
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
    problem: inference.Inference,
    f: str | measures.Measure = "mi",
    betas: Sequence[float] = (),
    u_size: int | None = None,
    *,
    points: int = 18,
    eps: float = design.EPS,
    restarts: int = 20,
    certify: bool = True,
    seed: int = 0,
    world: World | None = None,
) -> Curve | None:
    """The Pareto curve of I(S;U) against E[d]; without `betas`, `points` of them up to just above beta_glob.

    It is on rank 0, None on the others; directions and certificates are dealt to the ranks of a `world`.
    """
    world, found = world or World(), measures.measure(f)
    K = len(problem.P_Y) if u_size is None else u_size
    for beta in betas or (1.0,):
        design.check_sizes(beta, K, eps)
    limits = world.on_root(lambda: thresholds(Objective(problem, found, 1.0), seed))
    if not betas:
        betas = [1.02 * limits.beta_glob * k / points for k in range(1, points + 1)]
    objectives = [Objective(problem, found, beta) for beta in sorted(map(float, betas))]

    def climb(direction: str) -> list[Candidate]:
        along = objectives if direction == "ascending" else objectives[::-1]
        return _direction(along, K, eps, restarts, seed, direction)

    walks = world.share_out(climb, ("ascending", "descending"))
    gathered = None if walks is None else [candidate for walk in walks for candidate in walk]
    pool = world.broadcast(gathered or [])
    iterations = sum([candidate.iterations for candidate in pool])
    reports: list[Certificate | None] = [None for _ in objectives]
    if certify:

        def check(objective: Objective) -> tuple[Candidate, Certificate]:
            P, report = certified(objective, _best(pool, objective.beta).P, eps, seed=seed, found=limits)
            return _candidate(objective, P, f"certificate at {objective.beta:g}", 0), report

        checked = world.share_out(check, objectives)
        if checked is not None:
            pool = pool + [candidate for candidate, _ in checked]
            reports = [report for _, report in checked]
    if not world.is_root:
        return None
    best = [_point(pool, objective.beta, report) for objective, report in zip(objectives, reports)]
    return Curve(best, limits, iterations)


def _candidate(objective: Objective, P: Array, origin: str, steps: int) -> Candidate:
    value = objective(P)
    return Candidate(P, float(value.I), float(value.E), origin, steps)


def _direction(
    objectives: Sequence[Objective], K: int, eps: float, restarts: int, seed: int, direction: str
) -> list[Candidate]:
    """Walk along beta, each optimum starting from the last one; the first from many starts."""
    found: list[Candidate] = []
    P: Array | None = None
    gba = multistart.Method()
    stir = random_starts(objectives[0].problem, K, eps, seed, [0], "uniform")[0]
    for objective in objectives:
        if P is None:
            first = multistart.search(objective, K, eps, method=gba, restarts=restarts, seed=seed)
            assert first is not None  # on one rank there is always a result
            P, steps = first.P, int(first.iterations.sum())
        else:
            ascent = gba.ascend(objective, ((1 - STIR) * P + STIR * stir)[None], eps)
            P, steps = ascent.P[0], int(ascent.iterations[0])
            if P.size <= LARGEST:
                P = polish(objective, project_entropic(P, eps), eps).P
        found.append(_candidate(objective, P, f"{direction} at {objective.beta:g}", steps))
    return found


def _best(pool: Sequence[Candidate], beta: float) -> Candidate:
    return max(pool, key=lambda candidate: candidate.I - beta * candidate.E)


def _point(pool: Sequence[Candidate], beta: float, report: Certificate | None) -> Point:
    best = _best(pool, beta)
    F, upper = best.I - beta * best.E, float("inf") if report is None else report.upper
    closed = report is not None and report.proved and upper - F <= CERTIFIED
    return Point(beta, F, best.I, best.E, best.P, best.origin, upper, closed)
