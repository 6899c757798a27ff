"""ADMM sharing with noise on N-vectors from the command line: S1, S2, S3, and the paper's equation (10)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from distadmm.data.parts import Parts, check
from distadmm.errors import DONE, require
from distadmm.methods.sharing import admm, loop, vectors
from distadmm.methods.sharing.messages import Books, PrivacyOptions, row_bounds
from distadmm.methods.sharing.stability import proximal_weight
from distadmm.privacy.accounting.statements import rounded_up
from distadmm.privacy.noise.queries import Releases
from distadmm.problems.columns import Columns
from distadmm.problems.losses import loss_named
from distadmm.ranks.star import Star
from distadmm.ranks.world import World

PAPER_NOISE = 0x45513130  # purpose of equation (10)'s noise

REFUTED = (
    "claimed by the paper, refuted: the noise lies in the column space of D, which differs between neighbours, so one "
    "message can tell them apart (delta = 1); and Lemma 1, which scales it, is false"
)


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

    data, model, privacy, run = options
    loss = loss_named(model.loss, kinks=True)
    by_party_one = privacy.mechanism == "s3" or data.labels_at_party_one
    with world.together():
        parties = data.count(world, party_one_is_centre=by_party_one)
        star = Star(world, parties, party_one_is_centre=by_party_one, wire=model.wire)
    guarded = privacy.mechanism != "paper"
    parts = load(data, star, run.seed, regression=not loss.labels, private=guarded)
    check(star, parts, loss, private=guarded)
    if privacy.mechanism == "paper":
        model = replace(model, form="paper", rho=model.rho or 0.2, rho_rule="fixed")
    problem = model.problem(parts.rows)
    with world.together():
        terms = agree(star, parts, problem, model, privacy) if privacy.mechanism != "paper" else None
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
        solution = _paper(star, parts, problem, model, books, run.seed, recorder)
    else:
        solution = _sound(star, parts, problem, terms, books, recorder, model.secure_aggregation)
    shown = directory.finish(parts, solution, recorder, privacy={"statement": " ".join(text), "mu": None})
    if world.is_root:
        print("\n".join([shown, "", *text]))
    return DONE


def agree(
    star: Star, parts: Parts, problem: admm.Problem, model: Any, privacy: PrivacyOptions
) -> vectors.Terms:
    """Public constants of S1, S2 or S3."""
    from distadmm.privacy.accounting.gaussian import mu_at

    assert privacy.mechanism is not None
    assert privacy.epsilon is not None
    require(
        privacy.neighbours == "replace" or privacy.mechanism == "s1",
        "S2 and S3 are proved for --adjacency replace",
    )
    require(
        model.form == "corrected" and model.algorithm == "admm",
        "S1, S2 and S3 know --form corrected and --algorithm admm",
    )
    bounds, note = row_bounds(privacy, star, parts, list(star.home))
    if privacy.mechanism == "s1":  # bounds nothing row by row
        bounds, note = dict.fromkeys(bounds, 1.0), ""
    tau = model.tau if model.tau is not None else proximal_weight(star.parties)
    terms = vectors.Terms(
        privacy.mechanism, mu_at(privacy.epsilon, privacy.delta), privacy.rounds or 10, model.rho or 0.2, tau,
        tuple(bounds.values()), privacy.radius, privacy.pull, privacy.message_norm, note,
    )  # fmt: skip
    terms.query(problem, parts.rows, privacy.noise, star.parties)  # refuses what has no bound
    return terms


def _sound(
    star: Star,
    parts: Parts,
    problem: admm.Problem,
    terms: vectors.Terms,
    books: Books,
    recorder: Any,
    masked: bool,
) -> Any:
    from distadmm.sharing import Solution

    plain, privacy = recorder.plain(), books.options
    with star.world.together():
        releases = {}
        for m in star.hosted:
            if m == 1 and terms.mechanism == "s3":
                continue
            queries = [terms.query(problem, parts.rows, privacy.noise, m)] * terms.rounds
            releases[m] = Releases(
                books.ledger(m, queries, "replace", privacy.epsilon), books.source, books.leakage.get(m, ())
            )
        state = vectors.train(star, parts, problem, terms, releases, plain, masked=masked)
    for out in releases.values():
        out.ledger.close()
    means = {m: np.zeros(x.size) for m, x in state.x.items()}
    return Solution(
        state.x, means, state.b, terms.rounds, False, None, None, terms.tau, terms.rho, private=True
    )


def _paper(
    star: Star, parts: Parts, problem: admm.Problem, model: Any, books: Books, seed: int, recorder: Any
) -> Any:
    """Equation (10); every message is entered in its ledger as unbounded, with what the paper claims for it."""
    from distadmm.sharing import Solution

    privacy = books.options
    rounds = privacy.rounds or 20
    blocks = {m: Columns(matrix) for m, matrix in parts.train.items()}
    ledgers = {m: books.ledger(m, [], "replace", None) for m in blocks}
    levels = {
        m: noise_level(block.width, star.parties, problem, model.rho, privacy) for m, block in blocks.items()
    }

    def release(t: int, m: int, x: Any, v: Any) -> tuple[Any, Any]:
        claim = vectors.corollary(privacy.epsilon, t + 1, privacy.delta) if privacy.epsilon else None
        ledgers[m].expose(REFUTED, iteration=t, claimed=claim)
        key = np.random.SeedSequence(entropy=seed, spawn_key=(PAPER_NOISE, m, t))
        noise = vectors.degenerate_noise(blocks[m], levels[m], np.random.default_rng(key))
        return x + noise, v + blocks[m].apply(noise)

    plan = replace(model.plan(seed, parts.rows), iterations=rounds, tolerance=0.0)
    found = loop.run(
        star,
        blocks,
        parts.labels,
        problem,
        plan,
        parts.rows,
        observe=recorder,
        release=release,
    )
    for ledger in ledgers.values():
        ledger.close()
    state = found.state
    means = {m: np.zeros(x.size) for m, x in state.x.items()}
    return Solution(state.x, means, state.b, rounds, False, None, None, 0.0, state.rho, private=True)


def noise_level(
    width: int, parties: int, problem: admm.Problem, rho: float, privacy: PrivacyOptions
) -> float:
    """sigma: as given, or by Theorem 1 for --epsilon an iteration."""
    if privacy.sigma is not None:
        return privacy.sigma
    assert privacy.epsilon is not None
    claimed = vectors.claimed_sensitivity(width, parties, problem, rho)
    return vectors.claimed_sigma(claimed, privacy.epsilon, privacy.delta)


def statement(terms: vectors.Terms | None, privacy: PrivacyOptions, parties: int) -> list[str]:
    """What may be said of the run, no more."""
    from distadmm.privacy.accounting.gaussian import epsilon

    if terms is None:
        return [f"equation (10): {REFUTED}.  epsilon = infinity."]
    assert terms.mu is not None
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
