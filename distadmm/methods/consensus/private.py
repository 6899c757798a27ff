"""From privacy flags to what every node's releases pass through: hypotheses, noise parameters, ledgers.

A hypothesis of the theorems that the code cannot check, or that fails, makes every release unbounded in the
ledger, under the hypothesis' name.  None is assumed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from distadmm.algorithm import NO_SCHEDULE, Array, Defaults, Node, Planned, find, names
from distadmm.data.mapping import named_mappings
from distadmm.data.public import PublicFacts
from distadmm.data.source import BUNDLED
from distadmm.errors import InputError, require
from distadmm.methods.consensus import sizing
from distadmm.methods.consensus.penalty import Penalties, schedule
from distadmm.methods.consensus.worth import foreign, settle, spent, strangers, unchecked
from distadmm.privacy.accounting.events import Adjacency, Leakage
from distadmm.privacy.accounting.schedule import MOST_DIFFERENT, planned, stretches
from distadmm.privacy.ledger.books import Books
from distadmm.privacy.ledger.filter import Filter
from distadmm.privacy.ledger.schedules import Committed, Schedule
from distadmm.privacy.noise.release import Unprotected
from distadmm.problems.losses import LOSSES, task_of
from distadmm.run import spending
from distadmm.run.config import Config, check_assumed
from distadmm.run.running import Running
from distadmm.run.setup import Prepared
from distadmm.structs import struct

__all__ = ["armed", "plan_of", "settle"]  # what a run asks of the house of its algorithm

# Every rank of every run loads this module; what only a private run needs is imported where it is used.
if TYPE_CHECKING:
    from distadmm.data.content import Contents
    from distadmm.methods.forecasts import Forecast
    from distadmm.privacy.noise.protected import Protected, Recipe
    from distadmm.privacy.noise.sources import Source

_MANY = 60  # different releases a node, from which pricing them takes seconds
PUBLIC = "from the graph and public constants"
NO_NOISE = "no noise was asked for"
INEXACT = "solves are not certified: the published bound holds for exact minimisers only"


def unverified(config: Config, facts: PublicFacts, objectives: Sequence[Any]) -> str:
    """The first hypothesis that does not hold here or that no code can check; empty when all are verified."""
    facts.require_short_rows()
    if facts.without_reader.doubt:
        return facts.without_reader.doubt
    if task_of(LOSSES.get(config.problem.loss, LOSSES["logistic"])) == "multiclass":
        require(
            config.privacy.mechanism == "output",
            f"--loss {config.problem.loss} under objective perturbation: its Hessian has rank K - 1 a record, which no "
            "theorem here covers; use --mechanism output",
        )
        return ""
    for objective in objectives:
        loss = objective.loss
        if not loss.labels or not np.isfinite(loss.max_slope) or not np.isfinite(loss.max_curvature):
            return f"the slope of the loss {config.problem.loss} has no bound"
        if objective.labels is None or not np.all(np.abs(objective.labels) == 1.0):
            return "labels are not all exactly -1 or +1"
    if config.privacy.form == "paper" and config.privacy.mechanism == "objective":
        return INEXACT
    return ""


def noise_table(config: Config, prepared: Prepared, releases: Sequence[Any]) -> Array:
    """alpha of each solve and node of this rank, (K, n), or (1, n) where none changes."""
    node, privacy = prepared.node, config.privacy
    if privacy.alpha is not None:
        values, growth = node.table["alpha"], node.table["alpha_growth"]
        assert values is not None
        plan = schedule(values, 1.0 if growth is None else growth, cap=np.inf, name="--alpha")
        plan(max(len(releases), 1))  # refused where a table ends before
        solves = int(min(plan.still, max(len(releases), 1)))
        require(
            solves <= MOST_DIFFERENT,
            f"--alpha-growth gives each of {solves:g} solves noise of its own, and each is priced apart; needed: at "
            f"most {MOST_DIFFERENT:g} solves",
        )
        return np.stack([plan(k)[node.network.nodes, 0] for k in range(1, solves + 1)])
    return np.zeros((1, node.network.n_local))  # chosen by `calibrate`


def recipe_of(config: Config, prepared: Prepared, releases: Sequence[Any]) -> Recipe:
    """The mechanism of this rank's nodes."""
    from distadmm.privacy.noise.protected import Recipe

    node, privacy = prepared.node, config.privacy
    problem, sound = node.problem, privacy.form == "sound" and privacy.mechanism == "objective"
    loss = LOSSES.get(config.problem.loss, getattr(problem.objectives[0], "loss", None))
    bounds = [getattr(loss, name, np.inf) for name in ("max_slope", "max_curvature")]
    slope, curvature = (bound if np.isfinite(bound) else 1.0 for bound in bounds)  # else nothing is claimed
    own = unverified(config, prepared.source.facts, problem.objectives) or unchecked(prepared)
    reasons = [r for r in node.network.world.allgather(own) if r]
    return Recipe(
        noise=privacy.kind,
        mechanism=privacy.mechanism,
        dimension=problem.dimension,
        alpha=noise_table(config, prepared, releases),
        weight=problem.scales,
        slope=slope,
        curvature=curvature,
        ridge=node.facts.ridge,
        adjacency=cast("Adjacency", privacy.adjacency),
        tolerance=problem.tolerance,
        output_epsilon=privacy.output_epsilon if sound else 0.0,
        one_signed=getattr(loss, "one_signed", False),
        logistic=config.problem.loss == "logistic",
        unverified=reasons[0] if reasons else "",
        solves=max(len(releases), 1),
    )


@struct
class Plan:
    """What a private run will release and at what price: worked out once, before any file is written."""

    recipe: Recipe
    node: Node  # with the penalty that was chosen
    releases: Sequence[Planned]  # what the algorithm's schedule asks for
    schedules: Sequence[Committed]  # what each node here reserves
    choice: sizing.Choice | None = None  # made for the budget; None: all as given

    @property
    def penalty(self) -> float | None:
        return None if self.choice is None else self.choice.eta

    def forecast(self) -> Forecast:
        """Of the penalty that was chosen; of one that was given nothing is worked out."""
        from distadmm.methods.forecasts import Forecast

        return Forecast(
            self.choice, np.array([np.nan if self.choice is None else self.choice.excess]), PUBLIC
        )

    def release(self, books: Books, source: Source, phases: int) -> Protected:
        """What stands between the nodes here and the network."""
        from distadmm.privacy.noise.protected import Protected

        return Protected(self.recipe, books, source, self.node.network, phases)

    @property
    def header(self) -> dict[str, Any]:
        """What its ledgers are told: whom the claim holds against, and what it is."""
        return {"claim": claim(self.recipe)}


def plan_of(prepared: Prepared) -> Plan | None:
    """The plan of a private run, or its refusal; None without noise."""
    config, node = prepared.config, prepared.node
    require(
        config.algorithm.house == Defaults.house,
        f"--algorithm {config.name} makes its noise in another way than a solve: this command has no meaning for it",
    )
    if not config.privacy.wanted:
        return None
    if config.algorithm.releases is None:
        own = f"has no private form; these have one: {', '.join(n for n in names() if find(n).private)}"
        raise InputError(f"--algorithm {config.name} {NO_SCHEDULE if find(config.name).file else own}")
    check_assumed(config.privacy, strangers(prepared))
    require_records(config)
    if config.privacy.adjacency == "add-remove":
        require_rows_that_stay(config, dealt_out=prepared.source.pooled_allowed)
    with node.network.world.together():
        releases = planned(config.algorithm, node, config.loop.iterations)
    with node.network.world.together():
        recipe = recipe_of(config, prepared, releases)
        nothing = [Committed().doubted(recipe.unverified)] * node.network.n_local
        if not releases:
            return Plan(recipe, node, (), nothing)
        if node.network.world.is_root and config.loop.progress != "none":
            _ask_for_patience(releases)
        choice = None
        if config.privacy.epsilon is None:
            sizing.leave_digits(recipe)
        elif isinstance(config.algorithm, Penalties) and node.table["eta"] is None:
            recipe, choice, node, releases = sizing.with_penalty(config, node, recipe)
        else:
            recipe = sizing.calibrate(config.privacy, recipe, releases, node.network.world)
        schedules = nothing if recipe.unverified else sizing.plans_of(recipe, releases)
    return Plan(recipe, node, releases, schedules, choice)


def require_records(config: Config) -> None:
    require(
        config.privacy.adjacency != "node",
        f"--adjacency node: --algorithm {config.name} clips no whole gradient, so nothing bounds what all rows of a "
        "node do; choose replace, or --algorithm gossip",
    )


def require_known(prepared: Prepared, more: Mapping[str, Any], noise: str) -> None:
    """What an algorithm with noise of another kind than a solve's has no words for is refused, not ignored."""
    config, privacy = prepared.config, prepared.config.privacy
    given = {"alpha": privacy.alpha, **more, "mechanism": privacy.mechanism != "objective"}
    for name, asked in {**given, "form": privacy.form != "sound", "assume": privacy.assume}.items():
        require(not asked, f"--algorithm {config.name} has no --{name}: {noise}; leave it out")
    if privacy.adjacency == "add-remove":
        require_rows_that_stay(config, dealt_out=prepared.source.pooled_allowed)


def require_rows_that_stay(config: Config, *, dealt_out: bool) -> None:
    """One record more or less must leave the other rows of its node as they are."""
    problem = config.problem
    require(
        problem.rows_per_node is None,
        "--rows-per-node with --adjacency add-remove: where a record goes, the next row takes its place, which is "
        "another one and not one less; leave it out, or choose replace",
    )
    require(
        not problem.test_fraction,
        "--test-fraction with --adjacency add-remove: one record more or less deals all rows out anew; "
        "hold rows out beforehand and give them by --test-data",
    )
    require(
        not problem.sanitise or not dealt_out,
        "--sanitise with --adjacency add-remove: --seed draws a symbol for each place in the file, so that one record "
        "more or less gives others another symbol; give each node a file of its own, sanitise the column beforehand, "
        "or choose replace",
    )


def _ask_for_patience(releases: Sequence[Planned]) -> None:
    """A line before a long silence: each different release has a price of its own."""
    different = len({(float(np.ravel(q)[0]), float(np.ravel(m)[0])) for _, q, m in stretches(releases)})
    if different > _MANY:
        sys.stderr.write(f"pricing {different} different releases a node: some seconds to a minute\n")
        sys.stderr.flush()


def armed(prepared: Prepared, plan: Plan | None, run: Running) -> Node:
    """The nodes with their ledgers, opened or taken up again, between the data and the network."""
    config, world = prepared.config, prepared.world
    node = prepared.node if plan is None else plan.node
    if plan is None and run.folder is None:
        return node
    source = noise_source(config) if plan is not None else None
    with world.together():
        contents = contents_of(prepared)
    if plan is not None and any(event.shares_noise for each in plan.schedules for event in each.events):
        spending.require_rows_of_their_own(world, contents)
    with world.together():
        books = books_of(prepared, plan, run, source, contents)
    if plan is None or source is None:
        enter(prepared, run, books, [Committed().doubted(NO_NOISE)] * len(books), contents)
        bare = Unprotected(books)
        if file := foreign(config):
            bare.watch(node.network, node.start, file)
            _note_unchecked(prepared, books)
        note_sanitised(prepared, books)
        return node.having(release=bare)
    release = plan.release(books, source, config.algorithm.phases)
    node = node.having(release=release)
    release.watch(node.network, node.start, foreign(config))
    unreserved = not any(ledger.events for ledger in books.ledgers)  # also after a kill before anything was
    if unchecked(prepared):
        release.declare(plan.releases)
        _note_unchecked(prepared, books)
    if any(world.allgather(unreserved)):
        release.price(plan.schedules)
    enter(prepared, run, books, plan.schedules, contents)
    with world.together():
        if unreserved:
            release.commit(plan.schedules)
    # After the schedule, which is committed before anything else is released.
    note_sanitised(prepared, books)
    release.quote(spent(config, node), config.privacy.delta)
    return node


def contents_of(prepared: Prepared) -> Contents:
    """Which rows each node here has, where that is to be entered in an account: not of what a seed makes repeatable,
    nor of bundled tables without noise, which their publishers released."""
    config, nodes = prepared.config, prepared.node.network.nodes.tolist()
    from distadmm.data.content import NO_CONTENTS

    if config.privacy.rng != "secure" if config.privacy.wanted else config.problem.data in BUNDLED:
        return NO_CONTENTS
    from distadmm.privacy.ledger.account import Account

    key, n = Account(config.privacy.account).key(), prepared.node.network.n_nodes
    return prepared.source.contents(nodes, n, key)


def enter(
    prepared: Prepared, run: Running, books: Books, schedules: Sequence[Schedule], contents: Contents
) -> None:
    if contents.names:
        privacy, owners = prepared.config.privacy, not prepared.source.pooled_allowed
        spent = books.ledgers, schedules, contents.marks, privacy.delta
        spending.enter(run, privacy.account, *spent, owners=owners)


def _note_unchecked(prepared: Prepared, books: Books) -> None:
    """Before a line of foreign code runs: whatever way it finds to send something, the ledger says what it is worth."""
    for ledger in books.ledgers:
        if not ledger.events:
            ledger.expose(unchecked(prepared), iteration=0)


def note_sanitised(prepared: Prepared, books: Books) -> None:
    """Columns that were randomised first leak some nats on average: listed, never added to an epsilon."""
    config, seeded = prepared.config, prepared.source.pooled_allowed
    if config.loop.resume is not None or not config.problem.sanitise:
        return
    from distadmm.data.together import releases

    for told in releases(named_mappings(config.problem.sanitise), seeded=seeded):
        for ledger in books.ledgers:
            ledger.charge(Leakage(*told), iteration=0)


def noise_source(config: Config) -> Source:
    """Secret noise, or a seed's."""
    from distadmm.privacy.noise.sources import source_of

    if config.privacy.wanted and config.privacy.rng == "secure":
        return source_of("secure")
    return source_of("simulation", config.loop.seed)


def books_of(
    prepared: Prepared,
    plan: Any,
    run: Running,
    source: Source | None,
    contents: Contents,
) -> Books:
    """The ledgers of the nodes here, opened or taken up again; `plan` is that of the algorithm's house."""
    config, network = prepared.config, prepared.node.network
    nodes = network.nodes
    ghosts = [] if config.algorithm.tree else network.ghosts.tolist()  # whose heads come here
    adjacency = "replace" if plan is None else config.privacy.adjacency
    mode, generator = (source.mode, source.name) if source is not None else ("simulation", "no noise")
    dataset = run.data_id or config.problem.data
    header: dict[str, Any] = {"adjacency": adjacency, "mode": mode, "dataset": dataset}
    if run.folder is not None and run.resumed:
        header |= {"agreed": network.world.together, "source": generator}
        if contents.names:
            account, owners = config.privacy.account, not prepared.source.pooled_allowed
            header["look"] = lambda ledgers: spending.require_latest(run, account, ledgers, owners=owners)
        return Books.resume(run.folder / "ledger", nodes, ghosts, **header)
    header |= {"scope": "record", "run": run.name, "source": generator}
    header |= {"claim": None} if plan is None else plan.header
    if plan is not None:
        from distadmm.privacy.accounting.scopes import stating

        given_rows = config.privacy.public_rows is not None
        by = prepared.source.facts.stated_by(config.problem.stated, given_rows=given_rows)
        header["claim"] = stating(header["claim"], by) | circumstances_of(prepared)
    header["rows"] = contents.names
    folder = None if run.folder is None else run.folder / "ledger"
    return Books.open(folder, nodes, ghosts, budgets=_limits(config, plan, len(nodes)), **header)


def circumstances_of(prepared: Prepared) -> dict[str, Any]:
    """What the sentence of a run has to say besides its bound."""
    from distadmm.methods.consensus.words import observed

    beside = observed(prepared.config)
    dealt = prepared.source.pooled_allowed and prepared.node.network.n_nodes > 1
    return {**({"dealt": True} if dealt else {}), **({"observed": beside} if beside else {})}


def claim(recipe: Recipe) -> dict[str, Any]:
    """What the ledgers may be quoted for: the hypotheses that this module and the run's own code have checked."""
    from distadmm.privacy.accounting import scopes

    verified = [
        *("public-weight", "public-rows", "fresh-noise", "data-free-schedule", "own-parameters"),
        *("free-domain", "curvature-floor"),
    ]
    scope, own = "radmm", ["certified-solve", "one-signed-slope" if recipe.one_signed else "bounded-slope"]
    if recipe.mechanism == "output":
        scope, own = "radmm-output", ["bounded-gradient", "certified-gradient"]
    return scopes.claim(scope, [] if recipe.unverified else verified + own, tolerance=recipe.tolerance)


def _limits(config: Config, plan: Any, count: int) -> list[Filter | None]:
    """The filter of each node here, for its own schedule: nodes of other weights or degrees have another one."""
    privacy = config.privacy
    delta = privacy.delta if privacy.budget_delta is None else privacy.budget_delta
    if plan is None:
        require(
            privacy.budget_epsilon is None,
            "--budget-epsilon without noise: every release costs infinity; give --epsilon or --alpha",
        )
        return [None] * count
    asked = privacy.budget_epsilon, delta, cast("Adjacency", privacy.adjacency)
    filters = {each: each.limit(*asked) for each in set(plan.schedules)}
    return [filters[each] for each in plan.schedules]
