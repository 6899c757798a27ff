"""Privacy funnel: release Y of a public X with I(X;Y) >= R that says as little as possible of a private S.

python -m distadmm.funnel --data people.csv --private illness --public age,region --rates 1.5 --smooth 0.5
python -m distadmm.funnel --problem synthetic-unif --points 20            a curve, with proven lower bounds
python -m distadmm.funnel --problem synthetic-unif --method aem           the paper's iteration
mpiexec -n 4 python -m distadmm.funnel ...                                work shared out, the same bits
"""

from distadmm.flags import started

if __name__ == "__main__":  # one BLAS thread a rank, before numpy is loaded
    raise SystemExit(started("distadmm.funnel"))

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from distadmm.data import joint as tables
from distadmm.errors import require
from distadmm.methods.confidence import Ball
from distadmm.methods.funnel import literal, perfect, report, solvers
from distadmm.methods.funnel.curve import curve, promised
from distadmm.methods.funnel.model import Array, Joint, Solution, from_joint, informations, of_table
from distadmm.methods.funnel.options import Data, Goal, Running
from distadmm.methods.funnel.perfect import Perfect
from distadmm.methods.funnel.report import mapping
from distadmm.methods.funnel.solvers import DEFAULT, METHODS, Effort
from distadmm.ranks.world import World
from distadmm.run import design, kinds, shell
from distadmm.run.design import draw_funnel

__all__ = [
    "METHODS", "Effort", "Joint", "Perfect", "Solution", "curve", "from_joint", "informations", "main",
    "mapping", "perfect_privacy", "problem", "solve",
]  # fmt: skip


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


class Prepared(NamedTuple):
    options: design.Options
    world: World
    joint: Joint
    column: str  # what X is made of
    ball: Ball | None  # where the true law is, if that is asked for
    rates: list[float]
    effort: Effort


class PrivacyFunnel(design.Design):
    kind, prog, about = "funnel", "distadmm.funnel", __doc__
    flags = (Data, Goal, Effort, Running)

    def prepare(self, options: design.Options, world: World) -> Prepared:
        data, goal, trying, run = options
        effort = replace(trying, seed=run.seed)

        def checked() -> tuple[Joint, str, Ball | None, list[float]]:
            joint, column, ball = data.load()
            solvers.check(joint, goal.method, effort)
            require(
                ball is None or goal.form == "sound",
                "--form paper has no channel to bound; leave out --confidence",
            )
            return joint, column, ball, goal.demands(joint)

        return Prepared(options, world, *world.on_root(checked), effort)

    def outlook(self, prepared: Prepared, price: None) -> str:
        joint, wanted = prepared.joint, ", ".join(f"{R:.6g}" for R in prepared.rates)
        sizes = f"|S| {joint.K}, |X| {joint.M}, H(X) {joint.HX:.6f}, I(S;X) {joint.ISX:.6f}"
        return f"{sizes}; {prepared.options.goal.method}, R {wanted}"

    def designed(self, prepared: Prepared, run: Any) -> shell.Outcome | None:
        options, world, joint, column, ball, rates, effort = prepared
        goal = options.goal
        if goal.form == "paper":
            return self._printed(joint, rates, effort, run) if world.is_root else None
        known = world.on_root(lambda: perfect.solve(joint, effort.seed))
        certify = goal.certify is not False

        def channels(asked: list[float]) -> list[Solution] | None:
            return curve(joint, asked, goal.method, effort=effort, certify=certify, world=world, known=known)

        both = promised(joint, rates, ball, channels, world) if ball else (channels(rates), [])
        found, sure = both or (None, [])
        if found is None:
            return None
        stems = ["mapping"] if len(found) == 1 else [f"mapping-{k:02d}" for k in range(1, len(found) + 1)]
        files: design.Files = {"curve.csv": partial(report.write_curve, joint, found)}
        for stem, one in zip(stems, found):
            files |= {f"{stem}{suffix}": mapping(joint, one, column).save for suffix in (".npz", ".csv")}
        points = np.array([(one.R, one.leakage, one.lower) for one in found])
        whole, R0 = (joint.HX, joint.ISX), (known.R0, known.exact)
        draw = partial(draw_funnel, curve=points, method=found[0].method, whole=whole, perfect=R0)
        files |= design.drawn(options.run.figure and len(found) > 1, "curve.svg", draw)
        open_ = [one for one in found if not one.converged and one.leakage - one.lower > report.CLOSE]
        short = [R for R, one in zip(rates, sure) if one.I_YU.low < R]
        unsettled = f"{len(open_)} of {len(found)} R are not settled: see the table" if open_ else ""
        if short:
            unsettled = f"{len(short)} of {len(found)} R cannot be promised: see the table"
        said = report.head(joint, known) + report.table(joint, found) + report.promises(rates, found, sure)
        outcome = self.outcome(run, report.summary(joint, found, known, rates, sure), said, files, unsettled)
        outcome.descriptions = design.described(stems, column, joint.public)
        return outcome

    def _printed(self, joint: Joint, rates: list[float], effort: Effort, run: Any) -> shell.Outcome:
        """Algorithm 1 as printed: there is no channel to write, only what became of it."""
        N, most = effort.alphabet(joint), effort.iterations or 500
        outcomes = {R: literal.report(joint, R, N, most) for R in rates}
        said = [line for R, found in outcomes.items() for line in report.told_literal(found, R)]
        return self.outcome(run, {kinds.REFUTED: report.of_literal(outcomes)}, said, {}, kinds.REFUTED)


PROGRAMME = PrivacyFunnel()


main = partial(shell.main, PROGRAMME)
