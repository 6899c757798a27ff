"""ISTDP: sparse models by iterative shrinkage, private through noisy clipped gradients.

    python -m distadmm.istdp --data file.csv --loss squared             not private
    python -m distadmm.istdp --data synthetic:20000 --epsilon 1 ...     rows made up, the answer known
    mpiexec -n 4 python -m distadmm.istdp ... --rng simulation --repetitions 20       shared out to the ranks

Without --epsilon there is no noise and no privacy.
"""

from distadmm.flags import started

if __name__ == "__main__":  # one BLAS thread a rank, before numpy is loaded
    raise SystemExit(started("distadmm.istdp"))

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from distadmm.data.content import Content
from distadmm.data.mapping import named_mappings
from distadmm.data.rows import Rows, load
from distadmm.errors import require
from distadmm.files import write_csv
from distadmm.flags import value_of
from distadmm.methods.istdp import fit, words
from distadmm.methods.istdp.fit import PrivateSolution, Solution, solve, solve_printed, solve_private
from distadmm.methods.istdp.options import Data, Model, Options, Privacy, Running
from distadmm.methods.istdp.plan import make_plan
from distadmm.methods.istdp.release import Price, price_of
from distadmm.privacy.accounting.statements import BOUNDED, if_assumed, refuted, rounded_up
from distadmm.privacy.ledger import account, books, filter, rules, tally
from distadmm.privacy.noise.release import UNCHECKED
from distadmm.privacy.noise.sources import Source, source_of
from distadmm.problems.losses import Array, foreign, link_of
from distadmm.ranks.uplink import Uplink
from distadmm.ranks.world import World
from distadmm.run import kinds, model, running, shell
from distadmm.run.ends import End

__all__ = ["Options", "PrivateSolution", "Solution", "main", "solve", "solve_printed", "solve_private"]


class Prepared(NamedTuple):
    options: Options
    world: World
    rows: Any  # `Rows`, or None on a rank that has nothing to do


class Fit(NamedTuple):
    """What one repetition leaves behind."""

    theta: Array
    ended: str
    iterations: int
    seconds: float
    facts: dict[str, Any]  # the same for all repetitions
    columns: tuple[str, ...]
    history: list[Any]
    said: list[str]
    sentence: str  # what may be said of its privacy, alone
    finished: bool  # converged, or never stuck
    began: int = 0
    closing: Sequence[tuple[str, str]] = ()


class Line(tuple[Any, ...]):
    """What an onlooker sees of an iteration: its columns are those of `_Watcher`."""

    residual = math.inf

    @property
    def diverged(self) -> bool:
        return not math.isfinite(self[3])

    def details(self) -> list[str]:
        return [f"{self[2]} columns", f"|theta| {self[3]:.3g}"]


class _Watcher:
    """Measures from released values alone, unless the objective on the private rows was asked for."""

    def __init__(self, repetition: int, objective: Callable[[Array], float] | None):
        self.uplink, self.repetition, self.objective = Uplink(World(), 0, 0), repetition, objective

    @property
    def columns(self) -> tuple[str, ...]:
        return (*fit.Step._fields, "repetition", *(["objective"] if self.objective else []))

    def lines(self) -> list[Line]:
        """Nothing is held back."""
        return []

    def measure(self, k: int, phase: str, state: Any, before: Any, seconds: float, later: bool) -> list[Line]:
        own = [self.objective(state.model)] if self.objective else []
        return [Line((*fit.line(k, state), self.repetition, *own))]


class Istdp(shell.Programme):
    kind, prog, about, listens = "istdp", "distadmm.istdp", __doc__, True
    flags, form = (Data, Model, Privacy, Running), Options
    bound = frozenset({"iterations"})  # T decides how much noise each of them has

    def read(self, argv: Sequence[str]) -> Options:
        following = value_of(argv, "--observe")
        require(
            "--observe" not in argv or (following is not None and not following.startswith("--")),
            "--observe now says how often to measure; with the objective on the private rows it is --observe all",
        )
        return super().read(argv)  # type: ignore[no-any-return]

    def prepare(self, options: Options, world: World) -> Prepared:
        here: list[Rows] = []
        world.on_root(lambda: here.append(rows_of(options)))
        rows = here[0] if here else None
        if options.run.repetitions > 1:  # simulations, which no account holds
            rows = world.broadcast(rows and replace(rows, content=None))
        return Prepared(options, world, rows)

    def price(self, prepared: Prepared) -> Price | None:
        return prepared.world.on_root(lambda: price_for(prepared.options, prepared.rows))

    def outlook(self, prepared: Prepared, price: Price | None) -> str:
        return "" if prepared.rows is None else words.outlook(prepared.options, prepared.rows, price)

    def describe(self, prepared: Prepared, price: Price | None) -> dict[str, Any]:
        """Nothing of it gives a private number of rows away."""
        rows = prepared.rows
        if rows is None:
            return {}
        hidden = ("rows", "test_rows") if prepared.options.privacy.adjacency == "add-remove" else ()
        shown = {name: value for name, value in rows.description.items() if name not in hidden}
        return {"data_id": rows.dataset, "data": shown}

    def solve(self, prepared: Prepared, price: Price | None, run: running.Running) -> shell.Outcome:
        options, world, rows = prepared
        flags = run.flags if options.run.repetitions == 1 else replace(run.flags, progress="none")
        alone = type(run)(world.alone(), flags, run.name, run.folder, run.data_id)
        make: Any = partial(run_private, options, rows, price) if price else partial(run_open, options, rows)
        one = partial(make, alone)
        found: list[Fit] = []
        if options.run.repetitions == 1:
            world.on_root(lambda: found.append(one(0)))
        else:
            found += world.share_out(one, range(options.run.repetitions)) or []
        outcome = _summed_up(options, rows, found, run) if world.is_root else shell.Outcome()
        outcome.ended, outcome.strict = world.broadcast((outcome.ended, outcome.strict))
        return outcome


PROGRAMME = Istdp()


def rows_of(options: Options) -> Rows:
    data = options.data
    sound = options.privacy.epsilon is not None and options.privacy.form == "sound"
    loss, reading = fit.loss_of(options.model.loss), data.reading() | {"private": sound}
    reading["sanitise"] = named_mappings(data.sanitise)
    rows = load(data.data, loss=loss, row_norm=data.norm(), seed=options.run.seed, **reading)
    X, y, _ = fit.checked(rows.X, rows.y, options.model.loss)
    if sound and rows.facts is not None:
        rows.facts.require_public(data.data)
    hidden = sound and data.test_fraction and not options.run.observe_all  # rows of the private file, too
    return replace(rows, X=X, y=y, test=None if hidden else rows.test)


def price_for(options: Options, rows: Rows | None) -> Price | None:
    """The plan, and what it costs; refused here, before a file is written, where a budget does not admit it."""
    model, privacy = options.model, options.privacy
    assert rows is not None
    if privacy.epsilon is None:
        return None
    n, d = rows.X.shape
    common: dict[str, Any] = {"lam": model.lambda_, "alpha": model.reach}
    common["iterations"] = model.iterations or 50
    if privacy.form == "paper":
        given = {
            name: value for name in ("shortest", "longest") if (value := getattr(privacy, name)) is not None
        }
        return fit.printed_price(
            epsilon=privacy.epsilon, delta=privacy.delta, adjacency=privacy.adjacency, dimension=d,  # type: ignore[arg-type]
            bound=privacy.gradient_norm, **given, **common,
        )  # fmt: skip
    width, loss = d + options.data.intercept, fit.loss_of(model.loss)
    plan = make_plan(dimension=width, rows=n, loss=loss, **privacy.planned(), **common)
    price = price_of(plan, privacy.rng)
    if privacy.budget_epsilon is not None:
        trial = rules.MemoryLedger(adjacency=plan.adjacency, mode=privacy.rng, budget=limit(options, price))
        trial.commit(price.schedule.events)
    return price


def limit(options: Options, price: Price) -> filter.Filter | None:
    """What the ledger keeps to: what --budget-epsilon allows, or else the schedule that --epsilon was spent on."""
    privacy = options.privacy
    unbounded = privacy.form == "paper" or foreign(fit.loss_of(options.model.loss))
    if unbounded and privacy.budget_epsilon is None:  # no schedule holds what has no bound
        return None
    if privacy.budget_epsilon is None:
        return filter.ScheduleFilter(
            price.plan.epsilon, price.plan.delta, tally.schedule_hash(price.schedule.events)
        )
    delta = privacy.delta if privacy.budget_delta is None else privacy.budget_delta
    return price.schedule.limit(privacy.budget_epsilon, delta, price.plan.adjacency)


def run_open(options: Options, rows: Rows, run: running.Running, repetition: int) -> Fit:
    """Without privacy."""
    model, every, why = options.model, options.run.observe_every, [""]

    def stop() -> bool:
        run.world.dog.beat()
        why[0] = run.asked_to_stop()
        return bool(why[0])

    run.start_clock()
    began = perf_counter()
    lam, alpha = fit.rules(rows.X, rows.y, fit.loss_of(model.loss), model.lambda_, model.reach)
    found = solve(
        rows.X, rows.y, loss=model.loss, penalty=model.penalty, lam=lam, alpha=alpha, stop=stop,
        intercept=options.data.intercept, tol=model.stop_tolerance or 1e-6, iterations=model.iterations or 10_000,
    )  # fmt: skip
    seconds, last = perf_counter() - began, found.iterations
    lines = zip(
        range(last + 1), [0.0, *found.steps.tolist()], [repetition] * (last + 1), found.history.tolist()
    )
    facts = {
        "lambda": lam, "alpha": alpha, "objective": found.objective, "residual": found.residual,
        "converged": found.converged, "epsilon": math.inf, "delta": options.privacy.delta, "adjacency": None,
        "statement": kinds.UNBOUNDED,
    }  # fmt: skip
    said = ["No noise: not private."]
    if not found.converged:
        said.append(f"Not converged after {last} iterations; raise --iterations or --stop-tolerance.")
    ended = End.CONVERGED.word if found.converged else why[0] or End.ITERATIONS.word
    columns = ("iteration", "step", "repetition", "objective")
    history = [line for line in lines if every and (line[0] % every == 0 or line[0] == last)]
    return Fit(found.theta, ended, last, seconds, facts, columns, history, said, said[0], found.converged)


def run_private(options: Options, rows: Rows, price: Price, run: running.Running, repetition: int) -> Fit:
    """One private run; what it computes depends on the options, the rows and the repetition's number alone."""
    from distadmm.run.loop import Course, Loop
    from distadmm.run.spending import enter, leave

    privacy, plan, sound = options.privacy, price.plan, options.privacy.form == "sound"
    smooth = fit.loss_of(options.model.loss)
    ledger, source, content = _ledger(options, rows, price, run, repetition)
    if content is not None:
        schedule = price.schedule.doubted(fit.unchecked(smooth) if sound else "")
        enter(run, privacy.account, [ledger], [schedule], content.marks, plan.delta)
    if sound:
        course = fit.sound_course(
            rows.X, rows.y, smooth, price, ledger, source, options.model.penalty, options.data.intercept,
            kept=run.flags.checkpoint_every is not None,
        )  # fmt: skip
        if not ledger.events:
            ledger.commit(price.schedule.events, plan.adjacency)
        file = fit.note_unchecked(ledger, smooth)
    else:
        course = fit.printed_course(rows.X, rows.y, smooth, price, ledger, source)
    fit.note_sanitised(ledger, options.data.sanitise)
    watcher = _Watcher(repetition, partial(_objective, options, rows, smooth) if options.observed else None)
    steps = Course(course.iterations, options.run.observe_every)
    loop = Loop(course.method, course.place, watcher, run, steps)
    k, state = loop.go()
    facts: dict[str, Any] = {
        "lambda": plan.lam, "alpha": plan.alpha, "clip": plan.clip, **({"divisor": plan.divisor} if sound else {}),
        "rng": privacy.rng, "noise_multiplier": plan.noise_multiplier, "sigma": price.sigma,
        "adjacency": plan.adjacency, "epsilon": math.inf, "delta": plan.delta, "statement": kinds.REFUTED,
    }  # fmt: skip
    if sound:
        known = fit.said_of(ledger, plan.delta)
        spent = known.would_be if known.reading == "simulation" else known.epsilon
        worth = f"{UNCHECKED} {file}" if file else ledger.statement_kind
        facts |= {"epsilon": float(rounded_up(spent, 6)), "statement": worth}
        said = [known.text, known.not_covered]
        if privacy.assume is not None:
            seeded = privacy.rng != "secure"
            words_of = partial(if_assumed, price.epsilon, plan.delta, plan.adjacency, file)
            said.insert(1, f"{words_of(seeded=seeded, does=BOUNDED)}.")
        stuck: list[int] = []
    else:
        said, stuck = [refuted(plan.epsilon, plan.delta, fit.printed.REFUTED)], state.stuck.tolist()
    sentence = said[0]
    ledger.close()
    closing = leave(run, [ledger], seeded=source.mode != "secure")
    if stuck:
        said.append(
            f"In {len(stuck)} of {k} iterations (the first: {stuck[0]}) the inner loop had accepted no step after 40 "
            "halvings. As printed it has no other end; here theta stayed and the run went on."
        )
    return Fit(
        state.model + 0.0, loop.ended, k, loop.seconds, facts, watcher.columns, loop.history,
        [*([loop.reason] if loop.reason else []), *said], sentence, not stuck, loop.began, closing,
    )  # fmt: skip


def _ledger(
    options: Options, rows: Rows, price: Price, run: running.Running, repetition: int
) -> tuple[rules.MemoryLedger, Source, Content | None]:
    """The ledger of one repetition, opened or taken up again, the noise it is for, and for an account its rows."""
    privacy = options.privacy
    source = source_of(privacy.rng, options.run.seed if privacy.rng == "simulation" else None)
    content = rows.content(account.Account(privacy.account).key()) if source.mode == "secure" else None
    ledger = books.open_ledger(
        run.folder and run.folder / "ledger", repetition, resume=run.resumed, held=True, mode=source.mode,
        source=source.name,
        adjacency=price.plan.adjacency, dataset=rows.dataset, run=run.name,
        rows=content.names if content else (),
        scope="record" if options.run.repetitions == 1 else "unknown",  # repetitions meet the same records
        claim=fit.claim_of(privacy.adjacency, privacy.rng, privacy.form, options.observed),
        budget=limit(options, price),
    )  # fmt: skip
    if content is not None and run.resumed:
        from distadmm.run.spending import require_latest

        require_latest(run, privacy.account, [ledger])
    ledger.go_on()
    return ledger, source, content


def _objective(options: Options, rows: Rows, loss: Any, theta: Array) -> float:
    z = rows.X @ theta[: rows.X.shape[1]] + (theta[-1] if options.data.intercept else 0.0)
    return float(loss.value(z, rows.y).sum()) / len(rows.y)


def _summed_up(options: Options, rows: Rows, found: list[Fit], run: running.Running) -> shell.Outcome:
    """Means over the repetitions, standard deviations where there are several."""
    ended = next((one.ended for one in found if one.ended != End.ITERATIONS.word), End.ITERATIONS.word)
    # Of a run that was stopped those repetitions count that were not, if there are any.
    fits = [one for one in found if one.ended == End.ITERATIONS.word] or found
    first, intercept = fits[0], options.data.intercept
    summary: dict[str, Any] = {
        "ended": ended, "iterations": first.iterations, "seconds": sum(one.seconds for one in found),
        "repetitions": len(fits), "form": options.mode, "loss": options.model.loss,
        "penalty": options.model.penalty, **first.facts,
    }  # fmt: skip
    counts = [np.count_nonzero(one.theta) for one in fits]
    measured = [{**rows.quality(one.theta, intercept), "nonzeros": n} for one, n in zip(fits, counts)]
    for name in measured[0]:
        values = np.array([each[name] for each in measured], dtype=float)
        summary[name] = float(values.mean())
        if len(values) > 1:
            summary[f"{name}_sd"] = float(values.std(ddof=1))
    summary["notes"] = list(dict.fromkeys(chain.from_iterable(one.said for one in fits)))
    theta, names = np.stack([one.theta for one in fits]), (*rows.names, *(["intercept"] if intercept else []))
    chosen = [(names[j], *theta[:, j].tolist()) for j in np.flatnonzero(theta.any(axis=0))]
    heads = ("column", *(f"theta_{r}" for r in range(len(theta))))
    outcome = shell.Outcome(ended, first.iterations, first.began, first.columns)
    outcome.history = [line for one in fits for line in one.history]
    outcome.arrays = {"models.npz": {"theta": theta, "names": np.array(names)}}
    outcome.files = {"coefficients.csv": lambda path: write_csv(path, heads, chosen)}
    outcome.summary, outcome.said = summary, summary["notes"]
    described = {"algorithm": "istdp", "features": list(rows.names), "encoding": rows.encoding}
    described |= {"row_norm": options.data.norm(), "intercept": "outside" if intercept else None}
    described |= {"classes": list(rows.classes), "loss": options.model.loss}
    described["link"] = link_of(options.model.loss, fit.loss_of(options.model.loss))
    described["arrays"] = {"coefficients": ["models.npz", "theta"]}  # one row a repetition
    outcome.descriptions = {model.FILE: {**described, **model.privacy(summary, first.sentence)}}
    outcome.closing = [*words.closing(summary), *first.closing]
    outcome.strict = run.flags.strict and not all(one.finished for one in fits)
    return outcome


def __getattr__(name: str) -> Any:
    """The scikit-learn estimators, imported when first asked for."""
    if name in ("ISTDPClassifier", "ISTDPRegressor", "MCPClassifier"):
        from distadmm import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


main = partial(shell.main, PROGRAMME)
