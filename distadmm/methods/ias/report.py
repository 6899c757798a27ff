"""How a designed mapping and a Pareto curve are told and written down."""

from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.mapping import Mapping
from distadmm.files import write_csv, write_json
from distadmm.methods.ias.certificate import Certificate
from distadmm.methods.ias.design import Design
from distadmm.methods.ias.inference import Inference
from distadmm.methods.ias.pareto import Curve
from distadmm.run import model


def lines(design: Design) -> list[str]:
    """What was found, for people."""
    problem, good = design.problem, int((design.F_starts >= design.F - 1e-6).sum())
    least, most = design.iterations.min(), design.iterations.max()
    out = [
        f"{problem.name or 'problem'}: |S| {len(problem.P_S)}, |Y| {len(problem.P_Y)}, |U| "
        f"{design.P.shape[1]} ({design.used} in use), I(S;Y) {problem.I_SY:.6f}",
        f"F = {design.F:.9g}   I(S;U) = {design.I:.9g}   E[d] = {design.E:.9g}   "
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
    return out


def summary(design: Design) -> dict[str, Any]:
    found = design.certificate
    return {
        "problem": design.problem.name,
        "measure": design.measure,
        "beta": design.beta,
        "eps": design.eps,
        "method": design.method,
        "F": design.F,
        "I_SU": design.I,
        "E_d": design.E,
        "I_SY": design.problem.I_SY,
        "symbols": design.P.shape[1],
        "symbols_used": design.used,
        "starts": len(design.F_starts),
        "F_of_starts": design.F_starts.tolist(),
        "iterations": design.iterations.tolist(),
        "settled": design.converged.tolist(),
        "newton_steps": design.newton_steps,
        "beta_loc": design.beta_loc,
        "certificate": None if found is None else certificate_json(found),
        "leakage_nats": design.mapping.leakage().nats,
    }


def certificate_json(found: Certificate) -> dict[str, Any]:
    return {
        "upper_bound": found.upper,
        "gap": found.gap,
        "attained_at_vanishing_eps": found.attained,
        "proved": found.proved,
        "how": "branch and bound" if found.proved else "heuristic search: not a bound",
        "rounds": found.rounds,
        "simplices": found.simplices,
        "gained_by_certifying": found.gained,
        "beta_loc": found.thresholds.beta_loc,
        "beta_glob": found.thresholds.beta_glob,
        "beta_glob_proved": found.thresholds.proved,
    }


def write_design(folder: Path, found: Design, config: dict[str, Any]) -> list[str]:
    """mapping.npz, mapping.csv and result.json; the names written."""
    mapping = found.mapping
    mapping.save(folder / "mapping.npz")
    mapping.save(folder / "mapping.csv")
    write_json(folder / "result.json", {"config": config, **summary(found)})
    model.of_mappings(folder, "ias", ["mapping"], mapping.column, mapping.values)
    return ["mapping.npz", "mapping.csv", "result.json", model.FILE]


def curve_rows(curve: Curve) -> list[list[Any]]:
    return [
        [p.beta, p.F, p.I, p.E, p.upper, max(0.0, p.upper - p.F), p.certified, p.origin] for p in curve.points
    ]


CURVE_HEADER = ["beta", "F", "I_SU", "E_d", "upper_bound", "gap", "certified", "found_by"]


def write_curve(folder: Path, curve: Curve, problem: Inference, config: dict[str, Any]) -> list[str]:
    """curve.csv, result.json, one mapping file a point."""
    write_csv(folder / "curve.csv", CURVE_HEADER, curve_rows(curve))
    limits = curve.thresholds
    write_json(
        folder / "result.json",
        {
            "config": config,
            "beta_loc": limits.beta_loc,
            "beta_glob": limits.beta_glob,
            "iterations": curve.iterations,
            "points": [dict(zip(CURVE_HEADER, row)) for row in curve_rows(curve)],
        },
    )
    stems = [f"mapping-{number:02d}" for number in range(len(curve.points))]
    for stem, point in zip(stems, curve.points):
        mapping = Mapping(point.P, problem.values, problem.P_Y, problem.name, problem.A).compact()
        mapping.save(folder / f"{stem}.npz")
    model.of_mappings(folder, "ias", stems, problem.name, problem.values)
    return [
        "curve.csv",
        "result.json",
        f"mapping-00.npz to mapping-{len(curve.points) - 1:02d}.npz",
        model.FILE,
    ]


def curve_lines(curve: Curve) -> list[str]:
    """The Pareto curve as a table, for people."""
    limits = curve.thresholds
    lines = [f"{'beta':>9} {'I(S;U)':>10} {'E[d]':>10} {'F':>12} {'gap':>9}  certified  found by"]
    for p in curve.points:
        gap = f"{max(0.0, p.upper - p.F):9.1e}" if np.isfinite(p.upper) else f"{'-':>9}"
        mark = "yes" if p.certified else "no"
        lines.append(f"{p.beta:9.4f} {p.I:10.6f} {p.E:10.6f} {p.F:12.8f} {gap}  {mark:9}  {p.origin}")
    shown = f"beta_loc {limits.beta_loc:.6g}, beta_glob {limits.beta_glob:.6g}"
    lines.append(f"{shown}: from beta_glob on the best mapping says nothing at all")
    return lines
