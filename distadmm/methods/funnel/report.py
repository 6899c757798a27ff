"""How solutions are told and written down."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.mapping import Mapping as ColumnMapping
from distadmm.files import finite, write_csv
from distadmm.methods.confidence import Bounds
from distadmm.methods.funnel.literal import Outcome
from distadmm.methods.funnel.model import Joint, Solution
from distadmm.methods.funnel.perfect import Perfect

CLOSE = 2e-6  # nats: a proven gap this small is told as the optimum


def mapping(joint: Joint, solution: Solution, column: str = "") -> ColumnMapping:
    """The channel as an object that sanitises a column."""
    return ColumnMapping(solution.v, joint.public, joint.p, column, joint.S)


def head(joint: Joint, known: Perfect) -> list[str]:
    sizes = f"|S| = {joint.K}, |X| = {joint.M}, H(X) = {joint.HX:.6g} nats, I(S;X) = {joint.ISX:.6g}"
    if not joint.HX > 0:
        return [joint.source, sizes, "X is constant: there is nothing to tell"]
    what = "exactly" if known.exact else f"at least (found by local search; at most {known.upper:.6g})"
    share = f"{known.R0:.6g} nats ({known.R0 / joint.HX:.1%} of H(X))"
    return [joint.source, sizes, f"perfect privacy, I(S;Y) = 0, up to I(X;Y) = R0 = {share}, {what}"]


def table(joint: Joint, solutions: Sequence[Solution]) -> list[str]:
    """A line for each R, then what the bounds mean."""
    lines = ["       R  R/H(X)      I(S;Y)      I(X;Y)  proven lower  |Y|  standing"]
    for one in solutions:
        share = one.R / joint.HX if joint.HX else 1.0
        lines.append(
            f"{one.R:8.5f}  {share:6.3f}  {one.leakage:10.8f}  {one.disclosure:10.8f}  {one.lower:12.8f}  "
            f"{one.v.shape[1]:3d}  {standing(one)}"
        )
    return lines + [f"R = {one.R:.5f}: {one.note}" for one in solutions if one.note]


def promises(rates: Sequence[float], solutions: Sequence[Solution], sure: Sequence[Bounds]) -> list[str]:
    """What holds of the law that the rows were drawn from, for each R."""
    lines = []
    for R, one, known in zip(rates, solutions, sure):
        met = known.I_YU.low >= R
        more = f"asked for {one.R:.5f} of the estimate, so that" if met else "NOT PROMISED, too few rows:"
        lines.append(f"R = {R:.5f}: {more} I(X;Y) in {known.I_YU.text()}, I(S;Y) in {known.I_SU.text()}")
    return lines + [line for known in sure[:1] for line in known.ball.lines()]


def standing(one: Solution) -> str:
    """What is known of this channel, in a few words."""
    open_ = one.leakage - one.lower
    if open_ <= CLOSE:
        return f"optimal, proven within {open_:.0e}" if open_ > 1e-9 else "optimal, proven"
    between = f"proven within {open_:.1e}"
    if np.isnan(one.gap):
        return between
    more = f"{max(one.gap, 0):.0e} more to gain" if one.gap > 1e-9 else "nothing better"
    return f"{between}; search found {more} (no proof)"


def point(joint: Joint, one: Solution) -> dict[str, Any]:
    """A line of the curve."""
    return {
        "R": one.R, "R_over_HX": one.R / joint.HX if joint.HX else 1.0, "I_SY": one.leakage, "I_XY": one.disclosure,
        "lower_bound": one.lower, "slope": one.slope, "priced_gap": one.gap, "symbols": one.v.shape[1],
        "iterations": one.iterations, "converged": one.converged, "proof_of_lower_bound": one.proof, "note": one.note,
    }  # fmt: skip


def write_curve(joint: Joint, solutions: Sequence[Solution], path: Path) -> None:
    points = [point(joint, one) for one in solutions]
    write_csv(path, list(points[0]), [list(each.values()) for each in points])


def summary(
    joint: Joint,
    solutions: Sequence[Solution],
    known: Perfect,
    rates: Sequence[float] = (),
    sure: Sequence[Bounds] = (),
) -> dict[str, Any]:
    perfect = {"R0": known.R0, "exact": known.exact, "upper_bound": known.upper}
    points = [finite(point(joint, one)) for one in solutions]
    facts = {"source": joint.source, "S": joint.K, "X": joint.M, "H_X": joint.HX, "I_SX": joint.ISX}
    for each, R, bounds in zip(points, rates, sure):  # a point's own R is what was asked of the estimate
        each["confidence"] = {"R": R, "promised": bounds.I_YU.low >= R, **bounds.summary()}
    return {"problem": facts, "perfect_privacy": perfect, "units": "nats", "points": points}


def of_literal(outcomes: Mapping[float, Sequence[tuple[str, Outcome]]]) -> list[dict[str, Any]]:
    return [
        {"R": R, "reading": reading, "iteration": one.iteration, "I_SY": finite(one.value), "what": one.what}
        for R, found in outcomes.items()
        for reading, one in found
    ]


def told_literal(outcomes: Sequence[tuple[str, Outcome]], R: float) -> list[str]:
    lines = [f"Algorithm 1 of the paper as printed, R = {R:.6g} (claimed by the paper, refuted):"]
    for reading, outcome in outcomes:
        value = "" if np.isnan(outcome.value) else f"I(S;Y) = {outcome.value:.6g}; "
        lines.append(f"  {reading}: {value}{outcome.what}")
    return lines
