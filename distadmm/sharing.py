"""ADMM sharing: one model over features that several parties hold about the same records.

Rank 0 is the centre and holds the labels; ranks 1..M are the parties and hold their columns; with fewer
ranks parties share one, and a single process hosts them all.
"""

from distadmm.flags import started

if __name__ == "__main__":  # one BLAS thread a rank, before numpy is loaded
    raise SystemExit(started("distadmm.sharing"))

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from distadmm.algorithm import Array, find
from distadmm.data.parties import DataOptions
from distadmm.data.parts import Parts, check, sparse_or_dense
from distadmm.files import finite
from distadmm.methods.sharing import admm, gauss_seidel, jacobi, messages, private, stationary, words
from distadmm.methods.sharing import price as prices
from distadmm.methods.sharing.observe import Observer, Watcher
from distadmm.methods.sharing.release import Release
from distadmm.methods.sharing.seat import Seat, Solution, iterate, solution_of
from distadmm.methods.sharing.setup import (
    ModelOptions,
    Options,
    Prepared,
    RunOptions,
    SolverOptions,
    centred,
    prepare,
)
from distadmm.problems.losses import Logistic, foreign, link_of, loss_named
from distadmm.ranks.star import Star
from distadmm.ranks.world import World
from distadmm.run import config, ends, model, running, shell, spending
from distadmm.run.loop import Course, Loop


def solve(
    blocks: Sequence[Any],
    labels: Array,
    *,
    problem: admm.Problem | None = None,
    algorithm: Any = None,
    iterations: int = 100,
    wire: str = "float64",
    observe: Callable[[int, Any], None] | None = None,
) -> Solution:
    """Train over `blocks`, one matrix a party, in this process.

    >>> solution = solve([A, B], labels)
    >>> scores = predict([A_new, B_new], solution)
    """
    problem = problem or admm.Problem(Logistic(), intercept=True)
    star = Star(parties=len(blocks), wire=wire)
    matrices = {m: sparse_or_dense(block) for m, block in enumerate(blocks, 1)}
    labels = np.asarray(labels, dtype=float)
    parts = Parts(matrices, {}, labels, {}, None, labels.size)
    check(star, parts, problem.loss)
    seat = Seat(star, problem, centred(star, parts, problem), labels, parts.rows)
    algorithm = algorithm or jacobi.Corrected()
    return solution_of(algorithm, *iterate(algorithm, seat, iterations, observe), seat)


def predict(blocks: Sequence[Any], solution: Solution) -> Array:
    """The scores of new records; `blocks` are their columns, party by party."""
    scores = np.full(blocks[0].shape[0], solution.intercept)
    for m, block in enumerate(blocks, 1):
        scores += block @ solution.models[m] - solution.means[m] @ solution.models[m]
    return scores


class SharingADMM(shell.Programme):
    kind, prog, listens, restarts = "sharing", "distadmm.sharing", True, True
    about, form = __doc__, Options
    flags = (DataOptions, ModelOptions, SolverOptions, messages.PrivacyOptions, RunOptions)

    def groups(self, asked: dict[str, Any]) -> list[type]:
        name = str(asked.get("algorithm", ""))
        return [*self.flags, *([find(name, "star").cls] if name.endswith(".py") else [])]

    def prepare(self, options: Options, world: World) -> Prepared:
        return prepare(options, world)

    def price(self, prepared: Prepared) -> prices.Price:
        privacy, star, loss = prepared.options.privacy, prepared.star, prepared.problem.loss
        with star.world.together():
            if privacy.guarded:
                config.check_assumed(privacy, {"--loss": foreign(loss)} if foreign(loss) else {})
            if prepared.algorithm is None:
                found = prices.moments_price(star, privacy, prepared.parts, loss)
            elif privacy.vectors:
                found = prices.vectors_price(prepared)
            else:
                found = prices.open_price(star, privacy, prepared.foreign)
        return prices.spoken(found, prepared.options, star, loss)

    def outlook(self, prepared: Prepared, price: prices.Price) -> str:
        star, parts, model = prepared.star, prepared.parts, prepared.options.model
        if price.agreed is not None:
            planned = words.moments_outlook(star, parts, price.agreed, prepared.options.privacy.noise)
        elif price.said:
            planned = [words.size_of(star, parts)]
        else:
            planned = [words.outlook(star, parts, model.name, prepared.iterations)]
        doubt = [text] if (text := stationary.doubt(prepared.problem)) else []
        return "\n".join([*planned, *([""] if price.agreed else []), *price.said, *_masks(prepared), *doubt])

    def describe(self, prepared: Prepared, price: prices.Price) -> dict[str, Any]:
        star = prepared.star
        gathered = star.world.allgather(prepared.parts.dataset or {})
        ids = {str(m): name.partition(", ")[0] for part in gathered for m, name in sorted(part.items())}
        layout = {"centre": 0, "parties": {str(m): rank for m, rank in star.home.items()}}
        return {"data_id": ids["1"] if len(set(ids.values())) == 1 else ids, "layout": layout}

    def solve(self, prepared: Prepared, price: prices.Price, run: running.Running) -> shell.Outcome:
        options, star, parts, problem = prepared.options, prepared.star, prepared.parts, prepared.problem
        if star.is_centre and (doubt := stationary.doubt(problem)):
            print(doubt, file=sys.stderr, flush=True)
        out = prices.opened(price, options.privacy, star, parts, options.run.seed, run)
        every, seen = options.run.observe_every, prepared.exact or prepared.public
        observer = None
        if options.run.observe != "none" and seen:
            observer = Observer(star, parts, problem, exact=prepared.exact)
        outcome, arrays, nearness = shell.Outcome(), {}, []
        if price.agreed is not None:
            with run.world.signals.at_once():
                trained = private.train(star, parts, problem, price.agreed, out, price.own)
            means = {m: np.zeros(x.size) for m, x in trained.x.items()}
            solution = Solution(trained.x, means, trained.b, 1, True, private=True)
            if trained.replies:  # what party 1 was told
                arrays["replies.npz"] = {f"party-{m}": reply for m, reply in trained.replies.items()}
        else:
            queries = {m: account.query for m, account in price.accounts.items() if account.query}
            masked = options.model.secure_aggregation
            if options.privacy.vectors:
                problem = replace(problem, region=prepared.algorithm.region(problem.region))
            release = Release(out, queries)
            seat = Seat(
                star, problem, prepared.blocks, parts.labels, parts.rows, release=release, masked=masked
            )
            watcher = Watcher(star, observer if every else None, plain=prepared.plain)
            loop = Loop(prepared.algorithm, seat, watcher, run, Course(prepared.iterations, every or 1))
            k, state = loop.go()
            solution = solution_of(prepared.algorithm, k, state, seat, private=bool(price.said))
            outcome.ended, outcome.began = loop.ended, loop.began
            if loop.reason and loop.ended == ends.End.DIVERGED.word:
                solution = solution._replace(failure=loop.reason)
            outcome.columns, outcome.history = watcher.columns, loop.history
            if observer is not None and not problem.convex and isinstance(state, admm.State):
                first = loop.history[0].stationarity if loop.history else float("nan")
                nearness = _nearness(prepared, observer, seat, state, solution, first)
        if options.privacy.mechanism == "paper":
            price = prices.as_claimed(price, options.privacy, star, out)
        for each_out in out.values():
            each_out.ledger.close()
        kept = spending.leave(
            run,
            [each.ledger for each in out.values()],
            owners=parts.owners,
            seeded=bool(price.said) and options.privacy.noise != "secure",
        )
        outcome.iterations = solution.iterations
        outcome.arrays = arrays | _models(star, parts, solution)
        outcome.descriptions = _described(prepared, price, solution)
        _sum_up(prepared, price, outcome, solution, observer, loop.seconds if price.agreed is None else 0.0)
        outcome.said += nearness
        # A model that did not converge is written and said so; it is no failure of the run, but lost numbers are.
        if outcome.ended == ends.End.DIVERGED.word and not (price.agreed is None and loop.reason):
            outcome.ended = ends.End.ITERATIONS.word
        outcome.said += [line for line in ("", *(f"{name}: {told}" for name, told in kept)) if kept]
        outcome.strict = options.run.strict and isinstance(prepared.algorithm, admm.Form) and not price.said
        return outcome


PROGRAMME = SharingADMM()


def _models(star: Star, parts: Parts, solution: Solution) -> dict[str, dict[str, Array]]:
    """Each party's model is written by the rank that hosts it, and by no other."""
    files = {"models/centre.npz": {"intercept": np.array(solution.intercept)}} if star.is_centre else {}
    for m, x in solution.models.items():
        names = np.array(parts.names.get(m, ()), dtype=str)
        files[f"models/party-{m}.npz"] = {"x": x, "mean": solution.means[m], "names": names}
    return files


def _described(prepared: Prepared, price: prices.Price, solution: Solution) -> dict[str, dict[str, Any]]:
    """Each party's by the rank that hosts it, and at the centre what holds them together."""
    star, parts, name = prepared.star, prepared.parts, prepared.options.model.loss
    said = model.privacy(price.facts, " ".join(price.said) or price.facts["statement"])
    later = price.facts.get("privacy", {}).get("bounds", {})  # of moments, if scores are released
    told: dict[str, dict[str, Any]] = {}
    for m in solution.models:
        bound = later.get(str(m), {})
        told[f"models/party-{m}.json"] = {
            "features": list(parts.names.get(m, ())),
            "encoding": parts.encoding,
            "row_norm": bound.get(
                "row", prepared.row.get(m) if getattr(prepared.algorithm, "by_row", False) else None
            ),
            "nonnegative": bound.get("nonnegative", False),
            "arrays": {"coefficients": [f"party-{m}.npz", "x"], "means": [f"party-{m}.npz", "mean"]},
            **said,
        }
    if star.is_centre:
        told[model.FILE] = {
            "algorithm": prepared.options.model.name,
            "intercept": "apart",
            "classes": list(parts.classes),
            "loss": name,
            "link": link_of(name, loss_named(name, kinks=True, dents=True)),
            "nodes": star.parties,
            "parts": [f"models/party-{m}.json" for m in star.home],
            "arrays": {"intercept": ["models/centre.npz", "intercept"]},
            **said,
        }
    return told


def _nearness(
    prepared: Prepared, observer: Observer, seat: Seat, state: admm.State, solution: Solution, first: float
) -> list[str]:
    """How near a stationary point the last state is; called by every rank."""
    problem, star, algorithm = seat.problem, seat.fabric, prepared.algorithm
    V, found, start = observer.stationarity(state), None, float("nan")
    gathered = star.world.gather({m: float(block.spectrum[0][-1]) for m, block in seat.blocks.items()})
    theta = solution.theta or float(star.parties)
    if gathered is None or seat.labels is None:
        return []
    if not algorithm.from_zero and not isinstance(algorithm, gauss_seidel.GaussSeidel):
        squares = {m: e for part in gathered for m, e in part.items()}
        found = stationary.rate(problem, solution.rho, solution.tau, theta, squares, seat.rows)
        start = float(problem.loss.value(np.zeros(seat.rows), seat.labels).sum())
    return words.nearness(problem, solution._replace(theta=theta), V, first, found, start)


def _masks(prepared: Prepared) -> list[str]:
    if not prepared.options.model.secure_aggregation:
        return []
    return words.said_of_masks(prepared.star.parties, noisy=prepared.options.privacy.vectors)


def _sum_up(
    prepared: Prepared,
    price: prices.Price,
    outcome: shell.Outcome,
    solution: Solution,
    observer: Observer | None,
    seconds: float,
) -> None:
    """Summary, closing table and sentences, on rank 0; called by every rank."""
    star, parts = prepared.star, prepared.parts
    traffic = star.sent()
    compared = words.comparison(star, observer, solution, plain=prepared.plain)
    gathered = star.world.gather({m: int(x.size) for m, x in solution.models.items()})
    if traffic is None:
        return
    widths = {m: width for part in gathered or [] for m, width in part.items()}
    usual = "v1" if price.agreed else prepared.options.model.name
    found = ("iterations", "converged", "failure", "theta", "tau")
    outcome.summary = {
        "algorithm": prepared.options.privacy.mechanism or usual,
        "ended": outcome.ended,
        **{name: getattr(solution, name) for name in found},
        "rho": None if np.isnan(solution.rho) else solution.rho,
        "ranks": star.world.size,
        "columns": [widths[m] for m in sorted(widths)],
        "traffic": traffic,
        "seconds": round(seconds, 3),
        "comparison": finite({name: told and told._asdict() for name, told in compared.items()}),
        **price.facts,
    }
    outcome.said = [
        *words.headline(star, parts, solution, traffic, outcome.ended),
        "",
        words.table(compared, guarded=not prepared.exact),
        *words.verdict(compared),
        *[line for block in (price.said, _masks(prepared)) if block for line in ("", *block)],
    ]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["predict"]:
        from distadmm.methods.sharing import predict as sharing_predict

        return sharing_predict.main(arguments[1:])
    return shell.main(PROGRAMME, arguments)
