"""ADMM sharing with noise on N-vectors from the command line: S1, S2, S3, and the paper's equation (10)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from distadmm.algorithm import find
from distadmm.data.parts import Parts, check
from distadmm.errors import DONE, require
from distadmm.methods.sharing import admm, vectors
from distadmm.methods.sharing.admm import Form
from distadmm.methods.sharing.equation10 import REFUTED, EquationTen
from distadmm.methods.sharing.messages import (
    Books,
    PrivacyOptions,
    row_bounds,
    unprotected,
)
from distadmm.methods.sharing.release import Release
from distadmm.methods.sharing.seat import Seat, iterate
from distadmm.methods.sharing.solution import solution_of
from distadmm.methods.sharing.stability import proximal_weight
from distadmm.privacy.accounting.statements import rounded_up
from distadmm.privacy.noise.queries import Query, Releases
from distadmm.problems.columns import Columns
from distadmm.problems.losses import loss_named
from distadmm.ranks.star import Star
from distadmm.ranks.world import World

_ANY = ["released-anchor", "fresh-noise", "data-free-schedule"]
_RECORD = [
    "constrained-minimiser",
    "strong-convexity",
    "uncentred-rows",
    "clean-traffic",
    "public-labels",
    *_ANY,
]
# What `vectors` enforces: half-ball projection (S1); certified solves, cut rows, no other traffic (S2, S3).
CLAIMS: dict[str, dict[str, Any]] = {
    "s1": {"scope": "sharing-party", "verified": ["centred-regulariser", *_ANY]},
    "s2": {"scope": "sharing-record", "verified": _RECORD},
    "s3": {"scope": "sharing-outside", "verified": _RECORD},
}


def work(options: tuple[Any, ...], world: World) -> int:
    """The counterpart of `sharing.work` for noisy vectors."""
    from distadmm.data.parties import load
    from distadmm.run import sharing_directory as sharing_run

    data, model, solver, privacy, run = options
    form = solver.form(1)
    loss = loss_named(model.loss, kinks=True)
    by_party_one = privacy.mechanism == "s3" or data.labels_at_party_one
    with world.together():
        parties = data.count(world, party_one_is_centre=by_party_one)
        star = Star(world, parties, party_one_is_centre=by_party_one, wire=model.wire)
    guarded = privacy.mechanism != "paper"
    parts = load(data, star, run.seed, regression=not loss.labels, private=guarded)
    check(star, parts, loss, private=guarded)
    if privacy.mechanism == "paper":
        model = replace(model, form="paper")
    problem = model.problem(parts.rows)
    with world.together():
        terms = agree(star, parts, problem, model, form, privacy) if privacy.mechanism != "paper" else None
    text = statement(terms, privacy, star.parties)
    if model.secure_aggregation:
        text += sharing_run.said_of_masks(star.parties, noisy=True)
    if run.dry_run:
        if world.is_root:
            print("\n".join([sharing_run.outlook(star, parts, model).splitlines()[0], *text]))
        return DONE
    directory = sharing_run.Directory(star, options, run.out, force=run.force)
    recorder = sharing_run.Recorder(star, parts, problem, run.observe)
    scope = "feature" if privacy.mechanism in ("s1", "paper") else "person"
    claim = CLAIMS.get(privacy.mechanism)
    books = Books.open(directory.path / "ledger", privacy, star, parts, run.seed, claim, scope)
    if terms is None:
        solution = _paper(star, parts, problem, form.rho, books, run.seed, recorder)
    else:
        solution = _sound(star, parts, problem, terms, books, recorder, model.secure_aggregation)
    shown = directory.finish(parts, solution, recorder, privacy={"statement": " ".join(text), "mu": None})
    if world.is_root:
        print("\n".join([shown, "", *text]))
    return DONE


class Terms(NamedTuple):
    """Public constants of S1, S2 or S3."""

    mechanism: str
    algorithm: vectors.S1
    problem: admm.Problem
    mu: float
    rounds: int
    row: dict[int, float]  # R of each party
    query: dict[int, Query]  # one round's release of each releasing party
    note: str  # what is to be said of the bounds on rows


def agree(
    star: Star, parts: Parts, problem: admm.Problem, model: Any, form: Form, privacy: PrivacyOptions
) -> Terms:
    from distadmm.privacy.accounting.gaussian import mu_at

    assert privacy.mechanism is not None
    assert privacy.epsilon is not None
    require(
        privacy.neighbours == "replace" or privacy.mechanism == "s1",
        "S2 and S3 are proved for --adjacency replace",
    )
    require(
        model.form == "sound" and model.algorithm == "admm",
        "S1, S2 and S3 know --form sound and --algorithm admm",
    )
    cls = find(privacy.mechanism, "star").cls
    row, note = dict.fromkeys(star.home, 1.0), ""
    if cls.by_row:  # S1 bounds nothing row by row
        row, note = row_bounds(privacy, star, parts, list(star.home))
    tau = form.tau if form.tau is not None else proximal_weight(star.parties)
    cuts = {name: getattr(privacy, name) for name in ("radius", "pull", "message_norm") if cls.by_row}
    algorithm = cls(rho=form.rho or 0.2, tau=tau, **cuts)
    problem = replace(problem, region=algorithm.region(problem.region))
    mu, rounds = mu_at(privacy.epsilon, privacy.delta), privacy.rounds or 10
    query = {  # refuses what has no bound
        m: algorithm.query(problem, row[m], parts.rows, privacy.noise, mu, rounds)
        for m in star.home
        if m >= cls.first
    }
    return Terms(privacy.mechanism, algorithm, problem, mu, rounds, row, query, note)


def _sound(
    star: Star,
    parts: Parts,
    problem: admm.Problem,
    terms: Terms,
    books: Books,
    recorder: Any,
    masked: bool,
) -> Any:
    privacy, own = books.options, [m for m in star.hosted if m in terms.query]
    with star.world.together():
        out = {
            m: Releases(
                books.ledger(m, [terms.query[m]] * terms.rounds, "replace", privacy.epsilon),
                books.source,
                books.leakage.get(m, ()),
            )
            for m in own
        }
        for m in own:
            out[m].commit([terms.query[m]] * terms.rounds)
        blocks = {m: terms.algorithm.columns(matrix, terms.row[m]) for m, matrix in parts.train.items()}
        release = Release(out, {m: terms.query[m] for m in own})
        seat = Seat(star, terms.problem, blocks, parts.labels, parts.rows, release=release, masked=masked)
        k, state = iterate(terms.algorithm, seat, terms.rounds, recorder.plain())
    release.close()
    return solution_of(terms.algorithm, k, state, seat)._replace(private=True)


def _paper(
    star: Star,
    parts: Parts,
    problem: admm.Problem,
    rho: float | None,
    books: Books,
    seed: int,
    recorder: Any,
) -> Any:
    """Equation (10); every message is entered in its ledger as unbounded, with what the paper claims for it."""
    privacy = books.options
    algorithm = EquationTen(
        rho=rho or 0.2, seed=seed, sigma=privacy.sigma, epsilon=privacy.epsilon, delta=privacy.delta
    )
    blocks = {m: Columns(matrix) for m, matrix in parts.train.items()}
    release = unprotected(books, star)
    seat = Seat(star, problem, blocks, parts.labels, parts.rows, release=release)
    k, state = iterate(algorithm, seat, privacy.rounds or 20, recorder)
    release.close()
    return solution_of(algorithm, k, state, seat)._replace(private=True, converged=False)


def statement(terms: Terms | None, privacy: PrivacyOptions, parties: int) -> list[str]:
    """What may be said of the run, no more."""
    from distadmm.privacy.accounting.gaussian import epsilon

    if terms is None:
        return [f"equation (10): {REFUTED}.  epsilon = infinity."]
    releasing = parties - 1 if terms.mechanism == "s3" else parties
    what = {
        "s1": "party-level: replacing all data of one party",
        "s2": "replacing one record's features at one party; labels and the number of records public",
        "s3": "replacing one record's features at one party other than party 1; labels and their number public",
    }[terms.mechanism]
    lines = [
        f"{terms.mechanism.upper()}: the {terms.rounds} messages of each releasing party are "
        f"({privacy.epsilon:g}, {privacy.delta:g})-DP, {what}.  Derivation not peer-reviewed; exact arithmetic."
    ]
    if terms.mechanism != "s1" and releasing > 1:
        together = epsilon(terms.mu * math.sqrt(releasing), privacy.delta)
        lines.append(
            f"One person at all {releasing} releasing parties together: epsilon = {rounded_up(together)}."
        )
    lines.extend(
        [terms.note] * bool(terms.note) + ["The centre's first message tells every party all labels."]
    )
    if privacy.noise == "simulation":
        lines.append("Simulation noise: whoever has the seed takes it off, so this run guarantees nothing.")
    lines.append(
        "Not covered: the parties' own models and any score or prediction from them, the curves and comparisons of an "
        "observer, preprocessing, the choice of settings, timing, aborts, floating point."
    )
    return lines
