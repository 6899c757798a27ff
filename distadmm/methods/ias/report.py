"""How a designed mapping and a Pareto curve are told and written down."""

from pathlib import Path
from typing import Any

import numpy as np

from distadmm.files import write_csv
from distadmm.methods.ias.certificate import Certificate
from distadmm.methods.ias.design import Design
from distadmm.methods.ias.pareto import Curve

ROUNDING = 1e-14


def lines(design: Design) -> list[str]:
    problem, good = design.problem, int((design.F_starts >= design.F - 1e-6).sum())
    least, most = design.iterations.min(), design.iterations.max()
    out = [
        f"{problem.name or 'problem'}: |S| {len(problem.P_S)}, |Y| {len(problem.P_Y)}, |U| "
        f"{design.P.shape[1]} ({design.used} in use), I(S;Y) {problem.I_SY:.6f}",
        f"F = {_nats(design.F)}   I(S;U) = {_nats(design.I)}   E[d] = {_nats(design.E)}   "
        f"({design.measure}, beta {design.beta:g}, eps {design.eps:g})",
        f"{design.method}: {len(design.F_starts)} starts, {least} to {most} iterations, "
        f"{int(design.converged.sum())} settled, {good} within 1e-6 of F by themselves; "
        f"{design.newton_steps} Newton steps",
    ]
    if design.certificate is None:
        where = "above" if design.beta >= design.beta_loc else "below"
        out.append(f"beta is {where} beta_loc {design.beta_loc:.6g}; --certify says if F is the optimum")
    else:
        found = design.certificate
        out.append(found.sentence(design.beta))
        if found.attained - design.F > 1e-9:
            out.append(
                f"of the gap, {found.upper - found.attained:.2g} is open for mappings of any |U| and vanishing eps; "
                f"|U| = {design.P.shape[1]} and eps = {design.eps:g} cost at most {found.attained - design.F:.3g}"
            )
    if design.used == 1:
        out.append(
            "every value becomes the same symbol, which says nothing of S: give a smaller --beta "
            f"(below beta_loc {design.beta_loc:.6g} one that says something is better)"
        )
    return out


def _nats(value: float) -> str:
    return f"{value if abs(value) > ROUNDING else 0.0:.9g}"


def summary(design: Design) -> dict[str, Any]:
    problem, found = design.problem, design.certificate
    asked = {name: getattr(design, name) for name in ("measure", "beta", "eps", "method")}
    reached = {"F": design.F, "I_SU": design.I, "E_d": design.E, "I_SY": problem.I_SY}
    sizes = {"symbols": design.P.shape[1], "symbols_used": design.used, "starts": len(design.F_starts)}
    each = {"F_of_starts": design.F_starts, "iterations": design.iterations, "settled": design.converged}
    more = {"newton_steps": design.newton_steps, "beta_loc": design.beta_loc}
    told = {"problem": problem.name, **asked, **reached, **sizes, **{k: v.tolist() for k, v in each.items()}}
    proof = None if found is None else certificate_json(found)
    return {**told, **more, "certificate": proof, "leakage_nats": design.mapping.leakage().nats}


def certificate_json(found: Certificate) -> dict[str, Any]:
    bound = {"upper_bound": found.upper, "gap": found.gap, "attained_at_vanishing_eps": found.attained}
    left = {"standing": found.standing, "open": found.open, "proved": found.proved}
    how = "branch and bound" if found.proved else "heuristic search: not a bound"
    work = {"rounds": found.rounds, "simplices": found.simplices, "gained_by_certifying": found.gained}
    limits = found.thresholds
    betas = {"beta_loc": limits.beta_loc, "beta_glob": limits.beta_glob, "beta_glob_proved": limits.proved}
    return {**bound, **left, "how": how, **work, **betas}


def curve_points(curve: Curve) -> list[dict[str, Any]]:
    return [
        {"beta": p.beta, "F": p.F, "I_SU": p.I, "E_d": p.E, "upper_bound": p.upper, "gap": max(0.0, p.upper - p.F),
         "certified": p.certified, "found_by": p.origin}
        for p in curve.points
    ]  # fmt: skip


def write_curve(curve: Curve, path: Path) -> None:
    points = curve_points(curve)
    write_csv(path, list(points[0]), [list(each.values()) for each in points])


def of_curve(curve: Curve) -> dict[str, Any]:
    limits = curve.thresholds
    known = {"beta_loc": limits.beta_loc, "beta_glob": limits.beta_glob, "iterations": curve.iterations}
    return {**known, "points": curve_points(curve)}


def curve_lines(curve: Curve) -> list[str]:
    limits = curve.thresholds
    lines = [f"{'beta':>9} {'I(S;U)':>10} {'E[d]':>10} {'F':>12} {'gap':>9}  certified  found by"]
    for p in curve.points:
        gap = f"{max(0.0, p.upper - p.F):9.1e}" if np.isfinite(p.upper) else f"{'-':>9}"
        mark = "yes" if p.certified else "no"
        lines.append(f"{p.beta:9.4f} {p.I:10.6f} {p.E:10.6f} {p.F:12.8f} {gap}  {mark:9}  {p.origin}")
    shown = f"beta_loc {limits.beta_loc:.6g}, beta_glob {limits.beta_glob:.6g}"
    lines.append(f"{shown}: from beta_glob on the best mapping says nothing at all")
    return lines
