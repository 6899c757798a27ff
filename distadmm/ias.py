"""Privacy mappings for inference as a service: maximise I(S;U) - beta E[d(Y,U)] over p(u|y).

python -m distadmm.ias --data people.csv --infer income --column education --f mi --beta 0.02
python -m distadmm.ias sweep --problem gauss --f js --points 18      the Pareto curve
mpiexec -n 4 python -m distadmm.ias ...                              starts shared out, the same bits
"""

from distadmm.flags import started

if __name__ == "__main__":  # one BLAS thread a rank, before numpy is loaded
    raise SystemExit(started("distadmm.ias"))

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.mapping import Mapping
from distadmm.methods.confidence import Ball
from distadmm.methods.ias import report
from distadmm.methods.ias.admm import told
from distadmm.methods.ias.certificate import OPEN, Certificate, certify, thresholds
from distadmm.methods.ias.design import Design, check_sizes, solve
from distadmm.methods.ias.inference import Inference, stand_in
from distadmm.methods.ias.measures import Measure, measure, own
from distadmm.methods.ias.multistart import Method
from distadmm.methods.ias.objective import Objective, random_starts
from distadmm.methods.ias.options import Data, Goal, Range, Running, Solver
from distadmm.methods.ias.pareto import Curve, sweep
from distadmm.ranks.world import World
from distadmm.run import design, shell

__all__ = [
    "Certificate", "Curve", "Design", "Inference", "Mapping", "Measure", "Method", "Objective",
    "certify", "main", "measure", "own", "solve", "stand_in", "sweep", "thresholds",
]  # fmt: skip


class Prepared(NamedTuple):
    options: design.Options
    world: World
    problem: Inference
    ball: Ball | None  # where the true law is, if that is asked for
    measure: Measure  # a user's file is run on every rank: functions cannot be sent

    @property
    def symbols(self) -> int:
        return self.options.goal.u_size or len(self.problem.P_Y)

    @property
    def how(self) -> dict[str, Any]:
        goal, run = self.options.goal, self.options.run
        return {"u_size": self.symbols, "eps": goal.eps, "seed": run.seed, "world": self.world}


class InferenceAsService(design.Design):
    """A mapping of a column Y: what a server may infer of S, against what it learns of Y itself."""

    kind, prog, about = "ias", "distadmm.ias", __doc__
    flags: tuple[type, ...] = (Data, Goal, Solver, Running)

    def prepare(self, options: design.Options, world: World) -> Prepared:
        problem, ball = world.on_root(options.data.load)
        with world.together():
            prepared = Prepared(options, world, problem, ball, measure(options.goal.f))
            check_sizes(getattr(options.how, "beta", 1.0), prepared.symbols, options.goal.eps)
        return prepared

    def outlook(self, prepared: Prepared, price: None) -> str:
        found, sizes = prepared.problem, f"|S| {len(prepared.problem.P_S)}, |Y| {len(prepared.problem.P_Y)}"
        return f"{sizes}, |U| {prepared.symbols}, I(S;Y) {found.I_SY:.6f}; measure {prepared.measure.name}"

    def designed(self, prepared: Prepared, run: Any) -> shell.Outcome | None:
        (_, goal, solver, output), problem, f = prepared.options, prepared.problem, prepared.measure
        found = solve(
            problem, f, solver.beta, method=solver.make(), restarts=goal.restarts, starts=solver.starts,
            polish=solver.polish, certify=bool(goal.certify), **prepared.how,
        )  # fmt: skip
        if found is None:
            return None
        lines, summary = report.lines(found), report.summary(found)
        if prepared.ball is not None:
            sure = prepared.ball.bounds(found.mapping.matrix, f)
            lines, summary = lines + sure.lines(), {**summary, "confidence": sure.summary()}
        if solver.form == "paper":
            start = random_starts(problem, found.P.shape[1], goal.eps, output.seed, [0], solver.starts)[0]
            lines += told(Objective(problem, f, solver.beta), start, goal.eps, solver.penalty_rho)
        made, proof = found.mapping, found.certificate
        title = f"{problem.name} {found.measure} beta {found.beta:g}: F = {found.F:.6f}"
        symbols = made.prior @ made.matrix
        draw = partial(design.draw_mapping, P=made.matrix, values=made.values, a=symbols, title=title)
        files: design.Files = {name: made.save for name in ("mapping.npz", "mapping.csv")}
        files |= design.drawn(output.figure, "mapping.svg", draw)
        settled = found.converged.any() and (proof is None or proof.open <= OPEN)
        unsettled = "" if settled else "not settled: see the lines above"
        outcome = self.outcome(run, summary, lines, files, unsettled)
        outcome.descriptions = design.described(["mapping"], made.column, made.values)
        return outcome


class Sweep(InferenceAsService):
    """A mapping for every beta."""

    prog = "distadmm.ias sweep"
    flags = (Data, Goal, Range, Running)  # the betas are told in another way

    def title(self, options: design.Options) -> str:
        return "ias-sweep"

    def designed(self, prepared: Prepared, run: Any) -> shell.Outcome | None:
        (_, goal, wanted, output), problem = prepared.options, prepared.problem
        certified = goal.certify is not False
        curve = sweep(
            problem, prepared.measure, wanted.betas, points=wanted.points, restarts=goal.restarts or 20,
            certify=certified, **prepared.how,
        )  # fmt: skip
        if curve is None:
            return None
        I, E, sure = (np.array([getattr(p, of) for p in curve.points]) for of in ("I", "E", "certified"))
        draw = partial(design.draw_pareto, I=I, E=E, certified=sure, title=f"{problem.name} {goal.f}")
        mappings = {
            f"mapping-{number:02d}": Mapping(
                point.P, problem.values, problem.P_Y, problem.name, problem.A
            ).compact()
            for number, point in enumerate(curve.points)
        }
        files: design.Files = {f"{stem}.npz": made.save for stem, made in mappings.items()}
        files |= {"curve.csv": partial(report.write_curve, curve)}
        files |= design.drawn(output.figure, "curve.svg", draw)
        unsettled = "not all points are certified: see the table" if certified and not sure.all() else ""
        lines, summary = report.curve_lines(curve), report.of_curve(curve)
        if prepared.ball is not None:
            known = [prepared.ball.bounds(made.matrix, prepared.measure) for made in mappings.values()]
            lines += [f"beta {p.beta:.4f}: {one.text()}" for p, one in zip(curve.points, known)]
            lines += prepared.ball.lines()
            for point, one in zip(summary["points"], known):
                point["confidence"] = one.summary()
        outcome = self.outcome(run, summary, lines, files, unsettled)
        outcome.descriptions = design.described(list(mappings), problem.name, problem.values)
        return outcome


PROGRAMME = InferenceAsService()


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    return shell.main(Sweep(), words[1:]) if words[:1] == ["sweep"] else shell.main(PROGRAMME, words)
