"""Curves: the channels of one method for several R, with what is proven about each.

The work is dealt out to the ranks of a world in pieces; rank 0 puts the results together.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from distadmm.methods.confidence import Ball, Bounds
from distadmm.methods.funnel import bound, lp, perfect, solvers
from distadmm.methods.funnel.model import Array, Joint, Solution, from_joint, informations
from distadmm.methods.funnel.solvers import DEFAULT, Effort, Piece
from distadmm.ranks.world import World

TOLERANCE = 1e-6  # nats: how near the certificate tries to come
CLOSINGS = 10  # times that a program is completed by what its certificate found missing
BOUNDED = "weak duality, reduced costs bounded on every face that can hold their maximum"
RAISES = 6  # times that more is asked for, so that a bound on I(X;Y) is met
CONTRACTION = "strong data-processing inequality with the Dobrushin coefficient"


def curve(
    joint: Joint | Array,
    rates: Sequence[float],
    method: str = "lp",
    *,
    effort: Effort = DEFAULT,
    certify: bool = True,
    world: World | None = None,
    known: perfect.Perfect | None = None,
) -> list[Solution] | None:
    """The channels for several R, on rank 0; None elsewhere.  By `lp` they share one pool of posteriors, and the
    curve is convex.  All ranks of a `world` call it alike; `known` is what `perfect.solve` has found already.
    """
    joint, world = joint if isinstance(joint, Joint) else from_joint(joint), world or World()
    solvers.check(joint, method, effort)
    rates = [joint.demand(R) for R in rates]
    inner = list(dict.fromkeys(R for R in rates if not _whole(joint, R)))
    if method == "lp":
        known = known or world.on_root(lambda: perfect.solve(joint, effort.seed))
        inner = [R for R in inner if R > known.R0]
        solved = _lp(joint, inner, known, effort, certify, world)
    else:
        solved = _others(joint, inner, method, effort, world)
    if solved is None:
        return None
    found = dict(zip(inner, solved))
    return [_finished(joint, R, method, known, found) for R in rates]


def promised(
    joint: Joint,
    rates: Sequence[float],
    ball: Ball,
    design: Callable[[list[float]], list[Solution] | None],
    world: World,
) -> tuple[list[Solution], list[Bounds]] | None:
    """Channels of `design` with I(X;Y) >= R for every law of the ball, if H(X) allows it; on rank 0, None elsewhere.

    More than R is asked of the estimate, as much more as the bound misses.  It holds for all channels at once, so that
    trying several costs nothing.
    """
    asked = [joint.demand(R) for R in rates]
    for attempt in range(RAISES):
        found = design(asked)
        bounds = [ball.bounds(one.v) for one in found or []]
        missing = world.broadcast([R - one.I_YU.low for R, one in zip(rates, bounds)])
        further = [min(joint.HX, R + more * (1 + 1e-6)) if more > 0 else R for R, more in zip(asked, missing)]
        if further == asked or attempt == RAISES - 1:
            break
        asked = further
    return None if found is None else (found, bounds)


def _whole(joint: Joint, R: float) -> bool:
    return R >= joint.HX * (1 - 1e-12)


def _finished(
    joint: Joint, R: float, method: str, known: perfect.Perfect | None, found: dict[float, Solution]
) -> Solution:
    if R in found:
        solution = found[R]
        contraction = bound.contraction_bound(joint, R)
        if contraction > solution.lower:
            solution = replace(solution, lower=contraction, proof=CONTRACTION)
        lower = min(solution.lower, solution.leakage)
        return replace(solution, v=solvers.tidy(joint, solution.v), lower=lower)
    if _whole(joint, R):
        return Solution(
            method, R, np.eye(joint.M), joint.ISX, joint.HX, 0, True, np.inf, 0.0, joint.ISX,
            "I(X;Y) = H(X) leaves nothing of X open", "R = H(X): Y is X; the multiplier is infinite",
        )  # fmt: skip
    assert known is not None
    v = solvers.tidy(joint, known.v)
    note = f"perfect privacy: R <= R0 = {known.R0:.6g}"
    return Solution(method, R, v, *informations(joint, v), 0, True, 0.0, 0.0, note=note)


def _others(
    joint: Joint, rates: list[float], method: str, effort: Effort, world: World
) -> list[Solution] | None:
    work = solvers.pieces(joint, method, len(rates), effort) if rates else []

    def attempt(piece: Piece) -> list[solvers.Channel]:
        return solvers.channels(joint, method, rates[piece.rate], piece.number, effort)

    results = world.share_out(attempt, work)
    if results is None:
        return None
    solutions = []
    for i, R in enumerate(rates):
        parts = [part for piece, part in zip(work, results) if piece.rate in (i, solvers.EVERY)]
        solutions.append(_chosen(joint, R, method, [channel for part in parts for channel in part]))
    return solutions


def _chosen(joint: Joint, R: float, method: str, tried: list[solvers.Channel]) -> Solution:
    best = solvers.best(tried, R)
    if best is None:
        note = f"none of {len(tried)} end points has I(X;Y) >= R; X itself is returned"
        return Solution(method, R, np.eye(joint.M), joint.ISX, joint.HX, 0, False, note=note)
    near = sum(channel.leak <= best.leak + 1e-4 and channel.told >= R - solvers.FEASIBLE for channel in tried)
    note = f"{near} of {len(tried)} within 1e-4 of the best" if len(tried) > 1 else ""
    return Solution(method, R, best.v, best.leak, best.told, best.iterations, best.converged, note=note)


def _lp(
    joint: Joint, rates: list[float], known: perfect.Perfect, effort: Effort, certify: bool, world: World
) -> list[Solution] | None:
    work = solvers.pieces(joint, "lp", len(rates), effort) if rates else []
    trying = lp.usual(known, effort.programs)

    def attempt(piece: Piece) -> lp.Found:
        return lp.run(joint, rates[piece.rate], known, effort.seed, piece.number, trying)

    found = world.share_out(attempt, work)
    leaders = world.broadcast(_leaders(found, work, len(rates)))
    certificates: list[bound.Certificate] = []
    if certify and bound.provable(joint):
        pairs = world.share_out(partial(proved, joint, known, effort), list(zip(rates, leaders)))
        if pairs:
            leaders, certificates = map(list, zip(*pairs))
    if found is None:
        return None
    # one pool for all R: the value of a linear program is convex in its right-hand side, so the curve is
    w = np.concatenate([known.vertices, np.eye(joint.M), *(one.w for one in (*found, *leaders))], axis=1)
    solutions = []
    for i, R in enumerate(rates):
        v = lp.assemble(joint, R, w)
        runs = [one for piece, one in zip(work, found) if piece.rate == i]
        spread = max(one.at.value for one in runs) - min(one.at.value for one in runs)
        solution = Solution(
            "lp", R, v, *informations(joint, v), max(one.rounds for one in runs), leaders[i].gap <= lp.GAP,
            leaders[i].at.slope, leaders[i].gap, note=f"spread of {len(runs)} repeats {spread:.1e}",
        )  # fmt: skip
        # any certificate bounds every R
        each = zip(leaders, certificates)
        bounds = [bound.lower(joint, R, of.at.alpha, of.at.slope, proof.excess) for of, proof in each]
        lower = max(bounds, default=0.0)
        solutions.append(replace(solution, lower=lower, proof=BOUNDED) if lower > 0 else solution)
    return solutions


def _leaders(found: list[lp.Found] | None, work: list[Piece], rates: int) -> list[lp.Found]:
    """The repeat with the least leakage for each R; of those that agree, the one with the best multipliers."""
    leaders = []
    for i in range(rates if found is not None else 0):
        runs = [one for piece, one in zip(work, found or []) if piece.rate == i]
        least = min(one.at.value for one in runs)
        leaders.append(min((one for one in runs if one.at.value <= least + 1e-8), key=lambda one: one.gap))
    return leaders


def proved(
    joint: Joint, known: perfect.Perfect, effort: Effort, given: tuple[float, lp.Found]
) -> tuple[lp.Found, bound.Certificate]:
    """A certificate; what it finds missing is added to the program, which is then solved and certified again."""
    R, leader = given
    for attempt in range(CLOSINGS + 1):
        certificate = bound.certify(joint, leader.at.alpha, leader.at.slope, TOLERANCE)
        if not certificate.missed.size or attempt == CLOSINGS:
            break
        first = np.concatenate([leader.w, certificate.missed], axis=1)
        run = effort.repeats + attempt  # its random numbers are those of a further repeat
        better = lp.run(joint, R, known, effort.seed, run, lp.usual(known, effort.programs), first)
        leader = better._replace(rounds=leader.rounds + better.rounds)
    return leader, certificate
