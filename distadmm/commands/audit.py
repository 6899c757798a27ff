"""Attack private runs and compare what comes out with what their ledgers claim.

python -m distadmm audit --algorithm radmm --alpha 1 --adjacency replace ...    the consensus family
python -m distadmm audit --algorithm masked --epsilon 1 --adjacency replace --trust coalition:5 ...     masked sums
python -m distadmm audit RUN                        a finished run: one of radmm from the bytes it kept (level 0),
                                                    of istdp its mechanism against what its own ledger claims, and of
                                                    masked both its mechanism and its ledgers
python -m distadmm audit istdp | sharing            private thresholding; noisy vectors of ADMM sharing
python -m distadmm audit istdp-printed | sharing-printed    the papers' mechanisms as printed

level 0   every release against its noise-off twin: is the noise the one that the ledger claims?
level 1   can two neighbouring tables be told apart better than the claim allows?
level 2   a lower bound on epsilon, whatever the mechanism is

Exit code 1 when a claim is refuted.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distadmm import radmm
from distadmm.audit import bounds, canary, coalition, gossip, istdp, play, runs, sharing, whitebox
from distadmm.audit.draws import Draws, Played
from distadmm.audit.noises import Finding, Verdict, verdict_of
from distadmm.audit.report import Audit, level_zero, levels_of, table, write
from distadmm.audit.runs import Play
from distadmm.commands import transcript
from distadmm.errors import DONE, FAILURE, InputError, require
from distadmm.flags import again, build, fields_of, flag, flag_group, parse, table_of
from distadmm.methods.consensus import private as protect
from distadmm.methods.gossip import private
from distadmm.methods.istdp.plan import make_plan
from distadmm.methods.masked.masked import Masked
from distadmm.privacy.accounting import accountant, gaussian, statements
from distadmm.problems.losses import Array, Logistic, loss_named
from distadmm.ranks.launch import command, told_if_long
from distadmm.ranks.world import World
from distadmm.run import groups, kinds
from distadmm.run.claim import claim_directory
from distadmm.run.config import Choice, Config, Links, Loop, Privacy, Problem
from distadmm.run.setup import Prepared, prepare

PROG = "distadmm audit"
SUBJECTS = ("consensus", "istdp", "istdp-printed", "sharing", "sharing-printed")
_BATCH = 250  # transcripts that one run of the product's code makes
_WORLDS = 0x41554449  # purpose of the seeds
_WIDEST = 8  # columns of a canary's table, where nothing else is asked for


@flag_group("audit")
class Options:
    level: str = flag(
        "all",
        help="0 (white box), 1 (trade-off test), 2 (lower bound), or all",
        choices=("0", "1", "2", "all"),
    )
    runs: int = flag(1000, help="transcripts of each of the two worlds, levels 1 and 2", at_least=10)
    confidence: float = flag(
        0.95,
        help="of levels 1 and 2: a sound mechanism is refuted with at most 1 - this",
        at_least=0.5,
        below=1,
    )
    canary: str = flag("worst", help="what the two tables differ in", choices=canary.CANARIES)
    audit_delta: float | None = flag(None, help="delta of level 2 (default: --delta)", at_least=0, below=1)
    audit_iterations: int = flag(20, help="iterations of an attacked transcript, at most", at_least=1)
    audit_columns: int | None = flag(
        None, help=f"columns of the attacked tables (default: at most {_WIDEST})", at_least=1
    )

    def wants(self, level: int) -> bool:
        return self.level in ("all", str(level))


@flag_group("subject")
class Query:
    """The flags of the subjects that are no consensus run."""

    mechanism: str = flag("s1", help="sharing: s1 or s2", choices=("s1", "s2"))
    epsilon: float = flag(
        1.0, help="budget of a run (printed: what the paper's theorem is asked for)", above=0
    )
    delta: float = flag(1e-5, help="delta of all statements", above=0, below=1)
    adjacency: str = flag("replace", help="istdp: replace or add-remove", choices=("replace", "add-remove"))
    rows: int = flag(50, help="records of the attacked table", at_least=2)
    iterations: int = flag(10, help="iterations, or rounds", at_least=1)
    rng: str = again(groups.Budget, "rng")
    seed: int = flag(0, help="seed of all random choices", at_least=0)
    out: str | None = flag(None, help="directory for the report (default: runs/audit-...)")
    force: bool = flag(False, help="replace a directory that is not empty")


# -- the consensus family ----------------------------------------------------------------------------------


def white_box(config: Config, *, prepared: Prepared | None = None) -> Verdict:
    """Level 0 of `config`, run in this process."""
    prepared = prepared or prepare(config, World())
    plan, draws = _plan(prepared), _draws(config)
    run = config.loop.iterations, draws.source(), prepared.description["phases"]
    recording = play.record(config.algorithm, plan.node, plan.recipe, *run)
    return _inspected(prepared, plan, recording, draws.findings())


def _inspected(
    prepared: Prepared, plan: protect.Plan, recording: play.Recording, known: Sequence[Finding] = ()
) -> Verdict:
    recipe, algorithm = plan.recipe, prepared.config.algorithm
    found = whitebox.inspect(algorithm, plan.node, recording, recipe.slope, recipe.curvature)
    return found._replace(findings=[*known, *whitebox.of_plan(prepared, plan), *found.findings])


def _draws(config: Config) -> Draws:
    """What a run of `config` draws from."""
    return Draws(config.privacy.rng, config.loop.seed)


NO_CLAIM = "there is no claim to audit without noise; give --alpha or --epsilon, and --adjacency"
SILENT = "{} is a run without noise: its ledger claims nothing to be audited"


def _plan(prepared: Prepared) -> protect.Plan:
    plan = protect.plan_of(prepared)
    if plan is None:
        raise InputError(NO_CLAIM)
    return plan


def setting_of(config: Config, options: Options) -> canary.Setting:
    """The pair of nodes that stands for `config`: its first node and a neighbour, with a canary's table."""
    prepared = prepare(config, World())
    plan = _plan(prepared)
    recipe, node = plan.recipe, plan.node
    require(
        recipe.mechanism == "objective",
        "levels 1 and 2 need the exact likelihood ratio, which is that of --mechanism objective; use --level 0",
    )
    iterations = min(config.loop.iterations, options.audit_iterations)
    pair, wide = [0, int(node.network.indices[0])], options.audit_columns or min(recipe.dimension, _WIDEST)

    def of_pair(name: str) -> tuple[Array | None, Array | None]:
        values = node.table[name]
        return (None, None) if values is None else (values[pair[0]], values[pair[1]])

    return canary.Setting(
        algorithm=config.algorithm,
        recipe=replace(recipe, dimension=wide, alpha=recipe.alpha[:, pair], weight=recipe.weight[pair]),
        facts=node.facts,
        eta=of_pair("eta"),
        growth=of_pair("eta_growth"),
        loss=loss_named(config.problem.loss),
        iterations=iterations,
        tolerance=config.problem.tolerance,
        phases=prepared.description["phases"],
    )


def attack(config: Config, options: Options, world: World | None = None) -> Played:
    """Exact log-likelihood ratios of both worlds, on rank 0; a seed's are the same bits on any number of ranks."""
    world, draws = world or World(), _draws(config)

    # What a file of the user's defines is loaded again on every rank.
    setting = world.on_root(lambda: setting_of(config, options)._replace(algorithm=None, loss=Logistic()))
    setting = setting._replace(algorithm=config.algorithm, loss=loss_named(config.problem.loss))
    found = canary.tables(options.canary, setting.recipe.adjacency, setting.recipe.dimension)
    batches = [(there, b) for there in (False, True) for b in range(-(-options.runs // _BATCH))]

    def one(item: tuple[bool, int]) -> tuple[Array, list[Any]]:
        there, b = item
        runs = min(_BATCH, options.runs - b * _BATCH)
        seed = np.random.SeedSequence(config.loop.seed, spawn_key=(_WORLDS, int(there), b))
        source = draws.source(int(seed.generate_state(1, np.uint64)[0]))
        return canary.scores(setting, found, there, runs, source)

    parts = world.share_out(one, batches)
    if parts is None:
        return Played(np.zeros(0), np.zeros(0), [])
    half = len(batches) // 2
    sides = [np.concatenate([scores for scores, _ in side]) for side in (parts[:half], parts[half:])]
    return Played(sides[0], sides[1], parts[0][1])


GOSSIP = "distadmm.methods.gossip"


def _gossip(config: Config, options: Options) -> Audit:
    """Noisy gradients, by whom the run's trust names."""
    plan = private.plan_of(prepare(config, World()))
    attack = gossip.play_of(config.algorithm, plan, config.name)
    return _attacked(attack, options, config.loop.seed, config.privacy.delta)


def _consensus(config: Config, options: Options, world: World) -> Audit | None:
    if config.algorithm.house == GOSSIP:
        return world.on_root(lambda: _gossip(config, options))
    adjacency: Any = config.privacy.adjacency
    words, draws = f"{config.name}, adjacency {adjacency}", _draws(config).words
    verdict = world.on_root(lambda: white_box(config)) if options.wants(0) else None
    levels = [] if verdict is None else [level_zero(verdict)]
    if options.level == "0":
        return Audit(words, draws, levels, None, None, verdict)
    found = attack(config, options, world)
    if not world.is_root:
        return None
    published = accountant.published_epsilon(found.events, adjacency)
    by = f"the attacked node's ledger (published bound {statements.rounded_up(published)})"
    claim, scores = bounds.claim_of(found.events, adjacency, by), (found.here, found.there)
    nothing = canary.unbounded(found.events)
    levels += levels_of(options, claim, scores, config.privacy.delta, nothing)
    return Audit(f"{words}, {options.canary} canary", draws, levels, claim, scores, verdict)


# -- other subjects ----------------------------------------------------------------------------------------


def _other(subject: str, query: Query, options: Options) -> Play:
    """How a mechanism that no run is named of is attacked."""
    printed: dict[str, Any] = {"epsilon": query.epsilon, "delta": query.delta}
    if subject == "istdp":
        plan = make_plan(
            **printed, adjacency=query.adjacency, dimension=options.audit_columns or _WIDEST,  # type: ignore[arg-type]
            rows=query.rows, divisor=query.rows, loss=Logistic(), iterations=query.iterations,
        )  # fmt: skip
        claim = partial(bounds.claim_of, adjacency=plan.adjacency, words="the ledger of a run")
        return Play(subject, partial(istdp.played, plan, query.rows), claim, query.rng)
    if subject == "sharing":
        mu = gaussian.mu_at(query.epsilon, query.delta)
        party = sharing.toy(query.mechanism, query.rng, rows=query.rows, rounds=query.iterations, mu=mu)
        whose = f"the ledger of a party that sends {query.mechanism}"
        claim = partial(bounds.claim_of, adjacency=party.adjacency, words=whose)
        return Play(f"sharing {query.mechanism}", partial(sharing.played, party), claim, query.rng)
    require(
        options.level != "0",
        f"{subject} has no sound ledger entry to compare its noise with; use --level 1 or 2",
    )
    if subject == "istdp-printed":
        attack = partial(istdp.as_printed, iterations=query.iterations, **printed)
    else:
        attack = partial(sharing.as_printed, **printed)
    return Play(subject, None, bounds.point_claim(query.epsilon, query.delta, ""), printed=attack)


def _attacked(play: Play, options: Options, seed: int, delta: float) -> Audit:
    draws, zero, levels = Draws(play.mode, seed), None, []
    if play.played is not None:
        found = play.played(options.runs, draws)
        scores = found.here, found.there
        claim = play.claim if isinstance(play.claim, bounds.Claim) else play.claim(found.events)
        if options.wants(0):
            zero = verdict_of(found.noises, found.findings)
            levels.append(level_zero(zero, options.runs))
    else:
        assert play.printed is not None
        here, there, claim = play.printed(options.runs, seed)
        scores = here, there
    if options.level == "0":
        return Audit(play.words, draws.words, levels, None, None, zero)
    levels += levels_of(options, claim, scores, delta)
    return Audit(play.words, draws.words, levels, claim, scores, zero)


# -- the command -------------------------------------------------------------------------------------------


def read(argv: Sequence[str]) -> dict[str, Any]:
    words = list(argv)
    subject = words.pop(0) if words and not words[0].startswith("-") else "consensus"
    own, rest = transcript.split_words(words, {name.rstrip("_") for name in fields_of(Options)})
    help_wanted = {"-h", "--help"} & set(words)
    mine = table_of(*parse(PROG, __doc__ or "", [Options], own))
    if Path(subject).is_dir() and subject not in SUBJECTS:
        loop = table_of(*parse(PROG, __doc__ or "", [Loop], rest))
        return {"subject": "run", "folder": subject, "options": mine, "table": loop}
    require(
        subject in SUBJECTS,
        f"nothing to audit called {subject!r}; give a run directory or one of: {', '.join(SUBJECTS)}",
    )
    if subject == "consensus":
        if help_wanted:
            parse(PROG, __doc__ or "", [Options, Choice, Problem, Loop, Links, Privacy], ["--help"])
        return {"subject": subject, "options": mine, "table": radmm.PROGRAMME.read(rest).table()}
    query = table_of(*parse(PROG, __doc__ or "", [Query], rest))
    return {"subject": subject, "options": mine, "table": query}


def audited(asked: dict[str, Any], world: World) -> Audit | None:
    """What was found, on rank 0."""
    subject, values = asked["subject"], asked["table"]
    (options,) = build([Options], asked["options"])
    if subject == "consensus":
        config = radmm.configure(**values)
        require(config.privacy.wanted, NO_CLAIM)
        if isinstance(config.algorithm, Masked):
            return world.on_root(lambda: coalition.masked_audit(config, options))
        return _consensus(config, options, world)
    if subject == "run":
        return world.on_root(lambda: _run(asked["folder"], options, run_code=values["run_code"]))
    (query,) = build([Query], values)
    return world.on_root(lambda: _attacked(_other(subject, query, options), options, query.seed, query.delta))


def work(asked: dict[str, Any], world: World) -> int:
    values = asked["table"]
    with told_if_long(PROG, "attacking; fewer --runs take less and tell less", world.is_root):
        found = audited(asked, world)

    def finish() -> tuple[str, bool]:
        assert found is not None
        folder = claim_directory(values["out"], "audit", force=values["force"])
        write(found, folder)
        return table(found, folder), found.refuted

    words, refuted = world.on_root(finish)
    if world.is_root:
        print(words)
    return FAILURE if refuted else DONE


def _run(folder: str, options: Options, *, run_code: bool) -> Audit:
    run = kinds.opened(folder, "audit", run_code=run_code)
    if run.kind != "radmm":
        play = runs.of_run(run, options.audit_columns or _WIDEST)
        return _attacked(play, options, 0, float(run.config["delta"]))
    config = transcript.configuration_of(folder, "audit", run_code=run_code)
    if run.config.get("algorithm") == "masked":
        require(config.privacy.wanted, SILENT.format(folder))
        return coalition.masked_audit(config, options, Path(folder))
    if config.algorithm.house == GOSSIP and config.privacy.wanted:
        return _gossip(config, options)
    # Level 0, by somebody who holds its data: the messages are the ones that were sent.
    found = transcript.of_run(folder, "audit", run_code=run_code)
    if found.recording is None:
        raise InputError(SILENT.format(folder))
    verdict = _inspected(found.prepared, _plan(found.prepared), found.recording)
    return Audit(f"the run in {folder}", "", [level_zero(verdict)], None, None, verdict)


main = command(PROG, read, work)
