"""Privacy mappings for inference as a service: maximise I(S;U) - beta E[d(Y,U)] over p(u|y).

python -m distadmm.ias --problem gauss --f js --beta 0.6 --certify
python -m distadmm.ias --rows people.csv --infer income --column education --f mi --beta 0.02
python -m distadmm.ias sweep --problem gauss --f js --points 18      the Pareto curve
mpiexec -n 4 python -m distadmm.ias ...                              starts shared out, the same bits
"""

from distadmm.flags import entering

entering(__name__)  # as a command: one BLAS thread a rank, before numpy is loaded

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from distadmm.data.mapping import Mapping
from distadmm.errors import DONE, UNCONVERGED
from distadmm.flags import parse
from distadmm.graphs import figures
from distadmm.methods.ias import report
from distadmm.methods.ias.certificate import Certificate, certify, thresholds
from distadmm.methods.ias.design import EPS, Design, check_sizes, design
from distadmm.methods.ias.inference import Inference, stand_in
from distadmm.methods.ias.measures import Measure, measure, own
from distadmm.methods.ias.multistart import Method
from distadmm.methods.ias.objective import Objective, random_starts
from distadmm.methods.ias.options import Data, Goal, Range, Running, Solver
from distadmm.methods.ias.pareto import Curve
from distadmm.methods.ias.pareto import sweep as pareto_sweep
from distadmm.ranks.launch import launch
from distadmm.ranks.world import World
from distadmm.run.claim import claim_directory
from distadmm.run.pictures import draw_mapping, draw_pareto

__all__ = [
    "Certificate",
    "Curve",
    "Design",
    "Inference",
    "Mapping",
    "Measure",
    "Method",
    "Objective",
    "certify",
    "main",
    "measure",
    "own",
    "solve",
    "stand_in",
    "sweep",
    "thresholds",
]

PROG = "distadmm.ias"


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
    return design(
        problem,
        measure(f),
        beta,
        len(problem.P_Y) if u_size is None else u_size,
        eps=eps,
        method=Method(method) if isinstance(method, str) else method,
        restarts=restarts,
        starts=starts,
        polished=polish,
        certified=certify,
        seed=seed,
        world=world,
    )


def sweep(
    problem: Inference,
    f: str | Measure = "mi",
    betas: Sequence[float] = (),
    u_size: int | None = None,
    *,
    points: int = 18,
    eps: float = EPS,
    restarts: int = 20,
    certify: bool = True,
    seed: int = 0,
    world: World | None = None,
) -> Curve | None:
    """The Pareto curve of I(S;U) against E[d]; without `betas`, `points` of them up to just above beta_glob."""
    world, found = world or World(), measure(f)
    K = len(problem.P_Y) if u_size is None else u_size
    if not betas:
        top = world.on_root(lambda: thresholds(Objective(problem, found, 1.0), seed)).beta_glob
        betas = tuple(1.02 * top * k / points for k in range(1, points + 1))
    for beta in betas:
        check_sizes(beta, K, eps)
    return pareto_sweep(
        problem, found, betas, K, eps, restarts=restarts, seed=seed, certified=certify, world=world
    )


def _config(*parts: Any) -> dict[str, Any]:
    return {name: value for part in parts for name, value in asdict(part).items()}


def work(given: tuple[Data, Goal, Solver, Running], world: World) -> int:
    """The command proper, on every rank."""
    data, goal, solver, output = given
    problem, found_measure = world.on_root(data.load), _measure_everywhere(goal.f, world)
    K = goal.u_size or len(problem.P_Y)
    world.on_root(lambda: check_sizes(solver.beta, K, goal.eps))
    if output.dry_run:
        return world.on_root(lambda: _outlook(problem, K, found_measure))
    folder = world.on_root(lambda: claim_directory(output.out, "ias", force=output.force))
    found = solve(
        problem,
        found_measure,
        solver.beta,
        K,
        eps=goal.eps,
        method=solver.make(),
        restarts=goal.restarts,
        starts=solver.starts,
        polish=solver.polish,
        certify=bool(goal.certify),
        seed=output.seed,
        world=world,
    )
    code = DONE
    if found is not None:
        lines = report.lines(found)
        if solver.form == "paper":
            objective = Objective(problem, found_measure, solver.beta)
            start = random_starts(problem, K, goal.eps, output.seed, [0], solver.starts)[0]
            from distadmm.methods.ias.printed import told

            lines += told(objective, start, goal.eps, solver.penalty_rho)
        print("\n".join(lines))
        names = report.write_design(folder, found, _config(data, goal, solver, output))
        if _figure(output.figure):
            made = found.mapping
            title = f"{found.problem.name} {found.measure} beta {found.beta:g}: F = {found.F:.6f}"
            draw_mapping(folder / "mapping.svg", made.matrix, made.values, made.prior @ made.matrix, title)
            names.append("mapping.svg")
        _wrote(folder, names)
        open_ = found.certificate is not None and found.certificate.upper - found.certificate.attained > 1e-6
        if output.strict and (open_ or not found.converged.any()):
            print("not settled: see the lines above", file=sys.stderr)
            code = UNCONVERGED
    return world.broadcast(code)


def work_sweep(given: tuple[Data, Goal, Range, Running], world: World) -> int:
    """The sweep, on every rank."""
    data, goal, wanted, output = given
    problem, found_measure = world.on_root(data.load), _measure_everywhere(goal.f, world)
    K = goal.u_size or len(problem.P_Y)
    world.on_root(lambda: check_sizes(1.0, K, goal.eps))
    if output.dry_run:
        return world.on_root(lambda: _outlook(problem, K, found_measure))
    folder = world.on_root(lambda: claim_directory(output.out, "ias-sweep", force=output.force))
    curve = sweep(
        problem,
        found_measure,
        wanted.betas,
        K,
        points=wanted.points,
        eps=goal.eps,
        restarts=goal.restarts or 20,
        certify=goal.certify is not False,
        seed=output.seed,
        world=world,
    )
    code = DONE
    if curve is not None:
        print("\n".join(report.curve_lines(curve)))
        names = report.write_curve(folder, curve, problem, _config(data, goal, wanted, output))
        if _figure(output.figure):
            I, E, sure = (np.array([getattr(p, of) for p in curve.points]) for of in ("I", "E", "certified"))
            draw_pareto(folder / "curve.svg", I, E, sure, f"{problem.name} {goal.f}")
            names.append("curve.svg")
        _wrote(folder, names)
        if output.strict and goal.certify is not False and not all(p.certified for p in curve.points):
            print("not all points are certified: see the table", file=sys.stderr)
            code = UNCONVERGED
    return world.broadcast(code)


def _outlook(problem: Inference, K: int, found: Measure) -> int:
    print(
        f"|S| {len(problem.P_S)}, |Y| {len(problem.P_Y)}, |U| {K}, I(S;Y) {problem.I_SY:.6f}; measure {found.name}"
    )
    return DONE


def _measure_everywhere(f: str, world: World) -> Measure:
    """The measure on every rank: a user's file is run on each, functions cannot be sent."""
    with world.together():
        return measure(f)


def _figure(wanted: bool) -> bool:
    if wanted and not figures.possible():
        print(f"no figure: {figures.MISSING}", file=sys.stderr)
    return wanted and figures.possible()


def _wrote(folder: Path, names: list[str]) -> None:
    print(f"wrote {folder}: {', '.join(names)}")


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["sweep"]:
        return launch(
            f"{PROG} sweep",
            lambda a: parse(f"{PROG} sweep", str(__doc__), [Data, Goal, Range, Running], a),
            work_sweep,
            words[1:],
        )
    return launch(PROG, lambda a: parse(PROG, str(__doc__), [Data, Goal, Solver, Running], a), work, words)


if __name__ == "__main__":
    from distadmm.ias import main as run  # the real module, not its __main__ double

    raise SystemExit(run())
