"""Privacy funnel: release Y of a public X with I(X;Y) >= R that says as little as possible of a private S.

python -m distadmm.funnel --problem heart --fractions 0.6,0.7,0.8,0.9
python -m distadmm.funnel --data adult --private income --public education --fractions 0.9
python -m distadmm.funnel --rows people.csv --private illness --public age,region --rates 1.5 --smooth 0.5
python -m distadmm.funnel --problem synthetic-unif --points 20            a curve, with proven lower bounds
python -m distadmm.funnel --problem synthetic-unif --method aem           the paper's iteration
mpiexec -n 4 python -m distadmm.funnel ...                                work shared out, the same bits
"""

from distadmm.flags import entering

entering(__name__)  # as a command: one BLAS thread a rank, before numpy is loaded

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from distadmm.data import joint as tables
from distadmm.errors import DONE, UNCONVERGED
from distadmm.files import finite, write_json
from distadmm.flags import parse
from distadmm.graphs import figures
from distadmm.methods.funnel import literal, perfect, report, solvers
from distadmm.methods.funnel.curve import curve
from distadmm.methods.funnel.model import Array, Joint, Solution, from_joint, informations, of_table
from distadmm.methods.funnel.options import Data, Goal, Running, Work
from distadmm.methods.funnel.perfect import Perfect
from distadmm.methods.funnel.report import mapping
from distadmm.methods.funnel.solvers import DEFAULT, METHODS, Effort
from distadmm.ranks.launch import launch
from distadmm.ranks.world import World
from distadmm.run.claim import claim_directory
from distadmm.run.pictures import draw_funnel

__all__ = [
    "METHODS", "Effort", "Joint", "Perfect", "Solution", "curve", "from_joint", "informations", "main",
    "mapping", "perfect_privacy", "problem", "solve",
]  # fmt: skip

PROG = "distadmm.funnel"


def problem(name: str, smooth: float = 0.0, perturb: float = 0.0) -> Joint:
    """A problem of the paper: synthetic-unif, synthetic-nonunif, heart or adult, from the data as they are."""
    table = tables.problem(name)
    return of_table(table if smooth or perturb else table.observed(), smooth, perturb)


def solve(
    joint: Joint | Array,
    R: float,
    method: str = "lp",
    *,
    effort: Effort = DEFAULT,
    certify: bool = True,
    world: World | None = None,
) -> Solution | None:
    """The channel P(y|x) with I(X;Y) >= R and the least I(S;Y) found, and what is proven of it.

    `joint` is a Joint, or a K x M table of P(s,x).  On a `world` of several ranks the work is shared out; the
    result is on rank 0, None elsewhere.
    """
    found = curve(joint, [R], method, effort=effort, certify=certify, world=world)
    return None if found is None else found[0]


def perfect_privacy(joint: Joint | Array, seed: int = 0) -> Perfect:
    """R0, the most Y can tell of X while I(S;Y) = 0, with its channel."""
    return perfect.solve(joint if isinstance(joint, Joint) else from_joint(joint), seed)


def work(given: tuple[Data, Goal, Work, Running], world: World) -> int:
    """The command proper, on every rank."""
    data, goal, trying, output = given
    effort = trying.effort(output.seed)

    def prepared() -> tuple[Joint, str, list[float]]:
        joint, column = data.load()
        solvers.check(joint, goal.method, effort)
        return joint, column, goal.demands(joint)

    joint, column, rates = world.on_root(prepared)
    if output.dry_run:
        if world.is_root:
            wanted = ", ".join(f"{R:.6g}" for R in rates)
            print(
                f"|S| {joint.K}, |X| {joint.M}, H(X) {joint.HX:.6f}, I(S;X) {joint.ISX:.6f}; {goal.method}, R {wanted}"
            )
        return DONE
    folder = world.on_root(lambda: claim_directory(output.out, "funnel", force=output.force))
    config = {name: value for part in given for name, value in asdict(part).items()}
    if goal.form == "paper":
        return world.on_root(lambda: _printed(folder, joint, rates, effort, config, output.strict))
    known = world.on_root(lambda: perfect.solve(joint, effort.seed))
    certify = goal.certify is not False
    found = curve(joint, rates, goal.method, effort=effort, certify=certify, world=world, known=known)
    code = DONE
    if found is not None:
        print("\n".join(report.head(joint, known) + report.table(joint, found)))
        names = report.write(folder, joint, found, known, config, column)
        drawn = output.figure and len(found) > 1
        if drawn and not figures.possible():
            print(f"no figure: {figures.MISSING}", file=sys.stderr)
        elif drawn:
            points = np.array([(one.R, one.leakage, one.lower) for one in found])
            whole, R0 = (joint.HX, joint.ISX), None if known is None else (known.R0, known.exact)
            draw_funnel(folder / "curve.svg", points, found[0].method, whole, R0)
            names.append("curve.svg")
        print(f"wrote {folder}: {', '.join(names)}")
        open_ = [one for one in found if not one.converged and one.leakage - one.lower > report.CLOSE]
        if output.strict and open_:
            print(f"{len(open_)} of {len(found)} R are not settled: see the table", file=sys.stderr)
            code = UNCONVERGED
    return world.broadcast(code)


def _printed(
    folder: Any, joint: Joint, rates: list[float], effort: Effort, config: dict[str, Any], strict: bool
) -> int:
    """Algorithm 1 as printed: there is no channel to write, only what became of it."""
    outcomes = {R: literal.report(joint, R, effort.alphabet(joint), effort.iterations or 500) for R in rates}
    for R, found in outcomes.items():
        print("\n".join(report.told_literal(found, R)))
    rows = [
        {"R": R, "reading": reading, "iteration": one.iteration, "I_SY": finite(one.value), "what": one.what}
        for R, found in outcomes.items()
        for reading, one in found
    ]
    write_json(folder / "result.json", {"config": config, "claimed by the paper, refuted": rows})
    print(f"wrote {folder}: result.json")
    return UNCONVERGED if strict else DONE


def main(argv: Sequence[str] | None = None) -> int:
    return launch(PROG, lambda a: parse(PROG, str(__doc__), [Data, Goal, Work, Running], a), work, argv)


if __name__ == "__main__":
    from distadmm.funnel import main as run  # the real module, not its __main__ double

    raise SystemExit(run())
