"""ISTDP: sparse models by iterative shrinkage, private through noisy clipped gradients.

    python -m distadmm.istdp --epsilon 1 --adjacency replace            private, on the bundled Adult
    python -m distadmm.istdp --data file.csv --loss squared             not private
    python -m distadmm.istdp --data synthetic:20000 --epsilon 1 ...     rows made up, the answer known
    mpiexec -n 4 python -m distadmm.istdp ... --rng simulation --repetitions 20       shared out to the ranks

Without --epsilon there is no noise and no privacy.
"""

from distadmm.flags import entering

entering(__name__)

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from distadmm.data import options as groups
from distadmm.data.options import norms
from distadmm.data.rows import Rows, load
from distadmm.errors import DONE, UNCONVERGED, require
from distadmm.files import write_json
from distadmm.flags import again, flag, parse
from distadmm.methods.istdp.fit import (
    PrivateSolution,
    Solution,
    checked,
    claim_of,
    loss_of,
    rules,
    solve,
    solve_printed,
    solve_private,
)
from distadmm.methods.istdp.plan import make_plan
from distadmm.problems.concave import PENALTIES, make
from distadmm.ranks.launch import launch
from distadmm.ranks.world import World
from distadmm.run.claim import claim_directory
from distadmm.run.groups import Budget, Job, Shared
from distadmm.run.istdp_directory import Outcome, table, write
from distadmm.structs import struct

__all__ = ["Options", "PrivateSolution", "Solution", "main", "solve", "solve_printed", "solve_private"]


@struct
class Data(groups.Rows):
    """Which rows, and what is made of them."""

    intercept: bool = again(Shared, "intercept", note=", which no penalty holds")
    row_norm: str = again(Shared, "row_norm", note=": 1, synthetic rows as they are")

    def __post_init__(self) -> None:
        self.norm()

    def norm(self) -> float | None:
        if self.row_norm == "auto":
            return None if self.data.startswith("synthetic") else 1.0
        bounds = norms(self.row_norm) or (None,)
        require(len(bounds) == 1, f"--row-norm is {self.row_norm!r}; needed: one norm")
        return bounds[0]


@struct
class Model:
    """What is minimised."""

    flags_title = "model"
    loss: str = again(Shared, "loss", note=": logistic, huber, smooth-hinge, squared")
    penalty: str = flag("mcp", help=f"one of {', '.join(PENALTIES)}", choices=PENALTIES)
    lambda_: float | None = again(
        Shared,
        "lambda_",
        note=" (default: private, sigma sqrt(2 ln d), which no record enters; otherwise a twentieth of what keeps "
        "every column out)",
    )
    reach: float | None = flag(
        None,
        help="alpha, the reach of the penalty: it is flat beyond alpha lambda (default: by rule)",
        was={"alpha": {}},
    )
    stop_tolerance: float | None = again(
        Shared,
        "stop_tolerance",
        below=1,
        note=", as a share of lambda; without privacy (default: 1e-06)",
        was={"tolerance": {}},
    )
    iterations: int | None = again(Shared, "iterations", note=" (default: 50 when private, otherwise 10000)")

    def __post_init__(self) -> None:
        loss_of(self.loss)
        make(self.penalty, 0.0 if self.lambda_ is None else self.lambda_, self.reach)


@struct
class Privacy(Budget):
    """The budget and how it is spent."""

    adjacency: str | None = again(Budget, "adjacency", note="; no default", choices=("replace", "add-remove"))
    public_rows: int | None = again(Shared, "public_rows")
    gradient_norm: float = flag(
        1.0, help="C: norm to which each record's gradient is shortened", was={"clip": {}}
    )
    steps: str = flag("bb", help="bb (from noisy gradients) or fixed", choices=("bb", "fixed"))
    step: float | None = flag(None, help="first step, or the fixed one (default: --shortest)")
    shortest: float | None = flag(None, help="alpha_min (default: 1/(c1 C^2), c1 the loss's curvature)")
    longest: float | None = flag(None, help="alpha_max (default: 20 times the shortest)")
    form: str = again(Shared, "form", note="; paper: Algorithm 1, whose claim is refuted")
    private_objective: bool = flag(
        False,
        help="write the objective on the private rows too: outside every guarantee",
        was={"observe": {True: True, False: False}},
    )

    def __post_init__(self) -> None:
        require(
            self.epsilon is not None or self.form == "sound",
            "--form paper is the private Algorithm 1; give its --epsilon and --adjacency",
        )
        require(
            self.epsilon is None or self.adjacency is not None,
            "a private run needs --adjacency and there is no default: replace (one record another, the number of "
            "rows public) or add-remove (one record more or less, with --public-rows)",
        )
        for name in ("adjacency", "public_rows", "step", "shortest", "longest"):
            require(
                self.epsilon is not None or getattr(self, name) is None,
                f"--{name.replace('_', '-')} is for private runs; give --epsilon too, or leave it out",
            )

    def planned(self) -> dict[str, Any]:
        """Keywords of `make_plan`, without the model's."""
        return {
            "clip": self.gradient_norm, "divisor": self.public_rows, "rule": self.steps, "first": self.step,
            "shortest": self.shortest, "longest": self.longest, "epsilon": self.epsilon, "delta": self.delta,
            "adjacency": self.adjacency,
        }  # fmt: skip


@struct
class Running(Job):
    """How the run is kept."""

    repetitions: int = flag(
        1, help="simulation: so many independent runs, shared out to the ranks", at_least=1
    )


@dataclass(frozen=True)
class Options:
    """All flags of the command, by group."""

    data: Data
    model: Model
    privacy: Privacy
    run: Running

    def __post_init__(self) -> None:
        private, run = self.privacy, self.run
        require(
            run.repetitions == 1 or (private.epsilon is not None and private.rng == "simulation"),
            "--repetitions is for --rng simulation: every secure run would spend the whole budget, and without "
            "--epsilon all would be the same",
        )
        require(
            private.adjacency != "add-remove" or not self.data.test_fraction,
            "--test-fraction with --adjacency add-remove: one record more or less deals all rows out anew, so that "
            "many others enter the training or leave it; give a file without the rows to test on",
        )
        if private.epsilon is not None:  # whatever is wrong with the plan is said before a row is read
            make_plan(
                dimension=1, rows=1, loss=loss_of(self.model.loss), iterations=self.model.iterations or 50,
                lam=self.model.lambda_, alpha=self.model.reach,
                **({**private.planned(), "divisor": 1.0} if private.form == "paper" else private.planned()),
            )  # fmt: skip
        if private.form == "paper":
            require(self.model.lambda_ is not None, "--form paper has no rule for lambda; give --lambda")
            require(self.model.penalty == "mcp", "--form paper is for the penalty mcp")
            require(not self.data.intercept, "--form paper has no intercept; leave it out")
            require(not private.private_objective, "--private-objective is for the sound form; leave it out")

    def table(self) -> dict[str, Any]:
        """Flag name -> value, as `config.json` keeps it and `--config` reads it."""
        parts = (self.data, self.model, self.privacy, self.run)
        table = {f.name.rstrip("_"): getattr(part, f.name) for part in parts for f in fields(part)}
        return {name: value for name, value in table.items() if name != "force"}


def read(argv: list[str]) -> Options:
    return Options(*parse("distadmm.istdp", __doc__ or "", [Data, Model, Privacy, Running], argv))


def rows_of(options: Options) -> Rows:
    data = options.data
    sound = options.privacy.epsilon is not None and options.privacy.form == "sound"
    reading = data.reading() | {"private": sound}
    rows = load(
        data.data, loss=loss_of(options.model.loss), row_norm=data.norm(), seed=options.run.seed, **reading
    )
    checked(rows.X, rows.y, options.model.loss)
    if sound and rows.facts is not None:
        rows.facts.require_public(data.data)
    return rows


def run_open(options: Options, rows: Rows) -> Outcome:
    """Without privacy."""
    model = options.model
    lam, alpha = rules(*checked(rows.X, rows.y, model.loss), model.lambda_, model.reach)
    found = solve(
        rows.X, rows.y, loss=model.loss, penalty=model.penalty, lam=lam, alpha=alpha,
        intercept=options.data.intercept, tol=model.stop_tolerance or 1e-6, iterations=model.iterations or 10_000,
    )  # fmt: skip
    steps = [0.0, *found.steps.tolist()]
    history = [
        {"iteration": k, "step": step, "objective": value}
        for k, (step, value) in enumerate(zip(steps, found.history.tolist()))
    ]
    facts = {
        "form": "not private", "loss": model.loss, "penalty": model.penalty, "lambda": lam, "alpha": alpha,
        "iterations": found.iterations, "objective": found.objective, "residual": found.residual,
        "converged": found.converged,
    }  # fmt: skip
    notes = ["No noise: not private."]
    if not found.converged:
        notes.append(
            f"Not converged after {found.iterations} iterations; raise --iterations or --stop-tolerance."
        )
    quality = rows.quality(found.theta, options.data.intercept)
    return Outcome(found.theta, history, facts, quality, notes, found.converged)


def run_private(options: Options, rows: Rows, repetition: int, folder: Path | None) -> Outcome:
    """One private run; it depends on the options, the rows and the repetition's number alone."""
    from distadmm.privacy.ledger.books import open_ledger

    model, privacy, run = options.model, options.privacy, options.run
    assert privacy.epsilon is not None
    assert privacy.adjacency is not None
    scope = "record" if run.repetitions == 1 else "unknown"  # repetitions meet the same records
    header: dict[str, Any] = {
        "adjacency": privacy.adjacency, "mode": privacy.rng, "scope": scope, "dataset": rows.dataset,
        "claim": claim_of(privacy.adjacency, privacy.form),
    }  # fmt: skip
    ledger = open_ledger(folder, repetition, **header)
    common: dict[str, Any] = {
        "loss": model.loss, "alpha": model.reach, "ledger": ledger, "iterations": model.iterations or 50,
        "seed": run.seed if privacy.rng == "simulation" else None,
    }  # fmt: skip
    objectives: list[float] = []
    with ledger:
        if privacy.form == "paper":
            assert model.lambda_ is not None
            common |= {"epsilon": privacy.epsilon, "delta": privacy.delta, "adjacency": privacy.adjacency}
            bounds = {"shortest": privacy.shortest, "longest": privacy.longest}
            common |= {name: value for name, value in bounds.items() if value is not None}
            found = solve_printed(rows.X, rows.y, lam=model.lambda_, bound=privacy.gradient_norm, **common)
        else:
            watch = _objective_watch(options, rows, objectives) if privacy.private_objective else None
            found = solve_private(
                rows.X, rows.y, penalty=model.penalty, intercept=options.data.intercept, lam=model.lambda_,
                watch=watch, **privacy.planned(), **common,
            )  # fmt: skip
    history = [line._asdict() for line in found.history]
    for line, value in zip(history, objectives):
        line["objective"] = value
    quality = rows.quality(found.theta, options.data.intercept)
    return Outcome(
        found.theta, history, _facts(options, found), quality, _notes(options, found), not found.stuck
    )


def _facts(options: Options, found: PrivateSolution) -> dict[str, Any]:
    from distadmm.privacy.accounting.statements import rounded_up

    plan = found.plan
    divisor = {} if options.privacy.form == "paper" else {"divisor": plan.divisor}
    upwards = float(rounded_up(found.epsilon, 6)) if math.isfinite(found.epsilon) else "infinite"
    return {
        "form": options.privacy.form, "loss": options.model.loss, "penalty": options.model.penalty,
        "lambda": plan.lam, "alpha": plan.alpha, "iterations": plan.iterations, "clip": plan.clip,
        **divisor, "rng": options.privacy.rng, "noise_multiplier": plan.noise_multiplier, "sigma": found.sigma,
        "adjacency": plan.adjacency, "epsilon": upwards, "delta": plan.delta,
    }  # fmt: skip


def _notes(options: Options, found: PrivateSolution) -> list[str]:
    notes = [found.statement]
    if found.stuck:
        notes.append(
            f"In {len(found.stuck)} of {len(found.history)} iterations (the first: {found.stuck[0]}) the inner loop "
            "had accepted no step after 40 halvings. As printed it has no other end; here theta stayed and the run "
            "went on."
        )
    if options.privacy.private_objective:
        notes.append(
            "The objectives in history.csv are computed from the rows without noise: keep that file private."
        )
    return notes


def _objective_watch(options: Options, rows: Rows, into: list[float]) -> Any:
    loss, n = loss_of(options.model.loss), len(rows.y)

    def watch(k: int, theta: Any) -> None:
        z = rows.X @ theta[: rows.X.shape[1]] + (theta[-1] if options.data.intercept else 0.0)
        into.append(float(loss.value(z, rows.y).sum()) / n)

    return watch


def outlook(options: Options, rows: Rows) -> str:
    """What would be run."""
    model, privacy, (n, d) = options.model, options.privacy, rows.X.shape
    counted = f"{n} rows, " if privacy.adjacency != "add-remove" else ""
    text = f"{rows.description['name']}: {counted}{d} columns; loss {model.loss}, penalty {model.penalty}"
    if privacy.epsilon is None:
        return f"{text}\nno noise, no privacy: at most {model.iterations or 10_000} iterations"
    if privacy.form == "paper":
        return f"{text}\nAlgorithm 1 as printed, {model.iterations or 50} iterations: its claim is refuted"
    plan = make_plan(
        dimension=d, rows=n, loss=loss_of(model.loss), iterations=model.iterations or 50, lam=model.lambda_,
        alpha=model.reach, **privacy.planned(),
    )  # fmt: skip
    return (
        f"{text}\n{plan.iterations} releases with noise of {plan.noise_multiplier:.4g} sensitivities: "
        f"({privacy.epsilon:g}, {privacy.delta:g})-DP, {privacy.adjacency}"
    )


def work(options: Options, world: World) -> int:
    if options.run.dry_run:
        text = world.on_root(lambda: outlook(options, rows_of(options)))
        if world.is_root:
            print(text)
        return DONE
    repetitions = options.run.repetitions
    if repetitions == 1:
        return world.on_root(lambda: _alone(options))
    rows = world.on_root(lambda: rows_of(options))
    folder = world.on_root(lambda: _begin(options, rows))
    found = world.share_out(
        lambda repetition: run_private(options, rows, repetition, folder / "ledger"), range(repetitions)
    )
    return world.on_root(lambda: _finish(options, rows, found or [], folder))


def _alone(options: Options) -> int:
    rows = rows_of(options)
    if options.privacy.epsilon is None:
        outcome = run_open(options, rows)
        return _finish(options, rows, [outcome], _begin(options, rows))
    folder = _begin(options, rows)
    return _finish(options, rows, [run_private(options, rows, 0, folder / "ledger")], folder)


def _begin(options: Options, rows: Rows) -> Path:
    """The run directory with its configuration; nothing in it gives a private number of rows away."""
    folder = claim_directory(options.run.out, "istdp", force=options.run.force)
    hidden = ("rows", "test_rows") if options.privacy.adjacency == "add-remove" else ()
    described = {name: value for name, value in rows.description.items() if name not in hidden}
    write_json(folder / "config.json", {"command": "istdp", "config": options.table(), "data": described})
    return folder


def _finish(options: Options, rows: Rows, outcomes: list[Outcome], folder: Path) -> int:
    summary = write(folder, outcomes, rows, options.data.intercept)
    print("\n".join(table(summary, folder)))
    return UNCONVERGED if options.run.strict and not all(o.finished for o in outcomes) else DONE


def __getattr__(name: str) -> Any:
    """The scikit-learn estimators, imported when first asked for."""
    if name in ("ISTDPClassifier", "ISTDPRegressor", "MCPClassifier"):
        from distadmm import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main(argv: list[str] | None = None) -> int:
    return launch("distadmm.istdp", read, work, argv)


if __name__ == "__main__":
    from distadmm.istdp import main as run  # the real module, not its __main__ double

    raise SystemExit(run())
