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
from distadmm.methods.ias.admm import told
from distadmm.methods.ias.certificate import Certificate, certify, thresholds
from distadmm.methods.ias.design import Design, check_sizes, solve
from distadmm.methods.ias.inference import Inference, stand_in
from distadmm.methods.ias.measures import Measure, measure, own
from distadmm.methods.ias.multistart import Method
from distadmm.methods.ias.objective import Objective, random_starts
from distadmm.methods.ias.options import Data, Goal, Range, Running, Solver
from distadmm.methods.ias.pareto import Curve, sweep
from distadmm.ranks.launch import launch
from distadmm.ranks.world import World
from distadmm.run.claim import claim_directory
from distadmm.run.pictures import draw_mapping, draw_pareto

__all__ = [
    "Certificate", "Curve", "Design", "Inference", "Mapping", "Measure", "Method", "Objective",
    "certify", "main", "measure", "own", "solve", "stand_in", "sweep", "thresholds",
]  # fmt: skip

PROG = "distadmm.ias"


def work(given: tuple[Data, Goal, Solver | Range, Running], world: World) -> int:
    """The command proper, on every rank."""
    data, goal, wanted, output = given
    problem, found_measure = world.on_root(data.load), _measure_everywhere(goal.f, world)
    K = goal.u_size or len(problem.P_Y)
    beta = wanted.beta if isinstance(wanted, Solver) else 1.0
    world.on_root(lambda: check_sizes(beta, K, goal.eps))
    if output.dry_run:
        return world.on_root(lambda: _outlook(problem, K, found_measure))
    name = "ias" if isinstance(wanted, Solver) else "ias-sweep"
    folder = world.on_root(lambda: claim_directory(output.out, name, force=output.force))
    how: dict[str, Any] = {"u_size": K, "eps": goal.eps, "seed": output.seed, "world": world}
    config = {name: value for part in given for name, value in asdict(part).items()}
    if isinstance(wanted, Solver):
        found = solve(
            problem, found_measure, wanted.beta, method=wanted.make(), restarts=goal.restarts, starts=wanted.starts,
            polish=wanted.polish, certify=bool(goal.certify), **how,
        )  # fmt: skip
        unsettled = found and _mapping(found, found_measure, goal, wanted, output, folder, config)
    else:
        certified = goal.certify is not False
        curve = sweep(
            problem, found_measure, wanted.betas, points=wanted.points, restarts=goal.restarts or 20,
            certify=certified, **how,
        )  # fmt: skip
        unsettled = curve and _curve(curve, problem, goal, certified, output.figure, folder, config)
    if unsettled and output.strict:
        print(unsettled, file=sys.stderr)
    return world.broadcast(UNCONVERGED if unsettled and output.strict else DONE)


def _mapping(
    found: Design,
    f: Measure,
    goal: Goal,
    solver: Solver,
    output: Running,
    folder: Path,
    config: dict[str, Any],
) -> str:
    """Tells and writes a mapping, on rank 0; what is not settled of it."""
    lines = report.lines(found)
    if solver.form == "paper":
        objective = Objective(found.problem, f, solver.beta)
        shape = found.P.shape[1], goal.eps, output.seed
        start = random_starts(found.problem, *shape, [0], solver.starts)[0]
        lines += told(objective, start, goal.eps, solver.penalty_rho)
    print("\n".join(lines))
    names = report.write_design(folder, found, config)
    if _figure(output.figure):
        made = found.mapping
        title = f"{found.problem.name} {found.measure} beta {found.beta:g}: F = {found.F:.6f}"
        draw_mapping(folder / "mapping.svg", made.matrix, made.values, made.prior @ made.matrix, title)
        names.append("mapping.svg")
    print(f"wrote {folder}: {', '.join(names)}")
    proof = found.certificate
    settled = found.converged.any() and (proof is None or proof.upper - proof.attained <= 1e-6)
    return "" if settled else "not settled: see the lines above"


def _curve(
    curve: Curve,
    problem: Inference,
    goal: Goal,
    certified: bool,
    figure: bool,
    folder: Path,
    config: dict[str, Any],
) -> str:
    """The same of a curve."""
    print("\n".join(report.curve_lines(curve)))
    names = report.write_curve(folder, curve, problem, config)
    if _figure(figure):
        I, E, sure = (np.array([getattr(p, of) for p in curve.points]) for of in ("I", "E", "certified"))
        draw_pareto(folder / "curve.svg", I, E, sure, f"{problem.name} {goal.f}")
        names.append("curve.svg")
    print(f"wrote {folder}: {', '.join(names)}")
    settled = not certified or all(point.certified for point in curve.points)
    return "" if settled else "not all points are certified: see the table"


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


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    prog, wanted = (f"{PROG} sweep", Range) if words[:1] == ["sweep"] else (PROG, Solver)
    groups = [Data, Goal, wanted, Running]
    return launch(
        prog, lambda a: parse(prog, str(__doc__), groups, a), work, words[1:] if wanted is Range else words
    )


if __name__ == "__main__":
    from distadmm.ias import main as run  # the real module, not its __main__ double

    raise SystemExit(run())
